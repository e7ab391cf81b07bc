"""The time buckets of a shard for readers: the bucket of a slab, and the time of its expiry.

Terms: a tree is all that comes of one record; a slab is the trees that one call tracked together; the nursery
is the first of three time buckets, through which a tree goes until it expires.
"""

from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from acker.errors import UnreadableRecord
from acker.ledger.settings.config import TopologyConfig
from acker.store.operation import Reply

Bucket: TypeAlias = Literal["nursery", "middle", "oldest", "expiring"]

Standing: TypeAlias = Literal["nursery", "middle", "oldest", "expiring", "waiting"]
"""The bucket of a tree for people: `waiting` while its clock stands still."""

BUCKETS: tuple[Bucket, ...] = get_args(Bucket)
"""The three time buckets from the youngest on, and the slabs that a tick has set aside to expire."""
STANDINGS: tuple[Standing, ...] = get_args(Standing)
WAITING: Standing = "waiting"
HOLDING = ("bucket:0", "bucket:1", "bucket:2", "expiring", "waiting", "outstanding")
"""Counters of a shard's content: trees of each bucket, slabs without a track, and trees in all."""
TICK_LAG = 1.0
"""Most seconds of a tick's delay while a ticker runs and the store answers."""


@dataclass(frozen=True, slots=True)
class Clock:
    """A shard's clock, times in ms; rotated_at is -1 if the shard was never used.

    spouts: the shard's spouts (acker/ledger/slabs/registries.py).
    """

    now: int
    rotations: int
    rotated_at: int
    drained: int
    spouts: bytes = b""

    @classmethod
    def from_reply(cls, shard: int, reply: Reply) -> "Clock":
        """The clock in the reply of a reading script; raises UnreadableRecord if a time is no number."""
        if len(reply) < 4:  # the reply ends before a time that is no number
            raise UnreadableRecord(f"clock of shard {shard}: the time of its last rotation is no number")
        return cls(*reply)

    def overdue(self, config: TopologyConfig) -> float:
        """Seconds since the next rotation was due; negative before."""
        return (self.now - self.rotated_at - config.tick_ms) / 1000 if self.rotated_at >= 0 else 0.0

    def bucket(self, entered: int) -> int:
        """The bucket, one of BUCKETS, of a slab that entered the nursery at that rotation."""
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
        lag = TICK_LAG if overdue <= TICK_LAG else config.tick_limit - overdue  # the next rotation
        return earliest, earliest + lag + (ticks - 1) * TICK_LAG
