"""History: series of exact counts."""

from typing import Generic, Literal, TypeVar

from pydantic import Field

from acker.inspect import history
from acker.inspect.buckets import Bucket
from api.fields import Answer, Count, InstantText, Name
from api.models.topologies import Latency

Window = Literal["10m", "3h", "1d", "all"]
"""All is 30 days."""
COUNTED = tuple(name for name in history.COUNTED if name != "rotations")
Series = list[Count]
Counts = TypeVar("Counts")


class Counted(Answer, Generic[Counts]):
    """What is counted over a time: one number of each, or a series."""

    tracked: Counts
    emitted: Counts = Field(
        description="Tuples emitted: into streams, rows once for each subscription, "
        "and by collectors into trees."
    )
    acked: Counts
    failed: Counts
    expired: Counts
    rejected: Counts
    late: Counts
    orphaned: Counts
    duplicates: Counts


class LatencySeries(Answer):
    """Complete latency in seconds of the trees acked in each step; null where none was."""

    p50: list[float | None]
    p95: list[float | None]
    p99: list[float | None]


class WindowTotals(Counted[Count]):
    """What was counted in the whole window."""

    latency: Latency


class Stats(Counted[Series]):
    """Series of a topology, column by column: the n-th value of each is of the n-th point.

    A count is the difference of two readings of the ledger's exact counters, so the points of a window add up
    to its totals, whatever the step.
    """

    topology: Name
    window: Window
    step: int = Field(ge=1, description="Seconds between two points, where the service was running.")
    totals: WindowTotals
    at: list[InstantText] = Field(description="When each point ends.")
    seconds: list[float | None] = Field(
        description="How many seconds each point counts: more than the step where no service was running; "
        "null for the first point of all, which counts what was before the history began."
    )
    pending: Series = Field(description="Trees in flight at the end of each point.")
    held: Series
    buckets: dict[Bucket, Series] = Field(description="Trees in flight by bucket, at the end of each point.")
    latency: LatencySeries
