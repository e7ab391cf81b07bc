"""Metrics for Prometheus: exact counts, read when they are asked for."""

import logging
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Annotated, Any, NamedTuple

from fastapi import APIRouter, Query, Request
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from pydantic import Field
from starlette.responses import Response

from acker.errors import MissingRights, StoreMisconfigured, StoreUnavailable
from acker.inspect.topology import history, totals
from acker.inspect.topology.health import Health
from acker.inspect.topology.history import COLUMNS
from acker.inspect.topology.troubles import CODES, LEVELS
from acker.inspect.topology.unreadable_topology import Damaged, Unreachable
from acker.ledger import async_ledger
from acker.ledger.async_ledger import AsyncLedger
from acker.ledger.outcomes import latency_histogram
from acker.ledger.outcomes.counts import UNREADABLE
from acker.ledger.steps import step_totals
from acker.ledger.steps.step_totals import StepTotals
from acker.ledger.trees.buckets import BUCKETS
from acker.store.operation import Operation, abreast
from acker.streams.log.stream_totals import SubscriptionTotals
from api.fields import Model, Name
from api.problems import declared
from api.service.service import Service, ServiceDep
from api.streams.live import LOOK_SECONDS, Live, LiveDep

TOPOLOGIES = 200
"""Most topologies that are shown: what has a label costs the one who scrapes."""
STEPS = 100
"""Most steps of a topology that are shown, by name."""
SUBSCRIPTIONS = 100
"""Most subscriptions of a topology that are shown: those with the most rows behind."""
_MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_GAUGES = {
    "outstanding": "Trees pending, or with an outcome that is not confirmed.",
    "waiting": "Slabs with messages before their track.",
    "backlog": "Rotations of which not everything is drained, of the shard with most.",
    "high_water_use": "How full the fullest shard is: 1 rejects.",
    "rotation_age": "Seconds since the last rotation of the shard that waits the longest.",
}
_NAMES = {"high_water_use": "high_water_ratio", "rotation_age": "rotation_age_seconds"}
# Every doubling of a latency, from 1 ms to 36 hours.
_EDGES = range(
    latency_histogram.PER_DOUBLING, 28 * latency_histogram.PER_DOUBLING, latency_histogram.PER_DOUBLING
)

router = APIRouter(tags=["metrics"])
_log = logging.getLogger(__name__)

_TEXT: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "In Prometheus' text format.",
        "content": {
            "text/plain": {
                "schema": {"type": "string"},
                "example": 'acker_tracked_trees_total{topology="wordcount"} 1200.0\n',
            }
        },
    }
}


class MetricsQuery(Model):
    """The topologies to show."""

    topology: Annotated[list[Name], Field(max_length=TOPOLOGIES)] = Field(
        default_factory=list,
        description="Of these alone, as often as it is given; an unknown one is left out. Without any the "
        "first 200 by name.",
    )


@router.get("/metrics", responses={**_TEXT, **declared()}, response_class=Response, response_model=None)
async def get_metrics(
    request: Request, service: ServiceDep, live: LiveDep, query: Annotated[MetricsQuery, Query()]
) -> Response:
    """Counters, gauges and latencies of topologies; `acker_store_up` is 0, and alone, without the store.

    Where some servers of a cluster do not answer it is 0, too, and their topologies have no figures.
    """
    registry = CollectorRegistry()
    registry.register(await _collector(service, live, query.topology, request.app.version))
    return Response(generate_latest(registry), media_type=_MEDIA_TYPE)


async def _collector(service: Service, live: Live, asked: list[str], version: str) -> "_Collector":
    """The collector of the present figures."""
    try:
        names = await async_ledger.names(service.shared)
        chosen = [name for name in names if name in set(asked)] if asked else names[:TOPOLOGIES]
        readings = await service.of_each(chosen, partial(_read, service), background=True, partly=True)
    except (StoreUnavailable, StoreMisconfigured, MissingRights, TimeoutError):
        return _Collector([], [], None, live.streams, version, up=False)
    for reading in readings:
        if isinstance(reading, Damaged):
            _log.error("topology %s has no metrics: %s", reading.topology, reading.reason)
    whole = [reading for reading in readings if isinstance(reading, tuple)]
    unread = [reading.topology for reading in readings if isinstance(reading, Damaged)]
    up = not any(isinstance(reading, Unreachable) for reading in readings)
    return _Collector(whole, unread, len(names), live.streams, version, up=up)


