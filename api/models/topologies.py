"""Topologies: their configuration and how full, how old and how well they are."""

from typing import Any, Literal

from pydantic import Field

from acker.inspect.as_json import topology_forms
from acker.inspect.topology import health as rules
from acker.inspect.topology.health_rules import THRESHOLDS, Code
from acker.inspect.topology.unreadable_topology import REASON
from acker.ledger.outcomes.counts import COUNTERS, UNREADABLE
from acker.ledger.settings.config import SETTINGS
from acker.ledger.settings.settings import Setting
from acker.ledger.trees.buckets import Bucket
from api.fields import Answer, Count, Instant, Name, Numbers, Seconds, counted, with_fields


def _settings(listed: dict[str, Setting], *, asked: bool) -> dict[str, Any]:
    """Settings as fields; asked: each may be left out."""
    found = {}
    for name, one in listed.items():
        kind: Any = Literal[one.choices] if one.choices else one.kind
        bounds: Any = {} if one.choices else {"ge": one.low, "le": one.high}
        field = Field(default=None if asked else ..., description=one.words, **bounds)
        found[name] = kind | None if asked else kind, field
    return found


@with_fields(_settings(SETTINGS, asked=False))
class Configuration(Answer):
    """The configuration of a topology, as stored."""

    tick_period: Seconds = Field(description="Seconds between two rotations of a shard's buckets.")


@with_fields(_settings(SETTINGS, asked=True))
class TopologySettings(Numbers):
    """The settings of a topology. One that is left out is taken as it is stored, or else from its default."""


@with_fields(counted(COUNTERS, Count))
class Counters(Answer):
    """Exact counts since the topology was made."""


class Latency(Answer):
    """Seconds, of trees; null where there were none."""

    p50: float | None
    p95: float | None
    p99: float | None


class BucketState(Answer):
    """One time bucket. Trees enter the nursery and go towards `expiring`, which a tick has set aside."""

    bucket: Bucket
    trees: Count = Field(description="Trees pending.")
    slabs: Count
    youngest: Seconds = Field(description="Least seconds since its trees were tracked or reset.")
    oldest: Seconds | None = Field(description="Most seconds since then; null where there is no bound.")


class ShardState(Answer):
    """One shard of the ledger."""

    shard: int = Field(ge=0)
    pending: Count = Field(description="Trees in flight.")
    waiting_slabs: Count = Field(description="Slabs with messages before their track.")
    held: Count = Field(description="Trees pending, or with an outcome that is not confirmed.")
    limit: Count = Field(description="Most that it may hold.")
    rotations: Count
    rotation_age: Seconds | None = Field(description="Seconds since the last rotation.")
    backlog: Count = Field(description="Rotations of which not everything is drained.")
    oldest_age: Seconds | None = Field(
        description="Seconds since the oldest pending tree was tracked, or less."
    )
    counters: Counters
    buckets: list[BucketState]


class Trouble(Answer):
    """Something that needs a human."""

    code: Code
    text: str = Field(description="In words.")
    advice: str = Field(description="What to do.")
    since: Instant | None = Field(description="By the store's clock; null where that is not known.")


class Health(Answer):
    """Whether something needs a human: the same rules in all places, with the thresholds of the topology."""

    ticking: bool = Field(
        description="No rotation is overdue by more than half a tick period (but 5 to 60 s)."
    )
    troubles: list[Trouble]


@with_fields(_settings(THRESHOLDS, asked=False))
class Thresholds(Answer):
    """From where on something is a trouble; 0 switches its rule off."""


@with_fields(_settings(THRESHOLDS, asked=True))
class ThresholdsBody(Numbers):
    """Thresholds to set. Others stay as they are."""


class TopologySummary(Answer):
    """What a card shows of a topology."""

    topology: Name
    configuration: Configuration
    health: Health
    counters: Counters
    pending: Count
    held: Count
    high_water_use: float = Field(ge=0, description="How full the fullest shard is; 1 rejects.")
    unreadable: Count = Field(description=UNREADABLE.words)
    dead_letters: Count = Field(description="Rows that were given up, of all spouts.")
    rows_behind: Count = Field(description="Rows that subscriptions have still to ack, of all streams.")
    backlog: Count
    rotation_age: Seconds | None


