"""External segments in the store: exchanges of a flush, bytes of a row in flight, time of the server.

The segments of a `Sender` are whole, but no row of theirs travels: what a consumer would read is known. So
segments of 65,536 rows take no more time to make than others. All are in one shard, for one subscription.
"""

import secrets
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from acker.ledger import ids
from acker.ledger.client import Ledger, open_ledger
from acker.ledger.slabs.slabs import NewSlab
from acker.store.client import Store
from acker.store.operation import Reply, Request
from acker.streams import downtime
from acker.streams.log import segments, subscriptions
from acker.streams.staging.external import bits, declaring, receiving
from acker.streams.staging.external import commit as commits
from acker.streams.staging.external.contents import ExternalCommit, In, Out
from acker.streams.staging.external.declaring import External
from acker.streams.staging.external.receiving import Part
from acker.streams.staging.external.scripts import Received
from acker.streams.staging.external.segments import MOST_TREES, Sent, Worked
from acker.streams.staging.vectors import CommitProgress
from acker.streams.upkeep import open_segments
from benchmarks.figures import Sample
from benchmarks.servers import client

STREAM, SUBSCRIPTION = "items", "count"
VECTORS = ("vectors", "indexes", "deltas", "counts", "lengths", "ones", "trees")
"""Fields that staged vectors of a managed stream have, too; each for chunk 0."""
EXTERNAL = ("rows", "mask", "bits", "of")
"""Fields that only hashes of external segments have."""
EACH = 100
"""Calls of a figure of the server's time."""


