"""The time buckets of a shard as its readers see them: which slab is in which, and when it expires."""

from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from acker.errors import UnreadableRecord
from acker.ledger.settings.config import TopologyConfig
from acker.store.operation import Reply

Bucket: TypeAlias = Literal["nursery", "middle", "oldest", "expiring"]

BUCKETS: tuple[Bucket, ...] = get_args(Bucket)
"""The three time buckets from the youngest on, and what a tick has set aside to be expired."""
HOLDING = ("bucket:0", "bucket:1", "bucket:2", "expiring", "waiting", "held")
"""Counters of what a shard holds: the trees of each bucket, slabs without track, and trees in all."""
TICK_LAG = 1.0
"""Seconds by which a tick comes late at most where a ticker runs and the store answers."""


@dataclass(frozen=True, slots=True)
class Clock:
    """A shard's clock, times in ms; rotated_at is -1 where the shard was never used.

    spouts: those of the shard (acker/ledger/slabs/registries.py).
    """

    now: int
    rotations: int
    rotated_at: int
    drained: int
    spouts: bytes = b""

    @classmethod
    def of(cls, shard: int, reply: Reply) -> "Clock":
        """The clock that a script of readers gives; UnreadableRecord where a time of it is no number."""
        if len(reply) < 4:  # a script gives what comes before a time that is no number
            raise UnreadableRecord(f"clock of shard {shard}: the time of its last rotation is no number")
        return cls(*reply)

    def overdue(self, config: TopologyConfig) -> float:
        """Seconds since the next rotation was due; negative before."""
        return (self.now - self.rotated_at - config.tick_ms) / 1000 if self.rotated_at >= 0 else 0.0

    def bucket(self, entered: int) -> int:
        """Which of BUCKETS a slab is in that entered the nursery at that rotation."""
        return max(0, min(3, self.rotations - entered))

    def time_left(self, config: TopologyConfig, entered: int) -> tuple[float, float | None]:
        """Seconds until a slab expires that entered the nursery at that rotation: earliest, latest."""
        ticks = 3 - self.bucket(entered)
        if ticks == 0:
            return 0.0, TICK_LAG
        overdue = self.overdue(config)
        earliest = max(0.0, -overdue) + (ticks - 1) * config.tick_ms / 1000
        if overdue > config.tick_limit:
            return earliest, None
        lag = TICK_LAG if overdue <= TICK_LAG else config.tick_limit - overdue  # of the next of them
        return earliest, earliest + lag + (ticks - 1) * TICK_LAG
