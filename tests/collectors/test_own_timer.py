"""The spout's own timer: what the store has lost, or cannot be asked for, is reported in time."""

import contextlib
import itertools
import pickle
import re
import time
from collections.abc import Iterator

import pytest
import redis

from acker import SpoutPendingFull, StoreUnavailable, Topology, Tuple
from acker.collectors import inbox, pending
from acker.collectors.spout import Spout
from acker.embedded import EmbeddedServer
from tests.helpers.builders.collectors import reported_unflushed
from tests.helpers.faults.proxy import proxied

pytestmark = pytest.mark.slow

TIMEOUT = 600.0
"""The message timeout, in seconds. A busy machine takes less than the part of it that a spout leaves over."""


class Clock:
    """The clock of spouts, which a test sets forward. rate: how fast it runs by the clock of the machine."""

    def __init__(self) -> None:
        self.rate, self._begun, self._ahead = 1.0, time.monotonic(), 0.0

    def monotonic(self) -> float:
        return self._begun + self.rate * (time.monotonic() - self._begun) + self._ahead

    def forward(self, seconds: float) -> None:
        self._ahead += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    for module in (inbox, pending):
        monkeypatch.setattr(module, "time", clock)
    return clock


@pytest.fixture
def waiting(away: EmbeddedServer, clock: Clock) -> Iterator[Topology]:
    topology = Topology(away.url, "t", ackers=2, timeout=3.0, message_timeout=TIMEOUT, linger=0.001)
    yield topology
    away.restart()
    topology.close()


def no_outcomes(spout: Spout) -> bool:
    """True if there are none; the store may be away."""
    with contextlib.suppress(StoreUnavailable):
        return not list(spout.outcomes())
    return True


def test_trees_of_an_emptied_store_expire_in_time(
    waiting: Topology, away: EmbeddedServer, clock: Clock
) -> None:
    spout = waiting.spout("s", max_spout_pending=3)
    start = clock.monotonic()
    tuples = [spout.emit(f"m{number}")[0] for number in range(3)]
    waiting.flush()
    with redis.Redis.from_url(away.url) as client:
        client.flushall()
    clock.forward(1.5 * TIMEOUT)
    assert no_outcomes(spout)
    clock.forward(0.37 * TIMEOUT)
    outcomes = reported_unflushed(spout, 3)
    assert clock.monotonic() - start <= 2 * TIMEOUT
    assert {(o.message_id, o.status, o.latency) for o in outcomes} == {
        (f"m{number}".encode(), "expired", None) for number in range(3)
    }
    assert all("lost" in o.reason for o in outcomes)
    assert spout.pending == 0
    # The topology and its spout are known to the store again, and all goes on.
    bolt = waiting.bolt("b")
    bolt.ack(spout.emit("again")[0])
    assert [o.status for o in reported_unflushed(spout, 1)] == ["acked"]
    for each in tuples:
        bolt.ack(each)
    waiting.flush()
    with Topology(away.url, "t") as other:
        other.tick(force=True)
        assert other.config == waiting.config


def test_trees_of_an_absent_store_expire_in_time_and_once(
    waiting: Topology, away: EmbeddedServer, clock: Clock
) -> None:
    spout, bolt = waiting.spout("s"), waiting.bolt("b")
    start = clock.monotonic()
    with waiting.outbox._sending:  # one track, however slow this thread is: so both lie in one slab and shard
        [confirmed], [unconfirmed] = spout.emit("confirmed"), spout.emit("unconfirmed")
    waiting.flush()
    away.kill()
    clock.forward(1.5 * TIMEOUT)
    assert no_outcomes(spout)
    clock.forward(0.37 * TIMEOUT)
    first, second = itertools.islice(spout.outcomes(timeout=60), 2)
    assert clock.monotonic() - start <= 2 * TIMEOUT
    assert (first.message_id, second.message_id) == (b"confirmed", b"unconfirmed")
    assert first.status == second.status == "expired"
    assert "could not be asked" in first.reason
    spout.confirm(first)
    with pytest.raises(StoreUnavailable):
        list(spout.outcomes())
    away.restart()
    with waiting.outbox._sending:  # one call, and so one entry
        bolt.ack(confirmed)
        bolt.ack(unconfirmed)
    waiting.flush()
    assert waiting.counters()["acked"] == 2
    assert list(spout.outcomes(timeout=0.3)) == []
    waiting.flush()
    # An entry is kept until the caller confirmed all of it, be it by what this side found out.
    again = reported_unflushed(waiting.spout("s"), 2)
    assert {(o.message_id, o.status) for o in again} == {(b"confirmed", "acked"), (b"unconfirmed", "acked")}


