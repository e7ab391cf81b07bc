"""The command line: changing something by hand, and what is asked wrongly."""

import json
import re
from pathlib import Path

import pyarrow as pa
import pytest

from acker.cli import manual
from acker.ledger import ids
from acker.ledger.client import Ledger, open_ledger
from acker.ledger.outcomes.outcomes import OutcomeReader
from acker.ledger.slabs.causes import Cause
from acker.ledger.tick import tick
from acker.streams import StreamReader
from acker.streams.sources.spout_options import SpoutOptions
from acker.streams.spout import StreamSpout
from tests.helpers.builders.ledgers import Trees
from tests.helpers.builders.streaming import consume, emit
from tests.helpers.faces.cli import HOSTILE, Acker, good, one_error, positive_and_negative, track


def test_trees_are_failed_by_hand(acker: Acker, ledger: Ledger) -> None:
    pair = positive_and_negative(ledger)
    waiting, mistyped = (int(ids.new_anchors(1)[0]) for _ in range(2))
    ledger.update([waiting], ids.new_ids(1))
    named = [*pair, waiting, mistyped, pair[0]]
    run = acker("fail", "words", *named, "--reason", "by hand", "--no-retry", "--json")
    assert run.status == 5
    assert json.loads(run.out) == {"failed": 2, "late": 0, "waiting": 1, "unknown": [str(mistyped)]}
    assert "knows no tree" in one_error(acker("fail", "words", mistyped), 4)
    assert ledger.counters()["failed"] == 2
    assert re.search(r"^finished before +1 *$", acker("fail", "words", pair[1]).out, re.MULTILINE)
    reader = OutcomeReader(ledger.core, "lines")
    assert {slab.cause for entry in ledger.outcomes(reader) for slab in entry.slabs} == {
        Cause("by hand", retry=False)
    }
    tree = good(acker("tree", "words", waiting, "--json"))
    assert isinstance(tree, dict)
    assert (tree["state"], tree["failure"]) == ("waiting", "by hand")


def test_timeouts_are_reset_by_hand(acker: Acker, ledger: Ledger) -> None:
    anchors = track(ledger, "a", "b")
    assert good(acker("reset-timeout", "words", *anchors.tolist(), "--json")) == {"slabs": 1}
    assert "knows no tree" in one_error(acker("reset-timeout", "words", ids.new_anchors(1)[0]), 4)


