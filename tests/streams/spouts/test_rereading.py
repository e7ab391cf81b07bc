"""Spouts that keep ids: what fails is read again from its source, whatever the source answers."""

from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
import redis

from acker.errors import StoreUnavailable, ValidationError
from acker.ledger.calls.core import Core
from acker.ledger.client import Ledger
from acker.store.operation import Operation
from acker.streams.commits import publishing
from acker.streams.dead_letters import dead_letters
from acker.streams.sources import roots
from acker.streams.sources.roots import Roots
from acker.streams.sources.spout_options import SpoutOptions
from acker.streams.spout import StreamSpout
from acker.streams.spouts import backoff, rereading, settler, wait_notes
from acker.streams.spouts.backoff import SettleProgress
from acker.streams.spouts.replays import Stepped
from acker.streams.spouts.rereading import Rereader
from tests.helpers.builders.kept_rows import HOW, consume, fail, letters, lines, pending, rows
from tests.helpers.builders.rereading import Source, unread, write
from tests.helpers.faults.cuts import script_by_script
from tests.helpers.models.leaks import assert_settled
from tests.helpers.servers.servers import wait_until


def test_what_fails_is_read_again_and_buried_with_its_row(
    ledger: Ledger, source: Source, reader: Rereader, raw: "redis.Redis"
) -> None:
    write(ledger, 1250)
    fail(ledger, lambda row: row["id"] % 100 == 7)
    assert settler.settle(ledger) == Stepped(acked=1237)
    assert reader.step() == 13
    assert reader.step() == 0
    assert settler.settle(ledger).replayed == 13
    assert sorted((row["id"], row["line"], row["attempt"]) for row in rows(ledger)) == [
        (n, f"line {n}", 2) for n in range(7, 1250, 100)
    ]
    for attempt in (2, 3):
        fail(ledger, lambda row: row["id"] == 7, f"bad {attempt}")
        settler.settle(ledger)
        assert reader.step() == 1
        settler.settle(ledger)
    assert source.asked[1:] == [[7], [7]]
    [letter] = letters(ledger)
    assert (letter.row, letter.reason) == ({"id": 7, "line": "line 7", "offset": 7, "attempt": 3}, "bad 3")
    assert [one.reason for one in letter.history] == ["bad", "bad 2", "bad 3"]
    assert pending(ledger) == {"pending": 0, "acked": 1249, "replayed": 14, "dead": 1}
    ledger.run(dead_letters.replay(ledger.core, letter.id))  # the source is not asked for it
    consume(ledger)
    settler.settle(ledger)
    assert len(source.asked) == 3
    assert_settled(raw)


def test_rows_whose_source_raises_wait_and_keep_no_other(
    ledger: Ledger, source: Source, reader: Rereader, caplog: pytest.LogCaptureFixture
) -> None:
    write(ledger)
    fail(ledger, lambda row: True)
    source.bad = {3}
    assert reader.step() == 0
    assert reader.trouble == "OSError: the source is away"
    assert settler.settle(ledger) == Stepped()
    assert sum(reader.step() for _ in range(12)) == 9
    assert settler.settle(ledger) == Stepped()  # the outcomes of a slab wait together
    assert "rows of spout 's' wait, and their source is asked again: the source is away" in caplog.text
    assert unread(ledger) == [
        "rows of spout s wait, because their source cannot be read again: OSError: the source is away"
    ]
    source.bad.clear()
    assert reader.step() == 1
    assert reader.trouble == ""
    assert unread(ledger) == []
    assert settler.settle(ledger) == Stepped(replayed=10)
    assert {row["attempt"] for row in rows(ledger)} == {2}


def test_a_source_that_hangs_is_shown_until_it_answers(
    ledger: Ledger, source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wait_notes, "SLOW", 0.1)
    write(ledger)
    fail(ledger, lambda row: row["id"] == 3)

    def hang(ids: pa.Table) -> pa.Table:
        wait_until(lambda: unread(ledger) != [])
        shown.extend(unread(ledger))
        return source(ids)

    shown = list[str]()
    assert Rereader(ledger, "s", hang).step() == 1
    assert "their source cannot be read again: `reread` has not returned for" in shown[0]
    assert unread(ledger) == []


