"""The counters of a ledger, over all its shards.

Terms: a tree is all that comes of one record.
"""

import logging
from typing import NamedTuple

from acker.ledger.calls import idempotence
from acker.ledger.calls.core import Core
from acker.ledger.outcomes import latency_histogram
from acker.store.operation import Operation, command
from acker.store.replies import whole


class Counter(NamedTuple):
    """A counter. unit: the unit in its metric's name, or "". words: its description."""

    unit: str
    words: str


COUNTERS = {
    "tracked": Counter("trees", "Trees that a spout tracked."),
    "acked": Counter("trees", "Trees whose tuples were all acked."),
    "failed": Counter("trees", "Trees that were failed."),
    "expired": Counter("trees", "Trees that were not done in time."),
    "rejected": Counter("trees", "Trees that were not tracked: no room, or a paused spout."),
    "late": Counter("messages", "Messages for trees that were finished."),
    "orphaned": Counter("trees", "Messages for trees that were never tracked, dropped in the end."),
    "duplicates": Counter("", "Calls and slabs that came again, and changed nothing."),
    "rotations": Counter("", "Rotations of all shards together."),
}
"""The counters of a ledger, in the order of its history."""
UNREADABLE = Counter("records", "Unreadable records that were passed over.")

_log = logging.getLogger(__name__)


def pass_over(core: Core, record: str, count: int = 1) -> Operation[None]:
    """Logs and counts an unreadable record of the topology: it counts as missing from now on.

    count: number of records named by `record`; 0 if they were counted before.
    """
    _log.error("%s: %s cannot be read", core.config.name, record)
    yield from count_missing(core, count)


def count_missing(core: Core, count: int = 1) -> Operation[None]:
    """Counts unreadable records of the topology that were logged (`acker.store.records.passing_over`)."""
    if count and core.shards:
        yield from idempotence.send(core, core.count_unreadable(int(count)))


def counters(core: Core) -> Operation[dict[str, int]]:
    """The exact counts over all shards (`COUNTERS`)."""
    totals = dict.fromkeys(COUNTERS, 0)
    for reply in (yield [command("HMGET", shard.counters, *COUNTERS) for shard in core.shards]):
        for name, value in zip(COUNTERS, reply, strict=True):
            totals[name] += whole(value, f"counter {name} of topology {core.config.name!r}")
    return totals


def latencies(core: Core) -> Operation[dict[int, int]]:
    """Complete latencies of all acked trees: histogram bucket -> trees.

    See `acker.ledger.outcomes.latency_histogram`.
    """
    totals: dict[int, int] = {}
    for reply in (yield [command("HGETALL", shard.latency) for shard in core.shards]):
        for bucket, count in latency_histogram.counts(reply):
            totals[bucket] = totals.get(bucket, 0) + count
    return totals
