"""Rows that were received together are acked and stamped together; a row is made when it is asked for."""

import copy
import pickle
from typing import Any, cast

import numpy as np
import pytest

from acker.collectors.external import exchange, outgoing
from acker.collectors.external.rows import Rows
from acker.errors import BufferFull, TupleError, ValidationError
from acker.streams.staging.external import segments
from acker.streams.staging.external.segments import MOST_TREES, Sent
from tests.helpers.builders.collectors import Make, reported
from tests.helpers.builders.external import source


def counted(topology: Any) -> dict[str, int]:
    return {name: topology.counters()[name] for name in ("acked", "failed", "late")}


@pytest.mark.cluster(slow=True)
@pytest.mark.parametrize("ackers", [1, 3])
@pytest.mark.parametrize("looked", [False, True])
def test_rows_that_come_together_go_on_together(make: Make, ackers: int, looked: bool) -> None:
    made, step, last = make(ackers=ackers), make(ackers=ackers), make(ackers=ackers)
    items, words = step.incoming("items", subscription="split"), step.outgoing("words", segment_rows=4)
    sink = last.incoming("words", subscription="sink")
    headers = source(made, 10, rows=2)
    made.flush()
    rows = items.extract_many(headers)
    assert isinstance(rows, Rows)
    positions = [row.position for row in rows] if looked else [0, 1] * 10
    sent = words.inject_many([[("n", b"1")]] * len(rows), rows)
    items.ack(rows)
    assert (rows._rows is not None) == looked
    with pytest.raises(TupleError, match="was acked before: it cannot be acked"):
        items.ack(rows)
    with pytest.raises(TupleError, match="was acked before: it cannot be stamped"):
        words.stamps(rows)
    assert [(row.position, row.ended, row.tracked) for row in rows] == [
        (at, "acked", True) for at in positions
    ]
    step.flush()
    got = sink.extract_many(sent)
    assert [row.anchors for row in got] == [row.anchors for row in rows]
    assert [header[0] for header in sent] == [("n", b"1")] * 20
    assert counted(made) == {"acked": 0, "failed": 0, "late": 0}
    sink.ack(got)
    last.flush()
    assert counted(made) == {"acked": 10, "failed": 0, "late": 0}


@pytest.mark.parametrize("call", ["ack", "fail", "stamps"])
def test_an_interrupt_of_the_first_look_leaves_no_row_in_work(make: Make, call: str) -> None:
    made, step = make(), make()
    items, words = step.incoming("items", subscription="count"), step.outgoing("words")
    headers = source(made, 3)
    made.flush()
    rows, exchange = items.extract_many(headers), cast("Any", step._exchange)

    class Interrupted(dict[int, Any]):
        def update(self, *given: Any) -> None:
            super().update(*given)
            raise KeyboardInterrupt

    exchange.open = Interrupted()
    with pytest.raises(KeyboardInterrupt):
        list(rows)
    exchange.open = dict(exchange.open)
    if call == "stamps":
        words.withdraw({"acker-stamp": words.stamps(rows)[0]})
    (items.fail if call == "fail" else items.ack)(rows)
    assert {row.ended for row in rows} == {"failed" if call == "fail" else "acked"}
    assert not exchange.open
    step.flush()
    assert made.counters()["failed"] == (3 if call == "fail" else 0)


def test_rows_are_added_to_other_rows(make: Make) -> None:
    made, step = make(), make()
    items = step.incoming("items", subscription="count")
    headers = source(made, 3)
    made.flush()
    together, mixed = items.extract_many(headers[:2]), items.extract_many([headers[2], None])
    both: Any = together
    added = both + mixed
    assert added == [*together, *mixed]
    assert mixed + both == [*mixed, *together]
    assert both + both == [*together, *together]
    both += mixed
    assert both == added
    with pytest.raises(TypeError, match="unsupported operand"):
        together + 7
    items.ack(added)
    step.flush()
    assert made.counters()["acked"] == 3


def test_rows_are_a_sequence_and_no_list_whatever_their_messages_carry(make: Make) -> None:
    made, step = make(), make()
    items, words = step.incoming("items", subscription="count"), step.outgoing("words")
    headers = source(made, 3)
    made.flush()
    for rows in (items.extract_many(headers), items.extract_many([*headers, None]), items.extract_many([])):
        assert type(rows) is Rows
        assert not hasattr(rows, "sort")
        assert rows.__eq__([*rows]) is NotImplemented
        assert list(rows) == rows[:]
        assert [row in rows for row in rows] == [True] * len(rows)
        assert len(words.stamps(rows)) == len(rows)
        items.ack(rows)
        assert [row.ended for row in rows] == ["acked"] * len(rows)


