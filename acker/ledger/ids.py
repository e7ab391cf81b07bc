"""Anchors and tuple ids: 64-bit numbers, signed wherever they are seen, random wherever they are made.

An anchor of a slab of many is not negative: 50 random bits, its slab, 12 bits, its index there, and a one.
That of a slab of one, of a tree tracked alone, is negative: 62 random bits and a one, all of them its slab.
So every anchor is odd. A float of that size is even: where somebody's code has made floats of anchors, as
pandas does with a column in which one is null, none of them is taken for another tree's.

Arrays of ids are numpy int64.
"""

import secrets
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from acker.errors import ValidationError, shown

Ids: TypeAlias = npt.NDArray[np.int64]
IdsLike: TypeAlias = Ids | Sequence[int]

INDEX_BITS = 12
SLAB_TREES = 1 << INDEX_BITS
"""How many trees a slab can hold: 4,096."""
STEP = 2
"""How far the anchors of a slab are apart."""
_SLAB_BITS = INDEX_BITS + 1
_IN_SLAB = (1 << _SLAB_BITS) - 1
SLAB_BYTES = 8
"""Of a slab's name in the store."""

LOWEST, HIGHEST = -(1 << 63), (1 << 63) - 1

# SplitMix64, a block at a time: what a block works on stays in the processor's cache.
_WORD = (1 << 64) - 1
_GAMMA = 0x9E3779B97F4A7C15
_BLOCK = 8192
_STEPS = np.arange(1, _BLOCK + 1, dtype=np.uint64) * np.uint64(_GAMMA)
_MIXES = ((np.uint64(30), np.uint64(0xBF58476D1CE4E5B9)), (np.uint64(27), np.uint64(0x94D049BB133111EB)))
_LAST_SHIFT = np.uint64(31)
_FEW = 16
"""Ids that Python makes one by one in less time than numpy's calls would take."""


def as_ids(values: IdsLike, what: str = "ids") -> Ids:
    """One-dimensional int64 array of `values`, without a copy where it is one already.

    Raises ValidationError for anything that is not a vector of whole numbers of signed 64 bits.
    """
    if isinstance(values, np.ndarray) and values.dtype == np.int64 and values.ndim == 1:
        return np.ascontiguousarray(values)
    if isinstance(values, np.ndarray):
        if values.ndim == 1 and values.dtype.kind == "i":
            return values.astype(np.int64)
        raise ValidationError(
            f"{what}: expected a vector of int64, got {values.dtype} of shape {values.shape}"
        )
    return np.fromiter((check_id(value, what) for value in values), dtype=np.int64)


