"""Looks at streams that a step emits to: what rows of theirs are, and for whom segments are staged."""

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
"""What a stream has at a time: its schema, as it is stored, and what its segments are staged for."""


def look_at(core: Core, streams: Collection[str]) -> Operation[dict[str, Look]]:
    """What streams have just now."""
    found = yield from abreast([look(core, stream) for stream in streams])
    return dict(zip(streams, found, strict=True))


def unchanged(core: Core, stream: str, seen: Look) -> Request:
    """A request that is answered 1 where a stream is as it was looked at, else 0."""
    schema, to = seen
    of = "" if schema is None else hashlib.sha1(schema, usedforsecurity=False).hexdigest()
    own = keys.Stream(core.config.name, stream)
    return lines_lua.check_stream(own, to.slots, to.gathering or b"", to.fair or b"", of)


def look(core: Core, stream: str) -> Operation[Look]:
    """What a stream has just now; it is among those of its topology from then on."""
    looks: list[Operation[Any]] = [schemas.enlist(core, stream), subscriptions.staged_for(core, stream)]
    stored, to = yield from abreast(looks)
    return stored, to
