"""The parts of `acker demo`: its text, its rule for replays, its sink, and the check of it all."""

import json
import os
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import replace
from io import StringIO
from pathlib import Path

import httpx
import pyarrow as pa
import pytest
from rich.console import Console

from acker import ValidationError
from acker.demo.check import Check, check
from acker.demo.children import Child, ChildFailed, Children
from acker.demo.directory import temporary_directory
from acker.demo.faults import Faults
from acker.demo.options import Options
from acker.demo.progress import Progress, Rate
from acker.demo.records import Records, Status
from acker.demo.report import Report
from acker.demo.service import Service
from acker.demo.sink import Sink
from acker.demo.spout import LINES, TextSpout
from acker.demo.text import Line, find_files, read_lines, words
from acker.ledger import open_ledger
from acker.store import Store
from acker.streams import StreamReader, dead_letters, settler
from acker.streams.dead_letters import DeadLetter
from api.dashboard import folder
from tests.servers import wait_until

# Text


def test_words_are_runs_of_ascii_letters_in_lower_case() -> None:
    assert words("The_cat's 2nd naïve HAT!") == ["the", "cat", "s", "nd", "na", "ve", "hat"]
    assert words("  42 += {} ") == []


def test_a_line_is_named_by_its_file_and_number_and_empty_ones_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"one\n\n  \t\ntwo \r\n\xff three")
    name = str(tmp_path / "a.txt")
    assert list(read_lines(find_files([name]))) == [
        Line(f"{name}:1", "one"),
        Line(f"{name}:4", "two "),
        Line(f"{name}:5", "\ufffd three"),
    ]
    assert len(list(read_lines(find_files([name]), 2))) == 2


def test_a_directory_stands_for_its_text_files_and_a_file_is_read_once(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "text.md").write_text("text")
    (tmp_path / "binary").write_bytes(b"\0\1")
    (tmp_path / ".hidden").write_text("hidden")
    (tmp_path / "a.py").write_text("code")
    found = find_files([str(tmp_path), str(tmp_path / "a.py")])
    assert [path.name for _, path in found] == ["a.py", "text.md"]


def test_the_standard_library_is_read_by_default() -> None:
    names = [name for name, _ in find_files([])]
    assert "json/decoder.py" in names
    assert not any("site-packages" in name for name in names)


def test_input_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValidationError, match="no file or directory"):
        find_files([str(tmp_path / "nothing")])
    with pytest.raises(ValidationError, match="no text"):
        find_files([str(tmp_path)])


@pytest.mark.parametrize(
    "wrong",
    [{"lines": -1}, {"max_spout_pending": 0}, {"topology": "a b"}, {"settings": {"wait_replicas": 17}}],
)
def test_options_that_can_not_be_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        Options(**wrong)  # type: ignore[arg-type]


# The spout


def test_a_line_that_fails_is_replayed_and_a_dead_letter_after_its_last_attempt(valkey_url: str) -> None:
    ledger = open_ledger(Store(valkey_url), "demo", ackers=2)
    reader = StreamReader(ledger, LINES)
    spout = TextSpout(ledger, iter(TEXT), 4, attempts=2)

    def run() -> bool:
        spout.step()
        for row in reader.rows():
            if row["message_id"] == "f:2" or (row["message_id"], row["attempt"]) == ("f:1", 1):
                ledger.fail([int(str(row["_acker"]))], "bad")
        reader.ack_all()
        return spout.finished

    reader.rows()  # subscribes
    wait_until(run, timeout=60)
    assert spout.records.status == Status(lines=4, acked=3, failed=3, replays=2, dead=1)
    [letter] = ledger.run(dead_letters.page(ledger.core)).letters
    assert (letter.message_id, letter.row["line"], letter.attempts) == (b"f:2", "or not", 2)
    assert (letter.status, letter.reason) == ("failed", "bad")
    spout.close()
    ledger.run(dead_letters.replay(ledger.core, letter.id))
    list(reader.rows())
    reader.ack_all()
    assert settler.settle(ledger).acked == 1, "whoever settles takes care of what comes later"


def outcomes(*rows: tuple[int, bytes, int, str, bool]) -> pa.Table:
    names = ("anchor", "message_id", "attempt", "status", "final")
    return pa.table({name: list(column) for name, column in zip(names, zip(*rows, strict=True), strict=True)})


def test_outcomes_that_are_told_again_are_counted_once() -> None:
    records = Records()
    records.emitted(["f:1", "f:2"])
    records.take(outcomes((10, b"f:1", 1, "acked", True)))
    records.take(outcomes((10, b"f:1", 1, "acked", True), (11, b"f:2", 1, "expired", False)))
    assert records.status == Status(lines=2, acked=1, expired=1, replays=1, in_flight=1)


