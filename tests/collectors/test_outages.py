"""The collectors when a spout crashes, and while the store is away: nothing is lost, nothing counts twice."""

import logging
import re
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest
import redis

from acker import Outcome, StoreUnavailable, Topology, Tuple
from acker.collectors.buffer import BUFFERED
from acker.collectors.spout import Spout
from acker.embedded import EmbeddedServer
from acker.ledger import ids
from acker.ledger.calls import idempotence
from acker.ledger.calls.calls import HORIZON, Call
from acker.ledger.calls.core import Core
from acker.ledger.ids import slab_of
from acker.ledger.outcomes.outcomes import OutcomeReader
from acker.store.operation import Operation
from tests.helpers.builders.collectors import reported_unflushed
from tests.helpers.servers.servers import wait_until

pytestmark = pytest.mark.slow

# Crashes of the spout


def test_unconfirmed_outcomes_are_reported_again_to_the_next_spout(url: str) -> None:
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
        outcomes = {o.message_id: o for o in reported_unflushed(spout, 20)}
        confirmed = [o for o in outcomes.values() if int(o.message_id[1:]) % 2]
        for outcome in confirmed:
            spout.confirm(outcome)
            spout.confirm(outcome)
        topology.flush()

        with Topology(url, "t", linger=15.0) as later:
            again = later.spout("s")
            repeated = {
                o.message_id: o
                for o in reported_unflushed(again, len(list(again_expected(again, outcomes, confirmed))))
            }
            # An entry of the store is confirmed as a whole: at least once, and all that was not confirmed.
            assert set(outcomes) - {o.message_id for o in confirmed} <= set(repeated)
            assert all(outcomes[message_id] == outcome for message_id, outcome in repeated.items())
            for outcome in repeated.values():
                again.confirm(outcome)
            later.flush()
            reported_unflushed(later.spout("s"), 0)
            assert later.counters()["tracked"] == 20


def again_expected(spout: Spout, outcomes: dict[bytes, Outcome], confirmed: list[Outcome]) -> Iterator[bytes]:
    """The message ids in the store's entries that have an unconfirmed outcome."""
    ledger = spout.topology.ledger
    by_anchor = {o.anchor: o for o in outcomes.values()}
    slabs: dict[bytes, list[Outcome]] = {}
    for outcome in by_anchor.values():
        slabs.setdefault(slab_of(outcome.anchor), []).append(outcome)
    reader = OutcomeReader(ledger.core, spout.name)
    while entries := ledger.outcomes(reader):
        for entry in entries:
            for part in entry.slabs:
                for outcome in slabs[part.slab]:
                    if part.indexes is None or ids.index_of(outcome.anchor) in part.indexes:
                        yield outcome.message_id


def test_a_spout_that_was_killed_is_reported_what_became_of_its_records(url: str) -> None:
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
        outcomes = reported_unflushed(spout, 3)
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
    assert {(o.message_id, o.status) for o in reported_unflushed(spout, 2)} == {
        (b"before", "acked"),
        (b"during", "acked"),
    }
    counters = topology.counters()
    assert (counters["tracked"], counters["acked"], counters["late"]) == (2, 2, 0)
    topology.close()


def test_a_lost_reply_undoes_nothing(url: str, raw: "redis.Redis", monkeypatch: pytest.MonkeyPatch) -> None:
    submit = idempotence.submit

    def lose_the_reply(core: Core, calls: Sequence[Call]) -> Operation[None]:
        stamped = [(call.stamp, call.reply) for call in calls]
        yield from submit(core, calls)
        for call, (_, reply) in zip(calls, stamped, strict=True):
            call.reply = reply
        raise StoreUnavailable("the reply was lost")

    topology = Topology(url, "t", linger=15.0)
    spout, bolt = topology.spout("s"), topology.bolt("b")
    bolt.ack(spout.emit("m", targets=2)[0])
    with monkeypatch.context() as patch:
        patch.setattr(idempotence, "submit", lose_the_reply)
        with pytest.raises(StoreUnavailable):
            topology.flush()
    topology.flush()
    assert list(spout.outcomes()) == []
    counters = topology.counters()
    assert (counters["tracked"], counters["acked"], counters["late"], counters["duplicates"]) == (1, 0, 0, 2)
    assert sum(int(raw.hget(f"acker:{{t:{shard}/4}}:counters", "emitted") or 0) for shard in range(4)) == 2
    topology.close()


