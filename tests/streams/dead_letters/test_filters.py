"""Dead letters by a filter: pages, groups, and what is replayed and discarded step by step."""

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar

import pytest
import redis
from hypothesis import given
from hypothesis import strategies as st

from acker.errors import DeadLettersFull, UnreadableRecord, ValidationError
from acker.ledger.client import Ledger, open_ledger
from acker.ledger.settings import config
from acker.store.client import Store
from acker.store.keys import Spout
from acker.store.operation import Operation
from acker.streams.dead_letters import dead_letters
from acker.streams.dead_letters import pages as dead_letters_pages
from acker.streams.dead_letters.dead_letters import Filter, Group
from acker.streams.sources import dead_letter_store
from acker.streams.sources.spout_options import SpoutOptions
from acker.streams.spout import StreamSpout
from acker.streams.spouts import settler
from tests.helpers.builders.kept_rows import consume, letters, lines, pending, rows
from tests.helpers.faults.simulator import HISTORIES, Move, World, histories, run_history
from tests.helpers.models.leaks import assert_settled

pytestmark = [pytest.mark.slow, pytest.mark.cluster(slow=True, first=True)]

MALFORMED, SERVER, MISSING = "malformed: 'id {}'", "RuntimeError: order {} answered 500", "no such word"


@pytest.fixture
def ledger(url: str) -> Ledger:
    return open_ledger(Store(url), "t", ackers=3, slab_limit=100)


def dead(ledger: Ledger, count: int, reason: str, spout: str = "s", first: int = 0) -> None:
    """Rows of a spout that are given up, each for the reason with its number in it."""
    StreamSpout(ledger, SpoutOptions(spout, "lines", "id", attempts=1)).write(lines(count, first))
    for row in rows(ledger):
        ledger.fail([row["_acker"]], reason.format(1000 + row["id"]))
    consume(ledger)
    settler.settle(ledger, spout)


@pytest.fixture
def several(ledger: Ledger) -> Ledger:
    """20 malformed rows, 30 that a server refused, and 5 of another spout."""
    dead(ledger, 20, MALFORMED)
    dead(ledger, 30, SERVER, first=20)
    dead(ledger, 5, MISSING, "z", first=100)
    return ledger


def all_pages(ledger: Ledger, asked: Filter, limit: int = 7) -> list[int]:
    """The message ids of all dead letters that a filter takes, page by page."""
    anchors, cursor = list[int](), None
    while True:
        page = ledger.run(dead_letters.page(ledger.core, asked, limit=limit, cursor=cursor))
        assert len(page.letters) <= limit
        anchors += [int(letter.message_id) for letter in page.letters]
        if (cursor := page.cursor) is None:
            return anchors


def all_groups(ledger: Ledger, asked: Filter | None = None, **how: Any) -> tuple[Group, ...]:
    pages = [ledger.run(dead_letters.groups(ledger.core, asked, **how))]
    while pages[-1].cursor is not None:
        pages.append(ledger.run(dead_letters.groups(ledger.core, asked, cursor=pages[-1].cursor, **how)))
    assert len({page.until for page in pages}) == 1
    return dead_letters.add_up(pages)


def replay_all(ledger: Ledger, asked: Filter, limit: int = 7) -> dict[str, int]:
    done, cursor = dict[str, int](), None
    while True:
        step = ledger.run(dead_letters.replay_some(ledger.core, asked, limit=limit, cursor=cursor))
        assert (step.refused, step.waits) == ((), "")
        done |= step.anchors
        if (cursor := step.cursor) is None:
            return done


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (Filter(), [*range(50), *range(100, 105)]),
        (Filter(spout="z"), [*range(100, 105)]),
        (Filter(reason="ANSWERED 500"), [*range(20, 50)]),
        (Filter(reason="order 1021"), [21]),
        (Filter(cause="malformed: …", status="failed"), [*range(20)]),
        (Filter(cause="malformed"), []),
        (Filter(status="expired"), []),
        (Filter(step=""), [*range(50), *range(100, 105)]),
        (Filter(step="split"), []),
        (Filter(stream="lines", newer_than=600), [*range(50), *range(100, 105)]),
        (Filter(older_than=600), []),
        (Filter(spout="unknown"), []),
    ],
)
def test_a_filter_takes_what_all_of_it_holds_for(several: Ledger, asked: Filter, expected: list[int]) -> None:
    assert all_pages(several, asked) == expected


