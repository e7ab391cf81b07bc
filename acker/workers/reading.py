"""The rows that a worker reads of its segments, without rows acked before the store was rolled back.

Terms: a slab is the trees that one call tracked together; a segment is some thousand rows of a stream, stored
and acked as one piece; a vector has a number for each tree, the XOR of tuple ids; a bundle is the rows that
have gathered for one task of a group; a group is requests of a line that were tracked together.
"""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa  # noqa: TID251 - rows travel as Arrow, from and to Spark and plain Python

from acker.ledger import ids
from acker.ledger.calls.core import Core
from acker.store.operation import Reply
from acker.streams.log.segments import ANCHORS, LAST, Segment
from acker.streams.staging import vectors
from acker.streams.staging.skipped import ALL, Left


def acked_before(
    core: Core, slot: int, members: Sequence[Segment], heads: Mapping[bytes, Reply]
) -> list[set[int]]:
    """Returns for each segment the shards in which it was acked before: it has no vector there to ack."""
    return [
        {shard for key, shard in vectors.keys_of(core, segment, slot) if heads[key][0] is None}
        for segment in members
    ]


@dataclass(slots=True)
class Acked:
    """Shards in which a bundle was acked before: all segments with vectors there, or only some."""

    all: set[int] = field(default_factory=set)
    some: frozenset[int] = frozenset()


def by_bundle(members: Sequence[Segment], acked: Sequence[set[int]]) -> list[Acked]:
    """Returns for each segment the shards in which it, or another segment of its bundle, was acked before.

    A store that was rolled back gives segments again. A worker that acked a segment had published the results
    of its whole bundle: the bundle is not worked on again. If only some segments have no vectors, the store
    may as well have lost these: such a bundle is not whole.
    """
    bundles: list[Acked] = []
    bundle, left = Acked(), set[int]()
    for segment, shards in zip(members, acked, strict=True):
        bundle.all |= shards
        left |= {*segment.shards} - shards
        bundle.some = frozenset(bundle.all & left)
        bundles.append(bundle)
        if not segment.to or segment.to.startswith(LAST):
            bundle, left = Acked(), set[int]()
    return bundles


def left_out(rows: Sequence[pa.RecordBatch], shards: Set[int], ackers: int) -> Left:
    """Returns the slabs of the rows that `split` removes."""
    numbers = set[int]()
    for one in rows if shards else ():
        anchors = np.array(split(one, shards, ackers)[1], np.int64)
        numbers.update(np.unique(ids.split(anchors)[0]).tolist())
    return {number.to_bytes(8, "big"): ALL for number in numbers}


def split(rows: pa.RecordBatch, shards: Set[int], ackers: int) -> tuple[pa.RecordBatch, list[int]]:
    """Returns the rows whose trees are not in some shards, and the anchors of the other rows."""
    if ANCHORS not in rows.schema.names or not pa.types.is_int64(rows.schema.field(ANCHORS).type):
        return rows, []
    anchors = rows.column(ANCHORS).fill_null(0).to_numpy()
    out = np.isin(ids.shards_of(ids.split(anchors)[0], ackers), list(shards)) & (anchors != 0)
    return rows.filter(pa.array(~out)), anchors[out].tolist()
