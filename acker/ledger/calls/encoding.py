"""Encodes vectors of ids as arguments of script calls, and decodes their replies.

Terms: a tree is all that comes of one record; an anchor is the number of a tree; a slab is the trees that one
call tracked together; a vector has a number for each tree, the XOR of tuple ids; a delta is the XOR of the
ids that a call adds to a tree.
"""

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from acker.ledger import ids
from acker.ledger.ids import Ids

CALL_WORDS = 16_384
"""Most words of a script call for the server's C loops: some milliseconds at worst."""
DENSE_WORDS = 320
"""Least weight of a vector in words: it is XORed into a slab of up to 4,096 words."""
CALL_RESETS = 100
"""Most slabs that a call resets: all words of each are counted."""
CALL_FAILS = 250
"""Most trees that a call fails."""
CALL_MANY = 40
"""Most slabs of more than one tree in a call that fails trees."""
CALL_DRAINS = 200
"""Most slabs that a call drains: each is reported to its spout and kept for people."""
CALL_SLABS = 400
"""Most slabs that a call tracks: each costs the server some microseconds, whatever its size."""
CALL_TREES = 1_000
"""Most slabs of an update, and most trees that it touches one by one."""
_FEW = 24
"""Most trees that Python handles one by one in less time than numpy. They are one call of each kind in a
shard, because they are far below a call's limits."""
CALL_BYTES = 1 << 20
"""Bytes of message ids at which a call takes no further slab."""


@dataclass(slots=True)
class UpdateCall:
    """The arguments of one call of update.lua in one shard, for an update of one of three kinds.

    The fields of the other two kinds are empty. A sparse update changes a few trees of each slab: `slabs` has
    the ids of the slabs, `counts` the number of changed trees of each, `indexes` their indexes in the slab,
    and `deltas` the XOR that is to be applied to each. A dense update changes whole slabs: `slabs` again,
    `vectors` with the XOR for all trees of each, and `trees` with the number of changed trees of each (16
    bits each). The third kind changes slabs of one tree: `singles` has their ids, `ones` their deltas.
    """

    shard: int
    slabs: list[bytes]
    counts: bytes = b""
    indexes: bytes = b""
    deltas: bytes = b""
    vectors: list[bytes] = field(default_factory=list)
    trees: bytes = b""
    singles: list[bytes] = field(default_factory=list)
    ones: bytes = b""


@dataclass(slots=True)
class TreesCall:
    """The trees of one call in one shard: slabs, the number of indexes of each (u16), indexes (u16).

    reasons, why: for fails, arguments of lua/ledger/calls/fail.lua.
    """

    shard: int
    slabs: list[bytes]
    counts: bytes
    indexes: bytes
    reasons: bytes = b""
    why: bytes = b""


@dataclass(slots=True)
class _Groups:
    """Sorted anchors, grouped by slab."""

    names: bytes
    starts: npt.NDArray[np.int64]
    sizes: npt.NDArray[np.int64]
    shards: npt.NDArray[np.int64]
    indexes: npt.NDArray[np.int64]

    def slabs(self, groups: npt.NDArray[np.int64]) -> list[bytes]:
        names = self.names
        return [names[8 * group : 8 * group + 8] for group in groups.tolist()]


def _group(anchors: Ids, ackers: int) -> _Groups:
    slabs, indexes = ids.split(anchors)
    starts = (
        np.concatenate(([0], np.flatnonzero(slabs[1:] != slabs[:-1]) + 1)) if len(slabs) else np.zeros(0, int)
    )
    distinct = slabs[starts]
    return _Groups(
        distinct.astype(">u8").tobytes(),
        starts,
        np.diff(np.append(starts, len(slabs))),
        ids.shards_of(distinct, ackers),
        indexes,
    )


def _runs(weights: npt.NDArray[np.int64], most: int) -> Iterator[tuple[int, int]]:
    """Cuts a sequence into runs of at most `CALL_TREES` members and weight `most` (or one member)."""
    start, weight = 0, 0
    for at, size in enumerate(weights.tolist()):
        if at > start and (weight + size > most or at - start >= CALL_TREES):
            yield start, at
            start, weight = at, 0
        weight += size
    if start < len(weights):
        yield start, len(weights)


