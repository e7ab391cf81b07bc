"""Misuse by clients, at a bounded rate: the work of `benchmarks.soak`.

Each kind is a generator that does a step and yields whether the store is at its bound by now.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import redis

from acker import Topology
from acker.ledger import ids
from acker.ledger.calls.calls import Call, Writer
from benchmarks.options import sized
from benchmarks.servers import client

ACKERS = 2
STEP = 0.1
"""Seconds between two steps."""
WRITERS = 1_000_000
"""Writers that a shard remembers, if nothing else is set (lua/ledger/includes/once.lua)."""


@dataclass(frozen=True)
class Sizes:
    """Options. minutes: of samples. timeout: the message timeout. mark: the high-water mark, of two shards.

    waiting: bytes that may wait for their track in each of them. records: in each step. calls: of new
    writers in each step; writers: how many the shard that they send to takes. samples: seconds between two.
    warm: most minutes until a kind is at its bound. tolerance: how much the last quarter may be over the
    second.
    """

    minutes: float = 30.0
    timeout: float = 2.0
    mark: int = 2_000
    waiting: int = 1 << 20
    records: int = 200
    calls: int = 1_000
    writers: int = WRITERS
    samples: float = 10.0
    warm: float = 60.0
    tolerance: float = sized(0.05, least=0)


Work = Callable[[Topology, Sizes], Iterator[bool]]


def overload(topology: Topology, sizes: Sizes) -> Iterator[bool]:
    """A spout that confirms what it learns, and emits whatever the mark says."""
    spout, rejected = topology.spout("lines"), 0
    while True:
        spout.emit_many(_records(sizes))
        for outcome in spout.outcomes():
            rejected += outcome.status == "rejected"
            spout.confirm(outcome)
        yield rejected > sizes.mark


def orphans(topology: Topology, sizes: Sizes) -> Iterator[bool]:
    """Acks and fails that come without a track ever: of slabs, and of trees alone."""
    ledger, alone = topology.ledger, sizes.records // 4
    while True:
        one = [ids.new_anchors(1) for _ in range(2 * alone)]
        anchors = np.concatenate([ids.new_anchors(sizes.records // 2), *one[:alone]])
        ledger.update(anchors, ids.new_ids(len(anchors)))
        ledger.fail(np.concatenate(one[alone:]), "nobody tracks this")
        yield ledger.counters()["orphaned"] > sizes.mark


def early(topology: Topology, sizes: Sizes) -> Iterator[bool]:
    """Acks and fails that come without a track ever, of the last tree of a slab each."""
    ledger = topology.ledger
    while True:
        last = [ids.anchor_at(ids.slab_of(int(ids.new_anchors(2)[0])), 4095) for _ in range(sizes.records)]
        ledger.update(last[::2], ids.new_ids(len(last[::2])))
        ledger.fail(last[1::2], "nobody tracks this".ljust(1024))
        yield ledger.counters()["orphaned"] > sizes.mark


def unconfirmed(topology: Topology, sizes: Sizes) -> Iterator[bool]:
    """A spout whose trees are acked at once, and which confirms no outcome."""
    spout, rejected = topology.spout("lines"), 0
    while True:
        anchors, values = spout.emit_many(_records(sizes))
        topology.ledger.update(anchors, values)
        rejected += sum(outcome.status == "rejected" for outcome in spout.outcomes())
        yield rejected > sizes.mark


def never_acked(topology: Topology, sizes: Sizes) -> Iterator[bool]:
    """A spout that does as it should; its tuples go nowhere."""
    spout, expired, number = topology.spout("lines"), 0, 0
    while True:
        # Far under the mark: a tree stays for up to one and a half timeouts.
        for _ in range(max(1, int(sizes.mark * STEP / sizes.timeout / 4))):
            spout.emit(f"line {number}", targets=2)
            number += 1
        for outcome in spout.outcomes():
            expired += outcome.status == "expired"
            spout.confirm(outcome)
        yield expired > sizes.mark


def writers(topology: Topology, sizes: Sizes) -> Iterator[bool]:
    """Calls of ever new writers to one shard, a tenth of them sent again; and of one that it knows."""
    ledger, again, full = topology.ledger, 0, False
    anchors = ids.new_anchors(1)
    ledger.track(anchors, ids.new_ids(1), [b"line"], spout="lines")
    shard = ledger.core.shards[ids.shard_of(ids.slab_of(int(anchors[0])), ACKERS)]
    if sizes.writers != WRITERS:
        with client(ledger.store.url) as raw:
            raw.hset(shard.clock, "most_writers", sizes.writers)
    [call] = ledger.core.update(anchors, ids.new_ids(1)).calls
    while True:
        calls = [replace(call, stamp=(Writer().id, 1)) for _ in range(sizes.calls)]
        full = _taken(topology, calls) < len(calls) or full
        again += _taken(topology, calls[: len(calls) // 10])
        ledger.reset_timeout(anchors)  # by a writer that the shard knows, from the first step on
        if ledger.counters()["duplicates"] != again:
            raise RuntimeError(f"{again} calls came again: {ledger.counters()}")
        yield full


def _records(sizes: Sizes) -> list[bytes]:
    """The message ids of a step."""
    return [b"line %d" % number for number in range(sizes.records)]


def _taken(topology: Topology, calls: Sequence[Call]) -> int:
    """Sends calls as they are stamped; how many were not refused for their writer."""
    ledger = topology.ledger
    replies = ledger.store.send([ledger.core.request(call) for call in calls])
    refused = [reply for reply in replies if isinstance(reply, redis.ResponseError)]
    if any(not str(reply).startswith("FULL") for reply in refused):
        raise RuntimeError(f"refused: {refused[:3]}")
    return len(replies) - len(refused)


KINDS: dict[str, Work] = {
    "overload": overload,
    "orphans": orphans,
    "early": early,
    "unconfirmed": unconfirmed,
    "never-acked": never_acked,
    "writers": writers,
}
