"""`acker find`: a record by its message id, for people and for programs."""

import base64
import re
from typing import Any

import pytest

from acker.cli import records
from acker.ledger.client import Ledger, open_ledger
from acker.store import keys
from acker.store.client import Store
from acker.streams.sources.spout_options import SpoutOptions
from acker.streams.spout import StreamSpout
from acker.streams.spouts import settler
from api.models.answers import EverywhereFound, Records
from tests.helpers.builders.kept_rows import fail, lines
from tests.helpers.builders.ledgers import confirm_all
from tests.helpers.faces.cli import HOSTILE, Acker, good, one_error, track


def test_a_record_is_shown_with_attempts_and_its_dead_letter(acker: Acker, ledger: Ledger) -> None:
    StreamSpout(ledger, SpoutOptions("lines", "lines", "id", attempts=2)).write(lines(1))
    for reason in (HOSTILE, "no such shop"):
        fail(ledger, lambda _: True, reason)
        settler.settle(ledger)
    shown = acker("find", "words", "0")
    assert (shown.status, shown.error) == (0, "")
    assert "\x1b[31m" not in shown.out
    assert re.search(r"^spout lines$", shown.out, re.MULTILINE)
    assert re.search(r"^ +1 +-?\d+ +failed +\\x1b\[31mred", shown.out, re.MULTILINE)
    assert re.search(r"^ +2 +-?\d+ +failed +no such shop +- +\S+Z ", shown.out, re.MULTILINE)
    letter = re.search(r"acker (dead-letter) (words) (\S+)", shown.out)
    assert letter is not None
    assert "no such shop" in acker(*letter.groups()).out
    found = good(acker("find", "words", "0", "--json"))
    assert Records.model_validate(found).model_dump(mode="json") == found
    assert isinstance(found, dict)
    [record] = found["records"]
    assert [one["reason"] for one in record["attempts"]] == [HOSTILE, "no such shop"]


def test_the_step_and_batch_that_failed_a_record_are_told(acker: Acker, ledger: Ledger) -> None:
    StreamSpout(ledger, SpoutOptions("lines", "lines", "id", attempts=1)).write(lines(1))
    fail(ledger, lambda _: True, "no such shop", "price", 17)
    [anchor] = re.findall(r"^ +1? *(-?\d{8,}) ", acker("find", "words", "0").out, re.MULTILINE)
    settler.settle(ledger)
    assert "by price, batch 17: no such shop" in one_error(acker("tree", "words", anchor), 4)
    shown = acker("find", "words", "0").out
    assert re.search(r"no such shop +price, batch 17 ", shown)
    assert re.search(r" failed +price, batch 17 +1 ", acker("dead-letters", "words").out)
    groups = acker("failures", "words", "--groups").out
    assert re.search(
        r"^ +1 +100% +failed +price +20\S+ +20\S+ +(0 ){10}(0 1|1 0) +no such shop", groups, re.MULTILINE
    )
    assert good(acker("failures", "words", "--cause", "no such shop", "--json"))["outcomes"]  # type: ignore[index]
    assert acker("failures", "words", "--cause", "no such").out == "no failures\n"
    letter = re.search(r"acker (dead-letter) (words) (\S+)", shown)
    assert letter is not None
    assert re.search(r"^step +price, batch 17 *$", acker(*letter.groups()).out, re.MULTILINE)


@pytest.mark.parametrize("message_id", [b"-7", b"plain", b"\xff\x00", b""])
def test_any_message_id_is_found_with_its_end(acker: Acker, ledger: Ledger, message_id: bytes) -> None:
    [anchor] = track(ledger, message_id)
    ledger.fail([anchor], "no such word")
    confirm_all(ledger, "lines")
    words = ["--base64", base64.b64encode(message_id).decode()]
    for arguments in (words, [message_id.decode()]) if message_id != b"\xff\x00" else (words,):
        assert f" {anchor} " in acker("find", "words", *arguments).out
    reported = one_error(acker("tree", "words", anchor), 4)
    assert f"knows no tree {anchor}: it failed at " in reported
    assert reported.endswith("after its track: no such word\n")
    assert "no record of that id" in acker("find", "words", "nowhere").out
    assert "at most 1024 bytes, got 65536" in one_error(acker("find", "words", "x" * 65_536), 2)
    assert "expected base64, got '*'" in one_error(acker("find", "words", "--base64", "*"), 2)


def test_a_cut_search_says_so(acker: Acker, ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "_ATTEMPTS", 100)
    anchors = track(ledger, *["m"] * 150)
    cut = acker("find", "words", "m")
    reported = re.fullmatch(r"looked at (\d+) of 150 trees and dead letters: (--cursor) (\S+)\n", cut.error)
    assert reported is not None
    rest = acker("find", "words", "m", *reported.groups()[1:])
    assert rest.error == ""
    shown = re.findall(r"-?\d{15,}", cut.out + rest.out)
    assert sorted(map(int, shown)) == sorted(anchors.tolist())


def test_a_record_is_found_among_all_topologies(acker: Acker, ledger: Ledger, url: str, raw: Any) -> None:
    others = [open_ledger(Store(url), f"other{number:02}", ackers=1) for number in range(25)]
    [anchor] = track(others[-1], b"order 7")
    track(ledger, b"order 7")
    shown = acker("find", "order 7")
    assert (shown.status, shown.error) == (0, "")
    assert re.search(r"^other24 +- +- +1 +0$", shown.out, re.MULTILINE)
    assert re.search(r"^words +- +- +1 +0$", shown.out, re.MULTILINE)
    assert re.search(rf"^other24 +{anchor} +pending +0 +0$", acker("find", anchor).out, re.MULTILINE)
    found = good(acker("find", "order 7", "--json"))
    assert EverywhereFound.model_validate(found).model_dump(mode="json") == found
    nothing = acker("find", "order 8")
    assert (nothing.status, nothing.out[:29]) == (4, "none of 26 topologies knows i")
    assert "expected at most 1024 bytes" in one_error(acker("find", "x" * 1025), 2)
    assert "expected a message id: acker find [TOPOLOGY] MESSAGE_ID" in one_error(acker("find"), 2)
    assert "--cursor goes with a topology" in one_error(acker("find", "order 7", "--cursor", "words"), 2)
    raw.hset(keys.config("other03"), "ackers", "many")
    partly = acker("find", "order 8")
    assert (partly.status, partly.out) == (5, "")
    assert "other03 could not be searched: " in partly.error
