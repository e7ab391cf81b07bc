"""Topologies: which there are, and how each of them is."""

import asyncio
from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import BaseModel, ConfigDict, Field

from acker import aio, steps
from acker.buckets import BUCKETS
from acker.config import TopologyConfig
from acker.errors import UnknownTopology
from acker.stream_totals import StreamTotals, stream_totals
from acker.totals import BucketTotals, ShardTotals, Totals
from api.fields import Name, instant
from api.models.topologies import (
    BucketState,
    Configuration,
    Counters,
    Health,
    Latency,
    Removed,
    ShardState,
    Step,
    StreamState,
    SubscriptionState,
    Topologies,
    TopologyState,
    TopologySummary,
    Trouble,
)
from api.problems import declared
from api.service import LedgerDep, Service, ServiceDep

NEARLY_FULL = 0.8
PERCENTILES = (0.5, 0.95, 0.99)
_AT_ONCE = 8

router = APIRouter(prefix="/topologies", tags=["topologies"])


class TopologiesQuery(BaseModel):
    """Which page of topologies."""

    model_config = ConfigDict(extra="forbid")

    limit: Annotated[int, Field(ge=1, le=100)] = 50
    cursor: Name | None = Field(default=None, description="Of the page before.")


@router.get("", responses=declared())
async def list_topologies(service: ServiceDep, query: Annotated[TopologiesQuery, Query()]) -> Topologies:
    """Topologies by name, a page at a time: what a card shows of each."""
    names = [name for name in await aio.topologies(service.store) if name > (query.cursor or "")]
    page = names[: query.limit]
    turns = asyncio.Semaphore(_AT_ONCE)

    async def read(name: str) -> TopologySummary | None:
        async with turns:
            return await _summary_of(service, name)

    found = await asyncio.gather(*(read(name) for name in page))
    return Topologies(
        topologies=[one for one in found if one is not None],
        cursor=page[-1] if len(names) > len(page) else None,
    )


@router.get("/{topology}", responses=declared(404))
async def get_topology(ledger: LedgerDep) -> TopologyState:
    """A topology's configuration and counters, and how full and old its shards and buckets are."""
    read = await ledger.totals()
    p50, p95, p99 = await ledger.latency(*PERCENTILES)
    return TopologyState(
        **_summary_fields(ledger.config, read),
        at=None if read.at is None else instant(read.at),
        latency=Latency(p50=p50, p95=p95, p99=p99),
        oldest_age=read.oldest_age,
        waiting_slabs=read.waiting,
        buckets=_all_buckets(read),
        shards=[_shard(shard) for shard in read.shards],
        spouts=sorted(ledger.core.spouts),
        streams=[_stream(stream) for stream in await ledger.run(stream_totals(ledger.core))],
        steps=[_step(step) for step in await ledger.run(steps.steps(ledger.core))],
    )


class RemovalQuery(BaseModel):
    """Whether a topology is removed whatever it holds."""

    model_config = ConfigDict(extra="forbid")

    force: bool = Field(default=False, description="Also with trees in flight: no spout hears of them again.")


@router.delete("/{topology}", responses=declared(404, 409, 429))
async def remove_topology(ledger: LedgerDep, query: Annotated[RemovalQuery, Query()]) -> Removed:
    """Removes a topology with all that it holds: streams, kept rows and dead letters, too.

    Refused while trees are in flight or have an outcome that is not confirmed, unless it is forced. Stop its
    jobs first: who still works on it stores it again.
    """
    return Removed(topology=ledger.config.name, dropped=await ledger.remove(query.force))


async def _summary_of(service: Service, name: str) -> TopologySummary | None:
    try:
        ledger = await service.ledger(name)
    except UnknownTopology:
        return None
    return TopologySummary(**_summary_fields(ledger.config, await ledger.totals()))


def health(config: TopologyConfig, rotation_age: float | None, use: float, backlog: int) -> Health:
    """Whether a topology needs a human. rotation_age: seconds; use: of the fullest shard, 1 is full."""
    ticking = rotation_age is None or rotation_age <= config.tick_ms / 1000 + config.tick_limit
    troubles: list[Trouble] = []
    if not ticking:
        troubles.append("no-ticks")
    if use >= NEARLY_FULL:
        troubles.append("full" if use >= 1 else "nearly-full")
    if backlog > 1:
        troubles.append("drain-behind")
    return Health(ticking=ticking, troubles=troubles)


def _configuration(config: TopologyConfig) -> Configuration:
    return Configuration.model_validate({**config.settings, "tick_period": config.tick_ms / 1000})


def _summary_fields(config: TopologyConfig, read: Totals) -> dict[str, Any]:
    return {
        "topology": config.name,
        "configuration": _configuration(config),
        "health": health(config, read.rotation_age, read.high_water_use, read.backlog),
        "counters": Counters(**read.counters),
        "pending": max(0, read.pending),
        "held": max(0, read.held),
        "high_water_use": max(0.0, read.high_water_use),
        "unreadable": read.unreadable,
        "backlog": read.backlog,
        "rotation_age": read.rotation_age,
    }


def _shard(shard: ShardTotals) -> ShardState:
    return ShardState(
        shard=shard.shard,
        pending=max(0, shard.pending),
        waiting_slabs=shard.waiting,
        held=max(0, shard.held),
        limit=shard.limit,
        rotations=shard.rotations,
        rotation_age=shard.rotation_age,
        backlog=shard.backlog,
        oldest_age=shard.oldest_age,
        counters=Counters(**shard.counters),
        buckets=[_bucket(bucket) for bucket in shard.buckets],
    )


def _stream(stream: StreamTotals) -> StreamState:
    return StreamState(
        stream=stream.name,
        segments=max(0, stream.segments),
        bytes=max(0, stream.bytes),
        dropped=stream.dropped,
        subscriptions=[
            SubscriptionState(
                subscription=one.name,
                rows_published=one.rows_published,
                rows_acked=one.rows_acked,
                rows_dropped=one.rows_dropped,
                rows_behind=max(0, one.rows_behind),
                acks_late=one.acks_late,
                unread_age=one.unread_age,
            )
            for one in stream.subscriptions
        ],
    )


def _step(step: steps.Step) -> Step:
    seen = None if step.last_seen is None else instant(step.last_seen)
    return Step(**asdict(step) | {"last_seen": seen})


def _bucket(bucket: BucketTotals) -> BucketState:
    return BucketState(**asdict(bucket))


def _all_buckets(read: Totals) -> list[BucketState]:
    found = []
    for place, name in enumerate(BUCKETS):
        parts = [shard.buckets[place] for shard in read.shards]
        oldest = [part.oldest for part in parts if part.oldest is not None]
        found.append(
            BucketState(
                bucket=name,
                trees=sum(part.trees for part in parts),
                slabs=sum(part.slabs for part in parts),
                youngest=min((part.youngest for part in parts), default=0.0),
                oldest=max(oldest) if len(oldest) == len(parts) and oldest else None,
            )
        )
    return found
