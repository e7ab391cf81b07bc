"""Rows of external streams: each record is acked when all rows that were made of it were worked on."""

import pyarrow as pa
import pytest

from acker.collectors.external import exchange
from acker.collectors.modes.observing_spout import open_spout
from acker.collectors.tuples import TupleVector
from acker.errors import BufferFull, StreamKindError, TupleError, ValidationError
from acker.ledger.slabs.causes import Cause
from acker.streams import Stream, StreamReader, StreamWriter
from acker.streams.log import subscriptions
from acker.streams.staging.external import segments
from tests.helpers.builders.collectors import Make, reported, statuses
from tests.helpers.builders.external import Message, source, work
from tests.helpers.worlds.commits import pass_time

pytestmark = pytest.mark.cluster(slow=True)


@pytest.mark.parametrize("ackers", [1, 3])
def test_a_record_is_acked_when_its_rows_were_worked_on(make: Make, ackers: int) -> None:
    made, step = make(ackers=ackers), make(ackers=ackers)
    step.incoming("items", subscription="count")
    spout = made.spout("s")
    headers = source(made, 10, rows=3)
    made.flush()
    work(step, headers[:-1])
    step.flush()
    assert made.counters()["acked"] == 9
    work(step, headers[-1:])
    step.flush()
    assert made.counters()["acked"] == 10
    assert made.counters()["late"] == 0
    assert set(statuses(reported(spout, 10)).values()) == {"acked"}


def test_bits_that_come_before_the_flush_wait_for_it(make: Make) -> None:
    made, step = make(), make()
    step.incoming("items", subscription="count")
    headers = source(made, 5, rows=2)
    work(step, headers)
    step.flush()
    assert made.counters()["acked"] == 0
    made.flush()
    assert made.counters()["acked"] == 5


def test_a_row_that_comes_twice_counts_once(make: Make) -> None:
    made, step, other = make(), make(), make()
    step.incoming("items", subscription="count")
    headers = source(made, 2, rows=2)
    made.flush()
    for _ in range(2):
        for topology in (step, other):
            work(topology, headers[:3])
            work(topology, headers[:3])
            topology.flush()
    assert made.counters()["acked"] == 1
    work(step, headers)
    step.flush()
    assert made.counters()["acked"] == 2


def test_each_subscription_has_all_rows(make: Make) -> None:
    made, step = make(), make()
    for name in ("count", "price"):
        step.incoming("items", subscription=name)
    headers = source(made, 3)
    made.flush()
    work(step, headers, "count")
    step.flush()
    assert made.counters()["acked"] == 0
    work(step, headers, "price")
    step.flush()
    assert made.counters()["acked"] == 3


def test_a_row_that_fails_fails_its_record_alone(make: Make) -> None:
    made, step = make(), make()
    items = step.incoming("items", subscription="count")
    spout = made.spout("s")
    headers = source(made, 3)
    made.flush()
    rows = items.extract_many(headers)
    items.fail(rows[1], "no such word")
    items.ack([rows[0], rows[2]])
    step.flush()
    outcomes = sorted(reported(spout, 3))
    assert [(one.message_id, one.status, one.reason) for one in outcomes] == [
        (b"m0", "acked", ""), (b"m1", "failed", "no such word"), (b"m2", "acked", ""),
    ]  # fmt: skip


def test_why_names_the_message_of_a_row_that_has_failed(make: Make) -> None:
    made, step = make(), make()
    items = step.incoming("items", subscription="count")
    headers = source(made, 2)
    made.flush()
    rows = [items.extract(one, f"items/3@{number}") for number, one in enumerate(headers)]
    items.fail(rows[0], "no such word", retry=False)
    items.fail(rows[1], "x" * 1024)
    anchors = [row.anchors[0] for row in rows]
    step.flush()
    ended = made.why(anchors[0]).ended
    assert ended is not None
    assert ended.cause == Cause("no such word (row 'items/3@0')", "count", retry=False)
    assert made.why(anchors[1]).rest.startswith("it has failed: xxx")


