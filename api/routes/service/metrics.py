"""Metrics for Prometheus: exact counts, read when they are asked for."""

import logging
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any

from fastapi import APIRouter
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from starlette.responses import Response

from acker.inspect.topology import history, totals
from acker.inspect.topology.health import Health
from acker.inspect.topology.history import COLUMNS
from acker.inspect.topology.troubles import CODES, LEVELS
from acker.inspect.topology.unreadable_topology import Damaged
from acker.ledger import async_ledger
from acker.ledger.async_ledger import AsyncLedger
from acker.ledger.outcomes import latency_histogram
from acker.ledger.outcomes.counts import UNREADABLE
from acker.ledger.trees.buckets import BUCKETS
from api.problems import declared
from api.service.service import Service, ServiceDep
from api.streams.live import LiveDep

TOPOLOGIES = 200
"""Most topologies that are shown: what has a label costs the one who scrapes."""
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


@router.get("/metrics", responses={**_TEXT, **declared()}, response_class=Response, response_model=None)
async def get_metrics(service: ServiceDep, live: LiveDep) -> Response:
    """Counters, gauges and latencies of all topologies, the first 200 by name."""
    names = await async_ledger.names(service.store)
    readings = await service.of_each(names[:TOPOLOGIES], partial(_read, service))
    for reading in readings:
        if isinstance(reading, Damaged):
            _log.error("topology %s has no metrics: %s", reading.topology, reading.reason)
    whole = [reading for reading in readings if isinstance(reading, tuple)]
    unread = [reading.topology for reading in readings if isinstance(reading, Damaged)]
    registry = CollectorRegistry()
    registry.register(_Collector(whole, unread, len(names), live.streams))
    return Response(generate_latest(registry), media_type=_MEDIA_TYPE)


_Read = tuple[str, dict[str, float], dict[int, int], Health]


async def _read(service: Service, ledger: AsyncLedger) -> _Read:
    """The figures of a topology."""
    values, latencies = await ledger.run(history.read(ledger.core))
    columns = dict(zip(COLUMNS, values, strict=True))
    columns["unreadable"] = await ledger.run(totals.unreadable(ledger.core))
    return ledger.config.name, columns, latencies, await service.health(ledger)


class _Collector(Collector):
    """Figures as metrics."""

    def __init__(self, reads: Iterable[_Read], damaged: Iterable[str], topologies: int, streams: int) -> None:
        self._reads, self._damaged = list(reads), list(damaged)
        self._topologies, self._streams = topologies, streams

    def collect(self) -> Iterator[Metric]:
        """The families of metrics."""
        yield _gauge("topologies", "Topologies of the store.", [], [([], self._topologies)])
        yield _gauge("event_streams", "Event streams of this server.", [], [([], self._streams)])
        for name, counter in (history.COUNTED | {"unreadable": UNREADABLE}).items():
            family = CounterMetricFamily(
                "_".join(filter(None, ("acker", name, counter.unit))), counter.words, labels=["topology"]
            )
            for topology, values, *_ in self._reads:
                family.add_metric([topology], values[name])
            yield family
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
            for topology, *_, health in self._reads
            for spout, count in health.dead_letters.items()
        ]
        yield _gauge("dead_letters", "Rows of a spout that were given up.", ["spout"], letters)
        yield _gauge(
            "rows_behind",
            "Rows that a subscription has still to ack.",
            ["stream", "subscription"],
            [figure for topology, *_, health in self._reads for figure in _behind(topology, health)],
        )
        yield self._latencies()
        troubles = [
            ([topology, code], code in {trouble.code for trouble in health.troubles})
            for topology, *_, health in self._reads
            for code in CODES
        ] + [([topology, "unreadable"], True) for topology in self._damaged]
        yield _gauge("trouble", "1 where a rule of health has found something.", ["trouble"], troubles)
        muted = [
            ([topology, mute.trouble.code], 1)
            for topology, *_, health in self._reads
            for mute in health.muted
        ]
        yield _gauge("muted", "1 where a trouble is there, and somebody has muted it.", ["trouble"], muted)
        levels = [
            ([topology, level], level == health.severity)
            for topology, *_, health in self._reads
            for level in LEVELS
        ] + [([topology, "critical"], True) for topology in self._damaged]
        yield _gauge("severity", "1 for the severity of a topology.", ["severity"], levels)

    def _latencies(self) -> HistogramMetricFamily:
        family = HistogramMetricFamily(
            "acker_complete_latency_seconds",
            "Seconds from track to ack. Counts are exact; the sum is of the middles of narrower buckets.",
            labels=["topology"],
        )
        for topology, _, latencies, _ in self._reads:
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


def _behind(topology: str, health: Health) -> list[tuple[list[str], float]]:
    """Returns the unacked rows of the subscriptions of a topology that have most of them."""
    every = [(own.rows_behind, one.name, own.name) for one in health.streams for own in one.subscriptions]
    most = sorted(every, key=lambda of: -of[0])[:SUBSCRIPTIONS]
    return [([topology, stream, name or ""], max(0, rows)) for rows, stream, name in most]