def test_equal_failures_are_one_group(several: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    for look in (10_000, 8):  # in one page, and in many
        monkeypatch.setattr(dead_letters_pages, "LOOK", look)
        monkeypatch.setattr(dead_letter_store, "READ", look // 2)
        groups_found = all_groups(several)
        assert [(one.cause, one.step, one.status, one.count) for one in groups_found] == [
            ("RuntimeError: order … answered 500", "", "failed", 30),
            ("malformed: …", "", "failed", 20),
            ("no such word", "", "failed", 5),
        ]
        assert groups_found[0].reason.startswith("RuntimeError: order 10")
        assert groups_found[0].oldest <= groups_found[0].newest
        [alone] = all_groups(several, Filter(spout="z"), by=("status",))
        assert (alone.cause, alone.step, alone.status, alone.count) == (None, None, "failed", 5)


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        ("ValueError: no literal with base 10: 'x7'", "ValueError: no literal with base …: …"),
        ("HTTPError: 404 Client Error: order/404", "HTTPError: 404 Client Error: order/…"),
        ("status=503, row 503, after 2.5 s", "status=503, row …, after … s"),
        ('it can\'t be: "a b" and `c`', "it can't be: … and …"),
        ("0x1F of 7f3a90b2c4d5 and 123e4567-e89b-12d3-a456-426614174000", "… of … and …"),
        ("facade and deadbeef stay, 12:30:01 goes", "facade and deadbeef stay, … goes"),
        ("", ""),
    ],
)
def test_a_cause_leaves_out_what_differs_from_row_to_row(reason: str, expected: str) -> None:
    assert dead_letters.cause(reason) == expected


def test_groups_end_a_page_where_they_are_many(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dead_letters_pages, "GROUPS", 4)
    monkeypatch.setattr(dead_letter_store, "READ", 3)
    for number, word in enumerate(("a", "b", "c", "d", "e", "f", "g")):
        dead(ledger, 1, word, first=number)
    page = ledger.run(dead_letters.groups(ledger.core))
    assert len(page.groups) == 6
    assert page.cursor is not None
    assert {one.cause for one in all_groups(ledger)} == set("abcdefg")


def test_a_cursor_is_of_its_query_and_sees_nothing_that_came_later(several: Ledger) -> None:
    page = several.run(dead_letters.page(several.core, Filter(spout="s"), limit=10))
    assert page.cursor is not None
    for asked in (Filter(), Filter(spout="s", reason="a")):
        with pytest.raises(ValidationError, match="cursor: expected one that a page of the same query gave"):
            several.run(dead_letters.page(several.core, asked, cursor=page.cursor))
    dead(several, 3, MISSING, first=200)
    rest = several.run(dead_letters.page(several.core, Filter(spout="s"), limit=1000, cursor=page.cursor))
    assert [int(one.message_id) for one in rest.letters] == [*range(10, 50)]
    assert rest.cursor is None


@pytest.mark.parametrize(
    "wrong",
    [
        {"status": "acked"}, {"spout": "a b"}, {"stream": ""}, {"reason": None}, {"reason": "x" * 1025},
        {"cause": 7}, {"older_than": -1}, {"newer_than": float("nan")}, {"older_than": "1"},
    ],
)  # fmt: skip
def test_a_filter_that_cannot_be_is_reported_before_anything_is_asked(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match=next(iter(wrong))):
        Filter(**wrong)


def test_letters_of_a_filter_are_replayed_step_by_step(several: Ledger, raw: "redis.Redis") -> None:
    done = replay_all(several, Filter(cause="malformed: …"))
    assert len(done) == 20
    assert {row["_acker"] for row in rows(several)} == set(done.values())
    assert [row["id"] for row in rows(several)] == [*range(20)]
    assert all_pages(several, Filter()) == [*range(20, 50), *range(100, 105)]
    consume(several)
    settler.settle(several)
    assert pending(several)["acked"] == 20
    assert_settled(raw)


def test_replays_that_fail_again_are_not_replayed_again_by_the_same_steps(several: Ledger) -> None:
    cursor, seen = None, 0
    while True:
        step = several.run(dead_letters.replay_some(several.core, Filter(spout="s"), limit=20, cursor=cursor))
        seen += len(step.anchors)
        several.fail(list(step.anchors.values()), "again")
        consume(several)
        settler.settle(several, "s")
        if (cursor := step.cursor) is None:
            break
    assert seen == 50
    assert len(all_pages(several, Filter(reason="again"))) == 50


