"""Rotation of the keys that seal the stamps of external streams.

Two keys of a stream are accepted, so rows under way keep theirs. A further rotation drops the older of the
two: it is refused while segments of that key are open.

Terms: a segment is the rows of an external stream that one sender stamped together.
"""

import secrets
from collections.abc import Sequence
from typing import Literal, TypeAlias

import redis

from acker.errors import AckerError, TopologyInUse, UnknownStream
from acker.ledger.calls.core import Core
from acker.store import keys
from acker.store.operation import Operation, command
from acker.streams.log import kinds
from acker.streams.staging.external import scripts

How: TypeAlias = Literal["", "count", "force"]


def rotate(core: Core, *, force: bool = False) -> Operation[dict[str, int]]:
    """Gives each external stream of a topology a new key.

    Returns:
        By stream, the number of open segments whose stamps are no longer accepted: 0 without `force`.

    Raises:
        TopologyInUse: Segments of the key before are open, and `force` is False. No key has changed.
    """
    streams = yield from _external(core)
    if not force:
        counts = dict[str, int]()
        for stream in streams:
            counts[stream] = yield from _rotate(core, stream, "count")
        if any(counts.values()):
            raise _in_use(core, {stream: count for stream, count in counts.items() if count})
    open_segments = dict[str, int]()
    for stream in streams:
        open_segments[stream] = yield from _rotate(core, stream, "force" if force else "")
    return open_segments


def _external(core: Core) -> Operation[Sequence[str]]:
    name = core.config.name
    [found] = yield [command("SMEMBERS", keys.streams(name))]
    streams = sorted(one.decode("utf-8", "replace") for one in found)
    replies = yield [command("HEXISTS", keys.Stream(name, one).subscriptions, kinds.FIELD) for one in streams]
    return [stream for stream, external in zip(streams, replies, strict=True) if external]


def _rotate(core: Core, stream: str, how: How) -> Operation[int]:
    stream_keys = keys.Stream(core.config.name, stream)
    [number] = yield [command("HGET", stream_keys.subscriptions, kinds.FIELD)]
    key, start, count, rotated = secrets.token_hex(32), "-", 0, False
    while True:
        [reply] = yield [scripts.rotate_key(stream_keys, number or b"", key, start, count, how)]
        if isinstance(reply, redis.ResponseError):
            if str(reply) == "ACKER UNKNOWN":
                raise UnknownStream(f"the topology no longer holds the external stream {stream!r}")
            raise AckerError(
                f"stream {stream!r}: another program rotates its key: this one has changed nothing"
            )
        count, last, rotated = int(reply[0]), reply[1], bool(reply[2])
        if not last:
            break
        start = f"({last.decode()}"
    if count and not rotated and how == "":
        raise _in_use(core, {stream: count})
    return count


def _in_use(core: Core, counts: dict[str, int]) -> TopologyInUse:
    named = ", ".join(f"{stream} {count:,}" for stream, count in list(counts.items())[:5])
    return TopologyInUse(
        f"topology {core.config.name!r} has open segments whose stamps have the key before the present one: "
        f"{named}. A further rotation makes their rows foreign, and their records expire: let their "
        "consumers finish them, or add --force"
    )
