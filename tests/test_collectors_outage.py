"""The collectors when something goes wrong: crashes, a store that is away, a store that lost everything."""

import contextlib
import itertools
import logging
import pickle
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis

from acker import Outcome, StoreUnavailable, Topology, Tuple
from acker.embedded import EmbeddedServer
from acker.ids import slab_of
from acker.ledger import Ledger
from acker.outbox import BUFFERED
from acker.outcomes import OutcomeReader
from acker.spout import Spout
from acker.submissions import Submission
from acker.writers import HORIZON
from tests.servers import wait_until

NewServer = Callable[..., EmbeddedServer]


def told(spout: Spout, count: int, timeout: float = 20.0) -> list[Outcome]:
    deadline, found = time.monotonic() + timeout, list[Outcome]()
    while len(found) < count and time.monotonic() < deadline:
        found += spout.outcomes(timeout=0.2)
    with contextlib.suppress(StoreUnavailable):
        found += spout.outcomes()
    assert len(found) == count, found
    return found


@pytest.fixture
def away(new_server: NewServer) -> EmbeddedServer:
    """A server of the test's own, to be taken away; it keeps what it has through a restart."""
    return new_server(append_only=True, options={"appendfsync": "always"})


# Crashes of the spout


def test_outcomes_not_confirmed_are_told_again_to_the_next_spout_and_confirmed_ones_are_not(url: str) -> None:
    with Topology(url, "t", ackers=2, slab_limit=4, linger=15.0) as topology:
        spout, bolt = topology.spout("s"), topology.bolt("b")
        tuples = {f"m{number}".encode(): spout.emit(f"m{number}")[0] for number in range(20)}
        for number, each in enumerate(tuples.values()):
            if number % 3:
                bolt.ack(each)
            else:
                bolt.fail(each, f"reason {number}")
            if number % 5 == 0:
                topology.flush()
        topology.flush()
        outcomes = {o.message_id: o for o in told(spout, 20)}
        confirmed = [o for o in outcomes.values() if int(o.message_id[1:]) % 2]
        for outcome in confirmed:
            spout.confirm(outcome)
            spout.confirm(outcome)
        topology.flush()

        with Topology(url, "t", linger=15.0) as later:
            again = later.spout("s")
            repeated = {
                o.message_id: o for o in told(again, len(list(again_expected(again, outcomes, confirmed))))
            }
            # An entry of the store is confirmed as a whole: at least once, and all that was not confirmed.
            assert set(outcomes) - {o.message_id for o in confirmed} <= set(repeated)
            assert all(outcomes[message_id] == outcome for message_id, outcome in repeated.items())
            for outcome in repeated.values():
                again.confirm(outcome)
            later.flush()
            told(later.spout("s"), 0)
            assert later.counters()["tracked"] == 20


def again_expected(spout: Spout, outcomes: dict[bytes, Outcome], confirmed: list[Outcome]) -> Iterator[bytes]:
    """The message ids in the store's entries that have an unconfirmed outcome."""
    spout.register()
    assert spout._reader is not None
    core = spout.topology.ledger.core
    by_anchor = {o.anchor: o for o in outcomes.values()}
    slabs: dict[bytes, list[Outcome]] = {}
    for outcome in by_anchor.values():
        slabs.setdefault(slab_of(outcome.anchor), []).append(outcome)
    reader = OutcomeReader(core, spout._reader.spout)
    while entries := spout.topology.ledger.outcomes(reader):
        for entry in entries:
            for part in entry.slabs:
                for outcome in slabs[part.slab]:
                    if part.indexes is None or (outcome.anchor & 4095) in part.indexes:
                        yield outcome.message_id


def test_a_spout_that_was_killed_is_told_what_became_of_its_records(url: str) -> None:
    program = f"""
import os
from acker import Topology
topology = Topology({url!r}, "t")
spout = topology.spout("s")
for number in range(3):
    print(spout.emit(f"m{{number}}")[0])
topology.flush()
print(flush=True)
os.kill(os.getpid(), 9)
"""
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert run.returncode == -9, run.stderr
    tuples = [Tuple.parse(line) for line in run.stdout.split()]
    with Topology(url, "t") as topology:
        spout, bolt = topology.spout("s"), topology.bolt("b")
        bolt.ack(tuples[0])
        bolt.fail(tuples[1], "no")
        topology.flush()
        for _ in range(3):
            topology.tick(force=True)
        outcomes = told(spout, 3)
        assert {(o.message_id, o.status, o.reason) for o in outcomes} == {
            (b"m0", "acked", ""),
            (b"m1", "failed", "no"),
            (b"m2", "expired", ""),
        }
        assert {o.anchor for o in outcomes} == {each.anchors[0] for each in tuples}
        for outcome in outcomes:
            spout.confirm(outcome)


def test_a_script_that_ends_without_close_sends_what_it_has(url: str) -> None:
    program = f"""
from acker import Topology
Topology({url!r}, "t", linger=10.0).spout("s").emit("m")
topology = Topology({url!r}, "t", linger=10.0)
spout = topology.spout("s")
spout.emit("n")
"""
    subprocess.run([sys.executable, "-W", "error", "-c", program], check=True)
    with Topology(url, "t") as topology:
        assert topology.counters()["tracked"] == 2