class _Read(NamedTuple):
    """The figures of a topology. oldest: age of its oldest tree in seconds; 0 where it has none."""

    topology: str
    columns: dict[str, float]
    latencies: dict[int, int]
    health: Health
    steps: list[StepTotals]
    oldest: float


async def _read(service: Service, ledger: AsyncLedger) -> _Read:
    """The figures of a topology."""
    core = ledger.core
    reading: list[Operation[Any]] = [history.read(core), totals.totals(core), step_totals.totals(core)]
    (values, latencies), read, steps = await ledger.run(abreast(reading))
    columns = dict(zip(COLUMNS, values, strict=True))
    columns["unreadable"] = read.unreadable
    # With a history its beat has looked lately, and that is most of what a topology costs.
    age = LOOK_SECONDS if service.settings.history else 1.0
    health = await service.health(ledger, read, most_age=age)
    return _Read(ledger.config.name, columns, latencies, health, steps[:STEPS], read.oldest_age or 0.0)


class _Collector(Collector):
    """Figures as metrics."""

    def __init__(
        self,
        reads: Iterable[_Read],
        damaged: Iterable[str],
        topologies: int | None,
        streams: int,
        version: str,
        *,
        up: bool,
    ) -> None:
        self._reads, self._damaged = list(reads), list(damaged)
        self._topologies, self._streams, self._version, self._up = topologies, streams, version, up

    def collect(self) -> Iterator[Metric]:
        """The families of metrics."""
        words = "1 where the store answers this server; 0 where a server of a cluster does not, too."
        yield _gauge("store_up", words, [], [([], self._up)])
        build = GaugeMetricFamily("acker_build_info", "1; the version of this server.", labels=["version"])
        build.add_metric([self._version], 1)
        yield build
        yield _gauge("event_streams", "Event streams of this server.", [], [([], self._streams)])
        if self._topologies is None:
            return
        yield _gauge("topologies", "Topologies of the store.", [], [([], self._topologies)])
        yield from self._of_topologies()

    def _of_topologies(self) -> Iterator[Metric]:
        for name, counter in (history.COUNTED | {"unreadable": UNREADABLE}).items():
            family = CounterMetricFamily(
                "_".join(filter(None, ("acker", name, counter.unit))), counter.words, labels=["topology"]
            )
            for topology, values, *_ in self._reads:
                family.add_metric([topology], values[name])
            yield family
        yield from self._of_steps()
        yield _gauge(
            "oldest_tree_seconds",
            "Age of the oldest tree in flight, or less; 0 where there is none.",
            [],
            [([read.topology], read.oldest) for read in self._reads],
        )
        pending = [
            ([topology, bucket], max(0.0, values[bucket]))
            for topology, values, *_ in self._reads
            for bucket in BUCKETS
        ]
        yield _gauge("pending_trees", "Trees in flight, by time bucket.", ["bucket"], pending)
        for name, help_text in _GAUGES.items():
            figures = [([topology], values[name]) for topology, values, *_ in self._reads]
            yield _gauge(_NAMES.get(name, name), help_text, [], figures)
        letters = [
            ([topology, spout], count)
            for topology, _, _, health, *_ in self._reads
            for spout, count in health.dead_letters.items()
        ]
        yield _gauge("dead_letters", "Rows of a spout that were given up.", ["spout"], letters)
        yield _gauge(
            "rows_behind",
            "Rows that a subscription has still to ack.",
            ["stream", "subscription"],
            [figure for topology, _, _, health, *_ in self._reads for figure in _behind(topology, health)],
        )
        yield _gauge(
            "oldest_row_seconds",
            "Age of the oldest segment of rows that nobody of a subscription has taken.",
            ["stream", "subscription"],
            [figure for topology, _, _, health, *_ in self._reads for figure in _ages(topology, health)],
        )
        yield self._latencies()
        troubles = [
            ([topology, code], code in {trouble.code for trouble in health.troubles})
            for topology, _, _, health, *_ in self._reads
            for code in CODES
        ] + [([topology, "unreadable"], True) for topology in self._damaged]
        yield _gauge("trouble", "1 where a rule of health has found something.", ["trouble"], troubles)
        muted = [
            ([topology, mute.trouble.code], 1)
            for topology, _, _, health, *_ in self._reads
            for mute in health.muted
        ]
        yield _gauge("muted", "1 where a trouble is there, and somebody has muted it.", ["trouble"], muted)
        levels = [
            ([topology, level], level == health.severity)
            for topology, _, _, health, *_ in self._reads
            for level in LEVELS
        ] + [([topology, "critical"], True) for topology in self._damaged]
        yield _gauge("severity", "1 for the severity of a topology.", ["severity"], levels)

    def _of_steps(self) -> Iterator[Metric]:
        """The counts of steps."""
        counts = (
            ("acker_step_tuples", "Tuples that a step acked.", "tuples"),
            ("acker_step_failed_trees", "Trees that a step failed.", "failed"),
        )
        for name, words, figure in counts:
            family = CounterMetricFamily(name, words, labels=["topology", "step"])
            for read in self._reads:
                for step in read.steps:
                    family.add_metric([read.topology, step.step], getattr(step, figure))
            yield family
        seen = [
            ([read.topology, step.step], step.last_seen)
            for read in self._reads
            for step in read.steps
            if step.last_seen is not None
        ]
        words = "Unix time of the last ack or fail of a step, by the store's clock."
        yield _gauge("step_last_seen_timestamp_seconds", words, ["step"], seen)

    def _latencies(self) -> HistogramMetricFamily:
        family = HistogramMetricFamily(
            "acker_complete_latency_seconds",
            "Seconds from track to ack. Counts are exact; the sum is of the middles of narrower buckets.",
            labels=["topology"],
        )
        for topology, _, latencies, *_ in self._reads:
            buckets = [
                (
                    f"{latency_histogram.bounds(edge)[0] / 1000:.3f}",
                    float(sum(count for bucket, count in latencies.items() if bucket < edge)),
                )
                for edge in _EDGES
            ]
            total = sum(latencies.values())
            middles = sum(
                sum(latency_histogram.bounds(bucket)) / 2000 * count for bucket, count in latencies.items()
            )
            family.add_metric([topology], [*buckets, ("+Inf", float(total))], sum_value=middles)
        return family


