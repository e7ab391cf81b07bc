"""The JSON forms of what is looked at: the command line and the API give the same.

64-bit numbers are decimal strings, times are ISO 8601 in UTC, durations are seconds. The API's models
(api/models/) say what the fields mean, and check these forms.
"""

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

from acker.inspect.as_json.values import instant
from acker.inspect.topology.health import Health
from acker.inspect.topology.health_rules import Trouble
from acker.inspect.topology.totals import ShardTotals, Totals
from acker.inspect.topology.unreadable_topology import Damaged
from acker.ledger.settings.config import TopologyConfig
from acker.ledger.steps.step_registry import Step
from acker.ledger.steps.step_totals import Seen, StepTotals
from acker.ledger.trees.buckets import BUCKETS
from acker.streams.log.stream_totals import StreamTotals

Form = dict[str, Any]
PERCENTILES = (0.5, 0.95, 0.99)
"""The complete latencies that are shown."""


def stored(config: TopologyConfig) -> Form:
    """A topology as it is stored."""
    settings = {**config.settings, "tick_period": config.tick_ms / 1000}
    return {"topology": config.name, "configuration": settings}


def trouble(one: Trouble) -> Form:
    """Something that needs a human."""
    return {**asdict(one), "since": None if one.since is None else instant(one.since)}


def health(found: Health) -> Form:
    """Whether a topology needs a human."""
    return {"ticking": found.ticking, "troubles": [trouble(one) for one in found.troubles]}


def summary(config: TopologyConfig, read: Totals, found: Health) -> Form:
    """A topology among others."""
    return {
        **stored(config),
        "health": health(found),
        "counters": read.counters,
        "pending": max(0, read.pending),
        "held": max(0, read.held),
        "high_water_use": max(0.0, read.high_water_use),
        "unreadable": read.unreadable,
        "dead_letters": sum(found.dead_letters.values()),
        "rows_behind": found.rows_behind,
        "backlog": read.backlog,
        "rotation_age": read.rotation_age,
    }


def listing(found: Iterable[Form | Damaged], cursor: str | None = None) -> Form:
    """Topologies, or a page of them: summaries, and beside them what cannot be read."""
    all_of = list(found)
    return {
        "topologies": [one for one in all_of if not isinstance(one, Damaged)],
        "unreadable": [asdict(one) for one in all_of if isinstance(one, Damaged)],
        "cursor": cursor,
    }


def state(
    config: TopologyConfig,
    read: Totals,
    found: Health,
    *,
    latency: Sequence[float | None],
    spouts: Iterable[str],
    streams: Iterable[StreamTotals],
    steps: Iterable[Step],
    step_totals: Iterable[StepTotals],
) -> Form:
    """All of a topology but its trees. latency: seconds, of `PERCENTILES`."""
    named = (f"p{fraction * 100:g}" for fraction in PERCENTILES)
    return {
        **summary(config, read, found),
        "at": None if read.at is None else instant(read.at),
        "latency": dict(zip(named, latency, strict=True)),
        "oldest_age": read.oldest_age,
        "waiting_slabs": read.waiting,
        "buckets": _buckets(read),
        "shards": [_shard(one) for one in read.shards],
        "thresholds": asdict(found.thresholds),
        "spouts": sorted(spouts),
        "dead_letters_of": dict(found.dead_letters),
        "streams": [stream(one) for one in streams],
        "steps": [step(one) for one in steps],
        "step_totals": [_step_totals(one) for one in step_totals],
    }


def stream(one: StreamTotals) -> Form:
    """A stream between jobs."""
    return {
        "stream": one.name,
        "segments": max(0, one.segments),
        "bytes": max(0, one.bytes),
        "dropped": one.dropped,
        "max_age": one.max_age,
        "max_bytes": one.max_bytes,
        "subscriptions": [
            {
                "subscription": own.name,
                "rows_published": own.rows_published,
                "rows_acked": own.rows_acked,
                "rows_dropped": own.rows_dropped,
                "rows_behind": max(0, own.rows_behind),
                "acks_late": own.acks_late,
                "rows_stale": own.rows_stale,
                "unread_age": own.unread_age,
            }
            for own in one.subscriptions
        ],
    }


def step(one: Step) -> Form:
    """A spout or bolt of a Spark job."""
    return {**asdict(one), "last_seen": None if one.last_seen is None else instant(one.last_seen)}


def _step_totals(one: StepTotals) -> Form:
    """What a step has done."""
    named = {f"p{fraction * 100:g}": one.age(fraction) for fraction in PERCENTILES}
    last = None if one.last_seen is None else instant(one.last_seen)
    return {"step": one.step, "tuples": one.tuples, "failed": one.failed, "last_seen": last, "age": named}


def seen(one: Seen) -> Form:
    """When a step last acked tuples of a slab."""
    return {**asdict(one), "at": None if one.at is None else instant(one.at)}


def _shard(one: ShardTotals) -> Form:
    return {
        "shard": one.shard,
        "pending": max(0, one.pending),
        "waiting_slabs": one.waiting,
        "held": max(0, one.held),
        "limit": one.limit,
        "rotations": one.rotations,
        "rotation_age": one.rotation_age,
        "backlog": one.backlog,
        "oldest_age": one.oldest_age,
        "counters": one.counters,
        "buckets": [asdict(bucket) for bucket in one.buckets],
    }


def _buckets(read: Totals) -> list[Form]:
    """The buckets over all shards."""
    found = []
    for place, name in enumerate(BUCKETS):
        parts = [shard.buckets[place] for shard in read.shards]
        oldest = [part.oldest for part in parts if part.oldest is not None]
        found.append(
            {
                "bucket": name,
                "trees": sum(part.trees for part in parts),
                "slabs": sum(part.slabs for part in parts),
                "youngest": min((part.youngest for part in parts), default=0.0),
                "oldest": max(oldest) if len(oldest) == len(parts) and oldest else None,
            }
        )
    return found