class UnreadableTopology(Answer):
    """A topology that cannot be read."""

    topology: Name
    reason: str = Field(max_length=REASON, description="What cannot be read, in words.")


class Topologies(Answer):
    """A page of topologies, by name."""

    topologies: list[TopologySummary]
    unreadable: list[UnreadableTopology] = Field(
        description="Those of the page that cannot be read: they are not among the others."
    )
    cursor: Name | None = Field(description="Of the next page; null at the end.")


class Stored(Answer):
    """A topology as it is stored."""

    topology: Name
    configuration: Configuration


class Removed(Answer):
    """A topology that is gone."""

    topology: Name
    dropped: Count = Field(description="Its trees that were in flight, or had an outcome not confirmed.")


class Step(Answer):
    """A spout or bolt, as it has said of itself."""

    name: str
    kind: str = Field(description="What it is: bolt, spout and so on.", examples=["bolt"])
    application: str
    application_id: str
    query: str = Field(description="The name of its streaming query.")
    query_id: str
    batch: int = Field(description="Its last micro-batch; -1 where there is none.")
    reads: list[str] = Field(description="Streams; of a spout its sources, as Spark names them.")
    emits: list[str] = Field(description="Streams.")
    seconds: Seconds = Field(description="How long its last batch took; 0 where that is not known.")
    late: Count = Field(description="Acks of that batch that came when their trees were over.")
    last_seen: Instant | None
    age: Seconds | None = Field(description="Seconds since then, by the store's clock.")


class StepTotals(Answer):
    """What a step has done since the topology was made, whoever ran it."""

    step: str = Field(description="(others): the steps after the first 255, together.")
    tuples: Count = Field(
        description="Tuples that it acked, one of several trees in each; those of rows that it failed in a "
        "batch are among them."
    )
    failed: Count = Field(description="Trees that it failed.")
    last_seen: Instant | None = Field(description="Its last ack or fail.")
    age: Latency = Field(description="Of trees since their track, when it acked tuples of theirs.")


class SubscriptionState(Answer):
    """A reader of a stream: a subscription has its own tuples."""

    subscription: str | None = Field(description="null for what waits for the first subscription.")
    rows_published: Count
    rows_acked: Count
    rows_dropped: Count
    rows_behind: Count = Field(description="Rows that it has still to ack.")
    acks_late: Count = Field(description="Acks that came when their trees were over, mostly expired.")
    rows_stale: Count = Field(
        description="Rows that its readers have dropped: their trees were over when they were read."
    )
    unread_age: Seconds | None = Field(description="Seconds since the oldest segment that nobody has taken.")


class StreamState(Answer):
    """A stream between jobs."""

    stream: str
    segments: Count = Field(description="Published, and not acked by everyone who is to read them.")
    bytes: Count
    dropped: Count = Field(description="Segments dropped by the stream's limits.")
    max_age: Seconds = Field(description="Seconds after which a segment is dropped.")
    max_bytes: Count = Field(description="Over so many bytes the oldest segments are dropped.")
    subscriptions: list[SubscriptionState]


class TopologyState(TopologySummary):
    """All of a topology but its trees."""

    at: Instant | None = Field(description="By the store's clock; null where tracking is off.")
    latency: Latency = Field(description="Of all trees acked so far.")
    oldest_age: Seconds | None
    waiting_slabs: Count
    buckets: list[BucketState] = Field(description="Over all shards.")
    shards: list[ShardState]
    thresholds: Thresholds
    spouts: list[Name]
    dead_letters_of: dict[Name, Count] = Field(description="Of the spouts that have any.")
    streams: list[StreamState]
    steps: list[Step] = Field(description="Spouts and bolts at work, the one seen last first.")
    step_totals: list[StepTotals] = Field(description="What steps have done, by name.")


def health(found: rules.Health) -> Health:
    """Whether a topology needs a human, as clients get it."""
    return Health.model_validate(topology_forms.health(found))