def update_calls(
    anchors: Ids | list[int], deltas: Ids | list[int], ackers: int, *, pairs: bool = False
) -> list[UpdateCall]:
    """The calls that XOR `deltas` into the trees of `anchors`. Raises ValidationError for a bad anchor.

    pairs: no slab goes as a vector.
    """
    if len(anchors) == len(deltas) <= _FEW and not pairs:
        few = anchors if isinstance(anchors, list) else anchors.tolist()
        if all(anchor > 0 and anchor & 1 for anchor in few):
            few_deltas = deltas if isinstance(deltas, list) else deltas.tolist()
            return _calls_for_few(few, few_deltas, ackers)
    anchors, deltas = np.asarray(anchors, np.int64), np.asarray(deltas, np.int64)
    alone = ids.check_anchors(anchors) < 0
    if not alone.any():
        return _calls_for_many(anchors, deltas, ackers, pairs=pairs)
    calls = _calls_for_ones(anchors[alone], deltas[alone], ackers)
    return (
        calls
        if alone.all()
        else calls + _calls_for_many(anchors[~alone], deltas[~alone], ackers, pairs=pairs)
    )


def _calls_for_ones(anchors: Ids, deltas: Ids, ackers: int) -> list[UpdateCall]:
    """The same for slabs of one, in their given order.

    That is often the order of their tracks, and values that were stored together lie together in memory.
    """
    distinct, folded = ids.fold(anchors, deltas)
    if len(distinct) < len(anchors):
        order = np.argsort(np.unique(anchors, return_index=True)[1])
        anchors, deltas = distinct[order], folded[order]
    anchors, deltas = _without_zeros(anchors, deltas)
    shards = ids.shards_of(anchors.view(np.uint64), ackers)
    calls = []
    for shard in np.unique(shards).tolist():
        here = np.flatnonzero(shards == shard)
        for at in range(0, len(here), CALL_TREES):
            part = here[at : at + CALL_TREES]
            names = anchors[part].astype(">i8").tobytes()
            calls.append(
                UpdateCall(
                    shard,
                    [],
                    singles=[names[first : first + 8] for first in range(0, len(names), 8)],
                    ones=deltas[part].astype("<i8").tobytes(),
                )
            )
    return calls


def _without_zeros(anchors: Ids, deltas: Ids) -> tuple[Ids, Ids]:
    kept = deltas != 0
    return (anchors, deltas) if kept.all() else (anchors[kept], deltas[kept])


def _calls_for_many(anchors: Ids, deltas: Ids, ackers: int, *, pairs: bool = False) -> list[UpdateCall]:
    """The same for slabs of many.

    A slab with many touched trees goes as a vector, one with few as pairs: a pair costs the
    server about as much as 90 words of a vector do.
    """
    anchors, deltas = _without_zeros(*ids.fold(anchors, deltas))
    groups = _group(anchors, ackers)
    extents = groups.indexes[groups.starts + groups.sizes - 1] + 1 if len(anchors) else np.zeros(0, np.int64)
    dense = np.zeros(len(extents), np.bool_) if pairs else _dense(groups.sizes, extents)
    packed = deltas.astype("<i8", copy=False).tobytes()
    calls = []
    for shard in np.unique(groups.shards).tolist():
        in_shard = groups.shards == shard
        few = np.flatnonzero(in_shard & ~dense)
        for a, b in _runs(groups.sizes[few], CALL_TREES):
            part = few[a:b]
            calls.append(UpdateCall(shard, groups.slabs(part), *_pairs(groups, part, deltas)))
        many = np.flatnonzero(in_shard & dense)
        vectors = list(_vectors(groups, many, extents, deltas, packed))
        for a, b in _runs(np.maximum(extents[many], DENSE_WORDS), CALL_WORDS):
            trees = groups.sizes[many[a:b]].astype("<u2").tobytes()
            calls.append(UpdateCall(shard, groups.slabs(many[a:b]), vectors=vectors[a:b], trees=trees))
    return calls


def _dense(trees: Any, extent: Any) -> Any:
    """True if a slab with so many touched trees, up to some index, goes as a vector."""
    return trees * 90 > 100 + extent


def _calls_for_few(anchors: list[int], deltas: list[int], ackers: int) -> list[UpdateCall]:
    """The calls of `_calls_for_many`, for few trees."""
    folded: dict[int, int] = {}
    for anchor, delta in zip(anchors, deltas, strict=True):
        folded[anchor] = folded.get(anchor, 0) ^ delta
    shards: dict[int, dict[bytes, dict[int, int]]] = {}
    for anchor in sorted(folded):
        if folded[anchor]:
            slab = ids.slab_of(anchor)
            slabs = shards.setdefault(ids.shard_of(slab, ackers), {})
            slabs.setdefault(slab, {})[ids.index_of(anchor)] = folded[anchor]
    calls = []
    for shard in sorted(shards):
        few, many = UpdateCall(shard, []), UpdateCall(shard, [])
        for slab, trees in shards[shard].items():
            count, extent = len(trees), max(trees) + 1
            if _dense(count, extent):
                many.slabs.append(slab)
                many.vectors.append(struct.pack(f"<{extent}q", *(trees.get(at, 0) for at in range(extent))))
                many.trees += struct.pack("<H", count)
            else:
                few.slabs.append(slab)
                few.counts += struct.pack("<H", count)
                few.indexes += struct.pack(f"<{count}H", *trees)
                few.deltas += struct.pack(f"<{count}q", *trees.values())
        calls += [call for call in (few, many) if call.slabs]
    return calls