def test_each_row_is_asked_for_in_turn_however_many_make_the_source_raise(
    ledger: Ledger, source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rereading, "MOST_IDS", 16)
    reader = Rereader(ledger, "s", source)
    write(ledger, 48)
    fail(ledger, lambda row: True)
    source.bad = set(range(32))
    assert [reader.step() for _ in range(3)] == [0, 0, 16]
    assert source.asked[-1] == list(range(32, 48))
    assert reader.step() == 0  # it may be away from now on
    source.asked.clear()
    for _ in range(32):
        assert reader.step() == 0
    assert sorted(source.asked) == sorted([[n] for n in range(32)] * 2)
    source.bad.clear()
    source.asked.clear()
    assert reader.step() == 32
    assert [len(asked) for asked in source.asked] == [1, 2, 4, 8, 16, 1]


def test_rows_that_wait_are_asked_for_though_new_ones_make_the_source_raise_each_time(
    ledger: Ledger, source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rereading, "MOST_IDS", 16)
    reader = Rereader(ledger, "s", source)
    source.bad = set(range(0, 320, 16))
    for first in range(0, 320, 16):
        write(ledger, 16, first)
        fail(ledger, lambda row: True)
        reader.step()
    assert sum(not source.bad.isdisjoint(asked) for asked in source.asked) >= len(source.bad)
    answered = {number for asked in source.asked if source.bad.isdisjoint(asked) for number in asked}
    assert {*range(160)} - source.bad <= answered


def test_no_more_rows_wait_than_may_and_further_ones_come_behind_them(
    ledger: Ledger, source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rereading, "MOST_IDS", 16)
    monkeypatch.setattr(rereading, "MOST_ROWS", 32)
    reader = Rereader(ledger, "s", source)
    write(ledger, 48)
    fail(ledger, lambda row: True)
    source.bad = set(range(48))
    for _ in range(8):
        assert reader.step() == 0
    assert {number for asked in source.asked for number in asked} == set(range(32))
    source.bad.clear()
    assert sum(reader.step() for _ in range(8)) == 48


def test_ids_that_wait_are_not_read_at_each_look(
    ledger: Ledger, source: Source, reader: Rereader, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, clock, kept = [""], [0.0], roots.kept_rows

    def kept_rows(core: Core, of: Roots, *rest: Any) -> Operation[pa.Table | None]:
        read.append(of.id)
        return kept(core, of, *rest)

    write(ledger)
    fail(ledger, lambda row: True)
    with monkeypatch.context() as patched:
        patched.setattr(backoff, "time", SimpleNamespace(monotonic=lambda: clock[0]))
        patched.setattr(roots, "kept_rows", kept_rows)
        progress: dict[str, SettleProgress] = {}
        for _ in range(3):
            assert settler.settle(ledger, readings=progress) == Stepped()
            clock[0] += 100.0
        assert len(read) == 2
        assert reader.step() == 10
        assert settler.settle(ledger, readings=progress) == Stepped(replayed=10)


def test_the_source_may_give_other_rows_a_row_twice_or_none(
    ledger: Ledger, source: Source, reader: Rereader
) -> None:
    source.there = pa.concat_tables([lines(20, 90), lines(5), lines(5)])
    write(ledger)
    fail(ledger, lambda row: row["id"] in (4, 5))
    source.asked.clear()
    assert reader.step() == 2
    assert settler.settle(ledger) == Stepped(acked=8, replayed=1, dead=1)
    assert [(row["id"], row["line"]) for row in rows(ledger)] == [(4, "line 4")]
    [letter] = letters(ledger)
    assert (letter.reason, letter.status) == ("gone from its source, after: bad", "failed")
    assert letter.row == {"id": 5, "attempt": 1, "line": None, "offset": None}
    with pytest.raises(ValidationError, match="gone from its source, so the letter has its id only"):
        ledger.run(dead_letters.replay(ledger.core, letter.id))


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (None, "ValidationError: reread: expected a table of rows, got NoneType"),
        (
            pa.table({"id": [1]}),
            "SchemaMismatch: reread: expected rows with the columns id, line, offset, got id",
        ),
    ],
)
def test_an_answer_that_is_none_keeps_the_ids(ledger: Ledger, answer: Any, reason: str) -> None:
    write(ledger)
    fail(ledger, lambda row: row["id"] == 1)
    reader = Rereader(ledger, "s", lambda ids: answer)
    assert reader.step() == 0
    assert reader.trouble == reason
    assert settler.settle(ledger) == Stepped(acked=9)


