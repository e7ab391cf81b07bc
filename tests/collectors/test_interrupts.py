"""An interrupt at any line of the collectors: all goes on, exact."""

import time
from collections import Counter
from typing import Any

import pytest

from acker import Outcome, Topology, Tuple
from tests.helpers.faults.interrupts import interrupted, moments

FILES = tuple(
    f"acker/collectors/{name}.py"
    for name in (
        "outbox",
        "sending/alarm",
        "sending/holding",
        "pending",
        "inbox",
        "spout",
        "buffer",
        "bolt",
        "tuples",
    )
)


class Work:
    """A program that uses collectors over and over, with its own account of each record."""

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        self.spout = topology.spout("lines", max_spout_pending=50)
        self.bolt = topology.bolt("split")
        self.began = 0
        self.emitted: set[tuple[bytes, int]] = set()
        self.processed: set[bytes] = set()
        self.failed: set[bytes] = set()
        self.reported: Counter[tuple[bytes, int]] = Counter()
        self.outcomes: dict[bytes, Outcome] = {}

    def once(self) -> None:
        """Emits, processes, fails, flushes, and takes what is reported."""
        self.began += 1
        for number, kind in enumerate(("plain", "child", "failed", "reset", "bare")):
            self.one(b"%d-%d" % (self.began, number), kind)
        names = [b"%d-many-%d" % (self.began, number) for number in range(3)]
        anchors, own = self.spout.emit_many(names)
        self.emitted |= {(name, int(anchor)) for name, anchor in zip(names, anchors, strict=True)}
        for name, edge in zip(names, zip(anchors, own, strict=True), strict=True):
            self.processed.add(name)
            self.bolt.ack(Tuple([(int(edge[0]), int(edge[1]))]))
        self.topology.flush()
        self.take()
        self.topology.flush()

    def one(self, name: bytes, kind: str) -> None:
        if kind == "bare":
            self.processed.add(name)
        tuples = self.spout.emit(name, targets=0 if kind == "bare" else 2)
        self.emitted |= {(name, one.anchors[0]) for one in tuples}
        if kind == "child":
            tuples += self.bolt.emit([tuples[0]], targets=2)
        for one in tuples[:-1]:
            self.bolt.ack(one)
        if kind == "failed":
            self.failed.add(name)
            self.bolt.fail(tuples[-1], "bad")
        elif kind == "reset":
            self.bolt.reset_timeout(tuples[-1])
        if kind != "failed" and tuples:
            self.processed.add(name)
            self.bolt.ack(tuples[-1])

    def take(self) -> None:
        for outcome in self.spout.outcomes(timeout=0.0):
            self.reported[outcome.message_id, outcome.anchor] += 1
            self.outcomes[outcome.message_id] = outcome
            self.spout.confirm(outcome)

    def end(self) -> None:
        """Sees all trees to their end, those expire that an interrupt left; then looks at it all."""
        deadline = time.monotonic() + 60.0
        self.topology.flush()
        while self.spout.pending or not self.reported.keys() >= self.emitted:
            assert time.monotonic() < deadline, (self.spout.pending, self.emitted - self.reported.keys())
            self.topology.tick(force=True)
            self.take()
        # A spout that was interrupted in a confirmation confirms again.
        for outcome in self.outcomes.values():
            self.spout.confirm(outcome)
        self.topology.flush()
        assert {key: times for key, times in self.reported.items() if times > 1} == {}
        for name, outcome in self.outcomes.items():
            assert outcome.status != "acked" or name in self.processed, outcome
            assert outcome.status != "failed" or name in self.failed, outcome
        self.outcomes.clear()

    def run(self) -> None:
        """Works without an interrupt: every record has its own outcome."""
        self.once()
        began = b"%d-" % self.began
        self.end_of(began)

    def end_of(self, began: bytes) -> None:
        deadline = time.monotonic() + 60.0
        while True:
            self.take()
            mine = {name: o.status for name, o in self.outcomes.items() if name.startswith(began)}
            if len(mine) == 8:
                break
            assert time.monotonic() < deadline, mine
        assert Counter(mine.values()) == {"acked": 7, "failed": 1}
        assert mine[began + b"2"] == "failed"


@pytest.mark.parametrize("time_of_line", ["first", pytest.param("last", marks=pytest.mark.slow)])
def test_an_interrupt_at_any_line_leaves_collectors_that_go_on_and_are_exact(
    valkey_url: str, valkey_raw: Any, time_of_line: str
) -> None:
    topology = Topology(valkey_url, "t", ackers=2, linger=15.0, message_timeout=30.0)
    work = Work(topology)
    work.run()
    struck = 0
    for turn, moment in enumerate(moments(FILES, work.run, time_of_line == "last")):
        error = KeyboardInterrupt if turn % 3 else MemoryError
        struck += interrupted(FILES, work.once, moment, error)
        work.run()
        work.end()
        assert topology.outbox.unsent == 0, moment
        held = [valkey_raw.hget(key, "outstanding") for key in valkey_raw.scan_iter("*counters")]
        assert {*held} == {b"0"}, (moment, held)  # of each shard that had a tree yet
    assert struck > 200
    topology.close()