def _members(groups: _Groups, part: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    sizes = groups.sizes[part]
    ends = np.cumsum(sizes)
    return np.arange(ends[-1] if len(ends) else 0) + np.repeat(groups.starts[part] - ends + sizes, sizes)


def _pairs(groups: _Groups, part: npt.NDArray[np.int64], deltas: Ids) -> tuple[bytes, bytes, bytes]:
    members = _members(groups, part)
    return (
        groups.sizes[part].astype("<u2").tobytes(),
        groups.indexes[members].astype("<u2").tobytes(),
        deltas[members].astype("<i8").tobytes(),
    )


def _vectors(
    groups: _Groups, part: npt.NDArray[np.int64], extents: npt.NDArray[np.int64], deltas: Ids, packed: bytes
) -> Iterator[bytes]:
    """The delta vectors of some slabs; `packed` are the bytes of `deltas`."""
    for start, size, extent in zip(
        groups.starts[part].tolist(), groups.sizes[part].tolist(), extents[part].tolist(), strict=True
    ):
        if size == extent:
            yield packed[8 * start : 8 * (start + size)]
        else:
            vector = np.zeros(extent, dtype="<i8")
            vector[groups.indexes[start : start + size]] = deltas[start : start + size]
            yield vector.tobytes()


def fail_calls(anchors: Ids, causes: Sequence[bytes], ackers: int) -> list[TreesCall]:
    """The calls that fail the trees of `anchors`, each once, for the first of its causes.

    causes: one for each anchor, or one for all. Raises ValidationError for a bad anchor.
    """
    distinct, first = np.unique(ids.check_anchors(anchors).view(np.uint64), return_index=True)
    anchors = distinct.view(np.int64)
    numbers: dict[bytes, int] = {}
    of_each = np.array([numbers.setdefault(cause, len(numbers)) for cause in causes], dtype=np.int64)
    texts = [struct.pack("<H", len(cause)) + cause for cause in numbers]
    single = len(texts) == 1
    codes = np.zeros(0, np.int64) if single else of_each[first]
    groups = _group(anchors, ackers)
    calls = []
    for shard in np.unique(groups.shards).tolist():
        in_shard = np.flatnonzero(groups.shards == shard)
        slab_of_member = np.repeat(in_shard, groups.sizes[in_shard])
        members = _members(groups, in_shard)
        # A slab of many has its message ids read (lua/ledger/includes/recent.lua); its first member stands
        # for that.
        ends = np.cumsum(groups.sizes[in_shard])
        weights = np.ones(len(members), dtype=np.int64)
        weights[(ends - groups.sizes[in_shard])[groups.indexes[members[ends - 1]] > 0]] = (
            CALL_FAILS // CALL_MANY
        )
        for a, b in _runs(weights, CALL_FAILS):
            part, sizes = np.unique(slab_of_member[a:b], return_counts=True)
            call = _trees_call(shard, groups, part, sizes, members[a:b])
            if single:
                call.reasons = texts[0]
            else:
                own, why = np.unique(codes[members[a:b]], return_inverse=True)
                call.reasons = b"".join(texts[code] for code in own.tolist())
                call.why = why.astype("<u2").tobytes() if len(own) > 1 else b""
            calls.append(call)
    return calls


def reset_calls(anchors: Ids, ackers: int) -> list[TreesCall]:
    """The calls that reset the trees of `anchors`, each once.

    No slab is cut, because it is the unit of a reset and is counted once. All its words are read.
    """
    anchors = np.unique(ids.check_anchors(anchors).view(np.uint64)).view(np.int64)
    groups = _group(anchors, ackers)
    calls = []
    for shard in np.unique(groups.shards).tolist():
        here = np.flatnonzero(groups.shards == shard)
        for a, b in _runs(np.maximum(groups.sizes[here], CALL_TREES // CALL_RESETS), CALL_TREES):
            part = here[a:b]
            calls.append(_trees_call(shard, groups, part, groups.sizes[part], _members(groups, part)))
    return calls


def _trees_call(
    shard: int,
    groups: _Groups,
    part: npt.NDArray[np.int64],
    sizes: npt.NDArray[np.int64],
    members: npt.NDArray[np.int64],
) -> TreesCall:
    counts, indexes = sizes.astype("<u2").tobytes(), groups.indexes[members].astype("<u2").tobytes()
    return TreesCall(shard, groups.slabs(part), counts, indexes)
