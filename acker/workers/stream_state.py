"""The states of streams that a step emits to: their schemas, and the subscriptions to stage for.

Terms: a segment is some thousand rows of a stream, stored and acked as one piece.
"""

import hashlib
from collections.abc import Collection
from typing import Any, TypeAlias

from acker.ledger.calls.core import Core
from acker.store import keys
from acker.store.operation import Operation, Request, abreast
from acker.streams.log import schemas, subscriptions
from acker.streams.log.subscriptions import StagedFor
from acker.workers import scripts as lines_lua

Look: TypeAlias = tuple[bytes | None, StagedFor]
"""The state of a stream at a time: its stored schema, and the subscriptions of its segments."""


def look_at(core: Core, streams: Collection[str]) -> Operation[dict[str, Look]]:
    """Returns the present states of streams."""
    found = yield from abreast([look(core, stream) for stream in streams])
    return dict(zip(streams, found, strict=True))


def unchanged(core: Core, stream: str, seen: Look) -> Request:
    """Returns a request whose reply is 1 if a stream still has a state, otherwise 0."""
    schema, to = seen
    of = "" if schema is None else hashlib.sha1(schema, usedforsecurity=False).hexdigest()
    stream_keys = keys.Stream(core.config.name, stream)
    return lines_lua.check_stream(stream_keys, to.slots, to.gathering or b"", to.fair or b"", of)


def look(core: Core, stream: str) -> Operation[Look]:
    """Returns the present state of a stream, and adds the stream to its topology."""
    looks: list[Operation[Any]] = [schemas.enlist(core, stream), subscriptions.staged_for(core, stream)]
    stored, to = yield from abreast(looks)
    return stored, to
