"""Activity: its entries, their counts and bounds, and entries that cannot be read."""

import json
import logging
import secrets
from dataclasses import replace
from typing import Any

import pytest

from acker.errors import KeyConflict, MissingRights, StoreError, UnknownTopology, ValidationError
from acker.inspect.operate import activity, chart_marks
from acker.inspect.operate.activity import Activity, ActivityPage, Noting
from acker.ledger.client import Ledger
from acker.ledger.fields import as_json
from acker.store import keys

pytestmark = pytest.mark.cluster


def write(**more: Any) -> Noting:
    return replace(Noting("ann", True, "rest", "replay", {"cause": "bad: …"}, "mended", count=3), **more)


def read(ledger: Ledger, **asked: Any) -> ActivityPage:
    return ledger.run(activity.page(ledger.core, **asked))


def test_a_write_is_kept_with_its_author_target_count_reason_and_result(ledger: Ledger) -> None:
    ledger.run(activity.note(ledger.core, write(result="3 replayed")))
    ledger.run(activity.note(ledger.core, write(who="bob@host", proved=False, via="cli", action="fail")))
    latest, first = read(ledger).activity
    assert as_json(first) == {
        "id": first.id, "at": as_json(first)["at"], "began": as_json(first)["at"], "who": "ann",
        "proved": True, "via": "rest", "action": "replay", "target": {"cause": "bad: …"}, "count": 3,
        "calls": 1, "reason": "mended", "result": "3 replayed", "done": True,
    }  # fmt: skip
    assert (latest.who, latest.proved, latest.via, latest.action) == ("bob@host", False, "cli", "fail")
    assert read(ledger, action="replay").activity == read(ledger, who="nn").activity == (first,)