@pytest.mark.parametrize("looked", [False, True])
def test_no_row_of_several_is_stamped_where_there_is_no_room_for_all(
    make: Make, monkeypatch: pytest.MonkeyPatch, looked: bool
) -> None:
    made, step = make(), make()
    items, words = step.incoming("items", subscription="count"), step.outgoing("words")
    headers = source(made, 3)
    made.flush()
    monkeypatch.setattr(outgoing, "_TOGETHER", 1)
    monkeypatch.setattr(outgoing, "_MOST_TOGETHER", 1)
    rows, at_hand = items.extract_many([*headers, None]), cast("Any", step._exchange)
    for module in (outgoing, exchange):
        monkeypatch.setattr(module, "MOST_ROWS", 6)
    with pytest.raises(BufferFull, match="4 rows wait"):
        words.inject_many(None, list(rows) if looked else rows)
    assert (at_hand.rows, at_hand.opened) == (4, {})
    assert [len(headers) for headers in words.inject_many(None, rows[1:])] == [1, 1, 0]
    items.ack(rows)


def test_one_of_them_may_fail(make: Make) -> None:
    made, step = make(), make()
    items, spout = step.incoming("items", subscription="count"), made.spout("s")
    headers = source(made, 5)
    made.flush()
    rows = items.extract_many(headers)
    assert rows[3] is rows[3]
    items.fail(rows[3], "no such word")
    items.ack([row for row in rows if not row.ended])
    step.flush()
    assert {one.message_id: one.reason for one in reported(spout, 5) if one.status != "acked"} == {
        b"m3": "no such word"
    }


def test_rows_that_nobody_has_looked_at_are_named_by_a_flush(make: Make) -> None:
    made, step = make(), make()
    items, other = (step.incoming("items", subscription=name) for name in ("count", "other"))
    again = step.incoming("items", subscription="count")
    headers = source(made, 3)
    made.flush()
    rows = items.extract_many(headers)
    with pytest.raises(TupleError, match="3 rows are neither acked nor failed: position 0 of segment"):
        step.flush()
    twice = [*items.extract_many(headers), *rows]
    with pytest.raises(TupleError, match="expected a row of"):
        other.ack(items.extract_many(headers))
    again.ack(twice)
    with pytest.raises(TupleError, match="3 rows are neither"):
        step.flush()


def test_rows_of_a_parent_are_nothing_in_its_forked_child(make: Make) -> None:
    made, step = make(), make()
    items, words = step.incoming("items", subscription="count"), step.outgoing("words")
    headers = source(made, 2)
    made.flush()
    rows = items.extract_many(headers)
    step._exchange.forget()  # type: ignore[union-attr] # as in a child
    for call in (items.ack, items.fail, words.stamps):
        with pytest.raises(TupleError, match="was extracted before this process was forked"):
            call(rows)


def test_headers_are_as_many_as_rows(make: Make) -> None:
    made, step = make(), make()
    items, words = step.incoming("items", subscription="count"), step.outgoing("words")
    rows = items.extract_many(source(made, 2))
    with pytest.raises(ValidationError, match="expected headers for 2 rows, got 1"):
        words.inject_many([None], rows)
    with pytest.raises(ValidationError, match="headers: expected pairs of a name and a value, or a mapping"):
        words.inject_many([None, 7], rows)
    assert not step._exchange.opened  # type: ignore[union-attr]
    untracked = items.extract_many([None, None])
    assert words.inject_many(None, untracked) == [[], []]
    assert words.inject_many([None, {"a": b"1"}], untracked) == [[], {"a": b"1"}]


def test_each_of_them_has_its_own_report(make: Make) -> None:
    made, step = make(), make()
    items, words = step.incoming("items", subscription="count"), step.outgoing("words")
    step.incoming("words", subscription="sink")
    spout = made.spout("s")
    headers = source(made, 3)
    made.flush()
    rows = items.extract_many(headers)
    reports = words.reports_many(words.inject_many(None, rows))
    for number, report in enumerate(reports):
        report("timed out" if number == 1 else None, None)
    items.ack(rows)
    step.flush()
    [outcome] = reported(spout, 1)
    assert (outcome.message_id, outcome.status) == (b"m1", "failed")
    assert "a row of words was not delivered: 'timed out'" in outcome.reason


@pytest.mark.parametrize("off", [False, True])
def test_a_row_without_a_stamp_has_a_report_that_does_nothing(make: Make, off: bool) -> None:
    step = make(enabled=not off)
    items, words = step.incoming("items", subscription="count"), step.outgoing("words")
    rows = items.extract_many([None, [("n", b"1")]])
    headers = words.inject_many(None, rows)
    alone = words.inject({}, rows[0])
    for report in (*words.reports_many(headers), words.reports(alone), words.reports(None)):
        report(None, None)
        report("timed out", None)
    items.ack(rows)
    step.flush()