# A store that is away


def test_what_could_not_be_sent_is_kept_and_takes_effect_once(away: EmbeddedServer) -> None:
    topology = Topology(away.url, "t", timeout=1.0, linger=15.0)
    spout, bolt = topology.spout("s"), topology.bolt("b")
    first = spout.emit("before", targets=2)
    topology.flush()
    away.kill()
    [second] = spout.emit("during")
    [child] = bolt.emit(first[0])
    for each in (first[0], first[1], child, second):
        bolt.ack(each)
    unsent = topology.outbox.unsent
    for _ in range(2):
        with pytest.raises(StoreUnavailable):
            topology.flush()
        assert topology.outbox.unsent == unsent
    with pytest.raises(StoreUnavailable):
        topology.close()
    away.restart()
    topology.flush()
    assert topology.outbox.unsent == 0
    assert {(o.message_id, o.status) for o in told(spout, 2)} == {(b"before", "acked"), (b"during", "acked")}
    counters = topology.counters()
    assert (counters["tracked"], counters["acked"], counters["late"]) == (2, 2, 0)
    topology.close()


def test_a_reply_that_was_lost_does_not_undo_what_was_sent(
    url: str, raw: "redis.Redis", monkeypatch: pytest.MonkeyPatch
) -> None:
    send = Ledger.send

    def lose_the_reply(self: Ledger, submission: Submission[Any]) -> Any:
        stamped = [(call.stamp, call.reply) for call in submission.calls]
        send(self, submission)
        for call, (_, reply) in zip(submission.calls, stamped, strict=True):
            call.reply = reply
        raise StoreUnavailable("the reply was lost")

    topology = Topology(url, "t", linger=15.0)
    spout, bolt = topology.spout("s"), topology.bolt("b")
    bolt.ack(spout.emit("m", targets=2)[0])
    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "send", lose_the_reply)
        with pytest.raises(StoreUnavailable):
            topology.flush()
    topology.flush()
    assert list(spout.outcomes()) == []
    counters = topology.counters()
    assert (counters["tracked"], counters["acked"], counters["late"], counters["duplicates"]) == (1, 0, 0, 3)
    assert sum(int(raw.hget(f"acker:{{t:{shard}}}:counters", "emitted") or 0) for shard in range(4)) == 2
    topology.close()


def test_the_thread_sends_what_was_kept_when_the_store_is_back(
    away: EmbeddedServer, caplog: pytest.LogCaptureFixture
) -> None:
    topology = Topology(away.url, "t", timeout=1.0, linger=0.001)
    spout, bolt = topology.spout("s"), topology.bolt("b")
    away.kill()
    with caplog.at_level(logging.WARNING, "acker"):
        bolt.ack(spout.emit("m")[0])
        wait_until(lambda: caplog.records)
    assert "wait for the store" in caplog.text
    away.restart()
    assert [o.status for o in told(spout, 1)] == ["acked"]
    topology.close()


def test_buffers_are_bounded_and_a_full_one_raises_without_emitting(
    away: EmbeddedServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, "acker")
    topology = Topology(away.url, "t", timeout=1.0, linger=15.0, message_timeout=600.0)
    spout, bolt = topology.spout("s"), topology.bolt("b")
    [kept] = spout.emit("kept")
    away.kill()
    for _ in range(BUFFERED - 1):
        spout.emit("m")
    with pytest.raises(StoreUnavailable):
        spout.emit("over")
    with pytest.raises(StoreUnavailable):
        bolt.ack(kept)
    assert spout.pending == topology.outbox.unsent == BUFFERED
    away.restart()
    bolt.ack(kept)
    topology.flush()
    assert topology.counters()["tracked"] == BUFFERED
    topology.close()


def test_nothing_is_told_of_an_emit_many_that_raised(away: EmbeddedServer) -> None:
    topology = Topology(away.url, "t", timeout=1.0, linger=15.0, message_timeout=1.0)
    spout = topology.spout("s")
    away.kill()
    with pytest.raises(StoreUnavailable):
        spout.emit_many(["a", "b"])
    assert spout.pending == topology.outbox.unsent == 0
    away.restart()
    topology.flush()
    for _ in range(3):
        topology.tick(force=True)
    # What had reached the store all the same has expired there: it is confirmed without a word.
    assert list(spout.outcomes()) == []
    topology.close()
    told(Topology(away.url, "t").spout("s"), 0)


def test_what_the_store_may_have_forgotten_that_it_did_is_not_sent_again(
    away: EmbeddedServer, caplog: pytest.LogCaptureFixture
) -> None:
    topology = Topology(away.url, "t", timeout=1.0, linger=15.0)
    spout, bolt = topology.spout("s"), topology.bolt("b")
    [each] = spout.emit("m")
    topology.flush()
    away.kill()
    bolt.ack(each)
    with pytest.raises(StoreUnavailable):
        topology.flush()
    [part] = topology.outbox._parts
    assert part.sent_at is not None
    part.sent_at -= HORIZON
    away.restart()
    with caplog.at_level(logging.ERROR, "acker"):
        topology.flush()
    assert f"1 messages were not answered for {0.9 * HORIZON:.0f} s and are given up" in caplog.text
    for _ in range(3):
        topology.tick(force=True)
    assert [o.status for o in told(spout, 1)] == ["expired"]
    topology.close()