def test_an_outcome_that_no_record_waits_for_is_counted_as_unknown_and_changes_nothing() -> None:
    records = Records()
    records.emitted(["f:1"])
    records.take(outcomes((10, b"f:1", 1, "failed", False)))
    for strange in (
        (11, b"f:1", 1, "acked", True),
        (12, b"f:1", 3, "acked", True),
        (13, b"f:2", 1, "acked", True),
    ):
        records.take(outcomes(strange))
    assert records.status == Status(lines=1, failed=1, replays=1, in_flight=1, unknown=3)


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


def test_a_batch_that_can_not_be_written_whole_is_not_written(tmp_path: Path) -> None:
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

TEXT = [Line("f:1", "to be"), Line("f:2", "or not"), Line("f:3", "++"), Line("f:4", "to be")]
FAULTS = Faults(flaky=("not",), poison_every=0)
STATUS = Status(lines=4, acked=4, failed=1, replays=1, finished=True)


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
    assert found.most_frequent == [("be", 2), ("to", 2), ("not", 1), ("or", 1)]


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
        ({"finished": False}, "has not finished"),
        ({"unknown": 1}, "came twice"),
        ({"acked": 3}, "1 lines have no final outcome"),
        ({"lines": 3, "acked": 3}, "the spout emitted 3 lines, the text has 4"),
        ({"dead": 1, "acked": 3}, "1 records were given up, 0 dead letters"),
        ({"failed": 0, "replays": 0}, "0 trees failed, 1 should have"),
    ],
)
def test_outcomes_that_are_missing_or_double_are_found_out(
    result: Result, changes: dict[str, int], problem: str
) -> None:
    result.status = replace(STATUS, **changes)  # type: ignore[arg-type]
    assert any(problem in found for found in result.check().problems)


def test_counts_that_differ_from_the_ledgers_are_found_out(result: Result) -> None:
    result.counters["acked"] = 5
    assert result.check().problems == ["acked: the spout counts 4, the ledger 5"]