def test_threads_that_flush_share_one_wait(away: EmbeddedServer, monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[int] = []
    submit = idempotence.submit

    def counted(core: Core, calls: Sequence[Call]) -> Operation[None]:
        tried.append(threading.get_ident())
        yield from submit(core, calls)

    threads = 8
    together = threading.Barrier(threads)

    def flush(topology: Topology) -> None:
        together.wait(60)
        with pytest.raises(StoreUnavailable):
            topology.flush()

    topology = Topology(away.url, "t", linger=15.0, timeout=4.0)
    spout, bolt = topology.spout("s"), topology.bolt("b")
    record, first = spout.emit("m") + spout.emit("first")
    bolt.ack(first)  # the step is registered
    topology.flush()
    monkeypatch.setattr(idempotence, "submit", counted)
    away.kill()
    bolt.ack(record)
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(flush, [topology] * threads))
    assert 1 <= len(tried) < threads / 2
    away.restart()
    topology.flush()
    assert topology.counters()["acked"] == 2
    topology.close()


def test_a_flush_repeats_an_earlier_one(away: EmbeddedServer, monkeypatch: pytest.MonkeyPatch) -> None:
    topology = Topology(away.url, "t", linger=15.0)
    [record] = topology.spout("s").emit("m")
    topology.flush()
    topology.bolt("b").ack(record)
    submit, began, back = idempotence.submit, threading.Event(), threading.Event()

    def late(core: Core, calls: Sequence[Call]) -> Operation[None]:
        if began.is_set():
            return (yield from submit(core, calls))
        began.set()
        assert back.wait(60)
        raise StoreUnavailable("it was away until now")

    monkeypatch.setattr(idempotence, "submit", late)
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(topology.flush)
        assert began.wait(60)
        second = pool.submit(topology.flush)
        wait_until(second.running)
        back.set()
        assert isinstance(first.exception(60), StoreUnavailable)
        second.result(60)
    assert topology.counters()["acked"] == 1
    topology.close()


def test_the_thread_sends_kept_messages(away: EmbeddedServer, caplog: pytest.LogCaptureFixture) -> None:
    topology = Topology(away.url, "t", timeout=1.0, linger=0.001)
    spout, bolt = topology.spout("s"), topology.bolt("b")
    away.kill()
    with caplog.at_level(logging.WARNING, "acker"):
        bolt.ack(spout.emit("m")[0])
        wait_until(lambda: caplog.records)
    assert "wait for the store" in caplog.text
    away.restart()
    assert [o.status for o in reported_unflushed(spout, 1)] == ["acked"]
    topology.close()


def test_a_full_buffer_emits_nothing(away: EmbeddedServer, caplog: pytest.LogCaptureFixture) -> None:
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


def test_nothing_is_reported_of_an_emit_many_that_raised(away: EmbeddedServer) -> None:
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
    reported_unflushed(Topology(away.url, "t").spout("s"), 0)


def test_forgotten_calls_are_not_sent_again(away: EmbeddedServer, caplog: pytest.LogCaptureFixture) -> None:
    topology = Topology(away.url, "t", timeout=1.0, linger=15.0)
    spout, bolt = topology.spout("s"), topology.bolt("b")
    each, first = spout.emit("m") + spout.emit("first")
    bolt.ack(first)  # the step is registered
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
    assert re.search(r"1 messages were not answered for 36\d\d s and are given up", caplog.text)
    for _ in range(3):
        topology.tick(force=True)
    assert [o.status for o in reported_unflushed(spout, 2)] == ["acked", "expired"]
    topology.close()