def test_a_spout_hears_of_records_in_their_order_in_whichever_order_their_rows_failed(make: Make) -> None:
    made, step = make(ackers=1), make(ackers=1)
    items = step.incoming("items", subscription="count")
    spout, out = open_spout(made, "s", None, observe=False, grouped=True), made.outgoing("items")
    anchors, edges = spout.emit_many([b"m%d" % number for number in range(4)])
    tuples = TupleVector(made.owner, anchors, edges)
    headers = [out.inject(None, tuples[place]) for place in (2, 0, 3, 1)]
    made.flush()
    items.fail(items.extract_many(headers), "no such word")
    step.flush()
    [group] = spout.outcome_groups(5.0)
    assert list(group.indexes) == [0, 1, 2, 3]


def test_a_fail_that_comes_before_the_flush_waits_for_it(make: Make) -> None:
    made, step = make(), make()
    items = step.incoming("items", subscription="count")
    headers = source(made, 300)
    rows = items.extract_many(headers)
    items.fail(rows[:299], "early")
    items.ack(rows[299:])
    step.flush()
    assert made.counters()["failed"] == 0
    made.flush()
    assert {name: made.counters()[name] for name in ("failed", "acked")} == {"failed": 299, "acked": 1}


def test_what_is_made_of_a_row_belongs_to_its_record(make: Make) -> None:
    made, step, last = make(), make(), make()
    items, words = step.incoming("items", subscription="split"), step.outgoing("words", segment_rows=3)
    last.incoming("words", subscription="count")
    headers, made_of = source(made, 4), []
    made.flush()
    for row in [items.extract(one, where="items") for one in headers]:
        made_of += [words.inject({"a": b"1"}, row) for _ in range(3)]
        items.ack(row)
    step.flush()
    assert made.counters()["acked"] == 0
    work(last, made_of[:11], stream="words")
    last.flush()
    assert made.counters()["acked"] == 3
    work(last, made_of, stream="words")
    last.flush()
    assert made.counters()["acked"] == 4


def test_a_row_of_several_records_is_acked_for_all(make: Make) -> None:
    made, step, last = make(ackers=3), make(ackers=3), make(ackers=3)
    items, words = step.incoming("items", subscription="join"), step.outgoing("words")
    last.incoming("words", subscription="count")
    headers = source(made, 12)
    made.flush()
    rows = items.extract_many(headers)
    joined = [words.stamp(*rows[at : at + 3]) for at in range(0, 12, 3)]
    items.ack(rows)
    step.flush()
    counting = last.incoming("words", subscription="count")
    found = counting.read(joined)
    assert [len(row.anchors) for row in found] == [3] * 4
    counting.ack(found[:3])
    counting.fail(found[3], "bad")
    last.flush()
    assert {name: made.counters()[name] for name in ("failed", "acked")} == {"failed": 3, "acked": 9}


def test_a_segment_is_acked_as_a_whole(make: Make) -> None:
    made, step = make(), make()
    step.incoming("items", subscription="count")
    spout, out = made.spout("s"), made.outgoing("items")
    headers = [out.inject(None, spout.emit(f"m{number}")[0]) for number in range(5)]
    made.flush()
    work(step, headers[1:])
    step.flush()
    assert made.counters()["acked"] == 0
    work(step, headers[:1])
    step.flush()
    assert made.counters()["acked"] == 5


def test_where_nobody_subscribes_nobody_waits_for_rows(make: Make) -> None:
    made = make()
    source(made, 3)
    made.flush()
    assert made.counters()["acked"] == 3


def test_an_untracked_row_takes_a_stamp_away(make: Make) -> None:
    made, step = make(), make()
    items, words = step.incoming("items", subscription="count"), step.outgoing("words")
    row = items.extract([("acker-stamp", b"a1-junk"), ("a", b"1")])
    assert not row.tracked
    assert words.inject([("acker-stamp", b"a1-junk"), ("a", b"1")], row) == [("a", b"1")]
    assert words.stamp(row) is None
    items.ack(row)
    step.flush()
    assert items.counted == {"rows": 1, "damaged": 1}
    assert made.counters()["late"] == 0