def test_an_untracked_record_expires_and_is_not_tracked_later(
    waiting: Topology, away: EmbeddedServer, clock: Clock
) -> None:
    spout = waiting.spout("s")
    away.kill()
    spout.emit("m")
    clock.forward(1.87 * TIMEOUT)
    [outcome] = reported_unflushed(spout, 1)
    assert outcome.status == "expired"
    spout.confirm(outcome)
    away.restart()
    waiting.flush()
    assert list(spout.outcomes()) == []
    assert waiting.outbox.unsent == 0


def test_a_spout_that_never_reached_the_store_goes_on_later(
    waiting: Topology, away: EmbeddedServer, clock: Clock
) -> None:
    spout: Spout = pickle.loads(pickle.dumps(waiting.spout("s")))
    away.kill()
    start = clock.monotonic()
    spout.emit("m")
    clock.forward(1.87 * TIMEOUT)
    [outcome] = itertools.islice(spout.outcomes(timeout=60), 1)
    assert clock.monotonic() - start <= 2 * TIMEOUT
    assert outcome.status == "expired"
    away.restart()
    spout.topology.flush()
    assert spout.topology.outbox.unsent == 0
    bolt = waiting.bolt("b")
    bolt.ack(Tuple.parse(str(spout.emit("n")[0])))
    assert [o.message_id for o in reported_unflushed(spout, 1)] == [b"n"]
    assert waiting.counters()["tracked"] == 1
    spout.topology.close()


def test_a_spout_at_an_empty_store_leaves_the_topology_usable(
    waiting: Topology, away: EmbeddedServer
) -> None:
    old = waiting.spout("old")
    with redis.Redis.from_url(away.url) as client:
        client.flushall()
    new, bolt = waiting.spout("new"), waiting.bolt("b")
    with Topology(away.url, "t", ackers=2, message_timeout=TIMEOUT) as other:
        assert other.config == waiting.config
    bolt.ack(old.emit("o")[0])
    bolt.ack(new.emit("n")[0])
    assert [o.message_id for o in reported_unflushed(old, 1)] == [b"o"]
    assert [o.message_id for o in reported_unflushed(new, 1)] == [b"n"]


def test_a_tree_that_is_still_pending_in_the_ledger_is_waited_for(waiting: Topology, clock: Clock) -> None:
    spout, bolt = waiting.spout("s"), waiting.bolt("b")
    [each] = spout.emit("m")
    waiting.flush()
    for part in (1.62, 0.26, 0.26, 0.6):  # nobody ticks, so the ledger expires nothing
        clock.forward(part * TIMEOUT)
        assert list(spout.outcomes()) == []
    bolt.ack(each)
    assert [o.status for o in reported_unflushed(spout, 1)] == ["acked"]


def test_an_emit_that_waits_is_freed_by_the_own_timer(
    waiting: Topology, away: EmbeddedServer, clock: Clock
) -> None:
    spout = waiting.spout("s", max_spout_pending=1)
    spout.emit("lost")
    waiting.flush()
    with redis.Redis.from_url(away.url) as client:
        client.flushall()
    with pytest.raises(SpoutPendingFull):
        spout.emit("next", timeout=0.1)
    clock.forward(1.87 * TIMEOUT)
    spout.emit("next", timeout=60)
    assert [(o.message_id, o.status) for o in spout.outcomes()] == [(b"lost", "expired")]


def test_a_slow_store_is_not_taken_for_lost(
    away: EmbeddedServer, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    clock.rate = 0.01  # a busy machine is slow, too
    with proxied(away.url) as proxy:
        proxy.passed = lambda *_: time.sleep(0.12)
        topology = Topology(proxy.url, "slow", ackers=2, message_timeout=1.0, linger=0.001)
        spout, bolt = topology.spout("s"), topology.bolt("b")
        for number in range(9):
            bolt.ack(spout.emit(f"m{number}")[0])
        outcomes = reported_unflushed(spout, 9)  # they may be sent, and end, in several parts
        assert {(outcome.status, outcome.reason) for outcome in outcomes} == {("acked", "")}
        [said] = [record.message for record in caplog.records if record.name == "acker.collectors.inbox"]
        assert re.search(r"takes \d+\.\d+ s to answer.* message timeout of 1 s", said)
        [last] = spout.emit("last")
        topology.flush()
        clock.forward(1.62)  # it asks for its tree
        assert list(spout.outcomes()) == []
        bolt.ack(last)
        assert [outcome.status for outcome in reported_unflushed(spout, 1)] == ["acked"]
        topology.close()
