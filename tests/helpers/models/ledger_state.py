"""The ledger as it lies in the store, read key by key, in the words of tests/helpers/models/model.py."""

import struct
from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

import redis

from acker.ledger import ids
from acker.ledger.client import Ledger
from acker.ledger.outcomes.counts import COUNTERS
from acker.ledger.outcomes.outcomes import Entry, OutcomeReader
from acker.ledger.slabs import registries
from tests.helpers.models.model import Model, signed

TRACKED = 2
WAITING_SLAB = 256
"""Bytes that a slab counts which waits, beside its words and reasons (lua/ledger/includes/waiting.lua)."""
Reported = tuple[str, int, str, str]


@dataclass
class StoredShard:
    """The content of one shard."""

    slabs: dict[bytes, tuple[bool, str, int, int]]
    words: dict[bytes, dict[int, int]]
    failures: dict[bytes, dict[int, str]]
    waiting_bytes: int
    message_ids: set[bytes]
    buckets: list[set[bytes]]
    aside: dict[int, set[bytes]]
    counters: dict[str, int]
    rotation: int


def shard_key(ledger: Ledger, number: int, name: str) -> bytes:
    """The key of that name of a shard."""
    return b"acker:{%s:%d/%d}:%s" % (ledger.config.name.encode(), number, ledger.config.ackers, name.encode())


def pass_time(raw: "redis.Redis", ledger: Ledger, milliseconds: int) -> None:
    """Makes the last rotation of each shard older by so much."""
    for number in range(ledger.config.ackers):
        clock = shard_key(ledger, number, "clock").decode()
        rotations, measured = raw.hmget(clock, "rotations", "measured")
        *stamp, age = (measured or b"%d 0 0 0" % int(rotations or 0)).split()
        raw.hset(clock, "measured", b" ".join([*stamp, b"%d" % (int(age) + milliseconds)]))
        raw.hincrby(clock, "rotated_at", -milliseconds)


def age_writers(raw: "redis.Redis", ledger: Ledger, milliseconds: int) -> None:
    """Makes the last rotation of the writers of each shard older by so much."""
    for number in range(ledger.config.ackers):
        raw.hincrby(shard_key(ledger, number, "clock").decode(), "writers_at", -milliseconds)


def failures_of(packed: bytes) -> dict[int, str]:
    """The failures that wait for a track: index -> reason."""
    reasons: dict[int, str] = {}
    at = 0
    while at < len(packed):
        many, length = struct.unpack_from("<HH", packed, at)
        indexes = struct.unpack_from(f"<{many}H", packed, at + 4)
        at += 4 + 2 * many + length
        assert not reasons.keys() & set(indexes)
        reasons |= dict.fromkeys(indexes, packed[at - length : at].decode())
    return reasons


def early_of(packed: bytes) -> dict[int, int]:
    """The words that wait beyond the end of a vector."""
    return dict(struct.iter_unpack("<Hq", packed))


def read_shards(client: "redis.Redis", ledger: Ledger) -> list[StoredShard]:
    """Reads all of every shard, in two round trips."""
    shards = ledger.core.shards
    many: Any = client.pipeline(transaction=False)
    for shard in shards:
        many.hgetall(shard.slabs)
        many.hgetall(shard_key(ledger, shard.number, "failures"))
        many.hgetall(shard.early)
        many.hkeys(shard.message_ids)
        for bucket in range(3):
            many.smembers(shard.bucket(bucket))
        many.hgetall(shard.counters)
        many.hmget(shard.clock, "rotations", "drained", "spouts")
    replies = many.execute()
    found = []
    for shard in shards:
        own = replies[9 * shard.number : 9 * shard.number + 9]
        headers, failures, early, message_ids, *buckets, counters, clock = own
        rotations, drained = (int(value or 0) for value in clock[:2])
        spouts = registries.names(clock[2] or b"")
        slabs = {}
        for slab, header in headers.items():
            kind, spout, count, entered = struct.unpack_from("<BIHI", header)
            slabs[slab] = (kind == TRACKED, spouts.get(spout, "") if kind == TRACKED else "", count, entered)
            if ids.is_one(slab):
                many.hget(shard.ones, slab)
            else:
                many.get(shard.vector(slab))
        for rotation in range(drained, rotations):
            many.smembers(shard.expired(rotation))
        found.append(
            StoredShard(
                slabs,
                {slab: early_of(packed) for slab, packed in early.items()},
                {slab: failures_of(packed) for slab, packed in failures.items()},
                sum(map(len, [*failures.values(), *early.values()])),
                set(message_ids),
                buckets,
                {rotation: set() for rotation in range(drained, rotations)},
                {
                    name.decode(): int(value)
                    for name, value in counters.items()
                    if not name.startswith(b"paused:")
                },
                rotations,
            )
        )
    rest = iter(many.execute())
    for stored in found:
        for slab, (tracked, *_) in stored.slabs.items():
            vector = next(rest) or b""
            words = struct.unpack(f"<{len(vector) // 8}q", vector)
            beyond = stored.words.get(slab, {})
            assert all(index >= len(words) and value for index, value in beyond.items())
            stored.words[slab] = {index: value for index, value in enumerate(words) if value} | beyond
            if not tracked:
                stored.waiting_bytes += WAITING_SLAB + (0 if ids.is_one(slab) else len(vector))
        for rotation in stored.aside:
            stored.aside[rotation] = next(rest)
    return found


