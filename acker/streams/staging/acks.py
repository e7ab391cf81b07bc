"""What a commit does with its inputs: their tuples are acked, or their trees failed, once."""

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa  # noqa: TID251 - rows travel as Arrow, from and to Spark and plain Python

from acker.errors import UnreadableRecord
from acker.ledger.calls import encoding, idempotence, scripts, traces
from acker.ledger.calls.calls import Call
from acker.ledger.calls.core import Core
from acker.ledger.ids import Ids
from acker.ledger.outcomes import counts
from acker.store import keys
from acker.store.operation import Operation, Reply, abreast, command
from acker.streams.log import segments, subscriptions
from acker.streams.log.segments import ANCHORS, Segment
from acker.streams.log.subscriptions import Range, Taken
from acker.streams.staging import skipped, traced, vectors
from acker.streams.staging.skipped import NOTHING, Left, Skipped
from acker.streams.staging.vectors import Made, VectorKey

_FLIGHT = 64
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Acked:
    """Numbers of acks. late: of trees that were over; oldest: when the first segment was published (ms)."""

    segments: int = 0
    rows: int = 0
    late: int = 0
    oldest: int = 0


def consume(
    core: Core,
    what: Range,
    failed: str | None = None,
    made: Made | None = None,
    expected: Sequence[Segment] = (),
) -> Operation[Acked]:
    """Acks the tuples of a range for its subscription, or fails their trees.

    made: by the commit that they are acked with. expected: what the range has, as far as that is known.

    The same again changes nothing. The rows are kept until the next range of the reader is consumed: Spark
    may run a batch again until it has logged that it is done, and it has before it begins another.
    """
    left_out = yield from skipped.read(core, what)
    found, heads = list[Taken](), dict[bytes, Reply]()
    yield from abreast(
        [
            _look(core, what, found),
            subscriptions.forget(core, Range(what.stream, what.slot, what.reader, 0, what.start)),
            _look_at_vectors(core, what, expected[:_FLIGHT], heads),
        ]
    )
    others = what.planned and subscriptions.digest(piece.segment for piece in found) != what.planned
    if found and (others or left_out is None):
        left_out = None
        _log.error(
            "%s: the store has lost what a batch took of stream %s, or left out of that: nothing that it "
            "read there is acked, and its trees expire",
            core.config.name,
            what.stream,
        )
    segments = late = 0
    for first in range(0, len(found), _FLIGHT):
        part = found[first : first + _FLIGHT]
        acked, came_late = yield from ack(core, what, part, failed, made, left_out, heads)
        segments, late = segments + acked, late + came_late
    rows = sum(piece.segment.rows for piece in found)
    oldest = int(found[0].entry.split("-")[0]) if found else 0
    return Acked(segments, rows, late, oldest)


def _look(core: Core, what: Range, found: list[Taken]) -> Operation[None]:
    found += yield from subscriptions.all_taken(core, what)


def _look_at_vectors(
    core: Core, what: Range, members: Sequence[Segment], heads: dict[bytes, Reply]
) -> Operation[None]:
    asked = [key for one in members for key, _ in vectors.keys_of(core, one, what.slot)]
    replies = (yield [vectors.head(key) for key in asked]) if asked else []
    heads |= dict(zip(asked, replies, strict=True))


def ack(
    core: Core,
    what: Range,
    pieces: Sequence[Taken],
    failed: str | None = None,
    made: Made | None = None,
    left_out: Skipped | None = NOTHING,
    heads: Mapping[bytes, Reply] = vectors.NO_HEADS,
) -> Operation[tuple[int, int]]:
    """Acks the tuples of segments for the subscription of a range, or fails their trees.

    left_out: what is not acked though it goes with the range; None: everything. heads: as of `vectors.apply`.
    Returns of how many segments,
    and how many acks were for trees that were over.
    """
    members, late = [piece.segment for piece in pieces], 0
    if failed is None:
        read = [one for one in members if left_out is not None and not left_out.whole(one.token)]
        left, emitted = dict[bytes, Left](), list[VectorKey]()
        for segment in read:
            own_places = vectors.keys_of(core, segment, what.slot)
            emitted += own_places
            if left_out is not None and segment.token in left_out.parts:
                left |= {key: left_out.parts[segment.token] for key, _ in own_places}
        own = [(what.stream, segment, what.slot) for segment in read]
        events = yield from traced.look(core, "acked", own, made.by if made is not None else None)
        applied = yield from vectors.apply(core, emitted, "2", made, left, heads=heads)
        yield from traces.note(core, events)
        late = applied.late + applied.unknown
        unread = [one for one in members if one not in read]
        yield from unlink(core, [key for one in unread for key, _ in vectors.keys_of(core, one, what.slot)])
    else:
        yield from fail_segments(core, what, members, failed, made)
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
    if not core.config.ackers or not len(anchors):
        return
    staged = {shard: key for key, shard in places}
    calls: list[Call] = []
    texts = [cause.encode("utf-8", "replace") for cause in causes]
    for what in encoding.fail_calls(anchors, texts, core.config.ackers):
        if made is not None:
            made.needed[what.shard] += needed
        shard, of = core.shards[what.shard], staged[what.shard]
        noted, by = (None, None) if made is None else (made.key(core, what.shard), made.by)
        call = scripts.fail(core.config, shard, what, staged=of, made=noted, number=len(calls), by=by)
        calls.append(call)
    yield from idempotence.submit(core, calls)
    yield from traces.note(core, traces.failed(core, anchors, texts, made.by if made is not None else None))


def unlink(core: Core, spent: Iterable[bytes]) -> Operation[int]:
    """Deletes keys; returns how many there were."""
    return sum((yield [command("UNLINK", key) for key in spent]))
