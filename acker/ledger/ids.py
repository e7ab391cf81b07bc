"""Anchors and tuple ids: 64-bit numbers, signed wherever they are seen, random wherever they are made.

An anchor of a slab of many is not negative: 50 random bits, its slab, 12 bits, its index there, and a one.
The anchor of a slab of one, a tree tracked alone, is negative: 62 random bits and a one, all of them its
slab. So every anchor is odd. A float of that size is even: if user code makes floats of anchors, as pandas
does with a column that has a null, none of them is taken for the anchor of another tree.

Arrays of ids are numpy int64.

Terms: a tree is all that comes of one record; a slab is the trees that one call tracked together; a segment
is some thousand rows of a stream, stored and acked as one piece; a vector has a number for each tree, the XOR
of tuple ids.
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
"""Most trees of a slab: 4,096."""
STEP = 2
"""Distance of two anchors of a slab."""
_SLAB_BITS = INDEX_BITS + 1
_IN_SLAB = (1 << _SLAB_BITS) - 1
SLAB_BYTES = 8
"""Bytes of a slab's name in the store."""

LOWEST, HIGHEST = -(1 << 63), (1 << 63) - 1

# SplitMix64, a block at a time: the values of a block stay in the processor's cache.
_WORD = (1 << 64) - 1
_GAMMA = 0x9E3779B97F4A7C15
_BLOCK = 8192
_STEPS = np.arange(1, _BLOCK + 1, dtype=np.uint64) * np.uint64(_GAMMA)
_MIXES = ((np.uint64(30), np.uint64(0xBF58476D1CE4E5B9)), (np.uint64(27), np.uint64(0x94D049BB133111EB)))
_LAST_SHIFT = np.uint64(31)
_FEW = 16
"""Most ids that Python makes one by one in less time than numpy."""


def as_ids(values: IdsLike, label: str = "ids") -> Ids:
    """A one-dimensional int64 array of `values`, without a copy where it is one already.

    Raises ValidationError for any other value than a vector of signed 64-bit numbers.
    """
    if isinstance(values, np.ndarray) and values.dtype == np.int64 and values.ndim == 1:
        return np.ascontiguousarray(values)
    if isinstance(values, np.ndarray):
        if values.ndim == 1 and values.dtype.kind == "i":
            return values.astype(np.int64)
        raise ValidationError(
            f"{label}: expected a vector of int64, got {values.dtype} of shape {values.shape}"
        )
    return np.fromiter((check_id(value, label) for value in values), dtype=np.int64)


def check_id(value: object, label: str = "id") -> int:
    """Returns `value` if it is a signed 64-bit number; raises ValidationError if not."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise ValidationError(f"{label}: expected a whole number, got {shown(value)}")
    if not LOWEST <= int(value) <= HIGHEST:
        raise ValidationError(f"{label}: expected a signed 64-bit number, got {shown(value)}")
    return int(value)


def new_anchors(count: int) -> Ids:
    """Anchors of one new slab of `count` trees (1 to 4,096), in order."""
    if not 1 <= count <= SLAB_TREES:
        raise ValidationError(f"count: expected 1 to {SLAB_TREES} trees in a slab, got {shown(count)}")
    if count == 1:
        return np.array([(secrets.randbits(63) | 1) - (1 << 63)], np.int64)
    return anchors_from(new_slab(), count)


def anchors_from(first: int, count: int) -> Ids:
    """The anchors of the first trees of a slab, by the anchor of the first tree."""
    return np.arange(first, first + STEP * count, STEP, dtype=np.int64)


def are_anchors(values: Ids) -> bool:
    """True if all values can be anchors, which a float of an anchor cannot."""
    return bool((values & 1).all())


def check_anchors(values: Ids) -> Ids:
    """Returns `values` if all of them can be anchors; raises ValidationError if not."""
    if not are_anchors(values):
        strange = int(values[(values & 1) == 0][0])
        raise ValidationError(
            f"anchors: expected odd numbers, as all anchors are, got {strange}. Pandas makes floats of a "
            "column in which a value is null, and a float has no room for an anchor: fill nulls with 0 before"
        )
    return values


def new_slab() -> int:
    """The first anchor of a new slab that may have any number of trees."""
    # The highest two bits are not both set, which marks a line (acker/ledger/slabs/sections.py).
    return ((1 + secrets.randbelow((3 << (61 - _SLAB_BITS)) - 1)) << _SLAB_BITS) | 1


def firsts_of(random: Ids) -> Ids:
    """The first anchors of slabs with random bits from `random`, none of slab 0."""
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

    They are SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, 2014), so a
    segment keeps only its seed.
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
    """True if a slab's name is the name of one tree, tracked alone."""
    return slab[:1] >= b"\x80"


def anchor_at(slab: bytes, index: int) -> int:
    """The anchor of the tree at `index` of a slab: the inverse of `slab_of` and `index_of`."""
    number = int.from_bytes(slab, "big", signed=True)
    return number if number < 0 else number + STEP * index + 1


def shard_of(slab: bytes, ackers: int) -> int:
    """The shard of a slab: its random number modulo the number of ackers."""
    return (int.from_bytes(slab, "big") >> _SLAB_BITS) % ackers


def shard_of_anchor(anchor: int, ackers: int) -> int:
    """The shard of an anchor's slab."""
    return ((anchor & _WORD) >> _SLAB_BITS) % ackers


def shards_of(slabs: npt.NDArray[np.uint64], ackers: int) -> npt.NDArray[np.int64]:
    """The shards of slabs, as `split` has them."""
    return ((slabs >> np.uint64(_SLAB_BITS)) % np.uint64(ackers)).astype(np.int64)


def split(anchors: Ids) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.int64]]:
    """Slabs of anchors, as numbers whose big-endian bytes are their names, and indexes of anchors."""
    within = np.where(anchors < 0, 0, anchors & _IN_SLAB)
    return (anchors - within).view(np.uint64), within >> 1


def distinct(values: Ids) -> Ids:
    """Distinct values, in order, as `np.unique` returns them. Runs of one value are collapsed first."""
    return _without_repeats(np.sort(_without_repeats(values)))


def _without_repeats(values: Ids) -> Ids:
    if len(values) < 2:
        return values
    kept: Ids = values[np.concatenate(([True], values[1:] != values[:-1]))]
    return kept


def fold(anchors: Ids, values: Ids) -> tuple[Ids, Ids]:
    """XOR of the values of each anchor: distinct anchors, ordered as unsigned numbers, and their values.

    Runs of one anchor are collapsed first; the rest is sorted only if it is not in order.
    """
    if len(anchors) != len(values):
        raise ValidationError(f"expected one value for each anchor, got {len(anchors)} and {len(values)}")
    keys, folded = _collapse(anchors.view(np.uint64), values)
    if len(keys) > 1 and not (keys[1:] > keys[:-1]).all():
        order = np.argsort(keys)  # XOR needs no stable order, and the plain sort is four times as fast
        keys, folded = _collapse(keys[order], folded[order])
    return keys.view(np.int64), folded


def fold_rows(anchors: Ids, values: Ids, width: int) -> tuple[Ids, Ids]:
    """XOR of the values of consecutive rows with the same anchors, `width` anchors a row.

    Returns anchors and values of the remaining rows, for `fold`. The results of a joined or grouped row
    repeat all its anchors, and sorting these is expensive.
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
