"""Headers without a stamp of the stream: their rows are untracked and counted, and no key is made."""

from typing import Any

import pytest

from acker.errors import AckerError, TupleError, ValidationError
from tests.helpers.builders.collectors import Make
from tests.helpers.builders.external import source, work
from tests.helpers.models.leaks import kind_of


def test_stamps_that_are_none_are_untracked_rows_and_make_no_key(make: Make, raw: Any) -> None:
    made, step, foreign = make(), make(), make("another")
    items = step.incoming("items", subscription="count")
    foreign.incoming("items", subscription="count")
    [good] = source(made, 1)
    [theirs] = source(foreign, 1)
    [other] = source(made, 1, stream="others")
    made.flush()
    text = dict(good)["acker-stamp"].decode()
    edited = text[:20] + ("A" if text[20] != "A" else "B") + text[21:]
    strange = [
        None, [], {}, 7, "junk", [("acker-stamp", None)], [("acker-stamp", b"\xff" * (1 << 20))],
        {"acker-stamp": "a1-" + "x" * (1 << 20)}, {"acker-stamp": text[:-3]}, {"acker-stamp": edited},
        theirs, other, {"acker-stamp": b"a2-" + text[3:].encode()},
    ]  # fmt: skip
    before = {key: raw.dump(key) for key in raw.scan_iter("acker:*")}
    rows = [items.extract(headers, "here") for headers in strange]
    rows += items.extract_many(strange)
    assert {row.tracked for row in rows} == {False}
    assert len(rows) == items.counted["rows"] == 2 * len(strange)
    assert items.counted["foreign"] == 6, "an edited one is like a foreign one"
    assert items.counted["newer"] == 2
    assert {key: raw.dump(key) for key in raw.scan_iter("acker:*")} == before
    items.ack(rows[::2])
    items.fail(rows[1::2], "no such word")
    step.flush()
    new = {kind_of(key) for key in raw.scan_iter("acker:*") if key not in before}
    assert new <= {"published"}, "the counts of the subscription"
    assert (made.counters()["acked"], made.counters()["failed"]) == (1, 0), "nobody has to ack the other row"
    work(step, [good])
    step.flush()
    assert made.counters()["acked"] == 2


@pytest.mark.parametrize("value", [None, 7, "abc", object(), [None], [7]])
def test_what_is_no_row_is_refused_before_anything_changes(make: Make, value: Any) -> None:
    made, step = make(), make()
    items, words = step.incoming("items", subscription="count"), step.outgoing("words")
    [headers] = source(made, 1)
    made.flush()
    row = items.extract(headers)
    for call in (
        items.ack,
        items.fail,
        words.stamps,
        words.stamp,
        lambda each: words.inject(None, row, each),
    ):
        with pytest.raises(TupleError, match=r"expected (a )?rows? of .*, got \[?(None|7|'abc'|'a'|<object)"):
            call(value)
    items.ack(row)
    assert not step._exchange.opened, "no row was stamped"  # type: ignore[union-attr]
    step.flush()
    assert made.counters()["acked"] == 1


def test_what_are_no_headers_is_refused_before_a_row_is_stamped(make: Make) -> None:
    made, step = make(), make()
    items, words = step.incoming("items", subscription="count"), step.outgoing("words")
    row = items.extract(source(made, 1)[0])
    for value in (7, object(), [7], [()], "abc"):
        with pytest.raises(ValidationError, match="headers: expected pairs of a name and a value"):
            words.inject(value, row)  # type: ignore[arg-type]
    for value in (None, 7, "abc", object()):
        with pytest.raises(ValidationError, match="expected the headers of several messages, as a list, got"):
            items.extract_many(value)  # type: ignore[arg-type]
        with pytest.raises(ValidationError, match="expected several stamps, as a list, got"):
            items.read(value)  # type: ignore[arg-type]
        with pytest.raises(ValidationError, match="expected the headers of each row, as a list, got"):
            words.reports_many(value)  # type: ignore[arg-type]
        with pytest.raises(TupleError, match=r"expected rows of topology.incoming, or acker.Tuples, got"):
            words.inject_many([None], value)  # type: ignore[arg-type]
    with pytest.raises(AckerError, match="its report has no headers"):
        words.delivered("timed out", None)
    assert not step._exchange.opened  # type: ignore[union-attr]


def test_all_copies_of_a_row_reach_the_function_and_one_of_them_acks_its_record(make: Make) -> None:
    made, step = make(), make()
    items = step.incoming("items", subscription="count")
    [headers] = source(made, 1)
    made.flush()
    copies = items.extract_many([headers] * 5)
    assert [row.tracked for row in copies] == [True] * 5
    items.ack(copies[:1])
    with pytest.raises(TupleError, match="4 rows are neither acked nor failed"):
        step.flush()
    items.ack(copies[1:])
    step.flush()
    assert made.counters()["acked"] == 1
