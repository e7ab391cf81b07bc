"""The scripts of workers as functions (as in acker/ledger/calls/scripts.py).

Terms: a segment is some thousand rows of a stream, stored and acked as one piece.
"""

from collections.abc import Sequence

from acker.store.keys import Stream
from acker.store.operation import Request, Word, script


def lease(workers: bytes, reader: str, lease: int, ttl: int, new: bool, begun: str) -> Request:
    """Records the end of a worker's lease. lease: ms."""
    return script("lease", [workers], [reader, lease, ttl, int(new), begun])


def end_lease(workers: bytes, reader: str) -> Request:
    """Ends the lease of a dead worker."""
    return script("end_lease", [workers], [reader])


def note_uncommitted(workers: bytes, reader: str, begun: str, reason: bytes) -> Request:
    """Records why a worker's begun work was not committed."""
    return script("note_uncommitted", [workers], [reader, begun, reason])


def take_over(
    stream: Stream,
    slot: int,
    reader: str,
    ttl: int,
    name: str,
    version: str,
    others: Sequence[str],
    segment_ids: Sequence[str],
    places: Sequence[tuple[int, str, str]],
) -> Request:
    """Gives a worker back the segments taken from it. segment_ids, places: of each segment."""
    names = [
        stream.subscriptions,
        stream.returned(slot),
        stream.delivered(slot, reader),
        stream.readers(slot),
    ]
    names += [key for other in others for key in (stream.delivered(slot, other), stream.fences(slot, other))]
    names += [stream.unacked(segment_id) for segment_id in segment_ids]
    args: list[Word] = [slot, reader, ttl, name, version, len(others)]
    return script("take_over", names, [*args, *(word for place in places for word in place)])


def check_stream(stream: Stream, slots: Sequence[int], gather: bytes, fair: bytes, schema: str) -> Request:
    """Checks that a stream is unchanged since it was read. schema: SHA-1 of it, or ""."""
    own = [stream.subscriptions, stream.schema]
    return script("check_stream", own, [",".join(map(str, slots)), gather, fair, schema])
