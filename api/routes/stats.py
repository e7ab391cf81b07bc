"""History: series of counters."""

import math
from typing import Annotated

import numpy as np
from fastapi import APIRouter, Query
from pydantic import Field
from starlette.responses import Response

from acker.inspect.topology import history
from acker.inspect.topology.history import Range, Reading
from acker.inspect.topology.series import Series, series
from acker.ledger.calls.core import Core
from acker.ledger.outcomes.latency_histogram import Latency
from acker.ledger.trees.buckets import BUCKETS
from acker.store.operation import Operation
from api.fields import Instant, Model
from api.models.stats import COUNTED, LatencySeries, Stats, Window, WindowTotals
from api.problems import declared
from api.service.service import LedgerDep, ServiceDep

router = APIRouter(prefix="/topologies/{topology}", tags=["stats"])

_DEFAULT_STEPS: dict[Window, int] = {"all": 3600}


class StatsQuery(Model):
    """A piece of the history, and its resolution."""

    window: Window | None = Field(default=None, description="Without it and `span`: 10m.")
    span: Annotated[float, Field(ge=60, le=30 * 86_400)] | None = Field(
        default=None,
        description="The seconds of any range; `window` does not count then. Its points are as near as "
        f"what is kept allows, {history.MOST_POINTS:,} at most.",
    )
    until: Instant | None = Field(
        default=None, description="The end of `span`, or of `window`; without it the present."
    )
    step: (
        Annotated[
            int,
            Field(
                ge=1,
                le=86_400,
                description="Seconds between two points, as near as what is kept allows: at least 1 for 10m, "
                "10 for 3h, 60 for 1d, 600 for all. Without: these, and 3600 for all.",
            ),
        ]
        | None
    ) = None


@router.get("/stats", responses=declared(404), response_model=Stats)
async def get_stats(
    service: ServiceDep, ledger: LedgerDep, query: Annotated[StatsQuery, Query()]
) -> Response:
    """Series of exact counts, trees in flight and latencies over a window, or over any other range."""
    chosen = await ledger.run(_read(ledger.core, query, service.history(ledger.config.name)))
    points = series(chosen.readings)
    # The store adds and subtracts what a call changed; between two calls a gauge may be a little off.
    gauges = {name: np.maximum(0, points.gauges[name]).astype(int) for name in (*BUCKETS, "outstanding")}
    p50, p95, p99 = points.percentiles(0.5, 0.95, 0.99)
    stats = Stats.model_construct(
        topology=ledger.config.name,
        window=chosen.window,
        step=chosen.step,
        totals=WindowTotals(
            **{name: int(points.counts[name].sum()) for name in COUNTED} | {"latency": _latency(points)}
        ),
        at=np.datetime_as_string(points.at.astype("datetime64[ms]"), timezone="UTC").tolist(),
        seconds=[None if math.isnan(value) else value for value in points.seconds.tolist()],
        **{name: points.counts[name].astype(int).tolist() for name in COUNTED},
        pending=np.sum([gauges[name] for name in BUCKETS], axis=0).tolist(),
        outstanding=gauges["outstanding"].tolist(),
        buckets={name: gauges[name].tolist() for name in BUCKETS},
        latency=LatencySeries(p50=p50, p95=p95, p99=p99),
    )
    # Thousands of points that are known to be right need not be looked at one by one.
    return Response(stats.model_dump_json(), media_type="application/json")


def _read(core: Core, query: StatsQuery, cache: dict[Window, list[Reading]]) -> Operation[Range]:
    window = query.window or "10m"
    if query.span is not None or query.until is not None:
        until = None if query.until is None else query.until.timestamp()
        span = query.span or history.SECONDS[window]
        return (yield from history.span(core, span, until, query.step or 1, cache))
    least = history.STEPS[window]
    step = max(least, query.step or _DEFAULT_STEPS.get(window, least))
    return Range(window, step, (yield from history.window(core, window, step, cache)))


def _latency(points: Series) -> Latency:
    return Latency(*points.total_percentiles(0.5, 0.95, 0.99))
