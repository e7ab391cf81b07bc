"""Without linger nothing is sent but by a flush: an ack follows what was stored elsewhere."""

import logging
import signal
import subprocess
import sys
from collections.abc import Callable
from types import FrameType

import pytest

from acker import AckerError, SpoutPendingFull, StoreUnavailable, Topology, Tuple
from acker.collectors import outbox
from acker.embedded import EmbeddedServer
from acker.errors import BufferFull
from tests.helpers.builders.collectors import Make, reported, reported_unflushed, statuses
from tests.helpers.servers.servers import wait_until

pytestmark = pytest.mark.cluster(slow=True)


def test_nothing_is_sent_before_the_flush(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox, "AT_ONCE", 2)
    topology = make(linger=None)
    spout, bolt = topology.spout("s"), topology.bolt("b")
    for number in range(5):
        bolt.ack(spout.emit(str(number))[0])
    anchors, own = spout.emit_many(["many"])
    bolt.fail(spout.emit("failed")[0], "bad")
    [reset] = spout.emit("reset")
    bolt.reset_timeout(reset)
    assert list(spout.outcomes(timeout=0.05)) == []
    assert topology.counters()["tracked"] == 0
    topology.flush()
    assert topology.counters()["tracked"] == 8
    first = reported_unflushed(spout, 6)
    assert statuses(first) == {**{b"%d" % n: "acked" for n in range(5)}, b"failed": "failed"}
    for outcome in first:
        spout.confirm(outcome)
    bolt.ack(Tuple([(int(anchors[0]), int(own[0]))]))
    bolt.ack(reset)
    assert topology.outbox.unsent > 2
    assert list(spout.outcomes(timeout=0.05)) == []
    assert statuses(reported(make().spout("s"), 6)) == statuses(first)  # not confirmed
    topology.flush()
    assert statuses(reported(spout, 2)) == {b"many": "acked", b"reset": "acked"}


def test_what_nobody_flushes_is_bounded(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox, "BUFFERED", 10)
    topology = make(linger=None)
    spout, bolt = topology.spout("s"), topology.bolt("b")
    tuples = spout.emit("m", targets=2) + [spout.emit(str(number))[0] for number in range(9)]
    for refused in (
        lambda: spout.emit("more"),
        lambda: spout.emit_many(["more"]),
        lambda: bolt.ack(tuples[0]),
    ):
        with pytest.raises(BufferFull, match=r"10 messages wait for topology\.flush\(\)"):
            refused()
    topology.flush()
    bolt.ack(tuples[0])
    bolt.fail(tuples[1])
    assert statuses(reported(spout)) == {b"m": "failed"}


def test_a_spout_whose_trees_all_wait_for_a_flush_waits_for_none(make: Make) -> None:
    topology = make(linger=None)
    spout, bolt = topology.spout("s", max_spout_pending=2), topology.bolt("b")
    one, two = spout.emit("1")[0], spout.emit("2")[0]
    with pytest.raises(SpoutPendingFull, match=r"2 of them wait for topology\.flush"):
        spout.emit("3")
    bolt.ack(one)
    topology.flush()
    bolt.ack(spout.emit("3")[0])  # its room is the acked one's
    bolt.ack(two)
    assert statuses(reported(spout, 3)) == {b"1": "acked", b"2": "acked", b"3": "acked"}


def test_unflushed_messages_are_dropped(url: str, make: Make, caplog: pytest.LogCaptureFixture) -> None:
    topology = make()
    spout = topology.spout("s")
    closed, raised, left, killed, kept = (spout.emit(name)[0] for name in ("1", "2", "3", "4", "5"))
    topology.flush()
    unflushed = Topology(url, "t", linger=None)
    unflushed.bolt("b").ack(closed)
    unflushed.close()
    assert "1 messages that were not flushed are dropped" in caplog.text
    with pytest.raises(AckerError, match="closed"):
        unflushed.bolt("b").ack(kept)

    def give_up() -> None:
        with Topology(url, "t", linger=None) as two:
            two.bolt("b").ack(raised)
            raise KeyError

    with pytest.raises(KeyError):
        give_up()
    program = f"""
import os, signal, sys
from acker import Topology, Tuple
topology = Topology({url!r}, "t", linger=None)
bolt = topology.bolt("b")
if sys.argv[2] == "kill":
    bolt.ack(Tuple.parse(sys.argv[1]))
    os.kill(os.getpid(), signal.SIGKILL)
bolt.ack(Tuple.parse(sys.argv[1]))
sys.exit(3)
"""
    for text, how, code in ((left, "exit", 3), (killed, "kill", -signal.SIGKILL)):
        assert subprocess.run([sys.executable, "-c", program, str(text), how], check=False).returncode == code
    topology.bolt("b").ack(kept)
    assert statuses(reported(spout)) == {b"5": "acked"}
    assert topology.counters()["acked"] == 1


def test_what_a_flush_could_not_send_is_sent_when_the_store_is_back_and_nothing_more(
    away: EmbeddedServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR)
    topology = Topology(away.url, "t", ackers=1, timeout=0.5, linger=None)
    spout, bolt = topology.spout("s"), topology.bolt("b")
    one, two = spout.emit("1")[0], spout.emit("2")[0]
    topology.flush()
    bolt.ack(one)
    away.stop()
    with pytest.raises(StoreUnavailable):
        topology.flush()
    bolt.ack(two)
    away.start()
    assert statuses(reported_unflushed(spout, 1)) == {b"1": "acked"}
    wait_until(lambda: topology.outbox.unsent == 1)
    assert topology.counters()["acked"] == 1
    topology.flush()
    assert statuses(reported_unflushed(spout, 1)) == {b"2": "acked"}
    topology.close()


def test_what_a_signal_handler_does_is_whole_or_refused_and_never_waits_for_itself(make: Make) -> None:
    topology = make(ackers=2, linger=0.001)
    spout, bolt = topology.spout("s"), topology.bolt("b")
    came, by_handler = dict[bool, int](), 0

    def flush(_: int, __: FrameType | None) -> None:
        nonlocal by_handler
        try:
            [one] = spout.emit(f"handler-{by_handler}")
            by_handler += 1
            bolt.ack(one)
            topology.flush()
            came[True] = came.get(True, 0) + 1
        except AckerError as error:
            came[False] = came.get(False, 0) + ("a signal handler has called" in str(error))
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0.002 if going else 0)  # not while it is at work

    previous: Callable[[int, FrameType | None], object] | int | None = signal.signal(signal.SIGALRM, flush)
    signal.setitimer(signal.ITIMER_REAL, 0.002)
    made, going = 0, True
    try:

        def both() -> bool:
            nonlocal made
            bolt.ack(spout.emit(str(made))[0])
            made += 1
            topology.flush()
            return len(came) == 2 and min(came.values()) > 20

        wait_until(both)
    finally:
        going = False
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
    assert set(statuses(reported(spout, made + by_handler)).values()) == {"acked"}
