"""`acker activity`, and the commands that it tells of."""

import getpass
import json
import socket
from pathlib import Path

import pytest

from acker.errors import SpoutPaused
from acker.ledger.client import Ledger
from acker.streams.sources.spout_options import SpoutOptions
from acker.streams.spout import StreamSpout
from acker.streams.spouts import settler
from tests.helpers.builders.kept_rows import fail, lines
from tests.helpers.faces.cli import Acker, good, one_error, track


def test_commands_are_kept_with_user_and_host_which_nobody_has_proved(
    acker: Acker, ledger: Ledger, tmp_path: Path
) -> None:
    assert acker("activity", "words").out == "no activity\n"
    [anchor] = track(ledger, "m")
    assert acker("fail", "words", anchor, "--reason", "a bad record").status == 0
    assert acker("health", "words", "--set", "failed=0.5").status == 1
    assert acker("configure", "words", "--set", "high_water_mark=5000").status == 0
    one_error(acker("remove", "words", "--yes"), 1)  # its outcome is not confirmed
    found = good(acker("activity", "words", "--json"))
    assert isinstance(found, dict)
    entries = found["activity"]
    assert [(one["action"], one["count"], one["done"]) for one in entries] == [
        ("remove", None, False), ("configure", None, True), ("set-thresholds", 1, True), ("fail", 1, True),
    ]  # fmt: skip
    assert entries[-1]["target"] == {"trees": "1", "anchors": str(anchor)}
    assert (entries[-1]["reason"], entries[-1]["result"]) == ("a bad record", "1 failed")
    assert {(one["who"], one["proved"], one["via"]) for one in entries} == {
        (f"{getpass.getuser()}@{socket.gethostname()}", False, "cli")
    }
    shown = acker("activity", "words", "--action", "fail").out
    assert f"{socket.gethostname()} ?" in shown
    assert "a bad record" in shown
    page = acker("activity", "words", "--limit", 3)
    assert f"--cursor {entries[2]['id']}" in page.error
    file = tmp_path / "activity.jsonl"
    assert acker("activity", "words", "--output", file).error == "4 entries written\n"
    assert [json.loads(line) for line in file.read_text().splitlines()] == entries
    one_error(acker("activity", "words", "--action", "sing"), 2)


def test_a_replay_of_all_is_one_entry_with_its_filter_and_its_sum(acker: Acker, ledger: Ledger) -> None:
    StreamSpout(ledger, SpoutOptions("s", "lines", "id", attempts=1)).write(lines(700))
    fail(ledger, lambda _: True, "no such shop")
    settler.settle(ledger)
    assert acker("replay", "words", "--cause", "no such shop").out == "700 replayed\n"
    found = good(acker("activity", "words", "--json"))
    assert isinstance(found, dict)
    [entry] = found["activity"]
    assert (entry["action"], entry["count"], entry["target"]) == ("replay", 700, {"cause": "no such shop"})
    assert entry["calls"] >= 2


def test_a_mark_is_an_entry_of_the_activity(acker: Acker, ledger: Ledger) -> None:
    assert ledger.config.name == "words"
    marked = good(acker("mark", "words", "deploy 1.4.2", "--json"))
    assert isinstance(marked, dict)
    author = f"{getpass.getuser()}@{socket.gethostname()}"
    assert (marked["action"], marked["reason"], marked["who"]) == ("mark", "deploy 1.4.2", author)
    assert "text: expected 1 to 200 characters" in one_error(acker("mark", "words", " "), 2)
    one_error(acker("mark", "words", "x" * 201), 2)
    assert acker("mark", "words", "x" * 200).out.startswith("marked at 20")
    found = good(acker("activity", "words", "--action", "mark", "--json"))
    assert isinstance(found, dict)
    assert found["activity"][1:] == [marked]


def test_a_paused_spout_is_muted_health_and_activity_until_it_is_resumed(
    acker: Acker, ledger: Ledger
) -> None:
    ledger.register_spout("lines")
    author = f"{getpass.getuser()}@{socket.gethostname()} (not proved)"
    paused = good(acker("pause", "words", "lines", "--reason", "a bad file", "--json"))
    assert isinstance(paused, dict)
    assert (paused["spout"], paused["by"], paused["reason"]) == ("lines", author, "a bad file")
    health = good(acker("health", "words", "--json"))
    assert isinstance(health, dict)
    assert health["paused"] == [
        {name: paused[name] for name in ("spout", "by", "reason", "since")} | {"whole": True}
    ]
    assert [one["code"] for one in health["muted"]] == ["paused"]
    with pytest.raises(SpoutPaused, match="a bad file"):
        track(ledger, "m")
    assert acker("resume", "words", "lines").out == "spout lines of words goes on\n"
    track(ledger, "m")
    found = good(acker("activity", "words", "--json"))
    assert isinstance(found, dict)
    assert [(one["action"], one["target"], one["reason"]) for one in found["activity"]] == [
        ("resume-spout", {"spout": "lines"}, ""), ("pause-spout", {"spout": "lines"}, "a bad file"),
    ]  # fmt: skip
