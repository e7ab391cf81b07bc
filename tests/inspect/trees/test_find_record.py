"""A record is found by its message id, whatever became of it."""

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from acker.collectors.topology import Topology
from acker.errors import ValidationError
from acker.inspect.trees import failures, find_record
from acker.inspect.trees.find_record import Found, FoundAttempt, FoundRecord
from acker.ledger import ids
from acker.ledger.client import Ledger, open_ledger
from acker.ledger.slabs.sections import SPOUT as SECTIONS
from acker.store.async_client import AsyncStore
from acker.store.client import Store
from acker.streams.dead_letters import dead_letters, pages
from acker.streams.sources.spout_options import SpoutOptions
from acker.streams.spout import StreamSpout
from acker.streams.spouts import settler
from tests.helpers.builders.kept_rows import HOW, consume, fail, lines, rows
from tests.helpers.builders.ledgers import Trees, confirm_all

pytestmark = pytest.mark.cluster(slow=True, first=True)


@pytest.fixture
def ledger(url: str) -> Ledger:
    return open_ledger(Store(url), "t", ackers=3, slab_limit=100)


def find(ledger: Ledger, message_id: bytes | str, **how: Any) -> Found:
    """All that is found, by as many calls as it takes."""
    answers = [ledger.run(find_record.find(ledger.core, message_id, **how))]
    while (cursor := answers[-1].cursor) is not None:
        assert answers[-1].looked <= answers[-1].of
        answers.append(ledger.run(find_record.find(ledger.core, message_id, cursor=cursor, **how)))
    found = find_record.add_up(answers)
    assert found.looked == found.of
    return found


def only(found: Found) -> FoundRecord:
    [record] = found.records
    return record


def reported(record: FoundRecord) -> list[tuple[int | None, str, str]]:
    return [(one.number, one.state, one.reason) for one in record.attempts]


def expire(ledger: Ledger) -> None:
    for _ in range(3):
        ledger.tick(force=True)


def track(ledger: Ledger, *message_ids: bytes | str, spout: str = "s") -> list[int]:
    anchors = ids.new_anchors(len(message_ids))
    ledger.track(anchors, ids.new_ids(len(message_ids)), message_ids, spout=spout)
    return list(anchors.tolist())


def test_a_record_is_found_in_flight_and_when_it_was_acked_failed_or_expired(ledger: Ledger) -> None:
    trees = Trees(4).track(ledger)
    pending, acked, failed, expired = trees.anchors.tolist()
    ledger.fail([failed], "no such word")
    trees.complete(ledger, 1)
    [flying] = only(find(ledger, "message 0")).attempts
    assert (flying.anchor, flying.state, flying.number, flying.at) == (pending, "pending", None, None)
    [done] = only(find(ledger, "message 1")).attempts
    assert (done.anchor, done.state) == (acked, "acked")
    ledger.update([pending], [trees.values[0]])
    expire(ledger)
    assert confirm_all(ledger) == 4
    # What nothing holds any more: how it was acked. What failed is kept for people.
    assert find(ledger, "message 1").records == ()
    [bad] = only(find(ledger, b"message 2")).attempts
    assert (bad.anchor, bad.state, bad.reason) == (failed, "failed", "no such word")
    assert bad.tracked_at is not None
    assert bad.at is not None
    assert bad.tracked_at <= bad.at
    [late] = only(find(ledger, "message 3")).attempts
    assert (late.anchor, late.state) == (expired, "expired")
    unknown = find(ledger, "message")
    assert (unknown.message_id, unknown.records, unknown.looked) == (b"message", (), 2)


def test_every_replay_of_a_row_is_an_attempt_and_the_last_leads_to_its_dead_letter(ledger: Ledger) -> None:
    StreamSpout(ledger, HOW).write(lines(3))
    anchors = []
    for reason in ("malformed", "error 500"):
        anchors += [row["_acker"] for row in rows(ledger) if row["id"] == 1]
        fail(ledger, lambda row: row["id"] == 1, reason)
        settler.settle(ledger)
    [third] = rows(ledger)
    record = only(find(ledger, "1"))
    assert reported(record) == [(1, "failed", "malformed"), (2, "failed", "error 500"), (3, "pending", "")]
    assert [one.anchor for one in record.attempts] == [*anchors, third["_acker"]]
    assert record.letters == ()
    expire(ledger)
    consume(ledger)
    settler.settle(ledger)
    record = only(find(ledger, "1"))
    [letter] = record.letters
    assert (letter.anchor, letter.reason, letter.attempts) == (third["_acker"], "error 500", 3)
    assert reported(record) == [
        (1, "failed", "malformed"),
        (2, "failed", "error 500"),
        (3, "expired", "not acked within the message timeout of 30 s"),
    ]
    assert [one.anchor for one in record.attempts] == [*anchors, third["_acker"]]
    # A replay of the dead letter begins anew, and the attempts before are still reported.
    again = ledger.run(dead_letters.replay(ledger.core, letter.id))
    record = only(find(ledger, "1"))
    assert record.letters == ()
    assert (record.attempts[-1].anchor, record.attempts[-1].number) == (again, 1)
    assert len(record.attempts) == 4


