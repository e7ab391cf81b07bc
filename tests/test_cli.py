"""The command line, as a person and as a program meet it."""

import base64
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
import redis

from acker import cli, ids, steps
from acker.cli.output import duration, message_id_fields, one_line, printable
from acker.embedded import EmbeddedServer
from acker.ids import Ids
from acker.ledger import Ledger, open_ledger
from acker.steps import Step
from acker.store import Store
from acker.streams import Stream, StreamReader, StreamWriter
from acker.streams.roots import Tracking
from acker.streams.spout import StreamSpout
from tests.servers import wait_until

HOSTILE = "\x1b[31mred[/]\x07\x7f\u202e[bold]"


class Run:
    """What a command did."""

    def __init__(self, status: int, out: str, error: str) -> None:
        self.status, self.out, self.error = status, out, error


Acker = Callable[..., Run]


@pytest.fixture
def acker(url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Acker:
    """Runs `acker` in this process on an empty store."""
    monkeypatch.setenv("ACKER_URL", url)

    def run(*arguments: object) -> Run:
        capsys.readouterr()
        with pytest.raises(SystemExit) as end:
            cli.main([str(argument) for argument in arguments])
        shown = capsys.readouterr()
        assert isinstance(end.value.code, int)
        return Run(end.value.code, shown.out, shown.err)

    return run


@pytest.fixture
def ledger(url: str) -> Ledger:
    return open_ledger(Store(url), "words", ackers=2, message_timeout=60.0)


def track(ledger: Ledger, *message_ids: bytes | str) -> Ids:
    anchors = ids.new_anchors(len(message_ids))
    ledger.track(anchors, ids.new_ids(len(message_ids)), message_ids, spout="lines")
    return anchors


def positive_and_negative(ledger: Ledger) -> list[int]:
    return [int(track(ledger, "m", "other")[0]), int(track(ledger, "m")[0])]


def good(run: Run) -> object:
    assert run.status == 0, run.error
    return json.loads(run.out)


def one_error(run: Run, status: int) -> str:
    assert (run.status, run.out) == (status, "")
    assert re.fullmatch(r"acker: [^\n]+\n", run.error)
    return run.error


def test_topologies_are_listed(acker: Acker, ledger: Ledger) -> None:
    open_ledger(Store(ledger.store.url), "other", ackers=0)
    track(ledger, "a", "b")
    shown = acker("topologies")
    assert shown.status == 0
    assert re.search(r"^words +2 +1 min 0 s +2 +2 ", shown.out, re.MULTILINE)
    listed = good(acker("topologies", "--json"))
    assert isinstance(listed, list)
    other, words = listed
    assert (other["topology"], other["ackers"]) == ("other", 0)
    assert (words["topology"], words["message_timeout"], words["pending"]) == ("words", 60.0, 2)


def test_an_empty_store_has_no_topologies(acker: Acker) -> None:
    assert acker("topologies").out == "no topologies\n"
    assert good(acker("topologies", "--json")) == []


def test_stats_are_those_of_the_ledger(acker: Acker, ledger: Ledger) -> None:
    anchors = track(ledger, "a", "b", "c")
    ledger.fail(anchors[:1])
    assert re.search(r"^failed +1$", acker("stats", "words").out, re.MULTILINE)
    stats = good(acker("stats", "words", "--json"))
    assert isinstance(stats, dict)
    assert stats["counters"] == ledger.counters()
    assert stats["unreadable"] == 0
    with redis.Redis.from_url(ledger.store.url) as raw:
        raw.hset(ledger.core.shards[0].counters, "unreadable", 3)
    assert re.search(r"^unreadable +3$", acker("stats", "words").out, re.MULTILINE)
    assert (stats["pending"], stats["held"], stats["spouts"]) == (2, 3, ["lines"])
    assert stats["buckets"] == {"nursery": 2, "middle": 0, "oldest": 0, "expiring": 0}
    assert sum(shard["pending"] for shard in stats["shards"]) == 2
    assert set(stats["latency"]) == {"p50", "p95", "p99"}
    assert stats["steps"] == []


def test_stats_list_the_steps_of_spark_jobs(acker: Acker, ledger: Ledger) -> None:
    split = Step("split", "bolt", "app-1", HOSTILE, "q1", batch=3, reads=("lines",), emits=("a", "b"))
    ledger.run(steps.register(ledger.core, split))
    shown = acker("stats", "words").out
    assert re.search(r"split +bolt +.*app-1.* 3 +lines +a, b", shown)
    assert "\x1b[31m" not in shown
    stats = good(acker("stats", "words", "--json"))
    assert isinstance(stats, dict)
    [step] = stats["steps"]
    assert (step["name"], step["application"], step["batch"]) == ("split", HOSTILE, 3)
    assert step["emits"] == ["a", "b"]


def test_streams_show_how_far_behind_each_subscription_is(acker: Acker, ledger: Ledger) -> None:
    assert acker("streams", "words").out == "no streams\n"
    stream, writer = Stream(ledger, "lines"), StreamWriter(ledger, "lines")
    writer.write(pa.table({"line": ["a"] * 1200}))
    assert re.search(r"^lines +1 .* \(waits for one\) +1,200 +1,200 +0 ", acker("streams", "words").out, re.M)
    stream.subscribe("split")
    stream.subscribe("audit")
    writer.write(pa.table({"line": ["b"]}))
    StreamReader(ledger, "lines", "split").ack_all()
    assert re.search(r"^ +audit +1 +1 +0 ", acker("streams", "words").out, re.MULTILINE)
    found = good(acker("streams", "words", "--json"))
    assert isinstance(found, list)
    [listed] = found
    assert (listed["name"], listed["segments"], listed["dropped"]) == ("lines", 1, 0)
    split, audit = listed["subscriptions"]
    assert (split["name"], split["rows_acked"], split["rows_behind"]) == ("split", 1201, 0)
    assert (audit["name"], audit["rows_published"], audit["rows_behind"]) == ("audit", 1, 1)
    assert split["unread_age"] is None
    assert audit["unread_age"] >= 0
    assert acker("unsubscribe", "words", "lines", "audit", "--ack").out == "1 segment acked\n"
    assert "no subscription 'audit'" in one_error(acker("unsubscribe", "words", "lines", "audit"), 1)
    assert good(acker("unsubscribe", "words", "lines", "split", "--json")) == {"segments": 0}


def test_a_tree_is_shown_by_its_anchor_negative_or_not(acker: Acker, ledger: Ledger) -> None:
    for anchor in positive_and_negative(ledger):
        for arguments in (
            ("words", anchor, "--json"),
            ("--json", "words", anchor),
            ("--json", "words", "--", anchor),
        ):
            tree = good(acker("tree", *arguments))
            assert isinstance(tree, dict)
            assert tree["anchor"] == str(anchor)
            assert isinstance(tree["ack_value"], str)
            assert (tree["state"], tree["spout"], tree["message_id"]) == ("pending", "lines", "m")
        assert re.search(rf"^anchor +{anchor}\b", acker("tree", "words", anchor).out, re.MULTILINE)


def test_an_unknown_tree_is_an_error(acker: Acker, ledger: Ledger) -> None:
    assert "knows no tree -4096" in one_error(acker("tree", ledger.config.name, "-4096"), 1)


def test_trees_are_listed_page_by_page(acker: Acker, ledger: Ledger) -> None:
    expected = [str(anchor) for anchor in track(ledger, *(f"m{number}" for number in range(7))).tolist()]
    found, cursor = [], None
    for _ in range(4):
        page = good(
            acker("trees", "words", "--json", "--limit", 2, *(["--cursor", cursor] if cursor else []))
        )
        assert isinstance(page, dict)
        found += [tree["anchor"] for tree in page["trees"]]
        cursor = page["cursor"]
        if cursor is None:
            break
    assert found == expected
    shown = acker("trees", "words", "--limit", 2)
    assert expected[1] in shown.out
    assert expected[2] not in shown.out
    assert re.fullmatch(r"more: --cursor \S+\n", shown.error)


def test_trees_are_filtered(acker: Acker, ledger: Ledger) -> None:
    anchors = track(ledger, "a", "b")

    def count(*filters: object) -> int:
        page = good(acker("trees", "words", "--json", *filters))
        assert isinstance(page, dict)
        return len(page["trees"])

    shard = ids.shard_of(ids.slab_of(int(anchors[0])), 2)
    assert (
        count() == count("--bucket", "nursery") == count("--spout", "lines") == count("--shard", shard) == 2
    )
    assert count("--bucket", "oldest") == count("--shard", 1 - shard) == count("--older-than", 3600) == 0
    assert count("--message-id", "a") == count("--message-id-base64", base64.b64encode(b"b").decode()) == 1
    assert acker("trees", "words", "--bucket", "oldest").out == "no trees\n"


@pytest.mark.parametrize(
    ("message_id", "text"),
    [(b"\xff\x00", None), (b"", ""), ("\u00e9".encode(), "\u00e9"), (HOSTILE.encode(), HOSTILE)],
)
def test_json_keeps_message_ids_whole(
    acker: Acker, ledger: Ledger, message_id: bytes, text: str | None
) -> None:
    track(ledger, message_id)
    run = acker("trees", "words", "--json")
    assert run.out.isascii()
    assert re.search(r"[\x00-\x09\x0b-\x1f\x7f]", run.out) is None
    page = good(run)
    assert isinstance(page, dict)
    assert page["trees"][0]["message_id"] == text
    assert base64.b64decode(page["trees"][0]["message_id_base64"]) == message_id


def test_hostile_text_reaches_no_terminal_as_it_is(acker: Acker, ledger: Ledger) -> None:
    anchors = track(ledger, HOSTILE)
    waiting = ids.new_anchors(1)
    ledger.fail(waiting, HOSTILE)
    shown = [
        acker("trees", "words"),
        acker("tree", "words", anchors[0]),
        acker("tree", "words", waiting[0]),
        acker("tree", "words", HOSTILE),
        acker("trees", "words", "--bucket", HOSTILE),
        acker("stats", HOSTILE),
        acker(HOSTILE),
    ]
    for run in shown:
        assert (run.out + run.error).replace("\n", "").isprintable()
    for run in shown[:3]:
        assert r"\x1b[31mred[/]\x07\x7f\u202e[bold]" in run.out


def test_trees_are_failed_by_hand(acker: Acker, ledger: Ledger) -> None:
    pair = positive_and_negative(ledger)
    waiting = int(ids.new_anchors(1)[0])
    assert good(acker("fail", "words", *pair, waiting, pair[0], "--reason", "by hand", "--json")) == {
        "failed": 2, "late": 0, "waiting": 1, "orphaned": 0,
    }  # fmt: skip
    assert ledger.counters()["failed"] == 2
    assert re.search(r"^finished before +1 *$", acker("fail", "words", pair[1]).out, re.MULTILINE)
    tree = good(acker("tree", "words", waiting, "--json"))
    assert isinstance(tree, dict)
    assert (tree["state"], tree["failure"]) == ("waiting", "by hand")


def test_timeouts_are_reset_by_hand(acker: Acker, ledger: Ledger) -> None:
    anchors = track(ledger, "a", "b")
    assert good(acker("reset-timeout", "words", *anchors.tolist(), "--json")) == {"slabs": 1}
    assert acker("reset-timeout", "words", ids.new_anchors(1)[0]).out == "0 slabs reset\n"


def test_dead_letters_are_listed_and_replayed(acker: Acker, ledger: Ledger) -> None:
    spout = StreamSpout(ledger, Tracking("lines", "lines", "id", attempts=2))
    spout.write(pa.table({"id": ["a", "b", HOSTILE], "n": [1, 2, 3]}))
    for _ in range(2):
        reader = StreamReader(ledger, "lines")
        ledger.fail([row["_acker"] for row in reader.rows()], f"no {HOSTILE}")  # type: ignore[misc]
        reader.ack()
        acker("tick", "--once")  # settles, too
    shown = acker("dead-letters", "words")
    assert HOSTILE not in shown.out
    assert re.search(r"@lines\s.*\ba\b.*failed", shown.out)
    first = json.loads(acker("dead-letters", "words", "--count", 1, "--json").out)
    [letter] = first["dead_letters"]
    assert (letter["message_id"], letter["attempts"], letter["record"]) == ("a", 2, {"id": "a", "n": 1})
    assert letter["reason"] == f"no {HOSTILE}"
    rest = json.loads(acker("dead-letters", "words", "--after", first["cursor"], "--json").out)
    assert [one["message_id"] for one in rest["dead_letters"]] == ["b", HOSTILE]
    assert rest["cursor"] is None

    assert acker("replay", "words", letter["id"]).out == "1 replayed\n"
    again = acker("replay", "words", letter["id"])
    assert (again.status, "has no dead letter" in again.error) == (1, True)
    assert acker("replay", "words", "--all", "--spout", "lines").out == "2 replayed\n"
    assert acker("dead-letters", "words").out == "no dead letters\n"
    assert [row["id"] for row in StreamReader(ledger, "lines").rows()] == ["a", "b", HOSTILE]
    for wrong in ((), ("1-1@x", "--all"), ("1-1@x", "--spout", "x"), ("nonsense",)):
        assert acker("replay", "words", *wrong).status == 2


def test_one_tick_rotates_what_is_due(acker: Acker, ledger: Ledger) -> None:
    assert good(acker("tick", "--once", "--json", "words")) == [
        {"topology": "words", "rotated": 0, "expired": 0, "orphaned": 0}
    ]
    track(ledger, "a")
    for _ in range(3):
        ledger.run(ledger.core.rotate(force=True))
    assert re.search(r"^words +0 +1 +0$", acker("tick", "--once").out, re.MULTILINE)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["tree", "words"], "ANCHOR"),
        (["tree", "words", "twelve"], "anchor"),
        (["tree", "words", "99999999999999999999"], "anchor"),
        (["tree", "words", "--what"], "--what"),
        (["trees", "words", "--limit", "0"], "limit"),
        (["trees", "words", "--limit", "many"], "limit"),
        (["trees", "words", "--cursor", "x"], "cursor"),
        (["trees", "words", "--spout", "nobody"], "nobody"),
        (["trees", "words", "--message-id", "a", "--spout", "lines"], "--message-id"),
        (["trees", "words", "--message-id-base64", "?"], "base64"),
        (["stats", "no name"], "topology"),
        (["fail", "words"], "ANCHOR"),
        (["fail", "words", "1", "--reason", "x" * 2000], "reason"),
        (["server", "--port", "70000"], "port"),
        (["stats", "words", "--url", "http://x"], "url"),
        (["stats", "words", "--timeout", "0"], "timeout"),
        (["dance"], "dance"),
    ],
    ids=lambda value: " ".join(value)[:40] if isinstance(value, list) else "",
)
def test_what_is_asked_wrongly_is_one_line_and_status_2(
    acker: Acker, ledger: Ledger, arguments: list[str], told: str
) -> None:
    assert told in one_error(acker(*arguments), 2)


