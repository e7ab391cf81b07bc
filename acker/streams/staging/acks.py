"""What a commit does with its inputs: their tuples are acked, or their trees failed, once."""

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa  # noqa: TID251 - rows travel as Arrow, from and to Spark and plain Python

from acker.errors import UnreadableRecord
from acker.ledger.calls import encoding, idempotence, scripts, traces
from acker.ledger.calls.calls import Call
from acker.ledger.calls.core import Core
from acker.ledger.ids import Ids
from acker.ledger.outcomes import counts
from acker.store import keys
from acker.store.operation import Operation, command
from acker.streams.log import segments, subscriptions
from acker.streams.log.segments import ANCHORS, Segment
from acker.streams.log.subscriptions import Range, Taken
from acker.streams.staging import skipped, traced, vectors
from acker.streams.staging.skipped import NOTHING, Left, Skipped
from acker.streams.staging.vectors import Made, VectorKey

FLIGHT = 64
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Acked:
    """Numbers of acks. late: of trees that were over; oldest: when the first segment was published (ms)."""

    segments: int = 0
    rows: int = 0
    late: int = 0
    oldest: int = 0

    def plus(self, segments: int = 0, late: int = 0) -> "Acked":
        """With so many more."""
        return replace(self, segments=self.segments + segments, late=self.late + late)

    def of(self, found: Sequence[Taken]) -> "Acked":
        """The same, of those segments."""
        oldest = int(found[0].entry.split("-")[0]) if found else 0
        return replace(self, rows=sum(piece.segment.rows for piece in found), oldest=oldest)


def consume(core: Core, what: Range, failed: str | None = None) -> Operation[Acked]:
    """Acks the tuples of a range for its subscription, or fails their trees.

    The same again changes nothing. The rows are kept until the next range of the reader is consumed: Spark
    may run a batch again until it has logged that it is done, and it has before it begins another.
    """
    left_out = yield from skipped.read(core, what)
    found = yield from subscriptions.all_taken(core, what)
    yield from subscriptions.forget(core, replace(what, start=0, end=what.start))
    left_out = as_planned(core, what, found, left_out)
    segments = late = 0
    for first in range(0, len(found), FLIGHT):
        acked, came_late = yield from ack(
            core, what, found[first : first + FLIGHT], failed, left_out=left_out
        )
        segments, late = segments + acked, late + came_late
    return Acked(segments, late=late).of(found)


def as_planned(core: Core, what: Range, found: Sequence[Taken], left_out: Skipped | None) -> Skipped | None:
    """What is left out of a range; None, which is logged, where all is.

    It is not what its batch was planned with.

    left_out: as it was noted, None where that was lost.
    """
    others = what.planned and subscriptions.digest(piece.segment for piece in found) != what.planned
    if not found or not (others or left_out is None):
        return left_out
    _log.error(
        "%s: the store has lost what a batch took of stream %s, or left out of that: nothing that it "
        "read there is acked, and its trees expire",
        core.config.name,
        what.stream,
    )
    return None


@dataclass(frozen=True, slots=True)
class Parts:
    """Segments by what becomes of them. read: those that are acked, and places: where they have vectors.

    left: which trees of these are not acked. spent: keys of the vectors of all others.
    """

    read: list[Segment]
    places: list[VectorKey]
    left: dict[bytes, Left]
    spent: list[bytes]

    @classmethod
    def of(cls, core: Core, slot: int, members: Sequence[Segment], left_out: Skipped | None) -> "Parts":
        """Divides segments. left_out: what is not acked though it goes with the others; None: everything."""
        found = cls([], [], {}, [])
        for segment in members:
            own = vectors.keys_of(core, segment, slot)
            if left_out is None or left_out.whole(segment.token):
                found.spent.extend(key for key, _ in own)
                continue
            found.read.append(segment)
            found.places.extend(own)
            if segment.token in left_out.parts:
                found.left.update((key, left_out.parts[segment.token]) for key, _ in own)
        return found