def poisoned(result: Result) -> DeadLetter:
    """Makes every record poisonous, so that all but the one without words are given up."""
    result.faults = Faults(flaky=(), poison_every=1)
    result.status = Status(lines=4, acked=1, failed=9, replays=6, dead=3, finished=True)
    result.counters = {"tracked": 10, "acked": 1, "failed": 9, "expired": 0, "rejected": 0}
    letters = [
        DeadLetter(
            "1-0@text", "text", line.message_id.encode(), 1, "failed", "always", 3, 0.0, LINES,
            {"message_id": line.message_id, "line": line.text, "attempt": 3},
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


def test_the_report_is_one_object(result: Result) -> None:
    poisoned(result)
    report = Report(
        url="redis://127.0.0.1:1/0", topology="t", status=result.status, counters=result.counters,
        dead=tuple(result.dead),
        latencies=(0.5, 1.0, None), wall=12.34567, startup=5.0, most_frequent=(("be", 2),),
        check=result.check(),
    )  # fmt: skip
    found = json.loads(json.dumps(report.dump()))
    assert (found["lines"], found["trees"], found["replays"]) == (4, 10, 6)
    assert found["outcomes"] == {"acked": 1, "failed": 9, "expired": 0, "rejected": 0}
    assert found["dead_letters"]["count"] == 3
    assert found["dead_letters"]["reasons"] == {"always": 3}
    assert found["dead_letters"]["records"][0] == {
        "id": "1-0@text", "message_id": "f:1", "line": "to be",
        "attempts": 3, "status": "failed", "reason": "always",
    }  # fmt: skip
    assert found["complete_latency_seconds"] == {"p50": 0.5, "p95": 1.0, "p99": None}
    assert found["wall_seconds"] == 12.346
    assert found["most_frequent_words"] == [["be", 2]]
    assert found["check"] == {"ok": True, "problems": []}


def test_progress_is_plain_lines_without_a_terminal_and_a_table_with_one() -> None:
    plain, live = StringIO(), StringIO()
    with Progress(Console(file=plain, force_terminal=False, width=200), 10) as progress:
        progress.show(Status(lines=4, replays=1, acked=4, dead=1))
        progress.show(Status(lines=4, replays=2))
    assert plain.getvalue().count("\n") == 1
    assert (
        "tracked 5, in flight 0, acked 4, failed 0, expired 0, replayed 1, dead-lettered 1"
        in plain.getvalue()
    )
    with Progress(Console(file=live, force_terminal=True, width=200), 10) as progress:
        progress.show(Status(lines=4, replays=1))
    assert "dead-lettered" in live.getvalue()
    assert "\x1b[" in live.getvalue()


def test_a_rate_is_that_of_the_last_seconds() -> None:
    rate = Rate(over=2.0)
    assert rate.per_second(0.0, 0) == 0.0
    assert rate.per_second(1.0, 100) == 100.0
    assert rate.per_second(3.0, 100) == 0.0


# Processes


def child(tmp_path: Path, program: str) -> Child:
    return Child("child", [sys.executable, "-c", program], tmp_path / "log", environment={})


def test_stopping_ends_the_whole_session_of_a_child_that_does_not_listen(tmp_path: Path) -> None:
    program = (
        "import os, signal, subprocess, sys, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'], process_group=0)\n"
        "print('ready', flush=True)\n"
        "time.sleep(60)\n"
    )
    children = Children()
    deaf = children.add(child(tmp_path, program))
    wait_until(lambda: deaf.line("ready"))
    members = deaf.members()
    assert len(members) == 2
    children.stop(0.2)
    assert not any(_runs(pid) for pid in members)


def test_stopping_waits_for_a_child_that_ends_in_good_order(tmp_path: Path) -> None:
    program = (
        "import signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: (print('bye', flush=True), sys.exit(3)))\n"
        "print('ready', flush=True)\n"
        "time.sleep(60)\n"
    )
    children = Children()
    listening = children.add(child(tmp_path, program))
    wait_until(lambda: listening.line("ready"))
    started = time.monotonic()
    children.stop(30.0)
    assert time.monotonic() - started < 20
    assert listening.line("bye")
    assert listening.process.returncode == 3


def test_a_child_that_ends_by_itself_is_told_with_the_end_of_its_log(tmp_path: Path) -> None:
    failing = child(tmp_path, "import sys; print('x ' * 3); sys.exit('out of words')")
    wait_until(lambda: failing.ended)
    with pytest.raises(ChildFailed, match=r"child ended with status 1; its log is .*log") as failed:
        failing.check()
    assert "out of words" in failed.value.log_end


HOLD = """
import sys, tempfile
from acker.demo.directory import temporary_directory
tempfile.tempdir = sys.argv[1]
with temporary_directory() as directory:
    print(directory, flush=True)
    sys.stdin.read()
"""


def test_a_directory_that_a_killed_demo_has_left_is_removed_by_the_next_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (tmp_path / "acker-demo-failed" / "logs").mkdir(parents=True)
    with ExitStack() as stack:
        holders = [
            stack.enter_context(
                subprocess.Popen(
                    [sys.executable, "-c", HOLD, str(tmp_path)],
                    stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                )
            )
            for _ in range(2)
        ]  # fmt: skip
        killed, alive = (Path(one.stdout.readline().strip()) for one in holders if one.stdout)
        holders[0].kill()
        holders[0].wait()
        with temporary_directory() as own:
            assert set(tmp_path.iterdir()) == {own, alive, tmp_path / "acker-demo-failed"}
        assert not killed.exists()
        holders[1].communicate("")
    assert [path.name for path in tmp_path.iterdir()] == ["acker-demo-failed"]


def test_of_a_failed_run_the_logs_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    def fail() -> None:
        with temporary_directory() as directory:
            (directory / "logs").mkdir()
            (directory / "server").mkdir()
            raise ChildFailed("split ended")

    with pytest.raises(ChildFailed):
        fail()
    [directory] = tmp_path.iterdir()
    assert [path.name for path in directory.iterdir()] == ["logs"]


def test_a_service_tells_once_where_it_is_and_why_it_has_no_dashboard(
    tmp_path: Path, valkey_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    builder = tmp_path / "build.py"
    builder.write_text("raise SystemExit('no Node')")
    broken = f"import pathlib, api.dashboard; api.dashboard._BUILDER = pathlib.Path({str(builder)!r}); "
    monkeypatch.setattr("acker.demo.service._PROGRAM", broken + "from acker.cli import main; main()")
    told: list[str] = []
    service = Service(tmp_path / "log", {**os.environ, "ACKER_URL": valkey_url}, 0, told.append)

    def look() -> bool:
        service.look()
        return len(told) == 2

    try:
        wait_until(look, timeout=60)
        look()
        assert sorted(told) == [
            f"dashboard {service.address}",
            "no dashboard: the dashboard could not be built",
        ]
        assert "not built" in httpx.get(service.address).text or folder() is not None
    finally:
        children = Children()
        children.add(service.child)
        children.stop(30.0)
    assert service.child.process.returncode == 0
    with pytest.raises(ChildFailed, match="the service ended"):
        service.look()


def _runs(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
