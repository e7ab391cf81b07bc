"""How the segments of a batch are dealt to tasks."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from pyspark.sql.datasource import InputPartition

from acker.streams.log.segments import Segment
from acker.streams.log.subscriptions import Range
from acker.streams.staging.skipped import Left

PARTITION_ROWS = 16_384
"""Rows below which another partition costs more than it brings."""
NOTHING: Mapping[str, Left | None] = MappingProxyType({})
_PARTITIONS = 8


class SegmentsPartition(InputPartition):
    """A partition: some segments, and the range of the whole batch, so that reading any part notes it all.

    left: what of the segments is left out (`acker.streams.upkeep.stale.Planned`).
    """

    def __init__(
        self, members: Sequence[Segment], batch: Range | None, left: Mapping[str, Left | None] = NOTHING
    ) -> None:
        self.members = tuple(members)
        self.batch = batch
        self.left = {one.token: left[one.token] for one in members if one.token in left}


def deal(
    found: Sequence[Segment],
    batch: Range | None,
    most: int | None,
    left: Mapping[str, Left | None] = NOTHING,
) -> list[SegmentsPartition]:
    """Deals segments, in their order, to partitions of about the same number of rows.

    A batch has one at least, whose task notes the range, also where the limits have dropped all of it.
    """
    rows = sum(segment.rows for segment in found)
    wanted = most or max(1, min(_PARTITIONS, rows // PARTITION_ROWS))
    share = rows / max(1, min(wanted, len(found))) if found else 0
    parts: list[list[Segment]] = []
    dealt = 0
    for segment in found:
        if not parts or dealt >= share * len(parts):
            parts.append([])
        parts[-1].append(segment)
        dealt += segment.rows
    if batch is not None and batch.end > batch.start and not parts:
        parts.append([])
    return [SegmentsPartition(members, batch, left) for members in parts]
