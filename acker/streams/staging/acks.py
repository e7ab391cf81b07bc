"""Acks the tuples of a commit's inputs, or fails their trees, exactly once.

Terms: a tree is all that comes of one record; a segment is some thousand rows of a stream, stored and acked
as one piece; a vector has a number for each tree, the XOR of tuple ids.
"""

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa  # noqa: TID251 - rows travel as Arrow, from and to Spark and plain Python

from acker.ledger import ids
from acker.ledger.calls import encoding, idempotence, scripts, traces
from acker.ledger.calls.calls import Call
from acker.ledger.calls.core import Core
from acker.ledger.ids import Ids
from acker.ledger.outcomes import counts
from acker.store import keys
from acker.store.operation import Operation, command
from acker.store.records import passing_over
from acker.streams.log import segments, subscriptions
from acker.streams.log.segments import ANCHORS, Segment
from acker.streams.log.subscriptions import Delivery, Range
from acker.streams.staging import skipped, traced, vectors
from acker.streams.staging.skipped import NOTHING, Left, Skipped
from acker.streams.staging.vectors import CommitProgress, VectorKey

FLIGHT = 64
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Acked:
    """Counts of a range's acks.

    Attributes:
        segments: Segments that were acked.
        rows: Their rows.
        late: Acks for trees that were over.
        oldest: The time at which the first segment was published (ms).
    """

    segments: int = 0
    rows: int = 0
    late: int = 0
    oldest: int = 0

    def plus(self, segments: int = 0, late: int = 0) -> "Acked":
        """The counts with so many more."""
        return replace(self, segments=self.segments + segments, late=self.late + late)

    def with_members(self, members: Sequence[Delivery]) -> "Acked":
        """The counts with the rows and the time of a range's segments."""
        oldest = int(members[0].entry.split("-")[0]) if members else 0
        return replace(self, rows=sum(piece.segment.rows for piece in members), oldest=oldest)


def consume(core: Core, read_range: Range, failed: str | None = None) -> Operation[Acked]:
    """Acks the tuples of a range for its subscription, or fails their trees.

    The same call again changes nothing. The rows are kept until the next range of the reader is consumed:
    Spark may run a batch again until it has logged its end, and it logs that before it begins another batch.
    """
    left_out = yield from skipped.read(core, read_range)
    members = yield from subscriptions.all_delivered(core, read_range)
    yield from subscriptions.forget(core, replace(read_range, start=0, end=read_range.start))
    left_out = as_planned(core, read_range, members, left_out)
    segments = late = 0
    for first in range(0, len(members), FLIGHT):
        acked, came_late = yield from ack(
            core, read_range, members[first : first + FLIGHT], failed, left_out=left_out
        )
        segments, late = segments + acked, late + came_late
    return Acked(segments, late=late).with_members(members)


def as_planned(
    core: Core, read_range: Range, members: Sequence[Delivery], left_out: Skipped | None
) -> Skipped | None:
    """The rows that are left out of a range; None, which is logged, if nothing of it may be acked.

    This is so if the range is not the one that its batch was planned with, or its note is lost (`left_out` is
    None).
    """
    others = (
        read_range.planned and subscriptions.digest(piece.segment for piece in members) != read_range.planned
    )
    if not members or not (others or left_out is None):
        return left_out
    _log.error(
        "topology %s: the store has lost the segments that a batch took of stream %s, or its skipped rows: "
        "nothing that the batch read there is acked, and its trees expire",
        core.config.name,
        read_range.stream,
    )
    return None


@dataclass(frozen=True, slots=True)
class Parts:
    """Segments of an input, divided into acked and dropped ones.

    Attributes:
        read: Segments to ack.
        places: The keys of their vectors.
        left: Their trees that are not acked, by key.
        spent: The keys of the vectors of all other segments.
    """

    read: list[Segment]
    places: list[VectorKey]
    left: dict[bytes, Left]
    spent: list[bytes]

    @classmethod
    def divide(cls, core: Core, slot: int, members: Sequence[Segment], left_out: Skipped | None) -> "Parts":
        """Divides segments. left_out: rows that are not acked; None leaves out everything."""
        parts = cls([], [], {}, [])
        for segment in members:
            places = vectors.keys_of(core, segment, slot)
            if left_out is None or left_out.whole(segment.id):
                parts.spent.extend(key for key, _ in places)
                continue
            parts.read.append(segment)
            parts.places.extend(places)
            if segment.id in left_out.parts:
                parts.left.update((key, left_out.parts[segment.id]) for key, _ in places)
        return parts


