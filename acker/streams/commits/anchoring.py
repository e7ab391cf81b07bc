"""Whether what a batch stages belongs to what the batch has read: checked before its commit is stored.

A commit acks its inputs. A row that lost its anchors on the way, or has others than it came with, is in no
tree that waits for it: so its record would be acked before the row is processed. That is refused here.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TypeAlias

import numpy as np
import pyarrow as pa  # noqa: TID251 - rows travel as Arrow, from and to Spark and plain Python

from acker.errors import AckerError, UnreadableRecord
from acker.ledger import ids
from acker.ledger.calls.core import Core
from acker.ledger.ids import Ids
from acker.ledger.slabs import sections
from acker.store import keys
from acker.store.operation import Operation, Reply, command
from acker.store.records import readable
from acker.streams.log import segments, subscriptions
from acker.streams.log.segments import ANCHORS, Segment
from acker.streams.log.subscriptions import Range
from acker.streams.sources.roots import Roots
from acker.streams.staging import results, staging, vectors
from acker.streams.staging.staging import Staged

_KEYS = 8
"""Staged vectors that are asked for together: each has some megabytes at most."""
_CHUNKS = 64
_PARTS = ("counts", "indexes", "lengths", "vectors")
_Input: TypeAlias = tuple[str, int, Segment]
"""Stream, slot and segment."""


def check(
    core: Core, staged: Sequence[Staged], inputs: Sequence[Range | Roots], *, hint: str = "",
    untracked: bool = False,
) -> Operation[None]:  # fmt: skip
    """Raises AckerError where rows that were staged are not anchored, or to trees that no input has.

    ReaderFenced, where that is because an input is not its reader's any more.
    hint: what the message says besides of rows without anchors. untracked: rows that have no tree were read
    besides of the inputs. Takes memory for the trees of one shard.
    """
    if not any(
        piece.segments or piece.failures or piece.results or piece.unfailed or piece.treeless
        for piece in staged
    ):
        return
    read: list[_Input] = []
    gone: Range | None = None
    for one in inputs:
        if isinstance(one, Range):
            found = yield from _members(core, one)
            if not found and one.end > one.start:
                gone = one
            read += found
    roots = [one for one in inputs if isinstance(one, Roots)]
    if any(segment.shards for _, _, segment in read) or any(one.rows for one in roots):
        _check_anchored(staged, hint)
        if any(piece.treeless for piece in staged) and not untracked:
            some = yield from _some_treeless(core, read)
            if not some:
                _refuse_treeless(staged)
    try:
        yield from _check_trees(core, staged, read, roots)
    except AckerError:
        if gone is None:
            raise
        raise subscriptions.fenced(gone.stream, gone.reader) from None


def _check_trees(
    core: Core, staged: Sequence[Staged], read: Sequence[_Input], roots: Sequence[Roots]
) -> Operation[None]:
    """Checks that what was staged is of trees that were read."""
    failing = yield from _failing(core, staged)
    results_too = [one for piece in staged for one in piece.results]
    giving = np.array((yield from results.given(core, results_too)), dtype=np.int64)
    for shard in range(core.config.ackers):
        out = [
            (piece.stream, core.shards[shard].staged(segment.token, segment.slots[0]))
            for piece in staged
            for segment in piece.segments
            if shard in segment.shards and segment.slots and not segment.to
        ]
        others = {
            what: _of_shard(anchors, shard, core.config.ackers)
            for what, anchors in (("to be failed", failing), ("that give results", giving))
        }
        if out or any(len(anchors) for anchors in others.values()):
            yield from _check_shard(core, shard, read, roots, out, others)
    yield from _check_gathering(core, staged, read, roots)


def _check_gathering(
    core: Core, staged: Sequence[Staged], read: Sequence[_Input], roots: Sequence[Roots]
) -> Operation[None]:
    """Checks rows that wait to gather: they are of the requests whose rows were read.

    A request's trees lie in any shards.
    """
    members = [
        (piece.stream, core.shards[shard].staged(segment.token, segment.slots[0]))
        for piece in staged
        for segment in piece.segments
        if segment.to and segment.slots
        for shard in segment.shards
    ]
    if not members:
        return
    parts = []
    for shard in range(core.config.ackers):
        trees = yield from _trees_read(core, shard, read, roots)
        if trees is None:
            return
        parts.append(sections.within(trees, 1))
    yield from _check_out(core, np.sort(np.concatenate(parts)), members, gathering=True)


def _check_anchored(staged: Sequence[Staged], hint: str) -> None:
    for piece in staged:
        if piece.unfailed:
            raise AckerError(
                f"{piece.unfailed:,} rows are to be failed, and have null in their column {ANCHORS}: nobody "
                "knows which trees they are of. Keep the column as it came"
            )
        if piece.unanchored:
            raise AckerError(
                f"{piece.unanchored:,} rows for stream {piece.stream!r} have no anchors, though the batch "
                "has read rows with trees, and acks these: nobody would wait for what becomes of the rows. "
                f"Keep the column {ANCHORS} (acker.spark.anchors puts several together and skips nulls), or "
                f"say anchored=False where rows are to go without{hint}"
            )


def _refuse_treeless(staged: Sequence[Staged]) -> None:
    for piece in staged:
        if piece.treeless:
            where = f"for stream {piece.stream!r}" if piece.stream else "to be failed"
            raise AckerError(
                f"{piece.treeless:,} rows {where} have 0 in their column {ANCHORS}, which says they have "
                "no tree, though all rows that the batch has read have one, and it acks these: nobody would "
                "wait for what becomes of the rows. Keep the column as it came (acker.spark.anchors puts "
                "several together and skips nulls), or say anchored=False where rows are to go without"
            )


def _some_treeless(core: Core, read: Sequence[_Input]) -> Operation[bool]:
    """Whether a row of segments has no tree: by their rows, one payload at a time; True where one is gone."""
    if any(not segment.shards for _, _, segment in read):
        return True
    for stream, _, segment in read:
        place = keys.Stream(core.config.name, stream).payload(segment.token)
        [payload] = yield [command("GET", place)]
        if payload is None:  # acked meanwhile
            return True
        for column in _columns(payload):
            if segments.unanchored(column) or segments.treeless(column):
                return True
    return False


def _members(core: Core, what: Range) -> Operation[list[_Input]]:
    found: list[_Input] = []
    start = what.start
    while True:
        rest = Range(what.stream, what.slot, what.reader, start, what.end)
        part = yield from subscriptions.taken(core, rest)
        if not part:
            return found
        found += [(what.stream, what.slot, piece.segment) for piece in part]
        start = part[-1].number


def _failing(core: Core, staged: Sequence[Staged]) -> Operation[Ids]:
    """The trees that are to be failed."""
    found = [np.zeros(0, dtype=np.int64)]
    for token in (token for piece in staged for token in piece.failures):
        failed = yield from staging.failures(core, token)
        if failed is not None:
            found.append(segments.edges(failed.column(ANCHORS))[0])
    return np.concatenate(found)


def _check_shard(
    core: Core, shard: int, read: Sequence[_Input], roots: Sequence[Roots], out: list[tuple[str, bytes]],
    others: Mapping[str, Ids],
) -> Operation[None]:  # fmt: skip
    trees = yield from _trees_read(core, shard, read, roots)
    if trees is not None:
        for what, anchors in others.items():
            _check_known(trees, anchors, what)
        yield from _check_out(core, trees, out)


def _check_out(
    core: Core, trees: Ids, out: Sequence[tuple[str, bytes]], *, gathering: bool = False
) -> Operation[None]:
    for first in range(0, len(out), _KEYS):
        members = out[first : first + _KEYS]
        found = yield from _read(core, [key for _, key in members])
        for (stream, _), anchors in zip(members, found, strict=True):
            for chunk in anchors or ():
                _check_known(
                    trees, sections.within(chunk, 1) if gathering else chunk, f"for stream {stream!r}"
                )


def _trees_read(
    core: Core, shard: int, read: Sequence[_Input], roots: Sequence[Roots]
) -> Operation[Ids | None]:
    """The trees in a shard of what a batch has read, in order; None where some of that is gone.

    What is gone is never acked by this commit, so no tree looks complete.
    """
    parts = [_trees(one, shard, core.config.ackers) for one in roots]
    own = [one for one in read if shard in one[2].shards]
    unknown = False
    for first in range(0, len(own), _KEYS):
        part = own[first : first + _KEYS]
        places = [core.shards[shard].staged(segment.token, slot) for _, slot, segment in part]
        found = yield from _read(core, places)
        for (stream, _, segment), anchors in zip(part, found, strict=True):
            if anchors is None:  # acked meanwhile, or it could not be read
                [payload] = yield [
                    command("GET", keys.Stream(core.config.name, stream).payload(segment.token))
                ]
                unknown = unknown or payload is None
                anchors = (
                    [] if payload is None else [_of_shard(_anchors_of(payload), shard, core.config.ackers)]
                )
            parts += anchors
    # What parts hold is mostly in order, and this sort is ten times faster with that.
    trees = np.sort(np.concatenate(parts), kind="stable") if parts else np.zeros(0, dtype=np.int64)
    return None if unknown else trees


def _check_known(trees: Ids, anchors: Ids, what: str) -> None:
    """trees: in order."""
    places = np.searchsorted(trees, anchors)
    places[places == len(trees)] = 0
    strange = anchors[trees[places] != anchors] if len(trees) else anchors
    if len(strange):
        raise AckerError(
            f"rows {what} are anchored to {len(np.unique(strange)):,} trees that are not of what the "
            f"batch has read, among them {strange[0]}: anchors were changed on the way, or are of rows of "
            "another batch. Hand them on as they came; acker.spark.anchors puts several together and skips "
            "nulls"
        )


def _read(core: Core, places: Sequence[bytes]) -> Operation[list[list[Ids] | None]]:
    """The trees of staged vectors (lua/streams/staging/stage.lua), a part for each chunk.

    None where they are gone.
    """
    heads = yield [vectors.head(key) for key in places]
    found: list[list[Ids] | None] = [None if head[0] is None else [] for head in heads]
    waiting: list[tuple[int, bytes, int, list[bytes]]] = []
    for place, (key, head) in enumerate(zip(places, heads, strict=True)):
        if head[0] is not None:
            chunks = readable(partial(vectors.chunks, key), head, core.config.name)
            if chunks is None:
                found[place] = None
                continue
            waiting += [(place, key, number, slabs) for number, (_, slabs) in enumerate(chunks)]
    for first in range(0, len(waiting), _CHUNKS):
        part = waiting[first : first + _CHUNKS]
        replies = yield [
            command("HMGET", key, *(f"{name}:{number}" for name in _PARTS)) for _, key, number, _ in part
        ]
        for (place, _, _, slabs), reply in zip(part, replies, strict=True):
            parts = found[place]
            if parts is not None:
                try:
                    parts.append(_chunk(slabs, reply))
                except (TypeError, ValueError):  # damaged, or acked meanwhile
                    found[place] = None
    return found


def _chunk(slabs: Sequence[bytes], reply: Reply) -> Ids:
    """The trees of a chunk of vectors: trees that an index or a word stands for, and slabs of one."""
    counts, indexes, lengths, words = reply
    names = np.frombuffer(b"".join(slabs), dtype=">i8").astype(np.int64)
    several, extents = (np.frombuffer(one, dtype="<u2").astype(np.int64) for one in (counts, lengths))
    sparse, dense = len(several), len(several) + len(extents)
    paired = (
        np.repeat(names[:sparse], several)
        + ids.STEP * np.frombuffer(indexes, dtype="<u2").astype(np.int64)
        + 1
    )
    touched = np.flatnonzero(np.frombuffer(words, dtype="<i8"))
    starts = np.cumsum(extents) - extents
    long = (np.repeat(names[sparse:dense] - ids.STEP * starts, extents))[touched] + ids.STEP * touched + 1
    return np.concatenate((paired, long, names[dense:]))


def _trees(one: Roots, shard: int, ackers: int) -> Ids:
    """The trees of roots in a shard, to which their rows are anchored."""
    slabs = one.slabs(1)
    here = ids.shards_of(ids.split(slabs)[0], ackers) == shard
    sizes = np.full(len(slabs), one.slab, dtype=np.int64)
    sizes[-1:] = one.rows - one.slab * (len(slabs) - 1)
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
    try:
        for batch in segments.decode(payload):
            if ANCHORS in batch.schema.names:
                yield batch.column(ANCHORS)
    except (UnreadableRecord, pa.ArrowException):
        return