def check_id(value: object, what: str = "id") -> int:
    """`value` as a signed 64-bit number; ValidationError where it is none."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise ValidationError(f"{what}: expected a whole number, got {shown(value)}")
    if not LOWEST <= int(value) <= HIGHEST:
        raise ValidationError(f"{what}: expected a signed 64-bit number, got {shown(value)}")
    return int(value)


def new_anchors(count: int) -> Ids:
    """Anchors of one new slab of `count` trees (1 to 4,096), in order."""
    if not 1 <= count <= SLAB_TREES:
        raise ValidationError(f"count: expected 1 to {SLAB_TREES} trees in a slab, got {shown(count)}")
    if count == 1:
        return np.array([(secrets.randbits(63) | 1) - (1 << 63)], np.int64)
    return anchors_from(new_slab(), count)


def anchors_from(first: int, count: int) -> Ids:
    """The anchors of the first trees of a slab, from that of its first one."""
    return np.arange(first, first + STEP * count, STEP, dtype=np.int64)


def are_anchors(values: Ids) -> bool:
    """Whether all of them can be anchors; what a float was made of on the way cannot."""
    return bool((values & 1).all())


def check_anchors(values: Ids) -> Ids:
    """`values`, if all of them can be anchors; else ValidationError."""
    if not are_anchors(values):
        strange = int(values[(values & 1) == 0][0])
        raise ValidationError(
            f"anchors: expected odd numbers, as all anchors are, got {strange}. Pandas makes floats of a "
            "column in which a value is null, and a float has no room for an anchor: fill nulls with 0 before"
        )
    return values


def new_slab() -> int:
    """The first anchor of a new slab that may have any number of trees."""
    # Not of a line: the highest two of its bits are not both set (acker/ledger/slabs/sections.py).
    return ((1 + secrets.randbelow((3 << (61 - _SLAB_BITS)) - 1)) << _SLAB_BITS) | 1


def firsts_of(random: Ids) -> Ids:
    """The first anchors of slabs that have their random bits from `random`, none of slab 0."""
    firsts = (random & HIGHEST) | _IN_SLAB
    firsts[firsts == _IN_SLAB] |= 1 << _SLAB_BITS
    return firsts - (_IN_SLAB - 1)


def new_id() -> int:
    """A random tuple id: signed 64 bits, never zero (Storm's MessageId.generateId)."""
    while True:
        value = secrets.randbits(64) - (1 << 63)
        if value:
            return value


def new_ids(count: int) -> Ids:
    """`count` random tuple ids, none zero."""
    ids = np.frombuffer(secrets.token_bytes(8 * count), dtype=np.int64).copy()
    ids[ids == 0] = new_id()
    return ids


def seeded_ids(seed: int, start: int, count: int) -> Ids:
    """Tuple ids `start` to `start + count - 1` of the sequence of a 64-bit seed, none zero.

    They are SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, 2014), so that a
    segment needs to keep its seed only.
    """
    if count <= _FEW:
        numbers = range(start + 1, start + count + 1)
        return np.array(
            [_mixed((seed + number * _GAMMA) & _WORD) or 1 for number in numbers], np.uint64
        ).view(np.int64)
    ids = np.empty(count, dtype=np.uint64)
    mixed = np.empty(min(count, _BLOCK), dtype=np.uint64)
    for at in range(0, count, _BLOCK):
        z = ids[at : at + _BLOCK]
        scratch = mixed[: len(z)]
        np.add(_STEPS[: len(z)], np.uint64((seed + (start + at) * _GAMMA) & _WORD), out=z)
        for shift, factor in _MIXES:
            np.right_shift(z, shift, out=scratch)
            z ^= scratch
            z *= factor
        np.right_shift(z, _LAST_SHIFT, out=scratch)
        z ^= scratch
    ids[ids == 0] = np.uint64(1)
    return ids.view(np.int64)


def _mixed(z: int) -> int:
    """The mix of SplitMix64 for one number of 64 bits."""
    z = ((z ^ z >> 30) * 0xBF58476D1CE4E5B9) & _WORD
    z = ((z ^ z >> 27) * 0x94D049BB133111EB) & _WORD
    return z ^ z >> 31


def slab_of(anchor: int) -> bytes:
    """The name of an anchor's slab in the store: 8 bytes, big-endian, any index bits zero."""
    return (anchor if anchor < 0 else anchor & ~_IN_SLAB).to_bytes(8, "big", signed=True)


def index_of(anchor: int) -> int:
    """An anchor's index in its slab: 0 to 4,095."""
    return 0 if anchor < 0 else (anchor & _IN_SLAB) >> 1


def is_one(slab: bytes) -> bool:
    """Whether a slab is of one tree, tracked alone, by its name."""
    return slab[:1] >= b"\x80"


def anchor_at(slab: bytes, index: int) -> int:
    """The anchor of the tree at `index` of a slab: the inverse of `slab_of` and `index_of`."""
    number = int.from_bytes(slab, "big", signed=True)
    return number if number < 0 else number + STEP * index + 1


def shard_of(slab: bytes, ackers: int) -> int:
    """The shard of a slab: its random number modulo the number of ackers."""
    return (int.from_bytes(slab, "big") >> _SLAB_BITS) % ackers


def shards_of(slabs: npt.NDArray[np.uint64], ackers: int) -> npt.NDArray[np.int64]:
    """The shards of slabs, as `split` has them."""
    return ((slabs >> np.uint64(_SLAB_BITS)) % np.uint64(ackers)).astype(np.int64)


def split(anchors: Ids) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.int64]]:
    """Slabs, as the numbers whose big-endian bytes are their names, and indexes of anchors."""
    within = np.where(anchors < 0, 0, anchors & _IN_SLAB)
    return (anchors - within).view(np.uint64), within >> 1


def fold(anchors: Ids, values: Ids) -> tuple[Ids, Ids]:
    """XOR of the values of each anchor: distinct anchors, ordered as unsigned numbers, and their values.

    Runs of one anchor are collapsed first; only what is not in order then is sorted.
    """
    if len(anchors) != len(values):
        raise ValidationError(f"expected one value for each anchor, got {len(anchors)} and {len(values)}")
    keys, folded = _collapse(anchors.view(np.uint64), values)
    if len(keys) > 1 and not (keys[1:] > keys[:-1]).all():
        order = np.argsort(keys)  # XOR needs no stable order, and the plain sort is several times faster
        keys, folded = _collapse(keys[order], folded[order])
    return keys.view(np.int64), folded


def fold_rows(anchors: Ids, values: Ids, width: int) -> tuple[Ids, Ids]:
    """XOR of the values of rows that follow each other with the same anchors, each row of `width` of them.

    Anchors and values of the rows that are left, for `fold`. What comes of a row that was joined or grouped
    carries all its anchors again and again, and sorting these is dear.
    """
    rows, folded = anchors.reshape(-1, width), values.reshape(-1, width)
    if len(rows) < 2:
        return anchors, values
    changes = (rows[1:] != rows[:-1]).any(axis=1)
    if changes.all():
        return anchors, values
    starts = np.concatenate(([0], np.flatnonzero(changes) + 1))
    return rows[starts].ravel(), np.bitwise_xor.reduceat(folded, starts, axis=0).ravel()


def _collapse(keys: npt.NDArray[np.uint64], values: Ids) -> tuple[npt.NDArray[np.uint64], Ids]:
    if len(keys) < 2:
        return keys, values
    changes = keys[1:] != keys[:-1]
    if changes.all():
        return keys, values
    starts = np.concatenate(([0], np.flatnonzero(changes) + 1))
    return keys[starts], np.bitwise_xor.reduceat(values, starts)
