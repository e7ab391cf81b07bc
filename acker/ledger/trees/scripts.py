"""The scripts that read trees and buckets as functions (as in acker/ledger/calls/scripts.py).

Terms: a tree is all that comes of one record; a slab is the trees that one call tracked together.
"""

from collections.abc import Sequence

from acker.store.keys import Shard
from acker.store.operation import Request, Word, script


def _read(name: str, shard: Shard, keys: Sequence[bytes], args: Sequence[Word]) -> Request:
    """A read of a shard: the keys of lua/ledger/trees/includes/read.lua come first."""
    return script(name, [*shard.declared(())[:4], shard.ones, shard.early, *keys], args)


def read_tree(shard: Shard, slab: bytes, index: int) -> Request:
    """Reads a tree."""
    return _read("read_tree", shard, [shard.vector(slab)], [index])


def read_trees(shard: Shard, slabs: Sequence[bytes], most: int, first: int) -> Request:
    """Reads trees of slabs, from an index of the first slab on."""
    return _read("read_trees", shard, shard.vectors(slabs), [most, first])


def scan_slabs(
    shard: Shard, first: int, cursor: int, count: int, ages: tuple[int, int], aside: Sequence[int]
) -> Request:
    """Names slabs of generations. ages: the youngest and the oldest. aside: rotations, in order."""
    own = [*shard.buckets(), *(shard.expired(rotation) for rotation in aside)]
    return _read("scan_slabs", shard, own, [first, cursor, count, *ages])


def read_totals(shard: Shard, sample: int, counters: Sequence[str], aside: Sequence[int]) -> Request:
    """Reads the counts of a shard. aside: undrained rotations, the oldest first."""
    own = [shard.counters, *shard.buckets(), *(shard.expired(rotation) for rotation in aside)]
    return _read("read_totals", shard, own, [sample, *counters])
