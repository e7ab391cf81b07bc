"""Tuples that a flush acks together with their rows: each once, and not before its rows are emitted."""

import threading
from collections.abc import Callable
from typing import Any, TypeAlias

import pytest

from acker import AckerError, Tuple
from acker.collectors import tuples
from acker.collectors.outbox import Outbox
from acker.errors import TupleError
from tests.helpers.builders.collectors import Make
from tests.helpers.builders.external import work

End: TypeAlias = Callable[[Any, Tuple], None]


def text_of(topology: Any, message_id: str = "m") -> str:
    """A tuple of a record as text, as another program sends it."""
    [tracked] = topology.spout("s").emit(message_id)
    return str(tracked)


def test_a_tuple_that_came_twice_is_acked_once_when_the_rows_of_both_are_done(make: Make) -> None:
    made, step = make(), make()
    for stream in ("items", "words"):
        step.incoming(stream, subscription="count")
    text = text_of(made)
    first = made.outgoing("items").inject(None, Tuple.parse(text))
    second = made.outgoing("words").inject(None, Tuple.parse(text))
    made.flush()
    work(step, [first])
    step.flush()
    assert made.counters()["acked"] == 0
    work(step, [second], stream="words")
    step.flush()
    assert made.counters()["acked"] == 1


def test_a_tuple_that_another_object_is_to_ack_cannot_be_stamped_before_its_flush(make: Make) -> None:
    made, other, step = make(), make(), make()
    step.incoming("items", subscription="count")
    text = text_of(made)
    headers = made.outgoing("items").inject(None, Tuple.parse(text))
    with pytest.raises(TupleError, match="stamped by another object of the topology"):
        other.outgoing("items").inject(None, Tuple.parse(text))
    other.flush()
    made.flush()
    assert made.counters()["acked"] == 0
    work(step, [headers])
    step.flush()
    assert made.counters()["acked"] == 1
    other.outgoing("items").inject(None, Tuple.parse(text))


def test_an_ack_of_a_copy_leaves_the_tuple_to_the_flush_of_its_rows(make: Make) -> None:
    made, step = make(), make()
    step.incoming("items", subscription="count")
    text = text_of(made)
    headers = made.outgoing("items").inject(None, Tuple.parse(text))
    made.bolt("b").ack(Tuple.parse(text))
    made._outbox.flush()  # as its thread does
    assert made.counters()["acked"] == 0
    made.flush()
    work(step, [headers])
    step.flush()
    assert made.counters()["acked"] == 1


def test_the_flush_of_another_thread_acks_a_tuple_with_the_rows_that_it_has(make: Make) -> None:
    made, step = make(), make()
    step.incoming("items", subscription="count")
    [tracked], out = made.spout("s").emit("m"), made.outgoing("items")
    headers = [out.inject(None, tracked) for _ in range(2)]
    other = threading.Thread(target=made.flush)
    other.start()
    other.join()
    with pytest.raises(TupleError, match="cannot be stamped"):
        out.inject(None, tracked)
    for one in headers:
        assert made.counters()["acked"] == 0
        work(step, [one])
        step.flush()
    assert made.counters()["acked"] == 1


def test_acks_of_tuples_that_came_as_text_are_remembered_up_to_a_bound(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tuples, "MOST_ACKED", 3)
    made = make()
    out = made.outgoing("items")
    for number in range(5):
        out.inject(None, Tuple.parse(text_of(made, f"m{number}")))
    made.flush()
    assert (len(made._outbox.taken.acked), len(made._outbox.taken.held)) == (3, 0)


def ack(made: Any, tracked: Tuple) -> None:
    made.bolt("b").ack(tracked)


def emit(made: Any, tracked: Tuple) -> None:
    made.bolt("b").emit([tracked])


def stamp(made: Any, tracked: Tuple) -> None:
    made.outgoing("items").inject(None, tracked)


@pytest.mark.parametrize(
    ("first", "second", "refused", "acked"),
    [(ack, stamp, 1, 1), (stamp, ack, 1, 0), (emit, stamp, 0, 0), (stamp, emit, 1, 0)],
)
def test_of_two_threads_only_one_ends_a_tuple_that_both_want(
    make: Make, monkeypatch: pytest.MonkeyPatch, first: End, second: End, refused: int, acked: int
) -> None:
    one, other = make(), make()  # two objects of the topology share the tuple
    other.incoming("items", subscription="count")
    for made in (one, other):
        made.outgoing("items")
    [tracked] = one.spout("s").emit("m")
    check_open, errors = Tuple.check_open, list[str]()

    def beside() -> None:
        try:
            second(other, tracked)
        except TupleError as error:
            errors.append(str(error))

    thread = threading.Thread(target=beside)

    def checked(self: Tuple, *words: Any) -> None:
        check_open(self, *words)
        if not thread.ident:
            thread.start()
            thread.join(0.2)  # it ends within that time only where nothing guards the tuple

    monkeypatch.setattr(Tuple, "check_open", checked)
    first(one, tracked)
    thread.join()
    assert ["before: it cannot be" in error for error in errors] == [True] * refused
    one.flush()
    other.flush()
    assert one.counters()["acked"] == acked


def test_a_signal_handler_in_the_middle_of_an_ack_cannot_stamp_the_tuple(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = make()
    [tracked], out = made.spout("s").emit("m"), made.outgoing("items")
    buffered = Outbox.ack

    def interrupted(self: Outbox, *words: Any) -> None:
        with pytest.raises(AckerError, match="a signal handler has called"):
            out.inject(None, tracked)
        buffered(self, *words)

    monkeypatch.setattr(Outbox, "ack", interrupted)
    made.bolt("b").ack(tracked)
    assert tracked.ended == "acked"


def test_no_other_thread_acks_a_tuple_that_is_opened_to_be_failed(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its ack would not wait for the rows that were stamped from it: a false ack."""
    made, step = make(), make()
    step.incoming("items", subscription="count")
    [tracked], out, bolt = made.spout("s").emit("m"), made.outgoing("items"), made.bolt("b")
    out.inject(None, tracked)
    exchange, errors = made._exchange, list[str]()
    assert exchange is not None
    give_back = exchange.give_back

    def ack() -> None:
        try:
            bolt.ack(tracked)
        except TupleError as error:
            errors.append(str(error))

    other = threading.Thread(target=ack)

    def opened(given: Tuple) -> None:
        give_back(given)
        other.start()
        other.join(0.2)  # it waits for the fail, unless it comes between

    monkeypatch.setattr(exchange, "give_back", opened)
    bolt.fail(tracked, "no")
    other.join()
    assert (tracked.ended, len(errors)) == ("failed", 1)