def test_rows_of_one_message_id_that_fail_together_are_numbered_attempts(ledger: Ledger) -> None:
    StreamSpout(ledger, replace(HOW, attempts=2)).write(pa.table({"id": [1, 1], "line": ["x", "y"]}))
    for reason in ("first", "second"):
        fail(ledger, lambda _: True, reason)
        settler.settle(ledger)
    record = only(find(ledger, "1"))
    assert reported(record) == [(1, "failed", "first")] * 2 + [(2, "failed", "second")] * 2
    assert len({one.anchor for one in record.attempts}) == 4
    assert len(record.letters) == 2
    for again in range(2):  # each of both is replayed twice
        for letter in only(find(ledger, "1")).letters:
            ledger.run(dead_letters.replay(ledger.core, letter.id))
        if again == 0:
            for reason in ("third", "fourth"):
                fail(ledger, lambda _: True, reason)
                settler.settle(ledger)
    record = only(find(ledger, "1"))
    assert [(one.state, one.reason) for one in record.attempts] == [
        *(("failed", reason) for reason in ("first", "second", "third", "fourth") for _ in range(2)),
        *[("pending", "")] * 2,
    ]
    assert len({one.anchor for one in record.attempts}) == 10


def test_a_record_of_many_attempts_comes_in_pages_with_each_of_them_once(ledger: Ledger) -> None:
    anchors = track(ledger, *["m"] * 250)
    ledger.fail(anchors[:120], "bad")
    first = ledger.run(find_record.find(ledger.core, "m"))
    assert len(only(first).attempts) == find_record.PAGE
    assert first.cursor is not None
    record = only(find(ledger, "m"))
    assert sorted(one.anchor for one in record.attempts if one.anchor is not None) == sorted(anchors)
    assert [one.state for one in record.attempts].count("failed") == 120


def test_rows_tell_of_attempts_whose_outcomes_are_not_kept_any_more(url: str) -> None:
    ledger = open_ledger(Store(url), "few", ackers=1, outcomes_kept=1)

    def forget() -> None:
        ledger.fail(track(ledger, *["other"] * 300, spout="z"), "another")

    StreamSpout(ledger, HOW).write(lines(1))
    for reason in ("first", "second"):
        fail(ledger, lambda _: True, reason)
        settler.settle(ledger)
        forget()
    record = only(find(ledger, "0"))
    assert reported(record) == [(1, "failed", "first"), (2, "failed", "second"), (3, "pending", "")]
    assert [one.anchor is None for one in record.attempts] == [True, True, False]
    last = record.attempts[-1].anchor
    fail(ledger, lambda _: True, "third")
    settler.settle(ledger)
    forget()
    record = only(find(ledger, "0"))
    assert reported(record) == [(1, "failed", "first"), (2, "failed", "second"), (3, "failed", "third")]
    assert [one.anchor for one in record.attempts] == [None, None, last]
    assert [letter.anchor for letter in record.letters] == [last]


def test_one_that_two_spouts_use_is_two_records_and_one_of_many_trees_has_all_of_them(ledger: Ledger) -> None:
    first = [track(ledger, "m", "other")[0], track(ledger, "m")[0]]
    [other] = track(ledger, "m", spout="z")
    ledger.fail(first[:1], "bad")
    ledger.fail([other], "worse")
    s, z = find(ledger, "m").records
    assert (s.spout, [one.anchor for one in s.attempts], z.spout) == ("s", first, "z")
    assert reported(s) == [(None, "failed", "bad"), (None, "pending", "")]
    assert reported(z) == [(None, "failed", "worse")]


@pytest.mark.parametrize(
    "hostile", [b"", b"\xff\x00\r\n*1", b"a" * 1024, "\u202e<script>".encode(), b"1-0@s", b"%s{t:0/3}"]
)
def test_any_bytes_are_found_as_they_are_and_nothing_else(ledger: Ledger, hostile: bytes) -> None:
    near = [hostile + b"x" if len(hostile) < 1024 else hostile[:-1], b"x" + hostile[1:], hostile * 2]
    others = [one for one in near if one != hostile and len(one) <= 1024]
    anchors = track(ledger, *others, hostile, *others)
    ledger.fail(anchors, "all of them")
    assert [one.anchor for one in only(find(ledger, hostile)).attempts] == [anchors[len(others)]]
    confirm_all(ledger)
    assert [one.anchor for one in only(find(ledger, hostile)).attempts] == [anchors[len(others)]]
    with pytest.raises(ValidationError):
        find(ledger, b"a" * 1025)


