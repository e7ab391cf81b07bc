"""Distribution of a batch's segments to tasks.

Terms: a segment is some thousand rows of a stream, stored and acked as one piece.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from pyspark.sql.datasource import InputPartition

from acker.streams.log.segments import Segment
from acker.streams.log.subscriptions import Range
from acker.streams.staging.skipped import Left

PARTITION_ROWS = 16_384
"""Rows below which another partition costs more than it gains."""
NOTHING: Mapping[str, Left | None] = MappingProxyType({})
_PARTITIONS = 8


class SegmentsPartition(InputPartition):
    """A partition: some segments, and the range of the whole batch, so that reading any part records it all.

    left: the rows of the segments that are left out (`acker.streams.upkeep.stale.Planned`).
    """

    def __init__(
        self, members: Sequence[Segment], batch: Range | None, left: Mapping[str, Left | None] = NOTHING
    ) -> None:
        self.members = tuple(members)
        self.batch = batch
        self.left = {one.id: left[one.id] for one in members if one.id in left}


def deal(
    segments: Sequence[Segment],
    batch: Range | None,
    most: int | None,
    left: Mapping[str, Left | None] = NOTHING,
) -> list[SegmentsPartition]:
    """Distributes segments, in their order, to partitions of about the same number of rows.

    A batch has at least one partition, whose task records the range, even if the limits have dropped all
    rows.
    """
    rows = sum(segment.rows for segment in segments)
    wanted = most or max(1, min(_PARTITIONS, rows // PARTITION_ROWS))
    share = rows / max(1, min(wanted, len(segments))) if segments else 0
    parts: list[list[Segment]] = []
    dealt = 0
    for segment in segments:
        if not parts or dealt >= share * len(parts):
            parts.append([])
        parts[-1].append(segment)
        dealt += segment.rows
    if batch is not None and batch.end > batch.start and not parts:
        parts.append([])
    return [SegmentsPartition(members, batch, left) for members in parts]
