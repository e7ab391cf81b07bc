"""What a ledger has counted, over all its shards."""

import logging

from acker.ledger import histogram, once
from acker.ledger.core import Core
from acker.store.operation import Operation, command
from acker.store.replies import whole

COUNTERS = (
    "tracked", "acked", "failed", "expired", "rejected", "late", "orphaned", "duplicates", "rotations",
)  # fmt: skip


_log = logging.getLogger(__name__)


def pass_over(core: Core, what: str, count: int = 1) -> Operation[None]:
    """Logs that a record of the topology cannot be read, and counts it: it counts as missing from now on.

    count: how many, for `what` may name several; 0 where they were counted before.
    """
    _log.error("%s: %s cannot be read", core.config.name, what)
    if count and core.shards:
        yield from once.send(core, core.count_unreadable(int(count)))


def counters(core: Core) -> Operation[dict[str, int]]:
    """The exact counts over all shards (`COUNTERS`)."""
    totals = dict.fromkeys(COUNTERS, 0)
    for reply in (yield [command("HMGET", shard.counters, *COUNTERS) for shard in core.shards]):
        for name, value in zip(COUNTERS, reply, strict=True):
            totals[name] += whole(value, f"counter {name} of topology {core.config.name!r}")
    return totals


def latencies(core: Core) -> Operation[dict[int, int]]:
    """Complete latencies of all acked trees: histogram bucket (`acker.ledger.histogram`) -> trees."""
    totals: dict[int, int] = {}
    for reply in (yield [command("HGETALL", shard.latency) for shard in core.shards]):
        for bucket, count in histogram.counts(reply):
            totals[bucket] = totals.get(bucket, 0) + count
    return totals