def test_a_store_that_is_away_is_no_trouble_of_the_source(
    ledger: Ledger, source: Source, reader: Rereader, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: Any) -> Any:
        raise StoreUnavailable("the store is away")

    write(ledger)
    fail(ledger, lambda row: row["id"] == 1)
    with monkeypatch.context() as patched:
        patched.setattr("acker.streams.log.schemas.read", away)
        with pytest.raises(StoreUnavailable):
            reader.step()
    assert (reader.trouble, source.asked) == ("", [])
    assert Rereader(ledger, "s", source).step() == 1


def test_ids_that_python_cannot_show_are_read_again(ledger: Ledger) -> None:
    text = pa.array([b"\xff", b"\xfe", b"a"]).cast(pa.string(), safe=False)
    days = pa.array([3_000_000, 3_000_001, 0], pa.int32()).cast(pa.date32())  # behind the year 9999
    there = pa.table({"id": text, "day": days, "zero": pa.array([0.0, -0.0, 0.0]), "n": [1, 2, 3]})
    how = SpoutOptions("s", "lines", "id")
    [written] = StreamSpout(ledger, how, ids=["id", "day", "zero"]).write(there)
    ledger.fail(written.anchors(), "bad")
    told = there.set_column(2, "zero", pa.array([0.0, 0.0, 0.0]))  # as a join of Spark gives it
    reader = Rereader(ledger, "s", lambda ids: told.take([2, 1, 0]))
    assert reader.step() == 3
    assert reader.trouble == ""
    assert settler.settle(ledger) == Stepped(replayed=3)


def test_a_source_need_not_have_a_column_that_was_added_later(ledger: Ledger, source: Source) -> None:
    write(ledger)
    fail(ledger, lambda row: row["id"] == 1)
    later = lines(1, 10)
    StreamSpout(ledger, HOW, ids=["id"]).write(later.append_column("added", pa.array(["new"])))
    assert Rereader(ledger, "s", source).step() == 1
    assert settler.settle(ledger) == Stepped(acked=9, replayed=1)


def test_the_first_stored_answer_counts(ledger: Ledger, source: Source, raw: "redis.Redis") -> None:
    """Two processes ask at once: the source has the row for one of them only."""
    write(ledger)
    fail(ledger, lambda row: row["id"] == 1)

    def late(ids: pa.Table) -> pa.Table:
        assert Rereader(ledger, "s", lambda ids: lines(0)).step() == 1
        return source(ids)

    assert Rereader(ledger, "s", late).step() == 0
    assert settler.settle(ledger) == Stepped(acked=9, dead=1)
    assert rows(ledger) == []
    assert_settled(raw)


def test_a_commit_that_another_process_finishes_buries_what_is_gone(
    ledger: Ledger, source: Source, reader: Rereader, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(ledger)
    fail(ledger, lambda row: row["id"] in (4, 5))
    source.there = lines(5)
    assert reader.step() == 2

    def cut(*arguments: Any) -> Any:
        raise RuntimeError("cut")

    with monkeypatch.context() as patched:
        script_by_script(patched)
        patched.setattr(publishing, "divide", cut)
        with pytest.raises(RuntimeError, match="cut"):
            settler.settle(ledger)
    settler.settle(ledger)
    assert [row["id"] for row in rows(ledger)] == [4]
    assert [letter.message_id for letter in letters(ledger)] == [b"5"]
    assert pending(ledger) == {"pending": 1, "acked": 8, "replayed": 1, "dead": 1}
