"""The ledger as it lies in the store, read key by key, in the words of tests/model.py."""

import struct
from collections import Counter
from dataclasses import dataclass
from typing import Any

import redis

from acker import ids, registries
from acker.ledger import Ledger
from acker.operations import COUNTERS
from acker.outcomes import Entry, OutcomeReader
from tests.model import Model, signed

TRACKED = 2
Told = tuple[str, int, str, str]


@dataclass
class StoredShard:
    """What one shard holds."""

    slabs: dict[bytes, tuple[bool, str, int, int]]
    words: dict[bytes, dict[int, int]]
    failures: dict[bytes, dict[int, str]]
    message_ids: set[bytes]
    buckets: list[set[bytes]]
    aside: dict[int, set[bytes]]
    counters: dict[str, int]
    rotation: int


def shard_key(ledger: Ledger, number: int, name: str) -> bytes:
    """The key of that name of a shard."""
    return b"acker:{%s:%d}:%s" % (ledger.config.name.encode(), number, name.encode())


def move_clock(raw: "redis.Redis", ledger: Ledger, name: str, milliseconds: int) -> None:
    """Moves a time that each shard has noted, as if so much time had passed or been taken back."""
    for number in range(ledger.config.ackers):
        clock = shard_key(ledger, number, "clock")
        raw.hset(clock, name, int(raw.hget(clock, name) or 0) + milliseconds)


def failures_of(packed: bytes) -> dict[int, str]:
    """The failures that wait for a track: index -> reason."""
    found, at = {}, 0
    while at < len(packed):
        index, length = struct.unpack_from("<HH", packed, at)
        found[index] = packed[at + 4 : at + 4 + length].decode()
        at += 4 + length
    return found


def read_shards(client: "redis.Redis", ledger: Ledger) -> list[StoredShard]:
    """Reads all of every shard, in two round trips."""
    shards = ledger.core.shards
    many: Any = client.pipeline(transaction=False)
    for shard in shards:
        many.hgetall(shard.slabs)
        many.hgetall(shard_key(ledger, shard.number, "failures"))
        many.hkeys(shard.message_ids)
        for bucket in range(3):
            many.smembers(shard.bucket(bucket))
        many.hgetall(shard.counters)
        many.hmget(shard.clock, "rotations", "drained", "spouts")
    replies = many.execute()
    found = []
    for shard in shards:
        own = replies[8 * shard.number : 8 * shard.number + 8]
        headers, failures, message_ids, *buckets, counters, clock = own
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
                {},
                {slab: failures_of(packed) for slab, packed in failures.items()},
                set(message_ids),
                buckets,
                {rotation: set() for rotation in range(drained, rotations)},
                {name.decode(): int(value) for name, value in counters.items()},
                rotations,
            )
        )
    rest = iter(many.execute())
    for stored in found:
        for slab in stored.slabs:
            vector = next(rest) or b""
            words = struct.unpack(f"<{len(vector) // 8}q", vector)
            stored.words[slab] = {index: value for index, value in enumerate(words) if value}
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
        for counter, count in {**in_bucket, "held": model.held(number)}.items():
            assert stored.counters.get(counter, 0) == count, counter
        assert stored.counters.get("waiting", 0) == sum(not slab.tracked for slab in slabs.values())
        totals.update({name: stored.counters.get(name, 0) for name in COUNTERS})
    assert totals == Counter({name: model.counters[name] for name in COUNTERS})
    told = totals["acked"] + totals["failed"] + totals["expired"]
    assert totals["tracked"] == told + len(list(model.in_flight()))


def trees_of(entry: Entry, counts: dict[bytes, int]) -> list[int]:
    """The anchors of the trees that an entry tells of."""
    return [
        ids.anchor_at(part.slab, index)
        for part in entry.slabs
        for index in (range(counts[part.slab]) if part.indexes is None else part.indexes)
    ]


def read_all(ledger: Ledger, reader: OutcomeReader) -> list[Entry]:
    """All outcomes that a reader has not read yet."""
    found: list[Entry] = []
    while more := ledger.outcomes(reader):
        found += more
    return found
