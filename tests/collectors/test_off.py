"""A topology that is off: the program runs, no connection is made, and nothing is tracked."""

import pickle
import socket
from collections.abc import Iterator
from functools import partial

import pytest

from acker import BufferFull, Outcome, Topology, Tuple, TupleError, ValidationError
from acker.collectors import pending
from acker.errors import TurnedOff
from acker.ledger.calls.calls import Ticked


@pytest.fixture
def nobody() -> Iterator[str]:
    """The URL of a port at which no connection arrives while the test runs."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"redis://127.0.0.1:{listening.getsockname()[1]}/0"
        listening.setblocking(False)
        with pytest.raises(BlockingIOError):
            listening.accept()


@pytest.fixture
def off(nobody: str) -> Iterator[Topology]:
    """A topology that its program has turned off."""
    with Topology(nobody, "t", enabled=False, ackers=8, message_timeout=1.0) as topology:
        assert topology.off
        yield topology


def test_a_program_of_spouts_and_bolts_runs_to_its_end(off: Topology) -> None:
    spout, bolt = off.spout("orders", max_spout_pending=2), off.bolt("price")
    taken = list[Outcome]()
    for number in range(3):
        [order] = spout.emit(f"order-{number}")
        [child] = bolt.emit(Tuple.parse(str(order)))
        bolt.reset_timeout(order)
        bolt.fail(order, "no such sku") if number else bolt.ack(order)
        bolt.ack(child)
        for outcome in spout.outcomes(timeout=1.0):
            taken.append(outcome)
            spout.confirm(outcome)
    off.flush()
    anchors, _ = spout.emit_many([b"a", b"b"])
    assert not anchors.any()
    assert spout.pending == 0
    assert [(outcome.message_id, outcome.status) for outcome in taken] == [
        (b"order-0", "acked"),
        (b"order-1", "acked"),
        (b"order-2", "acked"),
    ]
    assert [outcome.message_id for outcome in spout.outcomes()] == [b"a", b"b"]
    assert off.tick(force=True) == Ticked()
    assert not any(off.counters().values())


def test_tuples_of_programs_that_are_on_change_their_state_alone(off: Topology) -> None:
    bolt, order = off.bolt("price"), Tuple({3: 5})
    children = bolt.emit(order, targets=2)
    bolt.ack(order)
    assert [order.ended, children[0].anchors] == ["acked", (3,)]
    with pytest.raises(TupleError, match="was acked before"):
        bolt.fail(order)
    assert off.outbox.unsent == 0


def test_a_spout_whose_outcomes_are_not_taken_never_waits(
    off: Topology, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pending, "MOST_READY", 2)
    monkeypatch.setattr(pending, "MOST_KEPT", 3)
    spout = off.spout("orders")
    for number in range(5):
        spout.emit(f"{number}")
    assert [outcome.message_id for outcome in spout.outcomes()] == [b"2", b"3", b"4"]


def test_rows_of_external_streams_are_untracked_and_get_no_stamps(off: Topology) -> None:
    items = off.incoming("items", subscription="count", lost_after=60.0)
    words, spout = off.outgoing("words"), off.spout("orders")
    headers = [("acker-stamp", b"a1-of-another-process"), ("traceparent", b"00-1")]
    row = items.extract(headers, where="items/0@1")
    assert not row.tracked
    assert words.inject(headers, row) == [("traceparent", b"00-1")]
    assert words.inject({}, spout.emit("order-1")[0]) == {}
    assert words.stamps(items.extract_many([headers, None])) == [None, None]
    items.ack(row)
    items.fail(items.read(["a1-"]), "no such sku")
    words.delivered(None, None)
    words.withdraw(headers)
    off.flush()
    assert items.counted == {"rows": 4}


def test_a_flush_makes_room_for_rows_of_a_topology_that_tracks_none(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("acker.collectors.external.exchange.MOST_ROWS", 2)
    with Topology(url, "t", ackers=0) as topology:
        items = topology.incoming("items", subscription="count")
        for _ in range(2):
            items.extract_many([None, None])
            with pytest.raises(BufferFull):
                items.extract(None)
            topology.flush()


def test_a_call_that_needs_the_store_is_refused_at_once(off: Topology) -> None:
    named = (off.remove_spout, off.pause_spout, off.resume_spout, off.find)
    for call in (off.stuck, off.remove, *(partial(one, "order-1") for one in named)):
        with pytest.raises(TurnedOff, match="ACKER_OFF"):
            call()


@pytest.mark.parametrize(("value", "is_off"), [("1", True), ("true", True), ("0", False), ("", False)])
def test_the_environment_turns_off_what_the_program_leaves_on(
    url: str, nobody: str, monkeypatch: pytest.MonkeyPatch, value: str, is_off: bool
) -> None:
    monkeypatch.setenv("ACKER_OFF", value)
    with Topology(nobody if is_off else url, "t") as topology:
        assert topology.off is is_off
        assert bool(topology.spout("orders").emit("order-1")[0].anchors) is not is_off


def test_what_is_not_understood_is_an_error(nobody: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValidationError, match="ackers: expected int from 0 to 1,024, got -1"):
        Topology(nobody, "t", enabled=False, ackers=-1)
    with pytest.raises(ValidationError, match="enabled: expected True or False, got 'no'"):
        Topology(nobody, "t", enabled="no")  # type: ignore[arg-type]
    monkeypatch.setenv("ACKER_OFF", "yes")
    with pytest.raises(ValidationError, match="ACKER_OFF: expected 1, true, 0 or false, got 'yes'"):
        Topology(nobody, "t")


def test_it_stays_off_in_other_processes(off: Topology) -> None:
    again = pickle.loads(pickle.dumps(off))
    assert again.off
    assert again.spout("orders").emit("order-1")[0].anchors == ()
    again.close()