def test_all_trees_of_a_filter_are_failed_or_reset_piece_by_piece(
    acker: Acker, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(manual, "PAGE_TREES", 40)
    Trees(90).track(ledger, "lines")
    Trees(5).track(ledger, "others")
    assert good(acker("reset-timeout", "words", "--all", "--json")) == {"slabs": 4}  # a piece names its slabs
    assert "90 trees would fail for good" in one_error(acker("fail", "words", "--spout", "lines"), 2)
    assert ledger.counters()["failed"] == 0
    run = acker("fail", "words", "--spout", "lines", "--reason", "a bad file", "--yes", "--json")
    assert good(run) == {"failed": 90, "late": 0, "waiting": 0, "unknown": []}
    assert good(acker("fail", "words", "--older-than", "3600", "--yes", "--json")) == {
        "failed": 0, "late": 0, "waiting": 0, "unknown": [],
    }  # fmt: skip
    found = good(acker("activity", "words", "--json"))
    assert isinstance(found, dict)
    assert [(one["action"], one["target"], one["count"], one["calls"]) for one in found["activity"]] == [
        ("fail", {"spout": "lines"}, 90, 3), ("reset", {"trees": "all"}, 4, 3),
    ]  # fmt: skip
    for words in (["fail", "words", "1", "--all"], ["fail", "words", "--bucket", "deep"]):
        one_error(acker(*words), 2)


def test_settings_are_shown_and_changed(acker: Acker, ledger: Ledger) -> None:
    assert re.search(r"^downtime +86,400 *$", acker("configure", "words").out, re.MULTILINE)
    found = good(
        acker("configure", "words", "--set", "downtime=60", "--set", "message_timeout=4.5", "--json")
    )
    assert isinstance(found, dict)
    own = found["configuration"]
    assert (own["downtime"], own["message_timeout"], own["ackers"]) == (60, 4.5, ledger.config.ackers)
    track(ledger, "a")
    assert "only without any" in one_error(acker("configure", "words", "--set", "message_timeout=9"), 1)
    for wrong, said in (
        ("downtim=1", "no setting of a topology (did you mean 'downtime'?)"),
        ("downtime", "expected downtime=a whole number, got 'downtime'"),
        ("downtime=1.5", "expected downtime=a whole number, got 'downtime=1.5'"),
        ("downtime=-1", "downtime: expected int from 0 to 2,419,200, got -1"),
        ("ackers=9", "shards for its life, got 9"),
    ):
        assert said in one_error(acker("configure", "words", "--set", wrong), 2)
    assert "no topology 'none'" in one_error(acker("configure", "none"), 4)


def test_dead_letters_are_listed_and_replayed(acker: Acker, ledger: Ledger) -> None:
    spout = StreamSpout(ledger, SpoutOptions("lines", "lines", "id", attempts=2))
    spout.write(pa.table({"id": ["a", "b", HOSTILE], "n": [1, 2, 3]}))
    for _ in range(2):
        reader = StreamReader(ledger, "lines")
        ledger.fail([row["_acker"] for row in reader.rows()], f"no {HOSTILE}")  # type: ignore[misc]
        reader.ack()
        acker("tick", "--once")  # settles, too
    shown = acker("dead-letters", "words")
    assert HOSTILE not in shown.out
    assert re.search(r"@lines\s.*\ba\b.*failed", shown.out)
    first = json.loads(acker("dead-letters", "words", "--limit", 1, "--json").out)
    [letter] = first["dead_letters"]
    assert (letter["message_id"], letter["attempts"], letter["row"]) == ("a", 2, {"id": "a", "n": 1})
    assert letter["reason"] == f"no {HOSTILE}"
    assert [(one["number"], one["reason"]) for one in letter["history"]] == [
        (n, f"no {HOSTILE}") for n in (1, 2)
    ]
    assert len(re.findall(r"attempt \d .*failed", acker("dead-letter", "words", letter["id"]).out)) == 2
    rest = json.loads(acker("dead-letters", "words", "--cursor", first["cursor"], "--json").out)
    assert [one["message_id"] for one in rest["dead_letters"]] == ["b", HOSTILE]
    assert rest["cursor"] is None

    assert acker("replay", "words", letter["id"]).out == "1 replayed\n"
    again = acker("replay", "words", letter["id"])
    assert (again.status, "has no dead letter" in again.error) == (4, True)
    assert acker("replay", "words", "--all", "--spout", "lines").out == "2 replayed\n"
    assert acker("dead-letters", "words").out == "no dead letters\n"
    assert [row["id"] for row in StreamReader(ledger, "lines").rows()] == ["a", "b", HOSTILE]
    for wrong in ((), ("1-1@x", "--all"), ("1-1@x", "--spout", "x"), ("nonsense",)):
        assert acker("replay", "words", *wrong).status == 2


def test_dead_letters_are_grouped_and_discarded(acker: Acker, ledger: Ledger, tmp_path: Path) -> None:
    spout = StreamSpout(ledger, SpoutOptions("lines", "lines", "id", attempts=1))
    spout.write(pa.table({"id": [f"{n}" for n in range(6)], "n": range(6)}))
    reader = StreamReader(ledger, "lines")
    for row in reader.rows():
        why = f"row {row['n']} of 4711 is malformed" if int(str(row["n"])) < 4 else f"no {HOSTILE}"
        ledger.fail([int(str(row["_acker"]))], why)
    reader.ack()
    acker("tick", "--once")
    groups = good(acker("dead-letters", "words", "--groups", "--json"))
    assert isinstance(groups, list)
    assert [(one["cause"], one["step"], one["count"]) for one in groups] == [
        ("row … of … is malformed", "", 4), (f"no {HOSTILE.replace('31', '…')}", "", 2),
    ]  # fmt: skip
    shown = acker("dead-letters", "words", "--groups").out
    assert re.search(r"^ *4 +failed .* row … of … is malformed *$", shown, re.MULTILINE)
    assert HOSTILE not in shown
    file = tmp_path / "letters.jsonl"
    assert acker("dead-letters", "words", "--reason", "MALFORMED", "--output", file).out == ""
    rows = [json.loads(line)["row"]["n"] for line in file.read_text().splitlines()]
    assert rows == [0, 1, 2, 3]
    assert "cannot be written" in one_error(acker("dead-letters", "words", "--output", tmp_path), 2)
    [first, *_] = file.read_text().splitlines()
    one = acker("dead-letter", "words", json.loads(first)["id"])
    assert re.search(r"^reason +row 0 of 4711 is malformed *$", one.out, re.MULTILINE)
    stats = good(acker("stats", "words", "--json"))
    assert isinstance(stats, dict)
    assert (stats["dead_letters_of"], stats["rows_behind"]) == ({"lines": 6}, 0)
    assert "6 (lines 6)" in acker("stats", "words").out

    cause = ("--cause", "row … of … is malformed")
    asked = one_error(acker("discard", "words", *cause), 2)
    assert "4 dead letters would be gone for good" in asked
    assert acker("discard", "words", "--yes", json.loads(first)["id"]).out == "1 discarded\n"
    assert good(acker("discard", "words", "--yes", *cause, "--json")) == {
        "discarded": 3, "unknown": [], "remaining": 0, "why": "",
    }  # fmt: skip
    assert "no dead letter" in one_error(acker("discard", "words", "--yes", "1-1@lines"), 4)
    assert acker("replay", "words", "--step", "", "--older-than", 0).out == "2 replayed\n"
    for wrong in (("discard", "words", "--yes"), ("replay", "words", "--status", "acked")):
        assert acker(*wrong).status == 2


def test_one_tick_rotates_what_is_due(acker: Acker, ledger: Ledger) -> None:
    assert good(acker("tick", "--once", "--json", "words")) == [
        {"topology": "words", "rotated": 0, "expired": 0, "orphaned": 0}
    ]
    emit(ledger, 1)
    consume(ledger, "lines")
    [anchor] = track(ledger, "a")
    for _ in range(3):
        ledger.run(tick.rotate(ledger.core, force=True))
    assert re.search(r"^words +0 +1 +0$", acker("tick", "--once").out, re.MULTILINE)
    # It looks for reasons as a ticker does that runs on.
    shown = " ".join(acker("tree", "words", int(anchor)).out.split())
    assert re.search(
        r" outcome expired at \S+Z, .* after its track: in no stream: a bolt in plain Python", shown
    )


def test_a_topology_is_removed_when_that_is_meant(acker: Acker, ledger: Ledger) -> None:
    track(ledger, "m", "other")
    assert "has 2 trees in flight" in one_error(acker("remove", "words", "--yes"), 1)
    assert [one["topology"] for one in listed(acker)] == ["words"]
    assert good(acker("remove", "words", "--yes", "--force", "--json")) == {"topology": "words", "dropped": 2}
    assert listed(acker) == []
    assert "'words'" in one_error(acker("remove", "words", "--yes"), 4)
    open_ledger(ledger.store, "words").register_spout("idle")
    assert "no spout 's'" in one_error(acker("remove", "words", "--spout", "s", "--yes"), 4)
    words = ("remove", "words", "--spout", "idle", "--yes", "--json")
    assert good(acker(*words)) == {"topology": "words", "spout": "idle"}
    assert acker("remove", "words", "--yes").out == "words removed\n"


def listed(acker: Acker) -> list[dict[str, object]]:
    found = good(acker("topologies", "--json"))
    assert isinstance(found, dict)
    topologies: list[dict[str, object]] = found["topologies"]
    return topologies


@pytest.mark.parametrize(
    ("arguments", "reported"),
    [
        (["tree", "words"], "ANCHOR"),
        (["tree", "words", "twelve"], "anchor"),
        (["tree", "words", "99999999999999999999"], "anchor"),
        (["tree", "words", "--what"], "--what"),
        (["trees", "words", "--limit", "0"], "limit"),
        (["trees", "words", "--limit", "many"], "limit"),
        (["trees", "words", "--cursor", "x"], "cursor"),
        (["trees", "words", "--message-id", "a", "--spout", "lines"], "--message-id"),
        (["trees", "words", "--message-id-base64", "?"], "base64"),
        (["stats", "no name"], "topology"),
        (["fail", "words"], "ANCHOR"),
        (["fail", "words", "1", "--reason", "x" * 2000], "reason"),
        (["server", "--port", "70000"], "port"),
        (["stats", "words", "--url", "http://x"], "url"),
        (["stats", "words", "--timeout", "0"], "timeout"),
        (["remove", "words"], "--yes"),
        (["remove", "no name", "--yes"], "topology"),
        (["remove", "words", "--spout", "s"], "--yes"),
        (["remove", "words", "--spout", "s", "--yes", "--force"], "--force"),
        (["dance"], "dance"),
    ],
    ids=lambda value: " ".join(value)[:40] if isinstance(value, list) else "",
)
def test_what_is_asked_wrongly_is_one_line_and_status_2(
    acker: Acker, ledger: Ledger, arguments: list[str], reported: str
) -> None:
    assert reported in one_error(acker(*arguments), 2)


def test_a_store_must_be_named(acker: Acker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ACKER_URL")
    assert "ACKER_URL" in one_error(acker("topologies"), 2)


def test_an_unknown_topology_and_a_store_that_is_away_are_one_line(acker: Acker) -> None:
    assert "'words'" in one_error(acker("stats", "words"), 4)
    away = "redis://:secret@127.0.0.1:1/0"
    error = one_error(acker("topologies", "--url", away, "--timeout", "0.2"), 3)
    assert "did not answer" in error
    assert "secret" not in error


def test_the_version_is_reported(acker: Acker) -> None:
    assert re.fullmatch(r"acker \d+\.\d+\.\d+\S*\n", acker("--version").out)