def test_a_tuple_that_was_stamped_is_acked_by_the_flush_alone(make: Make) -> None:
    made = make()
    made.incoming("items", subscription="count")
    spout, bolt, out = made.spout("s"), made.bolt("b"), made.outgoing("items")
    [first] = spout.emit("m")
    headers = [out.inject(None, first) for _ in range(2)]
    with pytest.raises(TupleError, match="taken over by an external stream"):
        bolt.ack(first)
    made.flush()
    with pytest.raises(TupleError, match="cannot be stamped"):
        out.inject(None, first)
    work(made, headers)
    made.flush()
    assert made.counters()["acked"] == 1


def test_a_tuple_is_not_acked_by_a_flush_where_a_row_of_it_has_no_stamp(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exchange, "MOST_ROWS", 3)
    made = make()
    made.incoming("items", subscription="count")
    spout, out = made.spout("s"), made.outgoing("items")
    [full] = spout.emit("full")
    headers = [out.inject(None, full) for _ in range(3)]
    with pytest.raises(BufferFull):
        out.inject(None, full)
    made.flush()
    work(made, headers)
    made.flush()
    assert made.counters()["acked"] == 0
    headers = [out.inject(None, full)]
    made.flush()
    work(made, headers)
    made.flush()
    assert made.counters()["acked"] == 1


def test_a_tuple_can_fail_after_a_row_of_it_was_stamped(make: Make) -> None:
    made = make()
    made.incoming("items", subscription="count")
    spout, bolt, out = made.spout("s"), made.bolt("b"), made.outgoing("items")
    [first] = spout.emit("m")
    headers = [out.inject(None, first)]
    bolt.fail(first, "the second word is bad")
    with pytest.raises(TupleError, match="was failed before"):
        out.inject(None, first)
    made.flush()
    work(made, headers)
    [outcome] = reported(spout)
    assert (outcome.status, outcome.reason) == ("failed", "the second word is bad")


def test_a_row_that_was_not_delivered_and_is_withdrawn_fails_its_record(make: Make) -> None:
    made = make()
    made.incoming("items", subscription="count")
    [headers] = source(made, 1)
    out = made.outgoing("items")
    out.delivered("no broker", Message(headers))
    out.withdraw(headers)
    made.flush()
    assert made.counters()["failed"] == 1


def test_rows_neither_acked_nor_failed_are_named(make: Make) -> None:
    made, step = make(), make()
    items, words = step.incoming("items", subscription="count"), step.outgoing("words")
    headers = source(made, 3)
    made.flush()
    rows = [items.extract(one, where=f"items/0@{at}") for at, one in enumerate(headers)]
    items.ack(rows[0])
    with pytest.raises(TupleError, match=r"2 rows are neither acked nor failed: 'items/0@1', 'items/0@2'"):
        step.flush()
    with pytest.raises(TupleError, match="was acked before: it cannot be acked"):
        items.ack(rows[0])
    with pytest.raises(TupleError, match="was acked before: it cannot be stamped"):
        words.stamp(rows[0])
    assert made.counters()["acked"] == 0
    items.ack(rows[1:])
    step.flush()
    assert made.counters()["acked"] == 3


@pytest.mark.parametrize(("late", "recent"), [(False, 1_000), (True, 1_000), (True, 0)])
def test_a_row_that_was_not_delivered_fails_its_own_record(
    make: Make, monkeypatch: pytest.MonkeyPatch, late: bool, recent: int
) -> None:
    """recent: how many sent segments a process remembers."""
    monkeypatch.setattr(segments, "MOST_RECENT", recent)
    made, step = make(ackers=2), make(ackers=2)
    step.incoming("items", subscription="count")
    out = made.outgoing("items")
    headers = source(made, 2, rows=2)
    if late:
        made.flush()
    out.delivered(None, Message(headers[0]))
    out.delivered("timed out", Message(headers[1]))
    out.withdraw(headers[2])
    made.flush()
    work(step, [headers[0], headers[3]])
    step.flush()
    assert {name: made.counters()[name] for name in ("failed", "acked")} == {"failed": 1, "acked": 1}
    pass_time(made.ledger)
    assert Stream(made.ledger, "items").totals().segments == 0


