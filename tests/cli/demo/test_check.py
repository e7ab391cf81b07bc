"""The parts of `acker demo`: its sink, the check of it all, and what is shown."""

import json
import re
import sqlite3
from collections.abc import Iterable
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pyarrow as pa
import pytest
from rich.console import Console

from acker.cli.demo import command
from acker.cli.demo.check import Check, check
from acker.cli.demo.options import Faults
from acker.cli.demo.progress import Progress, Rate
from acker.cli.demo.records import Status
from acker.cli.demo.report import Report
from acker.cli.demo.sink import Sink
from acker.cli.demo.text import Line, words
from acker.streams.dead_letters.dead_letters import DeadLetter
from tests.helpers.faces.demo_run import TEXT

# The sink


def table(*rows: tuple[str, int, str]) -> pa.Table:
    ids, positions, found = zip(*rows, strict=True) if rows else ((), (), ())
    return pa.table(
        {
            "message_id": pa.array(ids, pa.string()),
            "position": pa.array(positions, pa.int32()),
            "word": pa.array(found, pa.string()),
        }
    )


def test_writing_a_batch_again_changes_nothing(tmp_path: Path) -> None:
    sink = Sink(tmp_path / "words.db")
    batch = table(("f:1", 0, "a"), ("f:1", 1, "b"), ("f:2", 0, "a"))
    sink.write(batch)
    sink.write(batch)
    sink.write(table())
    assert sink.count() == 3
    assert sink.most_frequent(1) == [("a", 2)]
    assert list(sink.records()) == [("f:1", [(0, "a"), (1, "b")]), ("f:2", [(0, "a")])]


def test_a_batch_that_cannot_be_written_whole_is_not_written(tmp_path: Path) -> None:
    sink = Sink(tmp_path / "words.db")
    sink.write(table())
    with pytest.raises(sqlite3.IntegrityError):
        sink.write_rows([("f:1", 0, "a"), ("f:1", 1, None)])  # type: ignore[list-item]
    assert sink.count() == 0


def test_the_sink_keeps_a_write_ahead_log(tmp_path: Path) -> None:
    sink = Sink(tmp_path / "words.db")
    sink.write(table(("f:1", 0, "a")))
    with sqlite3.connect(sink.path) as database:
        assert database.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    database.close()


# The check


FAULTS = Faults(flaky=("not",), poison_every=0)


STATUS = Status(lines=4, acked=4, failed=1, replays=1)


class Result:
    """A run that went well, to be spoilt."""

    def __init__(self, directory: Path) -> None:
        self.sink = Sink(directory / "words.db")
        self.sink.write_rows(
            (line.message_id, *pair) for line in TEXT for pair in enumerate(words(line.text))
        )
        self.dead: list[DeadLetter] = []
        self.status = STATUS
        self.faults = FAULTS
        self.counters = {"tracked": 5, "acked": 4, "failed": 1, "expired": 0, "rejected": 0}

    def sql(self, statement: str) -> None:
        with sqlite3.connect(self.sink.path) as database:
            database.execute(statement)
        database.close()

    def check(self, lines: Iterable[Line] = TEXT) -> Check:
        return check(lines, self.sink, self.dead, self.status, self.counters, self.faults, 3)


@pytest.fixture
def result(tmp_path: Path) -> Result:
    return Result(tmp_path)


def test_a_run_that_went_well_passes(result: Result) -> None:
    found = result.check()
    assert found.problems == []
    assert found.ok
    assert (found.lines, found.words) == (4, 6)


@pytest.mark.parametrize(
    ("statement", "problem"),
    [
        ("DELETE FROM words WHERE message_id = 'f:4'", "1 lines are missing in the sink: f:4"),
        ("DELETE FROM words WHERE message_id = 'f:4' AND position = 1", "1 lines have other words"),
        (
            "UPDATE words SET word = 'bee' WHERE message_id = 'f:4' AND position = 1",
            "1 lines have other words",
        ),
        ("INSERT INTO words VALUES ('f:3', 0, 'plus')", "1 lines have other words"),
        ("INSERT INTO words VALUES ('f:4', 2, 'or')", "1 lines have other words"),
        (
            "UPDATE words SET position = 7 WHERE message_id = 'f:4' AND position = 1",
            "1 lines have other words",
        ),
        ("INSERT INTO words VALUES ('g:1', 0, 'new')", "1 lines in the sink are not in the text: g:1"),
    ],
)
def test_a_sink_that_was_tampered_with_is_found_out(result: Result, statement: str, problem: str) -> None:
    result.sql(statement)
    [found] = result.check().problems
    assert found.startswith(problem)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"unknown": 1}, "came twice"),
        ({"acked": 3}, "of 4 lines 3 have a final outcome"),
        ({"lines": 3, "acked": 3}, "the spout emitted 3 lines, the text has 4"),
        ({"dead": 1, "acked": 3}, "1 records were given up, 0 dead letters"),
        ({"failed": 0, "replays": 0}, "0 trees failed, 1 should have"),
    ],
)
def test_missing_or_double_outcomes_are_found(result: Result, changes: dict[str, int], problem: str) -> None:
    result.status = replace(STATUS, **changes)
    assert any(problem in found for found in result.check().problems)