@pytest.mark.parametrize("others", [[], [None]])
def test_a_call_that_raises_leaves_no_stamp_behind(
    make: Make, monkeypatch: pytest.MonkeyPatch, others: list[None]
) -> None:
    monkeypatch.setattr(outgoing, "_TOGETHER", 3)
    made, step, last = make(), make(), make()
    items, words = step.incoming("items", subscription="count"), step.outgoing("words", segment_rows=3)
    sink = last.incoming("words", subscription="sink")
    headers = source(made, 6)
    made.flush()
    rows = items.extract_many([*headers, *others])
    items.fail(rows[4], "no such word")
    for call in (words.stamps, lambda some: words.inject_many(None, some)):
        with pytest.raises(TupleError, match="was failed before: it cannot be stamped"):
            call(rows)
    good = [row for row in rows if not row.ended]
    sent = words.inject_many(None, good)
    items.ack(good)
    step.flush()
    assert counted(made)["acked"] == 0
    sink.ack(sink.extract_many(sent))
    last.flush()
    assert (counted(made)["acked"], counted(made)["failed"]) == (5, 1)


@pytest.mark.parametrize("flushed", [False, True])
def test_a_call_that_raises_leaves_its_tuples_open(
    make: Make, monkeypatch: pytest.MonkeyPatch, flushed: bool
) -> None:
    made, last = make(), make()
    sink = last.incoming("words", subscription="sink")
    spout, bolt, words = made.spout("s"), made.bolt("b"), made.outgoing("words")
    tuples = [spout.emit(f"m{number}")[0] for number in range(3)]
    bolt.ack(tuples[2])

    write: Any = words._write

    def writing(tuple_: Any, others: Any) -> Any:
        if flushed and tuple_ is tuples[2]:
            made.flush()  # as another thread may
        return write(tuple_, others)

    monkeypatch.setattr(words, "_write", writing)
    with pytest.raises(TupleError, match="was acked before: it cannot be stamped"):
        words.stamps(tuples)
    assert [bool(tuple_.ended) for tuple_ in tuples] == [flushed, flushed, True]
    made.flush()
    assert counted(made) == {"acked": 1, "failed": 0, "late": 0}, "nobody has got the rows"
    if not flushed:
        sink.ack(sink.read(words.stamps(tuples[:2])))
        made.flush()
        last.flush()
        assert counted(made) == {"acked": 3, "failed": 0, "late": 0}


def test_headers_and_rows_may_come_from_a_generator(make: Make) -> None:
    made, step = make(), make()
    items, words = step.incoming("items", subscription="count"), step.outgoing("words")
    rows = items.extract_many(source(made, 3))
    headers = words.inject_many((None for _ in range(3)), (row for row in rows))  # type: ignore[arg-type]
    assert [len(each) for each in headers] == [1, 1, 1]
    reports = words.reports_many(each for each in headers)  # type: ignore[arg-type]
    assert len(reports) == 3


def test_a_segment_has_a_bounded_number_of_trees() -> None:
    sent, trees = Sent("00" * 14, 1, 1), np.arange(1, 2 * MOST_TREES, 2)
    assert sent.add_many(trees[:600]) == 0
    assert sent.room() == MOST_TREES - 600
    sent.add_many(trees[:500])
    assert sent.room() == MOST_TREES - 600, "trees count once"
    assert sent.add((1, 9_001, 9_003)) == 1_100
    assert sent.room() == MOST_TREES - 602
    assert [sent.anchors_of(at) for at in (0, 600, 1_100)] == [(1,), (1,), (1, 9_001, 9_003)]


@pytest.mark.parametrize("many", [False, True])
def test_a_row_whose_stamp_was_interrupted_leaves_its_place_to_the_next(many: bool) -> None:
    sent = Sent("00" * 14, 1, 1)
    sent.add((1, 3))
    sent.several[1] = (5, 7)  # an interrupt came here
    assert (sent.add_many(np.array([9])) if many else sent.add((9,))) == 1
    assert [sent.anchors_of(at) for at in range(2)] == [(1, 3), (9,)]
    assert sent.tuples() == 3


def test_the_rows_of_sent_segments_that_a_sender_remembers_are_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(segments, "MOST_RECENT_ROWS", 5)
    first, second, third = (Sent(token, 1, 1) for token in ("a", "b", "c"))
    for segment, rows in ((first, 2), (second, 3), (third, 2)):
        for _ in range(rows):
            segment.add([1])
    recent = segments.latest({}, [first, second])
    assert list(recent) == ["a", "b"]
    assert list(segments.latest(recent, [third])) == ["b", "c"]


def test_rows_cannot_leave_the_process_that_has_received_them(make: Make) -> None:
    made = make()
    items = made.incoming("items", subscription="split")
    headers = source(made, 2)
    made.flush()
    rows = items.extract_many(headers)
    for leave in (pickle.dumps, copy.copy, copy.deepcopy):
        for kept in (rows, rows[0]):
            with pytest.raises(TupleError, match="can be neither copied nor sent to another process"):
                leave(kept)
    items.ack(rows)