def test_a_stream_has_one_kind(make: Make) -> None:
    made = make()
    made.outgoing("items")
    reader, writer = StreamReader(made.ledger, "items"), StreamWriter(made.ledger, "items")
    rows = pa.table({"n": [1]})
    for call in (lambda: list(reader.rows()), reader.ack, lambda: writer.write(rows)):
        with pytest.raises(StreamKindError, match="'items' is external, and this call is for managed"):
            call()
    StreamWriter(made.ledger, "lines").write(rows)
    with pytest.raises(StreamKindError, match="'lines' is managed, and this call is for external"):
        made.outgoing("lines")
    with pytest.raises(StreamKindError, match="'lines' is managed, and this call is for external"):
        made.incoming("lines", subscription="s")
    made.ledger.run(subscriptions.subscribe(made.ledger.core, "items", "any", ""))
    with pytest.raises(ValidationError, match="segment_rows: expected 1 to 65,536, got 0"):
        made.outgoing("items", segment_rows=0)
    with pytest.raises(ValidationError, match="lost_after"):
        made.outgoing("items", lost_after=0)


@pytest.mark.parametrize("bulk", [True, False])
def test_rows_that_are_stamped_together_fill_segments_like_single_rows(make: Make, bulk: bool) -> None:
    made, step, last = make(), make(), make()
    items, words = step.incoming("items", subscription="split"), step.outgoing("words", segment_rows=4)
    counting = last.incoming("words", subscription="count")
    headers = source(made, 10)
    made.flush()
    rows = items.extract_many(headers)
    texts = [words.stamp(rows[0])]  # the first segment is begun already
    texts += words.stamps(rows[1:]) if bulk else [words.stamp(row) for row in rows[1:]]
    items.ack(rows)
    step.flush()
    got = counting.read(texts)
    assert [row.position for row in got] == [0, 1, 2, 3, 0, 1, 2, 3, 0, 1]
    assert [row.anchors for row in got] == [row.anchors for row in rows]
    counting.ack(got)
    last.flush()
    assert made.counters()["acked"] == 10


def test_no_row_is_stamped_where_one_of_them_cannot_be(make: Make) -> None:
    made, step = make(), make()
    items, words = step.incoming("items", subscription="split"), step.outgoing("words")
    rows = items.extract_many(source(made, 3))
    items.ack(rows[2])
    with pytest.raises(TupleError, match="was acked before: it cannot be stamped"):
        words.stamps(rows)
    items.ack(rows[:2])
    assert not step._exchange.opened  # type: ignore[union-attr]
    made.flush()
    step.flush()
    assert made.counters()["acked"] == 3


def test_receivers_of_one_subscription_share_its_rows(make: Make) -> None:
    made, step = make(), make()
    first, second = (step.incoming("items", subscription="count") for _ in range(2))
    other = step.incoming("items", subscription="other")
    headers = source(made, 2)
    made.flush()
    rows = first.extract_many(headers)
    with pytest.raises(TupleError, match="expected a row of"):
        other.ack(rows[0])
    with pytest.raises(TupleError, match=r"expected a row of .* got None"):
        first.ack([None])  # type: ignore[list-item]
    second.ack(rows[0])
    second.fail(rows[1], "bad")
    with pytest.raises(TupleError, match="was acked before"):
        first.ack(rows[0])
    work(step, headers, "other")
    step.flush()
    assert {name: made.counters()[name] for name in ("failed", "acked")} == {"failed": 1, "acked": 1}
