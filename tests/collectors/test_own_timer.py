"""The spout's own timer: what the store has lost, or cannot be asked for, is reported in time."""

import itertools
import pickle
import re
import time
from collections.abc import Iterator

import pytest
import redis

from acker import StoreUnavailable, Topology, Tuple
from acker.collectors.spout import Spout
from acker.embedded import EmbeddedServer
from tests.helpers.builders.collectors import reported_unflushed
from tests.helpers.faults.proxy import proxied

pytestmark = pytest.mark.slow


@pytest.fixture
def quick(away: EmbeddedServer) -> Iterator[Topology]:
    topology = Topology(away.url, "t", ackers=2, timeout=1.0, message_timeout=2.0, linger=0.001)
    yield topology
    away.restart()
    topology.close()


def test_trees_of_an_emptied_store_expire_in_time(quick: Topology, away: EmbeddedServer) -> None:
    spout = quick.spout("s", max_spout_pending=3)
    start = time.monotonic()
    tuples = [spout.emit(f"m{number}")[0] for number in range(3)]
    quick.flush()
    with redis.Redis.from_url(away.url) as client:
        client.flushall()
    outcomes = reported_unflushed(spout, 3)  # each when its own time has come
    assert 2.0 <= time.monotonic() - start <= 4.0
    assert {(o.message_id, o.status, o.latency) for o in outcomes} == {
        (f"m{number}".encode(), "expired", None) for number in range(3)
    }
    assert all("lost" in o.reason for o in outcomes)
    assert spout.pending == 0
    # The topology and its spout are known to the store again, and all goes on.
    bolt = quick.bolt("b")
    bolt.ack(spout.emit("again")[0])
    assert [o.status for o in reported_unflushed(spout, 1)] == ["acked"]
    for each in tuples:
        bolt.ack(each)
    quick.flush()
    with Topology(away.url, "t") as other:
        other.tick(force=True)
        assert other.config == quick.config


def test_trees_of_an_absent_store_expire_in_time_and_once(quick: Topology, away: EmbeddedServer) -> None:
    spout, bolt = quick.spout("s"), quick.bolt("b")
    start = time.monotonic()
    with quick.outbox._sending:  # one track, however slow this thread is: so both lie in one slab and shard
        [confirmed], [unconfirmed] = spout.emit("confirmed"), spout.emit("unconfirmed")
    quick.flush()
    away.kill()
    first, second = itertools.islice(spout.outcomes(timeout=10), 2)
    assert 2.0 <= time.monotonic() - start <= 4.0
    assert (first.message_id, second.message_id) == (b"confirmed", b"unconfirmed")
    assert first.status == second.status == "expired"
    assert "could not be asked" in first.reason
    spout.confirm(first)
    with pytest.raises(StoreUnavailable):
        list(spout.outcomes())
    away.restart()
    with quick.outbox._sending:  # one call, and so one entry
        bolt.ack(confirmed)
        bolt.ack(unconfirmed)
    quick.flush()
    assert quick.counters()["acked"] == 2
    assert list(spout.outcomes(timeout=0.3)) == []
    quick.flush()
    # An entry is kept until the caller confirmed all of it, be it by what this side found out.
    again = reported_unflushed(quick.spout("s"), 2)
    assert {(o.message_id, o.status) for o in again} == {(b"confirmed", "acked"), (b"unconfirmed", "acked")}


def test_an_untracked_record_expires_and_is_not_tracked_later(quick: Topology, away: EmbeddedServer) -> None:
    spout = quick.spout("s")
    away.kill()
    spout.emit("m")
    [outcome] = reported_unflushed(spout, 1)
    assert outcome.status == "expired"
    spout.confirm(outcome)
    away.restart()
    quick.flush()
    assert list(spout.outcomes()) == []
    assert quick.outbox.unsent == 0


def test_a_spout_that_never_reached_the_store_goes_on_later(quick: Topology, away: EmbeddedServer) -> None:
    spout: Spout = pickle.loads(pickle.dumps(quick.spout("s")))
    away.kill()
    start = time.monotonic()
    spout.emit("m")
    [outcome] = itertools.islice(spout.outcomes(timeout=10), 1)
    assert time.monotonic() - start <= 4.0
    assert outcome.status == "expired"
    away.restart()
    spout.topology.flush()
    assert spout.topology.outbox.unsent == 0
    bolt = quick.bolt("b")
    bolt.ack(Tuple.parse(str(spout.emit("n")[0])))
    assert [o.message_id for o in reported_unflushed(spout, 1)] == [b"n"]
    assert quick.counters()["tracked"] == 1
    spout.topology.close()


def test_a_spout_at_an_empty_store_leaves_the_topology_usable(quick: Topology, away: EmbeddedServer) -> None:
    old = quick.spout("old")
    with redis.Redis.from_url(away.url) as client:
        client.flushall()
    new, bolt = quick.spout("new"), quick.bolt("b")
    with Topology(away.url, "t", ackers=2, message_timeout=2.0) as other:
        assert other.config == quick.config
    bolt.ack(old.emit("o")[0])
    bolt.ack(new.emit("n")[0])
    assert [o.message_id for o in reported_unflushed(old, 1)] == [b"o"]
    assert [o.message_id for o in reported_unflushed(new, 1)] == [b"n"]


def test_a_tree_that_is_still_pending_in_the_ledger_is_waited_for(away: EmbeddedServer) -> None:
    # The ledger is asked after 8 s, and has until 9.25 s to answer.
    with Topology(away.url, "t", ackers=2, message_timeout=5.0, linger=0.001) as topology:
        spout, bolt = topology.spout("s"), topology.bolt("b")
        [each] = spout.emit("m")
        start = time.monotonic()
        while time.monotonic() - start < 9.5:  # nobody ticks, so the ledger expires nothing
            assert list(spout.outcomes(timeout=0.5)) == []
        bolt.ack(each)
        assert [o.status for o in reported_unflushed(spout, 1)] == ["acked"]


def test_an_emit_that_waits_is_freed_by_the_own_timer(quick: Topology, away: EmbeddedServer) -> None:
    spout = quick.spout("s", max_spout_pending=1)
    spout.emit("lost")
    quick.flush()
    with redis.Redis.from_url(away.url) as client:
        client.flushall()
    spout.emit("next", timeout=10)
    assert [(o.message_id, o.status) for o in spout.outcomes()] == [(b"lost", "expired")]


def test_a_slow_store_is_not_taken_for_lost(away: EmbeddedServer, caplog: pytest.LogCaptureFixture) -> None:
    with proxied(away.url) as proxy:
        proxy.passed = lambda *_: time.sleep(0.12)
        topology = Topology(proxy.url, "slow", ackers=2, message_timeout=1.0, linger=0.001)
        spout, bolt = topology.spout("s"), topology.bolt("b")
        outcomes = list[tuple[str, str]]()
        for number in range(9):
            bolt.ack(spout.emit(f"m{number}")[0])
        deadline = time.monotonic() + 20
        while (
            len(outcomes) < 9 and time.monotonic() < deadline
        ):  # they may be sent, and end, in several parts
            for outcome in spout.outcomes(timeout=1):
                outcomes.append((outcome.status, outcome.reason))
                spout.confirm(outcome)
        assert outcomes == [("acked", "")] * 9
        [said] = [record.message for record in caplog.records if record.name == "acker.collectors.inbox"]
        assert re.search(r"takes 0\.\d+ s to answer.* message timeout of 1 s", said)
        topology.close()