@pytest.mark.parametrize("limit", [1, 100])
def test_trees_of_sections_have_no_message_id_and_are_no_records(ledger: Ledger, limit: int) -> None:
    own = [track(ledger, "")[0] for _ in range(2)]
    inner = track(ledger, *[""] * 20, spout=SECTIONS)
    ledger.fail([own[0], *inner[:10]], "bad")
    assert [one.anchor for one in only(find(ledger, "", limit=limit)).attempts] == own
    confirm_all(ledger)  # what has ended is known by what is kept of it
    assert [one.anchor for one in only(find(ledger, "", limit=limit)).attempts] == own


def test_a_call_looks_at_a_bounded_piece_of_all(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failures, "_EXAMINED_FOR_ID", 7)
    monkeypatch.setattr(pages, "LOOK", 5)
    StreamSpout(ledger, SpoutOptions("s", "lines", "id", attempts=1)).write(lines(40))
    for row in rows(ledger):
        ledger.fail([row["_acker"]], f"bad {row['id']}")
    consume(ledger)
    settler.settle(ledger)
    in_flight = track(ledger, *["m"] * 30)
    cursor, looked, found = None, 0, []
    while True:
        answer = ledger.run(find_record.find(ledger.core, "m", limit=4, cursor=cursor))
        found += [one.anchor for record in answer.records for one in record.attempts]
        assert answer.looked >= looked
        cursor, looked = answer.cursor, answer.looked
        if cursor is None:
            break
        assert answer.of == 110
    assert looked == answer.of == 110
    assert sorted(found) == sorted(in_flight)  # type: ignore[type-var]
    record = only(find(ledger, "39"))
    assert reported(record) == [(1, "failed", "bad 39")]
    assert len(record.letters) == 1


def test_cursors_of_others_are_refused(ledger: Ledger) -> None:
    track(ledger, *["m"] * 9)
    cursor = ledger.run(find_record.find(ledger.core, "m", limit=1)).cursor
    assert cursor is not None
    for wrong in ("", "x", "é", cursor[:-1], cursor[1:], "A" * 10**6, 7):
        with pytest.raises(ValidationError, match="cursor"):
            ledger.run(find_record.find(ledger.core, "m", cursor=wrong))  # type: ignore[arg-type]
    with pytest.raises(ValidationError, match="cursor"):
        ledger.run(find_record.find(ledger.core, "n", cursor=cursor))
    ledger.fail(track(ledger, *["ended"] * 9), "bad")
    confirm_all(ledger)
    cursor = ledger.run(find_record.find(ledger.core, "ended", limit=1)).cursor
    with pytest.raises(ValidationError, match="cursor"):
        ledger.run(find_record.find(ledger.core, "n", cursor=cursor))
    for limit in (0, 101, True):
        with pytest.raises(ValidationError, match="limit"):
            ledger.run(find_record.find(ledger.core, "m", limit=limit))


def test_rows_that_cannot_be_read_hide_nothing_else(ledger: Ledger, raw: Any) -> None:
    StreamSpout(ledger, HOW).write(lines(1))
    fail(ledger, lambda _: True, "bad")
    settler.settle(ledger)
    for key in raw.scan_iter(match="*rows:*"):
        raw.set(key, b"\xff")
    assert reported(only(find(ledger, "0"))) == [(None, "failed", "bad"), (2, "pending", "")]


def test_a_topology_of_collectors_finds_its_records(url: str) -> None:
    with Topology(url, "plain", ackers=1) as topology:
        spout = topology.spout("s")
        for reason in ("no such shop", ""):
            [one] = spout.emit("order 7")
            if reason:
                topology.bolt("check").fail(one, reason)
        topology.flush()
        record = only(topology.find("order 7"))
        assert [(one.state, one.reason) for one in record.attempts] == [
            ("failed", "no such shop"), ("pending", ""),
        ]  # fmt: skip
        assert topology.find("order 8").records == ()
    with Topology(url, "untracked", ackers=0) as topology:
        assert topology.find("m").records == ()


async def test_the_same_operation_runs_on_an_event_loop(ledger: Ledger, url: str) -> None:
    [anchor] = track(ledger, "m")
    store = AsyncStore(url)
    try:
        found = await store.run(find_record.find(ledger.core, "m"))
    finally:
        await store.aclose()
    [one] = only(found).attempts
    assert isinstance(one, FoundAttempt)
    assert one.anchor == anchor
