"""History: series of exact counts."""

from typing import Literal

from pydantic import Field

from acker.inspect.topology import history
from acker.ledger.trees.buckets import Bucket
from api.fields import Answer, Count, InstantText, Name, counted, with_fields
from api.models.answers import Latency

Window = Literal["10m", "3h", "1d", "all"]
"""The time of a history; `all` is 30 days."""
COUNTED = {name: one for name, one in history.COUNTED.items() if name != "rotations"}
"""Counts over a time."""
Series = list[Count]


class LatencySeries(Answer):
    """Complete latency in seconds of the trees acked in each step; null where none was."""

    p50: list[float | None]
    p95: list[float | None]
    p99: list[float | None]


@with_fields(counted(COUNTED, Count) | {"latency": (Latency, ...)})
class WindowTotals(Answer):
    """Counts over the whole window."""


@with_fields(counted(COUNTED, Series))
class Stats(Answer):
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
    outstanding: Series
    buckets: dict[Bucket, Series] = Field(description="Trees in flight by bucket, at the end of each point.")
    latency: LatencySeries
