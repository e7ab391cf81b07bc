"""Metrics for Prometheus: exact counts, read when they are asked for."""

import asyncio
import logging
from collections.abc import Iterable, Iterator
from typing import Any

from fastapi import APIRouter
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from starlette.responses import Response

from acker.errors import UnknownTopology
from acker.inspect.topology import history, totals
from acker.inspect.topology.health import Health
from acker.inspect.topology.health_rules import CODES
from acker.inspect.topology.history import COLUMNS
from acker.inspect.topology.unreadable_topology import Damaged, damaged
from acker.ledger import async_ledger
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
_AT_ONCE = 8
_MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_GAUGES = {
    "held": "Trees pending, or with an outcome that is not confirmed.",
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
    turns = asyncio.Semaphore(_AT_ONCE)

    async def read(name: str) -> _Read | Damaged | None:
        async with turns:
            return await _read(service, name)

    found = await asyncio.gather(*(read(name) for name in names[:TOPOLOGIES]))
    whole = [one for one in found if isinstance(one, tuple)]
    unread = [one.topology for one in found if isinstance(one, Damaged)]
    registry = CollectorRegistry()
    registry.register(_Collector(whole, unread, len(names), live.streams))
    return Response(generate_latest(registry), media_type=_MEDIA_TYPE)


_Read = tuple[str, dict[str, float], dict[int, int], Health]


async def _read(service: Service, name: str) -> _Read | Damaged | None:
    """The figures of a topology; None where it is gone."""
    try:
        ledger = await service.ledger(name)
        values, latencies = await ledger.run(history.read(ledger.core))
        columns = dict(zip(COLUMNS, values, strict=True))
        columns["unreadable"] = await ledger.run(totals.unreadable(ledger.core))
        return name, columns, latencies, await service.health(ledger)
    except UnknownTopology:
        return None
    except Exception as error:  # noqa: BLE001 - one topology must not keep the others without alerts
        found = damaged(name, error)
        _log.error("topology %s has no metrics: %s", name, found.reason)
        return found


class _Collector(Collector):
    """Figures as metrics."""

    def __init__(self, reads: Iterable[_Read], damaged: Iterable[str], topologies: int, streams: int) -> None:
        self._reads, self._damaged = list(reads), list(damaged)
        self._topologies, self._streams = topologies, streams

    def collect(self) -> Iterator[Metric]:
        """The families of metrics."""
        yield GaugeMetricFamily("acker_topologies", "Topologies of the store.", value=self._topologies)
        yield GaugeMetricFamily("acker_event_streams", "Event streams of this server.", value=self._streams)
        for name, one in (history.COUNTED | {"unreadable": UNREADABLE}).items():
            family = CounterMetricFamily(
                "_".join(filter(None, ("acker", name, one.unit))), one.words, labels=["topology"]
            )
            for topology, values, *_ in self._reads:
                family.add_metric([topology], values[name])
            yield family
        pending = GaugeMetricFamily(
            "acker_pending_trees", "Trees in flight, by time bucket.", labels=["topology", "bucket"]
        )
        for topology, values, *_ in self._reads:
            for bucket in BUCKETS:
                pending.add_metric([topology, bucket], max(0.0, values[bucket]))
        yield pending
        for name, help_text in _GAUGES.items():
            gauge = GaugeMetricFamily(f"acker_{_NAMES.get(name, name)}", help_text, labels=["topology"])
            for topology, values, *_ in self._reads:
                gauge.add_metric([topology], values[name])
            yield gauge
        yield from self._kept()
        yield self._latencies()
        trouble = GaugeMetricFamily(
            "acker_trouble", "1 where a rule of health has found something.", labels=["topology", "trouble"]
        )
        for topology, *_, found in self._reads:
            there = {one.code for one in found.troubles}
            for code in CODES:
                trouble.add_metric([topology, code], code in there)
        for topology in self._damaged:
            trouble.add_metric([topology, "unreadable"], 1)
        yield trouble

    def _kept(self) -> Iterator[Metric]:
        """What waits for somebody: dead letters of each spout, and rows of each subscription."""
        letters = GaugeMetricFamily(
            "acker_dead_letters", "Rows of a spout that were given up.", labels=["topology", "spout"]
        )
        behind = GaugeMetricFamily(
            "acker_rows_behind",
            "Rows that a subscription has still to ack.",
            labels=["topology", "stream", "subscription"],
        )
        for topology, *_, found in self._reads:
            for spout, count in found.dead_letters.items():
                letters.add_metric([topology, spout], count)
            every = [
                (own.rows_behind, one.name, own.name) for one in found.streams for own in one.subscriptions
            ]
            for rows, stream, name in sorted(every, key=lambda of: -of[0])[:SUBSCRIPTIONS]:
                behind.add_metric([topology, stream, name or ""], max(0, rows))
        yield letters
        yield behind

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
