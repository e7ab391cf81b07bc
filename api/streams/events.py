"""Events as they go to clients: what a reading, and trees that ended, become."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from fastapi.sse import format_sse_event

from acker.inspect.topology.health import Health
from acker.inspect.topology.history import Reading
from acker.inspect.topology.series import series
from acker.inspect.trees.failure import Failure
from acker.ledger.fields import instant
from acker.ledger.outcomes.latency_histogram import Latency
from acker.ledger.trees.buckets import BUCKETS
from api.models.answers import Outcome
from api.models.events import OutcomeSummary, Sample
from api.models.stats import COUNTED

RETRY_MS = 1_000
"""After how many ms a client that lost its stream comes again."""


@dataclass(frozen=True, slots=True)
class Frame:
    """Events of one moment, encoded once for all streams. at: ms; what a client has seen up to."""

    at: int
    data: bytes


def sample(health: Health, before: Reading, reading: Reading) -> bytes:
    """Encodes the changes between two readings, and the health of the topology; its id resumes a stream."""
    points = series([before, reading])
    gauges = {name: float(column[0]) for name, column in points.gauges.items()}
    age = gauges["rotation_age"] if gauges["rotation_age"] >= 0 else None
    backlog, use = int(gauges["backlog"]), max(0.0, gauges["high_water_use"])
    buckets = {name: max(0, int(gauges[name])) for name in BUCKETS}
    changes: dict[str, Any] = {name: int(points.counts[name][0]) for name in COUNTED}
    changes |= {"latency": Latency(*points.total_percentiles(0.5, 0.95, 0.99)), "health": health}
    event = Sample(
        at=instant(reading.at / 1000),
        seconds=None if before.first else (reading.at - before.at) / 1000,
        **changes,
        pending=sum(buckets.values()),
        outstanding=max(0, int(gauges["outstanding"])),
        waiting_slabs=max(0, int(gauges["waiting"])),
        buckets=buckets,
        high_water_use=use,
        rotation_age=age,
        backlog=backlog,
    )
    return format_sse_event(
        event="sample", data_str=event.model_dump_json(), id=f"{reading.at}-0", retry=RETRY_MS
    )


def outcomes(trees: Iterable[Failure]) -> bytes:
    """Trees that ended, one by one."""
    return b"".join(
        format_sse_event(event="outcome", data_str=Outcome.model_validate(tree).model_dump_json())
        for tree in trees
    )


def summary(at: int, failed: int, expired: int) -> bytes:
    """Encodes the number of trees that ended without an event of their own; nothing if there are none."""
    if failed <= 0 and expired <= 0:
        return b""
    event = OutcomeSummary(at=instant(at / 1000), failed=max(0, failed), expired=max(0, expired))
    return format_sse_event(event="outcomes", data_str=event.model_dump_json())