@dataclass
class Sender:
    """A topology of one shard, and an external stream with one subscription."""

    ledger: Ledger
    external: External
    slot: int
    now: int

    @classmethod
    def begin(cls, url: str, name: str) -> "Sender":
        """Declares the stream and its subscription."""
        ledger = open_ledger(Store(url), name, ackers=1, message_timeout=3600.0)
        external = ledger.run(declaring.declare(ledger.core, STREAM, most_segments=1 << 30))
        slot = ledger.run(subscriptions.subscribe(ledger.core, STREAM, SUBSCRIPTION, "external"))
        external.seen[slot] = SUBSCRIPTION
        return cls(ledger, external, slot, external.now // 1000)

    def trees(self, count: int) -> ids.Ids:
        """Tracks so many trees, in slabs of at most 1,000."""
        slabs = []
        for first in range(0, count, MOST_TREES):
            anchors = ids.new_anchors(min(MOST_TREES, count - first))
            values = np.ones(len(anchors), np.int64)
            slabs.append(NewSlab(anchors, values, [b"%d" % number for number in range(len(anchors))]))
        for first in range(0, len(slabs), 100):
            self.ledger.track_slabs(slabs[first : first + 100], spout="s")
        return np.concatenate([slab.anchors for slab in slabs])

    def send(self, rows: Sequence[ids.Ids]) -> list[Sent]:
        """Emits segments: for each, the tree of each row."""
        made = []
        for anchors in rows:
            sent = Sent(secrets.token_hex(14), segments.new_seed(), self.now)
            sent.add_many(anchors)
            made.append(sent)
        self.carry_out(ExternalCommit(secrets.token_hex(16), {STREAM: Out(self.external, made)}))
        return made

    def receive(self, sent: Sequence[Sent], rows: Callable[[Sent], range]) -> None:
        """Says that rows of segments were worked on."""
        worked = {(one.token, 0): Worked(set(rows(one))) for one in sent}
        received = In(self.external, worked, self.now)
        self.carry_out(ExternalCommit(secrets.token_hex(16), received={(STREAM, self.slot): received}))

    def carry_out(self, commit: ExternalCommit) -> None:
        """Carries a commit out, and drops its notes."""
        ended = self.ledger.run(commits.carry_out(self.ledger.core, commit))
        if ended.spent:
            with client(self.ledger.store.url) as raw:
                raw.unlink(*ended.spent)

    def key(self, sent: Sent) -> bytes:
        """The hash of a segment."""
        return self.ledger.core.shards[0].staged(sent.token, self.slot)


def store(url: str, rows: int, count: int) -> Iterator[Sample]:
    """Bytes of a row in flight, beside vectors: all rows but one of each segment are acked."""
    sender = Sender.begin(url, f"store{rows}")
    trees = min(rows, MOST_TREES)
    anchors = [np.repeat(sender.trees(trees), rows // trees) for _ in range(count)]
    with client(url) as raw:
        before = set(raw.scan_iter("acker:*", count=1000))
        sent = sender.send(anchors)
        sender.receive(sent, lambda one: range(len(one.anchors) - 1))
        names = [key for key in raw.scan_iter("acker:*", count=1000) if key not in before]
        names.append(sender.ledger.core.shards[0].early_rows)
        whole = sum(raw.memory_usage(key, samples=0) or 0 for key in names)
        vectors = sum(raw.hstrlen(sender.key(one), f"{field}:0") for one in sent for field in VECTORS)
        managed = 0
        for key in map(sender.key, sent):  # as a managed stream has it
            raw.copy(key, b"{%s}" % key)
            raw.hdel(b"{%s}" % key, *EXTERNAL)
            managed += raw.memory_usage(b"{%s}" % key, samples=0)
            raw.delete(b"{%s}" % key)
    what = f"segments of {rows:,}"
    yield Sample(f"{what}: store of a row, beside vectors", (whole - vectors) / (rows * count), "bytes")
    of_stream = (whole - managed) / (rows * count)
    yield Sample(f"{what}: beside the hash of vectors that a managed stream has, too", of_stream, "bytes")


def server_time(url: str, rows: int, whole: bool) -> float:
    """Microseconds of the server for the bits of a segment: all of it or half, without its vector."""
    sender = Sender.begin(url, f"bits{rows}{whole}")
    trees = sender.trees(min(rows, MOST_TREES))
    sent = sender.send([np.resize(trees, rows)] * EACH)
    bitmap = bits.pack(range(0, rows, 1 if whole else 2))
    core, progress = sender.ledger.core, CommitProgress("none", Counter())
    parts = [Received(sender.key(one), bitmap, b"") for one in sent]
    letters = b"f" if whole else b"o"
    before = 0.0
    with client(url) as raw:
        for first in range(0, EACH, EACH // 2):  # the first call shows the script to the server
            before = spent(raw)
            call = receiving.call_of(
                core, Part(0, parts[first : first + EACH // 2]), progress, core.config.stamp_ttl
            )
            [reply] = sender.ledger.run(core.ask([call]))
            if bytes(reply).strip(letters):
                raise RuntimeError(f"expected {letters!r} of each segment, got {reply!r:.200}")
        return (spent(raw) - before) / (EACH // 2)


def spent(raw: Any) -> float:
    """The processor time of the server's main thread, in microseconds."""
    facts = raw.info("cpu")
    return 1e6 * (float(facts["used_cpu_user_main_thread"]) + float(facts["used_cpu_sys_main_thread"]))


@contextmanager
def slowest_command(url: str) -> Iterator[Counter[str]]:
    """Gets by name the milliseconds of the slowest commands, in the server's processor time.

    Requests go one by one while the block runs: other programs of the machine do not count then.
    """
    found, send = Counter[str](), Store.send

    def timed(store: Store, requests: Sequence[Request]) -> list[Reply]:
        replies = list[Reply]()
        for one in requests:
            before = spent(raw)
            replies += send(store, [one])
            name = one.script.name if one.script else str(one.args[0])
            found[name] = max(found[name], round((spent(raw) - before) / 1000, 2))  # type: ignore[assignment]
        return replies

    with client(url) as raw:
        Store.send = timed  # type: ignore[method-assign, assignment]
        try:
            yield found
        finally:
            Store.send = send  # type: ignore[method-assign]


def slowest(url: str, count: int) -> float:
    """The milliseconds of the slowest command while halves of long segments are received, and the rest.

    128 segments of 65,536 rows have 1 MiB of bits.
    """
    sender = Sender.begin(url, "slowest")
    rows = np.tile(sender.trees(MOST_TREES), 66)[: bits.MOST_POSITIONS]
    sent = [one for _ in range(count) for one in sender.send([rows])]
    with slowest_command(url) as found:
        sender.receive(sent, lambda one: range(0, len(one.anchors), 2))
        sender.receive(sent, lambda one: range(1, len(one.anchors), 2))
    with client(url) as raw:
        if any(raw.hget(sender.key(one), "state") != b"2" for one in sent):
            raise RuntimeError("a segment should be acked when all its bits are in")
    return max(found.values())


def open_pass(url: str, count: int) -> Iterator[Sample]:
    """The pass that keeps the clocks of open segments: no tree expires by six rotations with it."""
    sender, passes, longest = Sender.begin(url, "pass"), list[float](), 0.0
    ledger, trees = sender.ledger, sender.trees(count)
    for first in range(0, count, 5_000):
        sender.send([trees[number : number + 1] for number in range(first, min(first + 5_000, count))])
    back = partial(downtime.send_back, ledger.core, rotations=2)
    for number in range(6):
        if number == 5:
            with slowest_command(url) as found:
                ledger.run(open_segments.keep(ledger.core, STREAM, back))
            [(_, longest)] = found.most_common(1)
        else:
            begun = time.perf_counter()
            ledger.run(open_segments.keep(ledger.core, STREAM, back))
            passes.append(time.perf_counter() - begun)
        ledger.tick(force=True)
    counts = ledger.counters()
    if (counts["expired"], counts["rotations"]) != (0, 6):
        raise RuntimeError(f"expected six rotations, and no tree expired: got {counts}")
    what = f"{count:,} open segments"
    yield Sample(f"{what}: a pass that keeps their clocks", statistics.median(passes), "s")
    yield Sample(f"{what}: slowest command of it", longest, "ms")