def assert_same(client: "redis.Redis", ledger: Ledger, model: Model) -> None:
    """Fails where the store and the model differ in anything."""
    totals: Counter[str] = Counter()
    for number, stored in enumerate(read_shards(client, ledger)):
        slabs = {name: slab for name, slab in model.slabs.items() if slab.shard == number}
        assert stored.slabs == {
            name: (slab.tracked, slab.spout, slab.count, slab.entered) for name, slab in slabs.items()
        }
        assert stored.words == {
            name: {index: signed(value) for index, value in (slab.pending or slab.waiting).items()}
            for name, slab in slabs.items()
        }
        assert stored.failures == {name: slab.failures for name, slab in slabs.items() if slab.failures}
        assert stored.message_ids == {name for name, slab in slabs.items() if slab.tracked}
        alive = {name: slab for name, slab in slabs.items() if slab.pending or not slab.tracked}
        recent = {name: slab for name, slab in alive.items() if slab.entered > model.rotation - 3}
        for bucket in range(3):
            assert stored.buckets[bucket] == {n for n, slab in recent.items() if slab.entered % 3 == bucket}
        for name, slab in alive.items():
            assert name in recent or name in stored.aside[slab.entered + 2]
        in_bucket = Counter({f"bucket:{bucket}": 0 for bucket in range(3)})
        for name, slab in alive.items():
            in_bucket[f"bucket:{slab.entered % 3}" if name in recent else "expiring"] += len(slab.pending)
        for counter, count in {**in_bucket, "outstanding": model.outstanding(number)}.items():
            assert stored.counters.get(counter, 0) == count, counter
        assert stored.counters.get("waiting_bytes", 0) == stored.waiting_bytes
        assert stored.counters.get("waiting", 0) == sum(not slab.tracked for slab in slabs.values())
        totals.update({name: stored.counters.get(name, 0) for name in COUNTERS})
    assert totals == Counter({name: model.counters[name] for name in COUNTERS})
    reported = totals["acked"] + totals["failed"] + totals["expired"]
    assert totals["tracked"] == reported + len(list(model.in_flight()))


def trees_of(entry: Entry, counts: dict[bytes, int]) -> list[int]:
    """The anchors of the trees that an entry tells of."""
    return [
        ids.anchor_at(part.slab, index)
        for part in entry.slabs
        for index in (range(counts[part.slab]) if part.indexes is None else part.indexes)
    ]


def told(entry: Entry, counts: dict[bytes, int]) -> list[tuple[int, str, str]]:
    """The trees that an entry tells of, as (anchor, status, reason)."""
    return [
        (anchor, entry.status, part.cause.reason)
        for part in entry.slabs
        for anchor in trees_of(replace(entry, slabs=(part,)), counts)
    ]


def read_all(ledger: Ledger, reader: OutcomeReader) -> list[Entry]:
    """All outcomes that a reader has not read yet."""
    found: list[Entry] = []
    while more := ledger.outcomes(reader):
        found += more
    return found
