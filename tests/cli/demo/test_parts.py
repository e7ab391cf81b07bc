"""The parts of `acker demo`: its text, and its rule for replays."""

import signal
from pathlib import Path

import pyarrow as pa
import pytest

from acker import ValidationError
from acker.cli.demo.jobs import TextSpout
from acker.cli.demo.options import Options
from acker.cli.demo.records import Records, Status
from acker.cli.demo.supervisor import Interrupted, catching
from acker.cli.demo.text import Line, find_files, read_lines, words
from acker.ledger.client import open_ledger
from acker.store.client import Store
from acker.streams import StreamReader
from acker.streams.dead_letters import dead_letters
from acker.streams.spouts import settler
from tests.helpers.faces.demo_run import TEXT
from tests.helpers.servers.servers import wait_until


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_signal_that_comes_where_an_object_is_thrown_away_ends_the_demo_all_the_same() -> None:
    class Client:
        def __del__(self) -> None:
            signal.raise_signal(signal.SIGTERM)

    with catching() as signals:
        signals.check()
        Client()  # what is raised in there, nobody sees
        with pytest.raises(Interrupted, match="SIGTERM"):
            signals.check()


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
    [
        {"lines": -1},
        {"max_spout_pending": 0},
        {"topology": "a b"},
        {"settings": {"wait_replicas": 17}},
        {"transport": "carrots"},
        {"transport": "kafka://"},
        {"transport": "kafka://localhost"},
        {"transport": "kafka://localhost:9092/topic"},
    ],
)
def test_options_that_cannot_be_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        Options(**wrong)  # type: ignore[arg-type]


# The spout


def test_a_line_that_fails_is_replayed_and_a_dead_letter_after_its_last_attempt(valkey_url: str) -> None:
    ledger = open_ledger(Store(valkey_url), "demo", ackers=2)
    reader = StreamReader(ledger, "lines")
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
    assert settler.settle(ledger).acked == 1, "the settler takes care of later outcomes"


def outcomes(*rows: tuple[int, bytes, int, str, bool]) -> pa.Table:
    names = ("anchor", "message_id", "attempt", "status", "final")
    return pa.table({name: list(column) for name, column in zip(names, zip(*rows, strict=True), strict=True)})


def test_outcomes_that_are_reported_again_are_counted_once() -> None:
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