def test_a_store_must_be_named(acker: Acker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ACKER_URL")
    assert "ACKER_URL" in one_error(acker("topologies"), 2)


def test_what_fails_is_one_line_and_status_1(acker: Acker) -> None:
    assert "'words'" in one_error(acker("stats", "words"), 1)
    away = "redis://:secret@127.0.0.1:1/0"
    error = one_error(acker("topologies", "--url", away, "--timeout", "0.2"), 1)
    assert "did not answer" in error
    assert "secret" not in error


def test_the_version_is_told(acker: Acker) -> None:
    assert re.fullmatch(r"acker \d+\.\d+\.\d+\S*\n", acker("--version").out)


def test_help_lists_the_commands(acker: Acker) -> None:
    run = acker("--help")
    assert run.status == 0
    for command in ("topologies", "stats", "trees", "tree", "fail", "reset-timeout", "tick", "server"):
        assert re.search(rf"^ +{command}\b", run.out, re.MULTILINE)


# Real processes


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., "subprocess.Popen[str]"]]:
    """Starts `acker` as a process of its own."""
    started: list[subprocess.Popen[str]] = []

    def run(*arguments: str, **environment: str) -> "subprocess.Popen[str]":
        process = subprocess.Popen(
            [sys.executable, "-c", "from acker.cli import main; main()", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            # Unbuffered, Python takes a write that was cut short for a whole one.
            env={**os.environ, "PYTHONUNBUFFERED": "", **environment},
        )
        started.append(process)
        return process

    yield run
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()


def test_the_program_is_installed(ledger: Ledger) -> None:
    program = Path(sys.executable).parent / "acker"
    run = subprocess.run(
        [program, "stats", "words", "--json"],
        env={**os.environ, "ACKER_URL": ledger.store.url},
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(run.stdout)["topology"] == "words"


def test_a_reader_that_has_enough_ends_it_quietly(
    ledger: Ledger, start: Callable[..., "subprocess.Popen[str]"]
) -> None:
    for _ in range(3):
        track(ledger, *["x" * 1000] * 300)
    process = start("trees", "words", "--limit", "1000", "--json", ACKER_URL=ledger.store.url)
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.readline()
    process.stdout.close()
    assert process.stderr.read() == ""
    assert process.wait(30) == 1


def test_the_ticker_is_a_process_that_ticks_and_stops_when_told(
    url: str, start: Callable[..., "subprocess.Popen[str]"]
) -> None:
    ledger = open_ledger(Store(url), "brief", ackers=2, message_timeout=1.0)
    track(ledger, "a")
    process = start("tick", "--json", "brief", ACKER_URL=url)
    assert process.stdout is not None
    assert process.stderr is not None
    assert "ticking brief" in process.stderr.readline()
    assert json.loads(process.stdout.readline())["topology"] == "brief"
    wait_until(lambda: ledger.counters()["expired"] == 1, timeout=60)
    process.send_signal(signal.SIGINT)
    assert process.wait(30) == 0


def test_a_ticker_of_an_unknown_topology_says_so(
    url: str, start: Callable[..., "subprocess.Popen[str]"]
) -> None:
    process = start("tick", "nobody", ACKER_URL=url)
    _, error = process.communicate(timeout=60)
    assert (process.returncode, error) == (1, "acker: the store holds no topology 'nobody'\n")


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_the_server_runs_until_it_is_stopped_and_keeps_its_data(
    tmp_path: Path, start: Callable[..., "subprocess.Popen[str]"], how: signal.Signals
) -> None:
    for times in range(2):
        process = start("server", "--port", "0", "--dir", str(tmp_path / "data"))
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        store = Store(url)
        ledger = open_ledger(store, "kept", ackers=1)
        assert ledger.counters()["tracked"] == times
        track(ledger, "a")
        process.send_signal(how)
        assert process.wait(30) == 0


def test_a_server_that_dies_ends_the_command(
    tmp_path: Path, start: Callable[..., "subprocess.Popen[str]"]
) -> None:
    process = start("server", "--port", "0", "--json", "--no-append-only", "--dir", str(tmp_path))
    assert process.stdout is not None
    text = ""
    while not text.endswith("}\n"):
        text += process.stdout.readline()
    told = json.loads(text)
    os.kill(told["pid"], signal.SIGKILL)
    _, error = process.communicate(timeout=30)
    assert process.returncode == 1
    assert re.fullmatch(r"acker: the server ended by itself[^\n]+\n", error)


def test_a_taken_port_is_one_line(
    tmp_path: Path, server: EmbeddedServer, start: Callable[..., "subprocess.Popen[str]"]
) -> None:
    process = start("server", "--port", str(server.port), "--dir", str(tmp_path))
    _, error = process.communicate(timeout=60)
    assert process.returncode == 1
    assert error.count("\n") == 1


def test_without_its_extra_the_command_line_names_it(start: Callable[..., "subprocess.Popen[str]"]) -> None:
    program = """
import sys
sys.modules["typer"] = None
from acker.cli import main
main()
"""
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (run.returncode, run.stdout) == (1, "")
    assert run.stderr == "acker: the command line is not installed: pip install 'acker[cli]'\n"


# How things are shown


def test_printable_text_stays_and_the_rest_is_escaped() -> None:
    assert printable("plain: é 語 [x]") == "plain: é 語 [x]"
    assert printable(b"\xff\n\x1b[0m") == r"\xff\n\x1b[0m"
    assert printable("\u2028\ufeff\U000e0001") == r"\u2028\ufeff\U000e0001"
    assert one_line("a\nb\x07") == r"a b\x07"


def test_no_message_id_is_null() -> None:
    assert message_id_fields(None) == {"message_id": None, "message_id_base64": None}


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (None, "-"), (0.0123, "12 ms"), (5.0, "5.0 s"), (61.2, "1 min 1 s"), (7384.0, "2 h 3 min"),
        (200_000.0, "2 d 7 h"),
    ],
)  # fmt: skip
def test_durations_are_for_people(seconds: float | None, shown: str) -> None:
    assert duration(seconds) == shown
