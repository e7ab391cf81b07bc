"""Totals of a topology: how full and how old each shard and bucket is. One small read for each shard.

Terms: a tree is all that comes of one record; a slab is the trees that one call tracked together; the nursery
is the first of three time buckets, through which a tree goes until it expires.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated

from acker.errors import UnreadableRecord
from acker.ledger.calls.core import Core
from acker.ledger.fields import HIDDEN, Count, Named, Seconds, Whole
from acker.ledger.outcomes.counts import COUNTERS
from acker.ledger.settings.pauses import FIELD
from acker.ledger.tick import tick
from acker.ledger.trees import scripts
from acker.ledger.trees.buckets import BUCKETS, HOLDING, Bucket, Clock
from acker.store.operation import Operation, Reply, command
from acker.store.replies import whole

_SAMPLE = 128
_ASIDE = 16


@dataclass(frozen=True, slots=True)
class BucketTotals:
    """A time bucket. Trees enter the nursery and go towards `expiring`, which a tick has set aside.

    youngest, oldest: with ticks on time; a shard that was never used has no bound.
    """

    bucket: Bucket
    trees: Annotated[Count, "Trees pending."]
    slabs: Count
    youngest: Annotated[Seconds, "Least seconds since its trees were tracked or reset."]
    oldest: Annotated[Seconds | None, "Most seconds since then; null where there is no bound."]


@dataclass(frozen=True, slots=True)
class ShardTotals:
    """A shard of the ledger.

    buckets: as in `BUCKETS`.
    oldest_age: it is looked for among a hundred slabs of the bucket that expires next, so it is exact where
        that has no more and nothing was reset.
    unreadable: records that could not be read, and were passed over.
    counters: the exact counts of `acker.ledger.outcomes.counts.COUNTERS`.
    paused: the records of the pauses of spouts here.
    """

    shard: Whole
    buckets: tuple[BucketTotals, ...]
    waiting: Annotated[Count, Named("waiting_slabs"), "Slabs with messages before their track."]
    outstanding: Annotated[Count, "Trees pending, or with an outcome that is not confirmed."]
    limit: Annotated[Count, "Most that it may hold."]
    rotations: Count
    rotation_age: Annotated[Seconds | None, "Seconds since the last rotation."]
    backlog: Annotated[Count, "Rotations of which not everything is drained."]
    oldest_age: Annotated[Seconds | None, "Seconds since the oldest pending tree was tracked, or less."]
    unreadable: Annotated[int, HIDDEN]
    counters: dict[str, int]
    paused: Annotated[Mapping[str, bytes], HIDDEN] = field(default_factory=dict)

    @property
    def pending(self) -> Annotated[Count, "Trees in flight."]:
        """Trees pending in all buckets."""
        return sum(bucket.trees for bucket in self.buckets)


@dataclass(frozen=True, slots=True)
class Totals:
    """All shards of a topology, at `at` (Unix seconds by the server's clock; None where tracking is off)."""

    at: float | None
    shards: tuple[ShardTotals, ...]

    @property
    def buckets(self) -> dict[Bucket, int]:
        """Trees pending by bucket."""
        return {
            name: sum(shard.buckets[place].trees for shard in self.shards)
            for place, name in enumerate(BUCKETS)
        }

    @property
    def in_buckets(self) -> list[BucketTotals]:
        """The buckets over all shards."""
        buckets = []
        for place, name in enumerate(BUCKETS):
            parts = [shard.buckets[place] for shard in self.shards]
            oldest = [part.oldest for part in parts if part.oldest is not None]
            buckets.append(
                BucketTotals(
                    name,
                    sum(part.trees for part in parts),
                    sum(part.slabs for part in parts),
                    min((part.youngest for part in parts), default=0.0),
                    max(oldest) if len(oldest) == len(parts) and oldest else None,
                )
            )
        return buckets

    @property
    def pending(self) -> int:
        """Trees pending."""
        return sum(shard.pending for shard in self.shards)

    @property
    def waiting(self) -> int:
        """Slabs that wait for their track."""
        return sum(shard.waiting for shard in self.shards)

    @property
    def outstanding(self) -> int:
        """Trees pending or with an outcome that is not confirmed."""
        return sum(shard.outstanding for shard in self.shards)

    @property
    def high_water_use(self) -> float:
        """The fill of the fullest shard: 1.0 rejects new trees there."""
        return max((shard.outstanding / shard.limit for shard in self.shards), default=0.0)

    @property
    def rotation_age(self) -> float | None:
        """Seconds since the last rotation of the shard that waits for its next one the longest."""
        return _most(shard.rotation_age for shard in self.shards)

    @property
    def oldest_age(self) -> float | None:
        """Seconds since the oldest pending tree was tracked, or less (see ShardTotals)."""
        return _most(shard.oldest_age for shard in self.shards)

    @property
    def backlog(self) -> int:
        """Rotations of which not everything has been drained, in the shard that has most of them."""
        return max((shard.backlog for shard in self.shards), default=0)

    @property
    def unreadable(self) -> int:
        """Records that could not be read, and were passed over."""
        return sum(shard.unreadable for shard in self.shards)

    @property
    def counters(self) -> dict[str, int]:
        """The exact counts over all shards."""
        return {name: sum(shard.counters[name] for shard in self.shards) for name in COUNTERS}


def totals(core: Core) -> Operation[Totals]:
    """Returns the fill, the age and the counters of each shard and bucket."""
    clocks = yield from tick.clocks(core, core.shards)
    spouts = sorted(core.spouts)
    names = [*HOLDING, "unreadable", *COUNTERS, *(FIELD + spout for spout in spouts)]
    requests = []
    for shard, (rotations, drained) in zip(core.shards, clocks, strict=True):
        # One more than there are: a rotation may be made until the script runs.
        requests.append(scripts.read_totals(shard, _SAMPLE, names, range(drained, rotations + 1)[:_ASIDE]))
    replies = yield requests
    at = replies[0][0][0] / 1000 if replies else None
    shard_totals = (
        _shard_totals(core, shard.number, reply, spouts)
        for shard, reply in zip(core.shards, replies, strict=True)
    )
    return Totals(at, tuple(shard_totals))


def unreadable(core: Core) -> Operation[int]:
    """The number of unreadable records so far, which were passed over."""
    replies = yield [command("HGET", shard.counters, "unreadable") for shard in core.shards]
    return sum(whole(reply, "count of unreadable records") for reply in replies)


def _shard_totals(core: Core, shard: int, reply: Reply, spouts: Sequence[str]) -> ShardTotals:
    clock, counts, slabs, oldest = reply
    clock = Clock.from_reply(shard, clock)
    pauses = counts[len(counts) - len(spouts) :]
    numbers = [whole(value, f"counter of shard {shard}") for value in counts[: len(counts) - len(spouts)]]
    if min(numbers[6:]) < 0:
        raise UnreadableRecord(f"counters of shard {shard}: expected numbers from 0, got {min(numbers[6:])}")
    age = None if clock.rotated_at < 0 else max(0, clock.now - clock.rotated_at) / 1000
    tick = core.config.tick_ms / 1000
    buckets = []
    for place, name in enumerate(BUCKETS):
        trees = numbers[3] if place == 3 else numbers[(clock.rotations - place) % 3]
        youngest = 0.0 if place == 0 or age is None else age + (place - 1) * tick
        limit = None if place == 3 or age is None else age + place * tick
        buckets.append(BucketTotals(name, trees, slabs[place], youngest, limit))
    return ShardTotals(
        shard=shard,
        buckets=tuple(buckets),
        waiting=numbers[4],
        outstanding=numbers[5],
        limit=core.config.shard_limit,
        rotations=clock.rotations,
        rotation_age=age,
        backlog=clock.rotations - clock.drained,
        oldest_age=None if oldest < 0 else max(0, clock.now - oldest) / 1000,
        unreadable=numbers[6],
        counters=dict(zip(COUNTERS, numbers[7:], strict=True)),
        paused={spout: record for spout, record in zip(spouts, pauses, strict=True) if record is not None},
    )


def _most(values: Iterable[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)