def ack(
    core: Core,
    what: Range,
    pieces: Sequence[Taken],
    failed: str | None = None,
    *,
    left_out: Skipped | None = NOTHING,
) -> Operation[tuple[int, int]]:
    """Acks the tuples of segments for the subscription of a range, or fails their trees.

    left_out: as of `Parts.of`. Returns of how many segments, and how many acks were for trees that were over.
    """
    members, late = [piece.segment for piece in pieces], 0
    if failed is None:
        parts = Parts.of(core, what.slot, members, left_out)
        events = yield from traced.look(
            core, "acked", [(what.stream, one, what.slot) for one in parts.read], None
        )
        applied = yield from vectors.apply(core, parts.places, "2", left=parts.left)
        yield from traces.note(core, events)
        late = applied.late + applied.unknown
        yield from unlink(core, parts.spent)
    else:
        yield from fail_segments(core, what, members, failed)
    return (yield from subscriptions.note(core, what, pieces)), late


def rows(
    core: Core, stream: str, segment: Segment, slot: int, payload: bytes
) -> Operation[list[pa.RecordBatch]]:
    """The rows of a segment that are to be acked for a subscription; none where they cannot be read.

    Such a segment is counted, and loses its vectors: whatever is committed, its tuples are never
    acked, and its trees expire. Raises UnreadableRecord for one without trees, which nobody would replay, and
    where memory did not suffice.
    """
    try:
        found = list(segments.decode(payload))
        count = sum(batch.num_rows for batch in found)
        if count != segment.rows:  # Arrow takes a stream that is cut between two batches for a whole one
            raise UnreadableRecord(f"{count:,} rows of a segment, not {segment.rows:,}")
        return found
    except UnreadableRecord as error:
        if not segment.shards or isinstance(error.__cause__, MemoryError):
            raise
        gone = yield from unlink(core, [key for key, _ in vectors.keys_of(core, segment, slot)])
        yield from counts.pass_over(core, f"segment {segment.token} of stream {stream}", bool(gone))
        return []


def fail_segments(
    core: Core, what: Range, members: Sequence[Segment], cause: str, made: Made | None = None
) -> Operation[None]:
    """Fails all trees that segments have tuples of; their vectors are of no use after that."""
    for segment in members:
        [payload] = yield [command("GET", keys.Stream(core.config.name, what.stream).payload(segment.token))]
        found = []
        if payload is not None and segment.shards:
            found = yield from rows(core, what.stream, segment, what.slot, payload)
        places = vectors.keys_of(core, segment, what.slot)
        if found and ANCHORS in found[0].schema.names:
            anchors = np.unique(segments.edges(pa.Table.from_batches(found).column(ANCHORS))[0])
            yield from fail_once(core, places, anchors, [cause] * len(anchors), made, needed=False)
        yield from unlink(core, [key for key, _ in places])


def fail_once(
    core: Core,
    places: Iterable[VectorKey],
    anchors: Ids,
    causes: Sequence[str],
    made: Made | None = None,
    *,
    needed: bool = True,
) -> Operation[None]:
    """Fails trees, each for its cause (`acker.ledger.slabs.causes`, as text).

    made: notes it. needed: counts how much that is, for the inputs are acked after it.
    places: what is staged of the trees, in each of their shards; it notes which calls were made, and the
    caller deletes it when all were. So the same again changes nothing, however late it comes.
    """
    calls = failing(core, places, anchors, causes, made, needed=needed)
    yield from idempotence.submit(core, calls)
    texts = [cause.encode("utf-8", "replace") for cause in causes]
    yield from traces.note(core, traces.failed(core, anchors, texts, made.by if made is not None else None))


def failing(
    core: Core,
    places: Iterable[VectorKey],
    anchors: Ids,
    causes: Sequence[str],
    made: Made | None = None,
    *,
    needed: bool = True,
) -> list[Call]:
    """The calls of `fail_once`."""
    if not core.config.ackers or not len(anchors):
        return []
    staged = {shard: key for key, shard in places}
    calls: list[Call] = []
    for what in encoding.fail_calls(
        anchors, [cause.encode("utf-8", "replace") for cause in causes], core.config.ackers
    ):
        if made is not None:
            made.needed[what.shard] += needed
        shard, of = core.shards[what.shard], staged[what.shard]
        noted, by = (None, None) if made is None else (made.key(core, what.shard), made.by)
        call = scripts.fail(core.config, shard, what, staged=of, made=noted, number=len(calls), by=by)
        calls.append(call)
    return calls


def unlink(core: Core, spent: Iterable[bytes]) -> Operation[int]:
    """Deletes keys; returns how many there were."""
    return sum((yield [command("UNLINK", key) for key in spent]))
