"""What a worker reads of the segments that it has taken: not what was acked before the store was set back."""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa  # noqa: TID251 - rows travel as Arrow, from and to Spark and plain Python

from acker.ledger import ids
from acker.ledger.calls.core import Core
from acker.store.operation import Reply
from acker.streams.log.gathers import LAST
from acker.streams.log.segments import ANCHORS, Segment
from acker.streams.staging import vectors
from acker.streams.staging.skipped import ALL, Left


def acked_before(
    core: Core, slot: int, members: Sequence[Segment], heads: Mapping[bytes, Reply]
) -> list[set[int]]:
    """For each segment the shards in which it was acked before: it has no vector there to be acked by."""
    return [
        {shard for key, shard in vectors.keys_of(core, segment, slot) if heads[key][0] is None}
        for segment in members
    ]


@dataclass(slots=True)
class Acked:
    """Shards in which a bundle was acked before: all segments that have vectors there, or only some."""

    all: set[int] = field(default_factory=set)
    some: frozenset[int] = frozenset()


def by_bundle(members: Sequence[Segment], acked: Sequence[set[int]]) -> list[Acked]:
    """For each segment the shards in which it was acked before, or a segment of the same bundle was.

    A store that was set back gives segments again. Who has acked one has published before what was made of
    all of its bundle: it is not worked on a second time. Where only some have no vectors, the store may as
    well have lost these: such a bundle is not whole.
    """
    found: list[Acked] = []
    bundle, left = Acked(), set[int]()
    for segment, shards in zip(members, acked, strict=True):
        bundle.all |= shards
        left |= {*segment.shards} - shards
        bundle.some = frozenset(bundle.all & left)
        found.append(bundle)
        if not segment.to or segment.to.startswith(LAST):
            bundle, left = Acked(), set[int]()
    return found


def left_out(rows: Sequence[pa.RecordBatch], shards: Set[int], ackers: int) -> Left:
    """The slabs of what `_split` takes out of rows."""
    numbers = set[int]()
    for one in rows if shards else ():
        anchors = np.array(split(one, shards, ackers)[1], np.int64)
        numbers.update(np.unique(ids.split(anchors)[0]).tolist())
    return {number.to_bytes(8, "big"): ALL for number in numbers}


def split(rows: pa.RecordBatch, shards: Set[int], ackers: int) -> tuple[pa.RecordBatch, list[int]]:
    """Rows but for those whose trees are in some shards, and the anchors of these."""
    if ANCHORS not in rows.schema.names or not pa.types.is_int64(rows.schema.field(ANCHORS).type):
        return rows, []
    anchors = rows.column(ANCHORS).fill_null(0).to_numpy()
    out = np.isin(ids.shards_of(ids.split(anchors)[0], ackers), list(shards)) & (anchors != 0)
    return rows.filter(pa.array(~out)), anchors[out].tolist()