def test_pieces_of_a_run_are_one_entry_and_a_call_that_comes_again_counts_once(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = iter([1, 2, 2, 1, 3, 4])
    monkeypatch.setattr(secrets, "token_hex", lambda _: f"{next(names):016x}")
    for _ in range(4):  # two calls, and a late copy of each
        ledger.run(activity.note(ledger.core, write(run="a", count=500)))
    ledger.run(activity.note(ledger.core, write(run="b", count=1)))
    ledger.run(activity.note(ledger.core, write(run="a", count=7, result="it waits for room")))
    longer, other = read(ledger).activity
    assert (longer.count, longer.calls, longer.result) == (1007, 3, "it waits for room")
    assert (other.count, other.calls) == (1, 1)
    assert longer.began <= other.at <= longer.at


def test_entries_and_their_texts_are_bounded(
    ledger: Ledger, raw: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(activity, "MOST", 5)
    long = "\U0001f600" * 2000
    target: dict[str, object] = {f"{number} {long}": long for number in range(20)}
    for number in range(7):
        noted = write(who=long, target=target, reason=long, result=f"{number} {long}", count=2**52)
        ledger.run(activity.note(ledger.core, noted))
    assert raw.xlen(keys.activity("t")) == 5
    entries = read(ledger).activity
    assert [entry.result[0] for entry in entries] == ["6", "5", "4", "3", "2"]
    texts = [entry.who + entry.reason + entry.result + json.dumps(entry.target) for entry in entries]
    assert {len(entry.target) for entry in entries} == {10}
    assert max(map(len, texts)) < 50_000
    monkeypatch.setattr(activity, "PAGE", 2)
    found, cursor = list[Activity](), None
    while True:
        page = read(ledger, limit=2, cursor=cursor)
        found += page.activity
        if (cursor := page.cursor) is None:
            break
    assert tuple(found) == entries


def test_a_value_that_is_wrong_is_refused(ledger: Ledger) -> None:
    for asked, words in (
        ({"limit": 0}, "limit: expected a whole number from 1 to 200, got 0"),
        ({"action": "sing"}, "action: expected one of create, .* got 'sing'"),
        ({"cursor": "1"}, "cursor: expected one of the page before, got '1'"),
    ):
        with pytest.raises(ValidationError, match=words):
            read(ledger, **asked)


def test_an_entry_that_cannot_be_read_is_passed_over_and_logged(
    ledger: Ledger, raw: Any, caplog: pytest.LogCaptureFixture
) -> None:
    ledger.run(activity.note(ledger.core, write()))
    raw.xadd(keys.activity("t"), {"write": "{", "count": 1, "calls": 1, "began": 1})
    raw.xadd(keys.activity("t"), {"other": "field"})
    ledger.run(activity.note(ledger.core, write(run="x")))
    assert [entry.count for entry in read(ledger).activity] == [3, 3]
    assert caplog.text.count("activity of topology 't'") == 2


def test_a_write_that_cannot_be_noted_is_logged_and_holds_up_nothing(
    ledger: Ledger, raw: Any, caplog: pytest.LogCaptureFixture
) -> None:
    raw.set(keys.activity("t"), "of another kind")
    with caplog.at_level(logging.ERROR):
        ledger.run(activity.note(ledger.core, write()))
    assert "replay of 3 by ann was carried out, and is not in the activity" in caplog.text
    raw.delete(keys.activity("t"))


def test_a_topology_that_is_gone_has_no_activity(ledger: Ledger, raw: Any) -> None:
    raw.delete(keys.config("t"))
    ledger.run(activity.note(ledger.core, write()))
    assert not raw.exists(keys.activity("t"))


def test_a_mark_is_set_once_under_its_key_however_many_writes_come_between(ledger: Ledger) -> None:
    def mark(text: str = "deploy 1.4.2", key: str | None = "k") -> Activity:
        return ledger.run(chart_marks.mark(ledger.core, text, who="ann", proved=True, via="rest", key=key))

    first = mark()
    for _ in range(20):  # the script looks at the latest 16 entries for a call that comes again
        ledger.run(activity.note(ledger.core, write()))
    assert mark() == first
    with pytest.raises(KeyConflict):
        mark("deploy 1.4.3")
    assert mark(key="other").id > first.id
    assert [entry.reason for entry in read(ledger, action="mark").activity] == ["deploy 1.4.2"] * 2


def test_marks_outlive_any_number_of_other_writes_and_are_bounded_themselves(
    ledger: Ledger, raw: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(activity, "MOST", 5)
    monkeypatch.setattr(activity, "MOST_MARKS", 3)

    def mark(text: str) -> None:
        ledger.run(chart_marks.mark(ledger.core, text, who="ann", proved=True, via="rest"))

    def texts(**asked: Any) -> list[str]:
        return [entry.reason for entry in read(ledger, **asked).activity]

    mark("deploy 1")
    mark("deploy 2")
    for _ in range(20):
        ledger.run(activity.note(ledger.core, write()))
    assert texts(action="mark") == ["deploy 2", "deploy 1"]
    assert texts() == ["mended"] * 5 + ["deploy 2", "deploy 1"]
    assert texts(action="replay") == ["mended"] * 5
    pages, cursor = list[str](), None
    while True:
        page = read(ledger, limit=3, cursor=cursor)
        pages += [entry.reason for entry in page.activity]
        if (cursor := page.cursor) is None:
            break
    assert pages == texts()
    for number in range(3, 13):
        mark(f"deploy {number}")
    assert texts(action="mark") == [f"deploy {number}" for number in range(12, 4, -1)]
    assert raw.xlen(keys.activity("t", "chart_marks")) == 3


def test_the_note_of_a_mark_makes_no_record_of_a_key_whose_time_has_ended(ledger: Ledger, raw: Any) -> None:
    record = keys.idempotency_key("t", "gone")
    noted = Noting("ann", True, "rest", "mark", {}, reason="deploy")
    assert ledger.run(activity.add(ledger.core, noted, [record]))
    assert not raw.exists(record)


def test_a_mark_that_cannot_be_kept_is_an_error(ledger: Ledger, raw: Any) -> None:
    marking = {"who": "ann", "proved": True, "via": "rest"}
    raw.set(keys.activity("t"), "of another kind")
    with pytest.raises(StoreError):
        ledger.run(chart_marks.mark(ledger.core, "deploy", **marking))  # type: ignore[arg-type]
    raw.delete(keys.activity("t"), keys.config("t"))
    with pytest.raises(UnknownTopology):
        ledger.run(chart_marks.mark(ledger.core, "deploy", **marking))  # type: ignore[arg-type]


def test_only_what_was_begun_is_worth_a_note() -> None:
    assert not write().failed(ValidationError("limit: expected 1"))
    refused = write()
    assert refused.failed(MissingRights("redis://h", "u", ("XADD",), "k"))
    assert not refused.done
    assert not write(run="a", count=0).counts
    assert write(count=0).counts