def _gauge(
    name: str, words: str, labels: Sequence[str], figures: Sequence[tuple[list[str], float]]
) -> GaugeMetricFamily:
    """A family of gauges. labels: beside the topology. figures: values of labels, and the figure of each."""
    of_topologies = all(values for values, _ in figures)
    family = GaugeMetricFamily(f"acker_{name}", words, labels=["topology", *labels] if of_topologies else [])
    for values, figure in figures:
        family.add_metric(values, figure)
    return family


def _most_behind(health: Health) -> list[tuple[str, SubscriptionTotals]]:
    """Streams and subscriptions of a topology that have most unacked rows."""
    every = [(one.name, own) for one in health.streams for own in one.subscriptions]
    return sorted(every, key=lambda of: -of[1].rows_behind)[:SUBSCRIPTIONS]


def _behind(topology: str, health: Health) -> list[tuple[list[str], float]]:
    """Returns the unacked rows of subscriptions."""
    return [([topology, stream, one.name or ""], one.rows_behind) for stream, one in _most_behind(health)]


def _ages(topology: str, health: Health) -> list[tuple[list[str], float]]:
    """Returns the ages of the oldest segments that wait for subscriptions; 0 where none waits."""
    most = _most_behind(health)
    return [([topology, stream, one.name or ""], one.unread_age or 0.0) for stream, one in most]
