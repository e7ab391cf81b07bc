"""The scripts of workers as functions (as in acker/ledger/calls/scripts.py)."""

from collections.abc import Sequence

from acker.store.keys import Stream
from acker.store.operation import Request, Word, script


def lease(workers: bytes, reader: str, lease: int, ttl: int, new: bool, begun: str) -> Request:
    """Notes until when a worker counts as alive. lease: ms."""
    return script("lease", [workers], [reader, lease, ttl, int(new), begun])


def end_lease(workers: bytes, reader: str) -> Request:
    """Takes a worker whose time is over for dead."""
    return script("end_lease", [workers], [reader])


def note_uncommitted(workers: bytes, reader: str, begun: str, reason: bytes) -> Request:
    """Notes why what a worker has begun was not committed."""
    return script("note_uncommitted", [workers], [reader, begun, reason])


def take_over(
    stream: Stream,
    slot: int,
    reader: str,
    ttl: int,
    name: str,
    version: str,
    others: Sequence[str],
    tokens: Sequence[str],
    places: Sequence[tuple[int, str, str]],
) -> Request:
    """Gives a worker back what it has worked on. tokens, places: of each segment."""
    own = [stream.subscriptions, stream.returned(slot), stream.taken(slot, reader), stream.readers(slot)]
    own += [key for one in others for key in (stream.taken(slot, one), stream.bound(slot, one))]
    own += [stream.owed(token) for token in tokens]
    args: list[Word] = [slot, reader, ttl, name, version, len(others)]
    return script("take_over", own, [*args, *(word for one in places for word in one)])


def check_stream(stream: Stream, slots: Sequence[int], gather: bytes, fair: bytes, schema: str) -> Request:
    """Tells whether a stream is as it was looked at. schema: SHA-1 of it, or ""."""
    own = [stream.subscriptions, stream.schema]
    return script("check_stream", own, [",".join(map(str, slots)), gather, fair, schema])
