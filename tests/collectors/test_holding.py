"""Bolts in plain Python report what they hold for long, so that an expiration names them."""

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from socket import gethostname

import numpy as np
import pytest
import redis

from acker import Topology, Tuple
from acker.collectors.sending import holding
from acker.errors import AckerError, StoreUnavailable
from acker.inspect.locate import in_python
from acker.inspect.locate.expiry_reasons import IN_NO_STREAM, explain
from acker.inspect.locate.why import BESIDE, Why
from acker.inspect.operate.removal import remove
from acker.inspect.trees import failures
from acker.ledger.slabs.causes import Cause
from acker.ledger.steps import held
from acker.ledger.steps.held import Report
from acker.ledger.tick import tick
from acker.store import keys
from acker.streams import Stream
from tests.helpers.builders.collectors import Make
from tests.helpers.faults.late_copies import recorded
from tests.helpers.servers.servers import wait_until

HERE = rf"on host {gethostname()}, process {os.getpid()} \(.+\)"
SINCE = r"had it since \d{4}-\d\d-\d\d \d\d:\d\d UTC, as it said last at \d\d:\d\d"


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(holding, "_PERIOD", 0.05)


def reports(topology: Topology) -> list[Report]:
    return topology.ledger.run(held.reports(topology.ledger.core))


def names(topology: Topology) -> set[int]:
    """The trees that reports name."""
    return {anchor for report in reports(topology) for anchor in report.anchors.tolist()}


def expire(topology: Topology, *anchors: int) -> list[Cause]:
    for _ in range(4):
        topology.ledger.run(tick.tick(topology.ledger.core, force=True, explain=explain))
    found = [topology.ledger.run(failures.find(topology.ledger.core, anchor)) for anchor in anchors]
    assert all(one is not None and one.status == "expired" for one in found)
    return [one.cause for one in found if one is not None]


@pytest.mark.cluster
def test_an_expiration_names_the_bolt_that_had_the_tuple_its_process_and_since_when(make: Make) -> None:
    topology = make(ackers=2)
    spout, count, store = topology.spout("s"), topology.bolt("count"), topology.bolt("store")
    [a], [b], [c], [d] = (spout.emit(name) for name in "abcd")
    [done] = spout.emit("e")
    with store.processing(done):
        pass
    count.emit(a, targets=0)  # emits none, and forgets to ack
    with suppress(KeyboardInterrupt), count.processing(b):
        raise KeyboardInterrupt
    store.emit(c)
    topology.flush()
    assert wait_until(lambda: {a.anchors[0], b.anchors[0], c.anchors[0]} == names(topology))
    text = topology.why(a.anchors[0])
    assert [(one.step, one.pid, one.host) for one in text.held] == [("count", os.getpid(), gethostname())]
    assert text.complete, "its id is the ack value of the tree"
    assert topology.why(d.anchors[0]).held == ()
    by = expire(topology, *(one.anchors[0] for one in (a, b, c, d)))
    assert [cause.step for cause in by] == ["count", "count", "store", ""]
    for cause, step in zip(by, ("count", "count", "store"), strict=False):
        assert re.fullmatch(f"{step} {SINCE}, {HERE}; .*its slab.*", cause.reason)
    assert by[-1].reason.startswith(f"{in_python.UNSAID}; "), "nobody guesses"


def test_a_tuple_that_is_acked_is_soon_not_reported_any_more(make: Make) -> None:
    topology = make(linger=None)
    spout, bolt = topology.spout("s"), topology.bolt("count")
    [a], [b] = spout.emit("a"), spout.emit("b")
    topology.flush()
    with bolt.processing(a), suppress(AckerError):
        bolt.emit(b)
        wait_until(lambda: len(names(topology)) == 2)
    topology.flush()
    wait_until(lambda: names(topology) == {b.anchors[0]})
    bolt.fail(b)
    topology.close()
    with Topology(topology.ledger.store.url, "t") as other:
        wait_until(lambda: not reports(other))  # by the thread, for which nobody waits