def test_what_came_after_the_groups_were_read_is_left_out_of_what_is_done_to_them(several: Ledger) -> None:
    page = several.run(dead_letters.groups(several.core))
    while several.run(dead_letters_pages._now(several.core)) * 1000 < page.until * 1000 + 1:
        pass
    dead(several, 3, MALFORMED, first=200)
    asked = Filter(cause="malformed: …")
    done = several.run(dead_letters.discard_some(several.core, asked, until=page.until))
    assert (done.count, done.cursor) == (20, None)
    assert all_pages(several, asked) == [200, 201, 202]


@pytest.mark.parametrize("what", ["replay", "discard"])
def test_two_at_once_take_each_dead_letter_once(several: Ledger, url: str, what: str) -> None:
    done: list[int] = []

    def work() -> None:
        ledger = open_ledger(Store(url), "t", create=False)
        cursor = None
        while True:
            if what == "discard":
                gone = ledger.run(dead_letters.discard_some(ledger.core, Filter(), limit=5, cursor=cursor))
                done.extend([0] * gone.count)
                cursor = gone.cursor
            else:
                step = ledger.run(dead_letters.replay_some(ledger.core, Filter(), limit=5, cursor=cursor))
                done.extend(step.anchors.values())
                cursor = step.cursor
            if cursor is None:
                return

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(done) == 55
    assert all_pages(several, Filter()) == []
    if what == "replay":
        assert sorted(row["_acker"] for row in rows(several)) == sorted(done)


def discard_all(ledger: Ledger) -> int:
    done, cursor = 0, None
    while True:
        step = ledger.run(dead_letters.discard_some(ledger.core, Filter(), limit=2, cursor=cursor))
        done += step.count
        if (cursor := step.cursor) is None:
            return done


class RedriveWorld(World):
    """Twelve dead letters, which several replay and discard by fives. Each is one's deed, who tells of it."""

    actors: ClassVar = ("replay", "replay_too", "discard")
    scripts: ClassVar = ("begin_commit", "advance_commit", "settle", "drop_letters", "end_commit")

    def __init__(self, url: str, cluster: bool = False, seed: int = 0) -> None:
        super().__init__(url, cluster, seed)
        dead(self.ledger, 12, MISSING)
        self.replayed, self.discarded, self.ended = list[int](), 0, 0

    def replay(self, ledger: Ledger) -> Operation[None]:
        step = yield from dead_letters.replay_some(ledger.core, Filter(), limit=5)
        self.replayed += step.anchors.values()
        self.ended += 1

    replay_too = replay

    def discard(self, ledger: Ledger) -> Operation[None]:
        step = yield from dead_letters.discard_some(ledger.core, Filter(), limit=5)
        self.discarded += step.count
        self.ended += 1

    def check(self) -> None:
        died = self.ended < self.begun.total()
        self.replayed += replay_all(self.ledger, Filter(), limit=2).values()
        assert all_pages(self.ledger, Filter()) == []
        told, there = set(self.replayed), {row["_acker"] for row in rows(self.ledger)}
        assert len(told) == len(self.replayed)
        assert told <= there
        assert len(there) + self.discarded == 12 or died
        assert told == there or died


@HISTORIES
@given(history=histories(RedriveWorld), cluster=st.booleans())
def test_a_stopped_redrive_tells_its_own_deeds_only(
    valkey_url: str, history: list[Move], cluster: bool
) -> None:
    run_history(RedriveWorld, valkey_url, history, cluster=cluster)


def test_a_step_goes_as_far_as_there_is_room_and_on_from_there(url: str) -> None:
    ledger = open_ledger(Store(url), "small", ackers=1, slab_limit=100)
    spout = StreamSpout(ledger, SpoutOptions("s", "lines", "id", attempts=1, max_spout_pending=10))
    for first in (0, 10):
        spout.write(lines(10, first))
        ledger.fail([row["_acker"] for row in rows(ledger)], "bad")
        consume(ledger)
        settler.settle(ledger)
    spout.write(lines(4, first=50))
    step = ledger.run(dead_letters.replay_some(ledger.core, Filter()))
    assert len(step.anchors) == 6
    assert "max_spout_pending is 10" in step.waits
    again = ledger.run(dead_letters.replay_some(ledger.core, Filter(), cursor=step.cursor))
    assert again.anchors == {}
    assert again.waits
    for count in (10, 4):
        consume(ledger)
        settler.settle(ledger)
        again = ledger.run(dead_letters.replay_some(ledger.core, Filter(), cursor=again.cursor))
        assert len(again.anchors) == count
    assert (again.waits, again.cursor) == ("", None)