def ack(
    core: Core,
    read_range: Range,
    pieces: Sequence[Delivery],
    failed: str | None = None,
    *,
    left_out: Skipped | None = NOTHING,
) -> Operation[tuple[int, int]]:
    """Acks the tuples of segments for the subscription of a range, or fails their trees.

    Args:
        core: The ledger.
        read_range: The range.
        pieces: Segments of the range.
        failed: The cause to fail the trees with; None acks the tuples.
        left_out: Rows that are not acked; None leaves out everything.

    Returns:
        The number of segments, and the number of acks for trees that were over.
    """
    members, late = [piece.segment for piece in pieces], 0
    if failed is None:
        parts = Parts.divide(core, read_range.slot, members, left_out)
        events = yield from traced.read_events(
            core, "acked", [(read_range.stream, one, read_range.slot) for one in parts.read], None
        )
        applied = yield from vectors.apply(core, parts.places, "2", left=parts.left)
        yield from traces.note(core, events)
        late = applied.late + applied.unknown
        yield from unlink(core, parts.spent)
    else:
        yield from fail_segments(core, read_range, members, failed)
    return (yield from subscriptions.note(core, read_range, pieces)), late


def rows(
    core: Core, stream: str, segment: Segment, slot: int, payload: bytes
) -> Operation[list[pa.RecordBatch]]:
    """The rows of a segment that are to be acked for a subscription; none if they cannot be read.

    An unreadable segment is counted, and loses its vectors: whatever is committed, its tuples are never
    acked, and its trees expire. Raises UnreadableRecord if the segment has no trees, because nothing would
    replay it, and if memory did not suffice.
    """
    if not segment.shards:
        return segments.decode_all(payload, segment.rows)
    with passing_over(core.config.name, f"segment {segment.id} of stream {stream}"):
        return segments.decode_all(payload, segment.rows)
    gone = yield from unlink(core, [key for key, _ in vectors.keys_of(core, segment, slot)])
    yield from counts.count_missing(core, bool(gone))
    return []


def fail_segments(
    core: Core,
    read_range: Range,
    members: Sequence[Segment],
    cause: str,
    progress: CommitProgress | None = None,
) -> Operation[None]:
    """Fails all trees that have rows in segments, then deletes the segments' vectors from the store.

    A failed tree needs no ack, so nothing reads its vectors again.

    Args:
        core: The ledger.
        read_range: Names the stream and the subscription of the segments.
        members: The segments.
        cause: The reason of all fails.
        progress: Work that the commit has done before.
    """
    for segment in members:
        [payload] = yield [
            command("GET", keys.Stream(core.config.name, read_range.stream).payload(segment.id))
        ]
        batches = []
        if payload is not None and segment.shards:
            batches = yield from rows(core, read_range.stream, segment, read_range.slot, payload)
        places = vectors.keys_of(core, segment, read_range.slot)
        if batches and ANCHORS in batches[0].schema.names:
            anchors = np.unique(segments.edges(pa.Table.from_batches(batches).column(ANCHORS))[0])
            yield from fail_once(core, places, anchors, [cause] * len(anchors), progress, needed=False)
        yield from unlink(core, [key for key, _ in places])


def fail_once(
    core: Core,
    places: Iterable[VectorKey],
    anchors: Ids,
    causes: Sequence[str],
    progress: CommitProgress | None = None,
    *,
    needed: bool = True,
) -> Operation[None]:
    """Fails trees, each with its cause (`acker.ledger.slabs.causes`, as text).

    The same call again changes nothing, however late it comes.

    Args:
        core: The ledger.
        places: The staged data of the trees, in each of their shards. It notes which calls were made. The
            caller deletes it after all calls.
        anchors: The trees.
        causes: A cause for each tree.
        progress: Notes the calls.
        needed: True if the commit acks its inputs only after these calls.
    """
    calls = fail_calls(core, places, anchors, causes, progress, needed=needed)
    yield from idempotence.submit(core, calls)
    texts = [cause.encode("utf-8", "replace") for cause in causes]
    yield from traces.note(
        core, traces.failed(core, anchors, texts, progress.by if progress is not None else None)
    )


def fail_calls(
    core: Core,
    places: Iterable[VectorKey],
    anchors: Ids,
    causes: Sequence[str],
    progress: CommitProgress | None = None,
    *,
    needed: bool = True,
) -> list[Call]:
    """The calls of `fail_once`."""
    if not core.config.ackers or not len(anchors):
        return []
    staged = {shard: key for key, shard in places}
    if progress is not None:
        progress.failed.update(ids.shards_of(ids.split(anchors)[0], core.config.ackers).tolist())
    calls: list[Call] = []
    for fail_call in encoding.fail_calls(
        anchors, [cause.encode("utf-8", "replace") for cause in causes], core.config.ackers
    ):
        if progress is not None:
            progress.needed[fail_call.shard] += needed
        shard, of = core.shards[fail_call.shard], staged[fail_call.shard]
        noted, by = (None, None) if progress is None else (progress.key(core, fail_call.shard), progress.by)
        stay = 0 if progress is None else progress.stay
        calls.append(
            scripts.fail(
                core.config, shard, fail_call, staged=of, applied=noted, number=len(calls), by=by, stay=stay
            )
        )
    return calls


def unlink(core: Core, spent: Iterable[bytes]) -> Operation[int]:
    """Deletes keys; returns how many there were."""
    return sum((yield [command("UNLINK", key) for key in spent]))
