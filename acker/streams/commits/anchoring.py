"""Anchoring check: staged rows must belong to trees that the batch has read.

A commit acks its inputs. A row that lost its anchors, or has other anchors than its input, is in no tree that
waits for it: its record would be acked before the row is processed. So the check runs before a commit is
stored, and refuses such a commit.

Terms: a tree is all that comes of one record; an anchor is the number of a tree; a slab is the trees that one
call tracked together; a segment is some thousand rows of a stream, stored and acked as one piece; a vector
has a number for each tree, the XOR of tuple ids; a slot is the random number of a subscription; roots are
rows of a spout that were staged together, and get a tree each; a chunk is a piece of a vector, applied by one
call; staged rows are stored, but nobody sees them before a commit.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa  # noqa: TID251 - rows travel as Arrow, from and to Spark and plain Python

from acker.errors import AckerError
from acker.ledger import ids
from acker.ledger.calls.core import Core
from acker.ledger.ids import Ids
from acker.ledger.slabs import sections
from acker.store import keys
from acker.store.operation import Operation, Reply, Request, abreast, command
from acker.store.records import passing_over, readable
from acker.streams.log import segments, subscriptions
from acker.streams.log.segments import ANCHORS, Segment
from acker.streams.log.subscriptions import Range
from acker.streams.sources.roots import Roots
from acker.streams.staging import results, staging, vectors
from acker.streams.staging.external.rows.sending import Sending
from acker.streams.staging.staging import Staged
from acker.streams.staging.vectors import NO_HEADS

_TOGETHER = 256
"""Staged vectors that are asked for together, if they are small."""
_READ_BYTES, _MOST_BYTES = 8 << 20, 1 << 20
"""Bytes of vectors that are asked for together, and of a vector of which only that is known."""
_CHUNKS = 64
_PARTS = ("counts", "indexes", "lengths", "vectors", "ones")
_SHARDS = 4
"""Shards that are checked together."""
_Out: TypeAlias = tuple[str, bytes, int]
"""The stream of staged rows, the key of their vector, and about its bytes."""


class _Read(NamedTuple):
    """A batch's input: segments, each with its stream and slot, roots, and trees of external rows.

    looks: Vectors of staged rows that were read before.
    """

    segments: Sequence[tuple[str, int, Segment]]
    roots: Sequence[Roots]
    trees: Ids
    looks: Mapping[bytes, Reply]


def check(
    core: Core, staged: Sequence[Staged], inputs: Sequence[Range | Roots], *, hint: str = "",
    untracked: bool = False, sent: Sequence[Sending] = (), received: Ids | None = None,
    looks: Mapping[bytes, Reply] = NO_HEADS,
) -> Operation[None]:  # fmt: skip
    """Raises AckerError if staged rows have no anchors, or are anchored to trees of no input.

    Takes memory for the trees of four shards.

    Args:
        core: The ledger.
        staged: The results of the batch's tasks.
        inputs: The ranges and roots that the batch has read.
        hint: A text that ends the error about rows without anchors.
        untracked: True if the batch has also read rows without trees.
        sent: Segments of external streams that the batch has sent.
        received: The trees of rows of external streams that the batch has received.
        looks: Replies to `look` for the vectors of sent segments, by key.

    Raises:
        ReaderFenced: An input no longer belongs to its reader, and a row seems to have no tree for that
            reason.
    """
    if not sent and not any(
        piece.segments or piece.failures or piece.results or piece.unfailed or piece.treeless
        for piece in staged
    ):
        return
    ranges = [item for item in inputs if isinstance(item, Range)]
    roots = [item for item in inputs if isinstance(item, Roots)]
    results_too = [one for piece in staged for one in piece.results]
    asked: list[Operation[Any]] = [subscriptions.all_delivered(core, item) for item in ranges]
    replies: list[Any] = yield from abreast(
        [*asked, _failing(core, staged), results.read_given(core, results_too)]
    )
    *taken, failing, giving = replies
    read = [
        (item.stream, item.slot, delivery.segment)
        for item, deliveries in zip(ranges, taken, strict=True)
        for delivery in deliveries
    ]
    gone = [item for item, part in zip(ranges, taken, strict=True) if not part and item.end > item.start]
    trees = np.zeros(0, dtype=np.int64) if received is None else received
    if any(segment.shards for _, _, segment in read) or any(item.rows for item in roots) or len(trees):
        _check_anchored(staged, hint)
        if any(piece.treeless for piece in staged) and not untracked:
            some = yield from _some_treeless(core, read)
            if not some:
                _refuse_treeless(staged)
    try:
        all_read, given = _Read(read, roots, trees, looks), np.array(giving, dtype=np.int64)
        yield from _check_trees(core, staged, all_read, failing, given, sent)
    except AckerError:
        if not gone:
            raise
        raise subscriptions.fenced(gone[-1].stream, gone[-1].reader) from None


def _check_trees(
    core: Core, staged: Sequence[Staged], read: _Read, failing: Ids, giving: Ids, sent: Sequence[Sending]
) -> Operation[None]:
    """Checks that the trees of staged rows are trees that were read, a few shards at a time.

    Rows that wait to gather belong to the requests whose rows were read, and a request's trees lie in any
    shards.
    """
    ackers = core.config.ackers
    out: list[list[_Out]] = [[] for _ in range(ackers)]
    gathering: list[_Out] = []
    for piece in staged:
        for segment in piece.segments:
            for shard in segment.shards if segment.slots else ():
                key = core.shards[shard].staged(segment.id, segment.slots[0])
                place = piece.stream, key, _MOST_BYTES
                (gathering if segment.to else out[shard]).append(place)
    for sending in sent:
        for segment, _ in sending.segments:
            for shard in segment.shards if segment.slots else ():
                key = core.shards[shard].staged(segment.id, segment.slots[0])
                out[shard].append((sending.stream, key, segment.bytes))
    checks = []
    for shard in range(ackers):
        others = {
            what: _of_shard(anchors, shard, ackers)
            for what, anchors in (("to be failed", failing), ("that give results", giving))
        }
        if out[shard] or gathering or any(len(anchors) for anchors in others.values()):
            checks.append(_check_shard(core, shard, read, out[shard], others))
    parts: list[Ids | None] = []
    for first in range(0, len(checks), _SHARDS):
        parts += yield from abreast(checks[first : first + _SHARDS])
    requests = [sections.within(trees, 1) for trees in parts if trees is not None]
    if gathering and len(requests) == len(parts):
        emitted = yield from _read(core, [(key, size) for _, key, size in gathering])
        _check_out(
            np.sort(np.concatenate(requests)), gathering, emitted, lambda chunk: sections.within(chunk, 1)
        )


def _check_anchored(staged: Sequence[Staged], hint: str) -> None:
    for piece in staged:
        if piece.unfailed:
            raise AckerError(
                f"{piece.unfailed:,} rows to be failed have null in their column {ANCHORS}, so their trees "
                "are unknown: nothing was committed. Keep the column as it came"
            )
        if piece.unanchored:
            raise AckerError(
                f"{piece.unanchored:,} rows for stream {piece.stream!r} have no anchors, but the batch acks "
                "rows that have. They would be acked unprocessed, so nothing was committed. "
                f"Keep the column {ANCHORS} (acker.spark.anchors joins several and skips nulls), or pass "
                f"anchored=False if the rows need no tree{hint}"
            )


def _refuse_treeless(staged: Sequence[Staged]) -> None:
    for piece in staged:
        if piece.treeless:
            where = f"for stream {piece.stream!r}" if piece.stream else "to be failed"
            raise AckerError(
                f"{piece.treeless:,} rows {where} have 0 in their column {ANCHORS} (no tree), but each row "
                "that the batch has read has a tree, and the batch acks it. They would be acked unprocessed, "
                "so nothing was committed. Keep the column as it came (acker.spark.anchors joins several and "
                "skips nulls), or pass anchored=False if the rows need no tree"
            )


def _some_treeless(core: Core, read: Sequence[tuple[str, int, Segment]]) -> Operation[bool]:
    """Return True if a row of the segments has no tree, or a payload is gone. Reads one payload at a time."""
    if any(not segment.shards for _, _, segment in read):
        return True
    for stream, _, segment in read:
        place = keys.Stream(core.config.name, stream).payload(segment.id)
        [payload] = yield [command("GET", place)]
        if payload is None:  # acked meanwhile
            return True
        for column in _columns(payload):
            if segments.unanchored(column) or segments.treeless(column):
                return True
    return False


def _failing(core: Core, staged: Sequence[Staged]) -> Operation[Ids]:
    """The trees that the batch staged to be failed."""
    parts = [np.zeros(0, dtype=np.int64)]
    for staged_id in (staged_id for piece in staged for staged_id in piece.failures):
        failed = yield from staging.failures(core, staged_id)
        if failed is not None:
            parts.append(segments.edges(failed.column(ANCHORS))[0])
    return np.concatenate(parts)


def _check_shard(
    core: Core, shard: int, read: _Read, out: Sequence[_Out], others: Mapping[str, Ids]
) -> Operation[Ids | None]:
    """Checks the staged rows of a shard; returns the trees in it that the batch has read."""
    asked: list[Operation[Any]] = [
        _trees_read(core, shard, read),
        _read(core, [(key, size) for _, key, size in out], read.looks),
    ]
    trees, emitted = yield from abreast(asked)
    if trees is not None:
        for what, anchors in others.items():
            _check_known(trees, anchors, what)
        _check_out(trees, out, emitted)
    return trees  # type: ignore[no-any-return]


def _check_out(
    trees: Ids,
    out: Sequence[_Out],
    emitted: Sequence[Sequence[Ids] | None],
    known_as: Callable[[Ids], Ids] = lambda chunk: chunk,
) -> None:
    for (stream, _, _), anchors in zip(out, emitted, strict=True):
        for chunk in anchors or ():
            _check_known(trees, known_as(chunk), f"for stream {stream!r}")


def _trees_read(core: Core, shard: int, read: _Read) -> Operation[Ids | None]:
    """The trees in a shard that a batch has read, sorted; None if some of its input is gone.

    This commit never acks an input that is gone, so no tree looks complete.
    """
    parts = [_trees(item, shard, core.config.ackers) for item in read.roots]
    parts.append(_of_shard(read.trees, shard, core.config.ackers))
    here = [item for item in read.segments if shard in item[2].shards]
    staged = [(core.shards[shard].staged(segment.id, slot), _MOST_BYTES) for _, slot, segment in here]
    found = yield from _read(core, staged)
    unknown = False
    for (stream, _, segment), anchors in zip(here, found, strict=True):
        if anchors is None:  # acked meanwhile, or it could not be read
            [payload] = yield [command("GET", keys.Stream(core.config.name, stream).payload(segment.id))]
            unknown = unknown or payload is None
            anchors = [] if payload is None else [_of_shard(_anchors_of(payload), shard, core.config.ackers)]
        parts += anchors
    # The parts are mostly sorted, and this sort is ten times faster for such input.
    trees = np.sort(np.concatenate(parts), kind="stable") if parts else np.zeros(0, dtype=np.int64)
    return None if unknown else trees


def _check_known(trees: Ids, anchors: Ids, rows: str) -> None:
    """Raises AckerError for anchors that are not among the trees, which are sorted."""
    places = np.searchsorted(trees, anchors)
    places[places == len(trees)] = 0
    strange = anchors[trees[places] != anchors] if len(trees) else anchors
    if len(strange):
        raise AckerError(
            f"rows {rows} are anchored to {len(np.unique(strange)):,} trees that the batch has not read, "
            f"among them {strange[0]}: nothing was committed. The anchors were changed on the way, or come "
            "from rows of another batch. Hand them on as they came; acker.spark.anchors joins several and "
            "skips nulls"
        )


def look(key: bytes) -> Request:
    """A request for the head of staged vectors, and for their first chunk: most have no other."""
    return command("HMGET", key, *vectors.HEAD, *(f"{name}:0" for name in _PARTS))


def _read(
    core: Core, places: Sequence[tuple[bytes, int]], looks: Mapping[bytes, Reply] = NO_HEADS
) -> Operation[list[list[Ids] | None]]:
    """The trees of staged vectors (lua/streams/staging/stage.lua), a part for each chunk.

    A vector that is gone has None. A few vectors are read at a time, by about their bytes. looks: replies to
    `look`.
    """
    trees: list[list[Ids] | None] = []
    part, size = list[bytes](), 0
    for key, vector_bytes in places:
        if part and (len(part) == _TOGETHER or size + vector_bytes > _READ_BYTES):
            trees += yield from _read_few(core, part, looks)
            part, size = [], 0
        part.append(key)
        size += vector_bytes
    if part:
        trees += yield from _read_few(core, part, looks)
    return trees


def _read_few(
    core: Core, places: Sequence[bytes], looks: Mapping[bytes, Reply]
) -> Operation[list[list[Ids] | None]]:
    asked = [key for key in places if key not in looks]
    read = dict(zip(asked, (yield [look(key) for key in asked]) if asked else (), strict=True))
    replies = [read[key] if key in read else looks[key] for key in places]
    trees: list[list[Ids] | None] = [None if reply[0] is None else [] for reply in replies]
    waiting: list[tuple[int, bytes, int, list[bytes]]] = []
    for place, (key, reply) in enumerate(zip(places, replies, strict=True)):
        head, parts = reply[: len(vectors.HEAD)], reply[len(vectors.HEAD) :]
        if head[0] is not None:
            chunks = readable(partial(vectors.chunks, key), head, core.config.name)
            if chunks is None:
                trees[place] = None
                continue
            for number, (_, slabs) in enumerate(chunks):
                if number:
                    waiting.append((place, key, number, slabs))
                else:
                    _add_chunk(trees, place, slabs, parts)
    for first in range(0, len(waiting), _CHUNKS):
        part = waiting[first : first + _CHUNKS]
        replies = yield [
            command("HMGET", key, *(f"{name}:{number}" for name in _PARTS)) for _, key, number, _ in part
        ]
        for (place, _, _, slabs), reply in zip(part, replies, strict=True):
            _add_chunk(trees, place, slabs, reply)
    return trees


def _add_chunk(trees: list[list[Ids] | None], place: int, slabs: Sequence[bytes], reply: Reply) -> None:
    parts = trees[place]
    if parts is not None:
        try:
            parts.append(_chunk(slabs, reply))
        except (TypeError, ValueError):  # damaged, or acked meanwhile
            trees[place] = None


def _chunk(slabs: Sequence[bytes], reply: Reply) -> Ids:
    """The trees of a chunk of vectors: trees that an index or a word stands for, and slabs of one.

    Raises ValueError where parts of it are missing. Empty ones are not stored.
    """
    counts, indexes, lengths, words, ones = (part or b"" for part in reply)
    names = np.frombuffer(b"".join(slabs), dtype=">i8").astype(np.int64)
    several, extents = (np.frombuffer(one, dtype="<u2").astype(np.int64) for one in (counts, lengths))
    sparse, dense = len(several), len(several) + len(extents)
    if dense + len(ones) // 8 != len(names):
        raise ValueError(f"{len(names)} slabs")
    paired = (
        np.repeat(names[:sparse], several)
        + ids.STEP * np.frombuffer(indexes, dtype="<u2").astype(np.int64)
        + 1
    )
    touched = np.flatnonzero(np.frombuffer(words, dtype="<i8"))
    starts = np.cumsum(extents) - extents
    long = (np.repeat(names[sparse:dense] - ids.STEP * starts, extents))[touched] + ids.STEP * touched + 1
    return np.concatenate((paired, long, names[dense:]))


def _trees(roots: Roots, shard: int, ackers: int) -> Ids:
    """The trees of roots in a shard, to which their rows are anchored."""
    slabs = roots.slabs(1)
    here = ids.shards_of(ids.split(slabs)[0], ackers) == shard
    sizes = np.full(len(slabs), roots.slab, dtype=np.int64)
    sizes[-1:] = roots.rows - roots.slab * (len(slabs) - 1)
    slabs, sizes = slabs[here], sizes[here]
    starts = np.cumsum(sizes) - sizes
    return np.repeat(slabs - ids.STEP * starts, sizes) + ids.STEP * np.arange(
        int(sizes.sum()), dtype=np.int64
    )


def _of_shard(anchors: Ids, shard: int, ackers: int) -> Ids:
    here: Ids = np.flatnonzero(ids.shards_of(ids.split(anchors)[0], ackers) == shard)
    return anchors[here]


def _anchors_of(payload: bytes) -> Ids:
    parts = (segments.edges(column)[0] for column in _columns(payload))
    found: Ids = np.concatenate([np.zeros(0, dtype=np.int64), *parts])
    return found


def _columns(payload: bytes) -> Iterator[pa.Array]:
    with passing_over("staged rows"):
        for batch in segments.decode(payload):
            if ANCHORS in batch.schema.names:
                yield batch.column(ANCHORS)