def test_the_high_water_mark_bounds_a_step(url: str) -> None:
    ledger = open_ledger(Store(url), "low", ackers=1, slab_limit=4, high_water_mark=40)
    dead(ledger, 30, "bad")
    spout = StreamSpout(ledger, SpoutOptions("s", "lines", "id", attempts=1))
    spout.write(lines(20, first=100))
    step = ledger.run(dead_letters.replay_some(ledger.core, Filter()))
    assert len(step.anchors) == 20
    assert "high-water mark of 40" in step.waits
    assert len(all_pages(ledger, Filter())) == 10


def test_what_cannot_be_replayed_is_named_and_holds_nothing_up(several: Ledger, raw: "redis.Redis") -> None:
    import pyarrow as pa

    spout = StreamSpout(several, SpoutOptions("s", "lines", "id", attempts=1))
    spout.write(pa.table({"id": pa.array([None], pa.int64()), "line": ["x"], "offset": [0]}))
    settler.settle(several, "s")
    [unnamed] = letters(several, Filter(reason="message_id"))
    other = letters(several, Filter(cause="malformed: …"), limit=1)[0]
    own = Spout("t", "s")
    stored = raw.hget(own.letters, other.number)
    raw.hset(own.letters, other.number, stored[:-40])  # type: ignore[index]
    step = several.run(dead_letters.replay_some(several.core, Filter(spout="s")))
    assert len(step.anchors) == 49
    why = {one.id: one.why for one in step.refused}
    assert set(why) == {unnamed.id, other.id}
    assert "its message id is null or too long" in why[unnamed.id]
    assert "cannot be read" in why[other.id]
    assert [one.id for one in letters(several, Filter(spout="s"))] == [unnamed.id]
    with pytest.raises(UnreadableRecord, match=other.id):
        several.run(dead_letters.get(several.core, other.id))
    assert several.run(dead_letters.discard(several.core, [other.id])) == []


def test_damaged_entries_are_passed_over_also_where_a_page_has_no_others(
    ledger: Ledger, raw: "redis.Redis", caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    dead(ledger, 4, "bad")
    monkeypatch.setattr(dead_letter_store, "READ", 2)
    own = Spout("t", "s")
    damaged = [b"%d-1" % n for n in (1, 2, 3)]
    entries: Any = raw.xrange(own.dead)
    end = entries[-1][0].split(b"-")[0] + b"-9"
    raw.delete(own.dead)  # entries are put in by the order of their numbers only
    for number, fields in [*((one, {"from": "elsewhere"}) for one in damaged), *entries]:
        raw.xadd(own.dead, fields, id=number)
    raw.xadd(own.dead, {"message_id": "x", "anchor": "none"}, id=end)
    assert sorted(all_pages(ledger, Filter(), limit=2)) == [0, 1, 2, 3]
    named = "".join(record.getMessage() for record in caplog.records)
    assert all(f"{one.decode()}@s" in named for one in [*damaged, end])
    assert len(ledger.run(dead_letters.replay_some(ledger.core, Filter())).anchors) == 4
    for one in [*damaged, end]:
        assert ledger.run(dead_letters.discard(ledger.core, [f"{one.decode()}@s"])) == []
    assert raw.xlen(own.dead) == 0


def test_replays_of_different_letters_at_once_all_take_effect(ledger: Ledger) -> None:
    dead(ledger, 12, "bad")
    ids = [one.id for one in letters(ledger, Filter())]
    with ThreadPoolExecutor(len(ids)) as pool:
        anchors = list(pool.map(lambda one: ledger.run(dead_letters.replay(ledger.core, one)), ids))
    assert len(set(anchors)) == len(ids)
    assert letters(ledger, Filter()) == []


def test_a_page_ends_where_its_rows_are_large(several: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dead_letter_store, "ROW_BYTES", 3000)
    page = several.run(dead_letters.page(several.core))
    assert 0 < len(page.letters) < 10
    assert all_pages(several, Filter(), limit=50) == [*range(50), *range(100, 105)]
    assert len(replay_all(several, Filter(), limit=50)) == 55


def test_a_full_spout_says_the_way_out(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "DEAD_LETTERS", 5)
    dead(ledger, 5, "bad")
    with pytest.raises(DeadLettersFull, match="`acker dead-letters t --groups` shows them by reason"):
        dead(ledger, 1, "bad", first=10)


@pytest.mark.parametrize("asked", [None, {"cause": "bad"}, "bad"])
def test_bad_filters_are_refused_and_nothing_is_replayed(ledger: Ledger, asked: Any) -> None:
    for step in (dead_letters.replay_some, dead_letters.discard_some):
        with pytest.raises(ValidationError, match="expected a Filter"):
            ledger.run(step(ledger.core, asked))
