"""The state of a topology: in short, as it stands in a list, and all of it but its trees.

Terms: a tree is all that comes of one record.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Any

from acker.inspect.slow_scripts import SlowScript, slow_scripts
from acker.inspect.topology.health import Health
from acker.inspect.topology.thresholds import Thresholds
from acker.inspect.topology.totals import BucketTotals, ShardTotals, Totals
from acker.inspect.topology.triage import Levels
from acker.inspect.topology.unreadable_topology import Damaged
from acker.ledger.calls.core import Core
from acker.ledger.fields import SPREAD, Count, Instant, Name, Seconds
from acker.ledger.outcomes import counts
from acker.ledger.outcomes.counts import UNREADABLE
from acker.ledger.outcomes.latency_histogram import Latency
from acker.ledger.settings.config import TopologyConfig
from acker.ledger.steps import step_registry, step_totals
from acker.ledger.steps.step_registry import Step
from acker.ledger.steps.step_totals import StepTotals
from acker.store.operation import Operation
from acker.store.records import Bounds
from acker.streams.log.stream_totals import StreamTotals, stream_totals


@dataclass(frozen=True, slots=True)
class Stored:
    """A topology as it is stored."""

    topology: Name
    configuration: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Summary:
    """The figures that a card shows of a topology."""

    stored: Annotated[Stored, SPREAD]
    health: Health
    counters: dict[str, int]
    pending: Count
    outstanding: Count
    high_water_use: Annotated[float, Bounds(0), "How full the fullest shard is; 1 rejects."]
    unreadable: Annotated[Count, UNREADABLE.words]
    dead_letters: Annotated[Count, "Rows that were given up, of all spouts."]
    rows_behind: Annotated[Count, "Rows that subscriptions have still to ack, of all streams."]
    backlog: Count
    rotation_age: Seconds | None


@dataclass(frozen=True, slots=True)
class State:
    """The state of a topology, without its trees."""

    summary: Annotated[Summary, SPREAD]
    at: Annotated[Instant | None, "By the store's clock; null where tracking is off."]
    latency: Annotated[Latency, "Of all trees acked so far."]
    oldest_age: Seconds | None
    waiting_slabs: Count
    buckets: Annotated[list[BucketTotals], "Over all shards."]
    shards: tuple[ShardTotals, ...]
    thresholds: Thresholds
    spouts: list[Name]
    dead_letters_of: Annotated[dict[Name, Count], "Of the spouts that have any."]
    streams: list[StreamTotals]
    steps: Annotated[list[Step], "Spouts and bolts at work, the one seen last first."]
    step_totals: Annotated[list[StepTotals], "What steps have done, by name."]
    slow_scripts: Annotated[
        tuple[SlowScript, ...],
        "Scripts of any client that held its server for long lately, the latest first.",
    ] = ()


@dataclass(frozen=True, slots=True)
class Listing:
    """A page of topologies, by name or in the order of triage; unreadable ones stand apart."""

    topologies: list[Summary]
    unreadable: Annotated[list[Damaged], "Unreadable topologies of the page: they are not among the others."]
    cursor: Annotated[str | None, "Of the next page; null at the end."]
    counts: Annotated[
        Levels | None, "Topologies by severity, of the name that was asked for; null where nobody asked."
    ] = None


def stored(config: TopologyConfig) -> Stored:
    """A topology as it is stored."""
    return Stored(config.name, {**config.settings, "tick_period": config.tick_ms / 1000})


def summary(config: TopologyConfig, read: Totals, judged: Health) -> Summary:
    """A topology in short."""
    return Summary(
        stored(config),
        judged,
        read.counters,
        read.pending,
        read.outstanding,
        max(0.0, read.high_water_use),
        read.unreadable,
        sum(judged.dead_letters.values()),
        judged.rows_behind,
        read.backlog,
        read.rotation_age,
    )


def state(core: Core, read: Totals, judged: Health, *, scripts: bool = False) -> Operation[State]:
    """The state of a topology, without its trees. scripts: True looks for slow scripts, too."""
    return State(
        summary(core.config, read, judged),
        at=read.at,
        latency=Latency.from_histogram((yield from counts.latencies(core))),
        oldest_age=read.oldest_age,
        waiting_slabs=read.waiting,
        buckets=read.in_buckets,
        shards=read.shards,
        thresholds=judged.thresholds,
        spouts=sorted(core.spouts),
        dead_letters_of=dict(judged.dead_letters),
        streams=(yield from stream_totals(core)),
        steps=(yield from step_registry.steps(core)),
        step_totals=(yield from step_totals.totals(core)),
        slow_scripts=(yield from slow_scripts(core)) if scripts else (),
    )


def listing(
    topologies: Iterable[Summary | Damaged], cursor: str | None = None, counts: Levels | None = None
) -> Listing:
    """Topologies, or a page of them."""
    every = list(topologies)
    return Listing(
        [topology for topology in every if isinstance(topology, Summary)],
        [topology for topology in every if isinstance(topology, Damaged)],
        cursor,
        counts,
    )