# The spout's own timer


@pytest.fixture
def quick(away: EmbeddedServer) -> Iterator[Topology]:
    topology = Topology(away.url, "t", ackers=2, timeout=1.0, message_timeout=2.0, linger=0.001)
    yield topology
    away.restart()
    topology.close()


def test_a_store_that_lost_everything_has_its_trees_told_as_expired_in_time(
    quick: Topology, away: EmbeddedServer
) -> None:
    spout = quick.spout("s", max_spout_pending=3)
    start = time.monotonic()
    tuples = [spout.emit(f"m{number}")[0] for number in range(3)]
    quick.flush()
    with redis.Redis.from_url(away.url) as client:
        client.flushall()
    outcomes = list(itertools.islice(spout.outcomes(timeout=10), 3))
    assert 2.0 <= time.monotonic() - start <= 4.0
    assert {(o.message_id, o.status, o.latency) for o in outcomes} == {
        (f"m{number}".encode(), "expired", None) for number in range(3)
    }
    assert all("lost" in o.reason for o in outcomes)
    assert spout.pending == 0
    # The topology and its spout are known to the store again, and all goes on.
    bolt = quick.bolt("b")
    bolt.ack(spout.emit("again")[0])
    assert [o.status for o in told(spout, 1)] == ["acked"]
    for each in tuples:
        bolt.ack(each)
    quick.flush()
    with Topology(away.url, "t") as other:
        other.tick(force=True)
        assert other.config == quick.config


def test_a_store_that_is_away_has_its_trees_told_as_expired_in_time_and_not_a_second_time(
    quick: Topology, away: EmbeddedServer
) -> None:
    spout, bolt = quick.spout("s"), quick.bolt("b")
    start = time.monotonic()
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
    bolt.ack(confirmed)
    bolt.ack(unconfirmed)
    quick.flush()
    assert quick.counters()["acked"] == 2
    assert list(spout.outcomes(timeout=0.3)) == []
    quick.flush()
    # An entry is kept until the caller confirmed all of it, be it by what this side found out.
    again = told(quick.spout("s"), 2)
    assert {(o.message_id, o.status) for o in again} == {(b"confirmed", "acked"), (b"unconfirmed", "acked")}


def test_what_was_never_tracked_is_told_as_expired_and_not_tracked_later(
    quick: Topology, away: EmbeddedServer
) -> None:
    spout = quick.spout("s")
    away.kill()
    spout.emit("m")
    [outcome] = told(spout, 1)
    assert outcome.status == "expired"
    spout.confirm(outcome)
    away.restart()
    quick.flush()
    assert list(spout.outcomes()) == []
    assert quick.outbox.unsent == 0


def test_a_spout_that_never_reached_the_store_tells_so_and_goes_on_when_it_is_there(
    quick: Topology, away: EmbeddedServer
) -> None:
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
    assert [o.message_id for o in told(spout, 1)] == [b"n"]
    assert quick.counters()["tracked"] == 1
    spout.topology.close()


def test_a_spout_that_comes_to_a_store_that_lost_everything_leaves_the_topology_usable(
    quick: Topology, away: EmbeddedServer
) -> None:
    old = quick.spout("old")
    with redis.Redis.from_url(away.url) as client:
        client.flushall()
    new, bolt = quick.spout("new"), quick.bolt("b")
    with Topology(away.url, "t", ackers=2, message_timeout=2.0) as other:
        assert other.config == quick.config
    bolt.ack(old.emit("o")[0])
    bolt.ack(new.emit("n")[0])
    assert [o.message_id for o in told(old, 1)] == [b"o"]
    assert [o.message_id for o in told(new, 1)] == [b"n"]


def test_a_tree_that_is_still_pending_in_the_ledger_is_waited_for(away: EmbeddedServer) -> None:
    # The ledger is asked after 8 s, and has until 9.25 s to answer.
    with Topology(away.url, "t", ackers=2, message_timeout=5.0, linger=0.001) as topology:
        spout, bolt = topology.spout("s"), topology.bolt("b")
        [each] = spout.emit("m")
        start = time.monotonic()
        while time.monotonic() - start < 9.5:  # nobody ticks, so the ledger expires nothing
            assert list(spout.outcomes(timeout=0.5)) == []
        bolt.ack(each)
        assert [o.status for o in told(spout, 1)] == ["acked"]


def test_an_emit_that_waits_is_freed_by_the_own_timer(quick: Topology, away: EmbeddedServer) -> None:
    spout = quick.spout("s", max_spout_pending=1)
    spout.emit("lost")
    quick.flush()
    with redis.Redis.from_url(away.url) as client:
        client.flushall()
    spout.emit("next", timeout=10)
    assert [(o.message_id, o.status) for o in spout.outcomes()] == [(b"lost", "expired")]