def test_counts_that_differ_from_the_ledgers_are_found_out(result: Result) -> None:
    result.counters["acked"] = 5
    assert result.check().problems == ["acked: the spout counts 4, the ledger 5"]


def poisoned(result: Result) -> DeadLetter:
    """Makes every record poisonous, so that all but the one without words are given up."""
    result.faults = Faults(flaky=(), poison_every=1)
    result.status = Status(lines=4, acked=1, failed=9, replays=6, dead=3)
    result.counters = {"tracked": 10, "acked": 1, "failed": 9, "expired": 0, "rejected": 0}
    letters = [
        DeadLetter(
            "1-0@text", "text", line.message_id.encode(), 1, "failed", "always", "", -1, 3, 0.0, "lines",
            {"message_id": line.message_id, "line": line.text, "attempt": 3}, (),
        )
        for line in TEXT
        if line.message_id != "f:3"
    ]  # fmt: skip
    result.dead = letters
    result.sql("DELETE FROM words")
    return letters[0]


def test_dead_letters_are_left_out_of_the_count(result: Result) -> None:
    poisoned(result)
    found = result.check()
    assert (found.problems, found.words) == ([], 0)


def test_a_dead_letter_in_the_sink_is_found_out(result: Result) -> None:
    poisoned(result)
    result.sink.write_rows([("f:1", 0, "to")])
    assert result.check().problems == ["1 lines in the sink were given up: f:1"]


def test_what_a_dead_letter_that_expired_left_in_the_sink_is_not_looked_at(result: Result) -> None:
    letter = poisoned(result)
    result.dead[0] = replace(letter, status="expired")
    result.sink.write_rows([("f:1", 0, "to")])
    assert result.check().ok


def test_a_dead_letter_that_is_missing_double_or_unexplained_is_found_out(result: Result) -> None:
    letter = poisoned(result)
    result.dead.append(letter)
    assert any("given up twice" in found for found in result.check().problems)
    del result.dead[-1], result.dead[0]
    assert any("were not given up: f:1" in found for found in result.check().problems)
    poisoned(result)
    result.faults = Faults(flaky=(), poison_every=0)
    assert any("should not have failed: f:1" in found for found in result.check().problems)


# What is shown


def report_of(result: Result) -> Report:
    return Report(
        url="redis://127.0.0.1:1/0", topology="t", status=result.status, counters=result.counters,
        dead=tuple(result.dead),
        latencies=(0.5, 1.0, None), wall=12.34567, startup=5.0, most_frequent=(("be", 2),),
        check=result.check(),
    )  # fmt: skip


def test_the_table_at_the_end_names_the_step_that_has_failed_each_dead_letter(
    result: Result, capsys: pytest.CaptureFixture[str]
) -> None:
    poisoned(result)
    first, second, third = result.dead
    result.dead[:] = [
        replace(first, step="count"),
        replace(second, step="split"),
        replace(third, status="expired", reason="in stream words for subscription count"),
    ]
    command._show(report_of(result))
    shown = re.sub(" +", " ", capsys.readouterr().out)
    for line in (
        "always, failed by count 1",
        "always, failed by split 1",
        "in stream words for subscription count 1",
    ):
        assert line in shown
    assert report_of(result).dump()["dead_letters"]["records"][1]["step"] == "split"  # type: ignore[index]


def test_the_report_is_one_object(result: Result) -> None:
    poisoned(result)
    report = report_of(result)
    found = json.loads(json.dumps(report.dump()))
    assert (found["lines"], found["trees"], found["replays"]) == (4, 10, 6)
    assert found["outcomes"] == {"acked": 1, "failed": 9, "expired": 0, "rejected": 0}
    assert found["dead_letters"]["count"] == 3
    assert found["dead_letters"]["reasons"] == {"always": 3}
    assert found["dead_letters"]["records"][0] == {
        "id": "1-0@text", "message_id": "f:1", "line": "to be",
        "attempts": 3, "status": "failed", "reason": "always", "step": "",
    }  # fmt: skip
    assert found["complete_latency_seconds"] == {"p50": 0.5, "p95": 1.0, "p99": None}
    assert found["wall_seconds"] == 12.346
    assert found["most_frequent_words"] == [["be", 2]]
    assert found["check"] == {"ok": True, "problems": []}


def test_progress_is_plain_lines_without_a_terminal_and_one_that_stands_with_one() -> None:
    plain, live = StringIO(), StringIO()
    with Progress(Console(file=plain, force_terminal=False, width=200)) as progress:
        progress.show(Status(lines=4, replays=1, acked=4, dead=1))
        progress.show(Status(lines=4, replays=2))
    assert plain.getvalue().count("\n") == 1
    assert (
        "lines 4, in flight 0, acked 4, failed 0, expired 0, replayed 1, dead-lettered 1" in plain.getvalue()
    )
    with Progress(Console(file=live, force_terminal=True, width=200)) as progress:
        progress.show(Status(lines=4, replays=1))
    assert "dead-lettered" in live.getvalue()
    assert "\x1b[" in live.getvalue()


def test_a_rate_is_that_of_the_last_seconds() -> None:
    rate = Rate(over=2.0)
    assert rate.per_second(0.0, 0) == 0.0
    assert rate.per_second(1.0, 100) == 100.0
    assert rate.per_second(3.0, 100) == 0.0