def test_a_stream_beside_it_does_not_hide_the_bolt_and_what_remains_is_said(make: Make) -> None:
    topology = make()
    Stream(topology.ledger, "lines").subscribe("split")
    spout, bolt = topology.spout("s"), topology.bolt("count")
    first, second = spout.emit("a", targets=2)
    [alone] = spout.emit("b")
    bolt.emit(first, targets=0)
    topology.flush()
    wait_until(lambda: names(topology) == set(first.anchors))

    def why() -> Why:
        return topology.why(first.anchors[0])

    assert (why().complete, why().rest, len(why().held)) == (False, BESIDE, 1)
    bolt.emit(second)
    assert wait_until(lambda: why().complete)
    assert len(why().held) == 2
    bolt.ack(first)
    topology.flush()
    assert why().rest in ("", BESIDE), "the report may be older than the ack: nothing is claimed then"
    wait_until(lambda: len(why().held) == 1)
    assert why().complete
    had, lost = expire(topology, first.anchors[0], alone.anchors[0])
    assert had.step == "count"
    assert lost.reason.startswith(IN_NO_STREAM)


def test_what_a_report_cannot_name_is_counted(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(holding, "MOST", 50)
    monkeypatch.setattr(held, "MOST", 20)
    topology = make(linger=None)
    spout, bolt = topology.spout("s"), topology.bolt("count")
    tuples = [spout.emit(f"{number}")[0] for number in range(200)]
    for one in tuples:
        bolt.emit(one)
    topology.flush()
    wait_until(lambda: reports(topology))
    wait_until(lambda: reports(topology)[0].process.more == 30)
    [report] = reports(topology)
    assert report.process.passed_over
    assert report.anchors.tolist() == [one.anchors[0] for one in tuples[:20]], "the longest held ones"
    named, unnamed = expire(topology, tuples[0].anchors[0], tuples[30].anchors[0])
    assert (named.step, unnamed.step) == ("count", "")
    assert unnamed.reason.startswith(f"{in_python.UNSAID}; process {os.getpid()} on host {gethostname()}")
    assert "had 30 tuples more than it named and took more tuples than it can note" in unnamed.reason
    for one in tuples[:40]:
        bolt.ack(one)
    for one in tuples[60:70]:
        bolt.emit(one)
    wait_until(lambda: tuples[60].anchors[0] in names(topology))


def test_tuples_of_long_ago_make_room_for_later_ones(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held, "MOST", 5)
    topology = make(message_timeout=1.0, linger=None)
    spout, bolt = topology.spout("s"), topology.bolt("count")
    old = [spout.emit(f"old {number}")[0] for number in range(5)]
    for one in old:
        bolt.emit(one)
    wait_until(lambda: names(topology) == {one.anchors[0] for one in old})
    monkeypatch.setattr(holding.Holding, "_old", lambda _, now: now - 0.2)
    [new] = spout.emit("new")

    def moved() -> bool:
        bolt.emit(new)
        return new.anchors[0] in names(topology)

    wait_until(moved)


def test_many_processes_and_times_have_few_texts(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    topology = make(ackers=1)
    spout = topology.spout("s")
    tuples = [spout.emit(f"{number}")[0] for number in range(40)]
    topology.flush()
    topology.bolt("count").ack(spout.emit("known")[0])
    topology.flush()
    core = topology.ledger.core
    for number, one in enumerate(tuples):
        process = held.Process("far", "count.py", number + 1, ("count",), 0)
        edges = np.array([(one.anchors[0], one.edges[one.anchors[0]], 60_000 * number, 0)], held.Edges)
        topology.ledger.run(held.note(core, f"far {number}", 1, process, edges))
    found = expire(topology, *(one.anchors[0] for one in tuples))
    assert {cause.step for cause in found} == {"count"}
    assert all(cause.reason.startswith("count had it; ") for cause in found)


def test_late_and_unreadable_reports_change_nothing(make: Make, raw: "redis.Redis") -> None:
    topology = make(linger=None)
    spout, bolt = topology.spout("s"), topology.bolt("count")
    [a] = spout.emit("a")
    with pytest.MonkeyPatch.context() as patch, recorded(patch) as copies:
        with bolt.processing(a):
            wait_until(lambda: names(topology))
        wait_until(lambda: not reports(topology))
    copies.come("note_held")
    assert not reports(topology)
    good = raw.hgetall(keys.steps("t", "held"))
    for name, value in (("x", b"x"), ("y", b"1 1 []\n"), ("z", b'1 1 ["h","p",1,["s"],0,false]\n123')):
        raw.hset(keys.steps("t", "held"), name, value)
    assert not reports(topology)
    assert raw.pttl(keys.steps("t", "held")) > 0
    assert len(good) == 1
    for number in range(held.MOST_PROCESSES + 5):
        process = held.Process("far", "count.py", number, ("count",), 1)
        none = np.array([], held.Edges)
        topology.ledger.run(held.note(topology.ledger.core, f"far {number}", 1, process, none))
    assert raw.hlen(keys.steps("t", "held")) == held.MOST_PROCESSES


def test_a_process_that_outlives_its_topology_leaves_no_report(make: Make, raw: "redis.Redis") -> None:
    topology = make()
    ledger = topology.ledger
    process = held.Process("far.example", "old.py", 7, ("count",), 3)
    ledger.run(held.note(ledger.core, "far 7", 1, process, np.zeros(0, held.Edges)))
    assert [report.process for report in ledger.run(held.reports(ledger.core))] == [process]
    ledger.run(remove(ledger.config.name, force=True))
    ledger.run(held.note(ledger.core, "far 7", 2, process, np.zeros(0, held.Edges)))
    assert not raw.exists(keys.steps(ledger.config.name, "held"))


def test_a_report_that_the_store_refuses_holds_up_no_ack(
    make: Make, raw: "redis.Redis", caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    topology = make(linger=0.01)
    spout, bolt = topology.spout("s"), topology.bolt("count")
    raw.set(keys.steps("t", "held"), "no hash", ex=600)
    [a], [b] = spout.emit("a"), spout.emit("b")
    bolt.emit(b)
    wait_until(lambda: "are not reported" in caplog.text)
    bolt.ack(a)
    assert [outcome.status for outcome in spout.outcomes(timeout=30.0)] == ["acked"]
    more = [spout.emit(f"{number}")[0] for number in range(2)]
    monkeypatch.setattr(holding, "_SOON", 0.0)
    for one in more:
        bolt.emit(one)
    wait_until(lambda: (topology.outbox.holding.due or 0.0) > time.monotonic() + 60.0)
    for one in more:
        bolt.ack(one)
    assert (topology.outbox.holding.due or 0.0) > time.monotonic() + 60.0, "acks make no more attempts"
    assert caplog.text.count("are not reported") == 1


def test_tuples_that_came_twice_as_text_are_one(make: Make) -> None:
    topology = make(linger=None)
    spout, bolt = topology.spout("s"), topology.bolt("count")
    [a], [b] = spout.emit("a"), spout.emit("b")
    twice = Tuple.parse(str(a)), Tuple.parse(str(a))
    topology.flush()
    for one in (*twice, b):
        bolt.emit(one, targets=0)
    bolt.ack(twice[0])
    wait_until(lambda: names(topology) == set(b.anchors))


def test_tuples_that_were_not_noted_and_are_over_are_not_counted(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(holding, "MOST", 50)
    topology = make(linger=None)
    spout, window, fast = topology.spout("s"), topology.bolt("window"), topology.bolt("fast")
    tuples = [spout.emit(f"{number}")[0] for number in range(50)]
    for one in tuples:
        window.emit(one)
    for number in range(100):
        with fast.processing(spout.emit(f"fast {number}")[0]):
            pass
    wait_until(lambda: names(topology))
    [process] = [report.process for report in reports(topology)]
    assert (process.more, process.passed_over) == (0, True), "how many it still has is not known"
    assert process.unnamed.endswith(") took more tuples than it can note")


def test_a_tuple_of_more_trees_than_a_report_has_is_named_in_some(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(held, "MOST", 20)
    topology = make(linger=None)
    spout, bolt = topology.spout("s"), topology.bolt("join")
    roots = [spout.emit(f"{number}")[0] for number in range(25)]
    [joined] = topology.bolt("window").emit(roots)
    for root in roots:
        bolt.ack(root)
    bolt.emit([joined, *spout.emit("other")])
    wait_until(lambda: names(topology))
    assert names(topology) == set(joined.anchors[:20]), "as many of its trees as there is room for"
    assert reports(topology)[0].process.more == 2


def test_a_process_that_can_start_no_thread_works_on(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    topology = make(linger=None)
    [a] = topology.spout("s").emit("a")
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        with topology.bolt("count").processing(a):
            topology.flush()
        topology.flush()
    [b] = topology.spout("s").emit("b")
    topology.bolt("count").emit(b)
    topology.flush()
    wait_until(lambda: names(topology) == set(b.anchors))


def test_what_is_over_is_said_again_after_an_outage(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    topology = make(linger=None)
    [a] = topology.spout("s").emit("a")
    away = list[None]()

    def refuse(*_: object) -> None:
        away.append(None)
        raise StoreUnavailable("away")

    with topology.bolt("count").processing(a):
        wait_until(lambda: names(topology))
        topology.flush()
        note = held.note
        monkeypatch.setattr(held, "note", refuse)
        wait_until(lambda: away)
    before = len(away)
    wait_until(lambda: len(away) > before)
    monkeypatch.setattr(held, "note", note)
    wait_until(lambda: not names(topology))


def test_the_times_of_a_tuple_that_is_held_for_days_have_their_dates() -> None:
    hold = held.Held("count", "h", 1, "p", since=86_340.0, reported=3 * 86_400.0)
    text = hold.text()
    assert "since 1970-01-01 23:59 UTC, as it said last at 1970-01-04 00:00, on" in text
    assert held.texts([hold, replace(hold, own=7)]) == [f"{text}: 2 tuples of it"], "one line for both"


def test_of_more_processes_than_are_kept_an_expiration_does_not_say_that_none_had_it(make: Make) -> None:
    topology = make(ackers=1)
    spout = topology.spout("s")
    [a], [known] = spout.emit("a"), spout.emit("known")
    topology.bolt("count").ack(known)
    topology.flush()
    for number in range(held.MOST_PROCESSES):
        process = held.Process("far", "count.py", number, ("count",), 0)
        edges = np.array([(known.anchors[0], 7, 0, 0)], held.Edges)
        topology.ledger.run(held.note(topology.ledger.core, f"far {number}", 1, process, edges))
    [cause] = expire(topology, *a.anchors)
    said = "no bolt said that it had it; only the last 100 processes that said what they had are known; "
    assert cause.reason.startswith(said)


PROGRAM = """
import sys
from acker import Topology, Tuple
from acker.collectors.sending import holding
holding._PERIOD = 0.05
topology = Topology(sys.argv[1], "t", linger=0.01)
with topology.bolt("count").processing(Tuple.parse(sys.argv[2])):
    print("holds", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def stopped(make: Make) -> Iterator[tuple[Topology, Tuple, int]]:
    topology = make(linger=None)
    [one] = topology.spout("s").emit("a")
    topology.flush()
    words = [sys.executable, "-c", PROGRAM, topology.ledger.store.url, str(one)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"holds\n"
            wait_until(lambda: names(topology))
            yield topology, one, process.pid
        finally:
            process.kill()


@pytest.mark.parametrize("end", [signal.SIGSTOP, signal.SIGKILL])
def test_a_process_that_was_stopped_or_killed_has_said_so_before(
    stopped: tuple[Topology, Tuple, int], end: signal.Signals
) -> None:
    topology, one, pid = stopped
    os.kill(pid, end)
    [cause] = expire(topology, one.anchors[0])
    assert cause.step == "count"
    assert f"process {pid} (python)" in cause.reason
