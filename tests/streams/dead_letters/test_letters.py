"""Dead letters: records that failed too often; each is replayed once or discarded."""

from typing import Any

import pytest
import redis

from acker.errors import (
    DeadLettersFull,
    SpoutPendingFull,
    TrackRejected,
    UnknownDeadLetter,
    ValidationError,
)
from acker.ledger.client import Ledger, open_ledger
from acker.ledger.settings import config
from acker.store.client import Store
from acker.streams.commits import commit as commits
from acker.streams.dead_letters import dead_letters
from acker.streams.dead_letters.dead_letters import Filter
from acker.streams.sources.spout_options import SpoutOptions
from acker.streams.spout import StreamSpout
from acker.streams.spouts import settler
from acker.streams.spouts.replays import Stepped
from tests.helpers.builders.kept_rows import HOW, Keeping, consume, fail, letters, lines, pending, rows
from tests.helpers.builders.streaming import counters
from tests.helpers.models.leaks import assert_settled

pytestmark = pytest.mark.cluster(slow=True, first=True)


@pytest.fixture
def ledger(url: str) -> Ledger:
    return open_ledger(Store(url), "t", ackers=3, slab_limit=100)


def test_what_failed_is_tried_again_then_becomes_a_dead_letter(
    ledger: Ledger, keeping: Keeping, raw: "redis.Redis"
) -> None:
    keeping.write(ledger, lines(1000))
    fail(ledger, lambda row: row["id"] % 10 == 0)
    assert keeping.settle(ledger) == Stepped(acked=900, replayed=100)
    again = rows(ledger)
    assert [(row["id"], row["line"], row["attempt"]) for row in again] == [
        (n, f"line {n}", 2) for n in range(0, 1000, 10)
    ]
    assert pending(ledger)["pending"] == 100
    fail(ledger, lambda row: row["id"] % 20 == 0, "still bad")
    assert keeping.settle(ledger) == Stepped(acked=50, replayed=50)
    assert {row["attempt"] for row in rows(ledger)} == {3}
    for _ in range(3):
        ledger.tick(force=True)
    assert keeping.settle(ledger) == Stepped(dead=50)
    consume(ledger)
    dead = letters(ledger)
    assert [letter.message_id for letter in dead] == [b"%d" % n for n in range(0, 1000, 20)]
    assert {(one.status, one.reason, one.attempts, one.stream) for one in dead} == {
        ("expired", "still bad", 3, "lines")
    }
    assert dead[1].row == {"id": 20, "line": "line 20", "offset": 20, "attempt": 3}
    assert pending(ledger) == {"pending": 0, "acked": 950, "replayed": 150, "dead": 50}
    assert counters(ledger)["tracked"] == 1150
    for _ in range(3):
        ledger.tick(force=True)  # the acks of what had expired by then waited
    assert_settled(raw)


def test_dead_letters_are_paged_replayed_once_and_discarded(ledger: Ledger, raw: "redis.Redis") -> None:
    once = SpoutOptions("s", "lines", "id", attempts=1)
    StreamSpout(ledger, once).write(lines(25))
    StreamSpout(ledger, SpoutOptions("z", "lines", "id", attempts=1)).write(lines(3, first=100))
    fail(ledger, lambda row: True)
    settler.settle(ledger)
    assert ledger.run(dead_letters.count(ledger.core)) == 28
    seen, cursor = [], None
    while True:
        page = ledger.run(dead_letters.page(ledger.core, cursor=cursor, limit=10))
        seen += [int(letter.message_id) for letter in page.letters]
        cursor = page.cursor
        if cursor is None:
            break
    assert seen == [*range(25), *range(100, 103)]
    assert [int(one.message_id) for one in letters(ledger, Filter(spout="z"))] == [100, 101, 102]

    first, second, *_ = letters(ledger)
    anchor = ledger.run(dead_letters.replay(ledger.core, first.id))
    [row] = rows(ledger)
    assert (row["id"], row["_acker"]) == (0, anchor)
    for again in (dead_letters.replay, dead_letters.get):
        with pytest.raises(UnknownDeadLetter, match="has no dead letter"):
            ledger.run(again(ledger.core, first.id))
    assert ledger.run(dead_letters.discard(ledger.core, [second.id])) == []
    assert ledger.run(dead_letters.discard(ledger.core, [second.id])) == [second.id]
    assert [int(one.message_id) for one in letters(ledger, limit=2)] == [2, 3]
    consume(ledger)
    assert settler.settle(ledger) == Stepped(acked=1)
    assert_settled(raw)


@pytest.mark.parametrize("letter", ["", "1-1", "1-1@", "x@s", "1-1@a b", 7, None, "1-1@s\n"])
def test_a_malformed_id_of_a_dead_letter_is_reported(ledger: Ledger, letter: Any) -> None:
    with pytest.raises(ValidationError, match="expected an id as <number>-<number>@<spout>"):
        ledger.run(dead_letters.get(ledger.core, letter))


def with_a_dead_letter(
    url: str, most: int | None, limit: int
) -> tuple[Ledger, StreamSpout, dead_letters.DeadLetter]:
    """A spout with room for ten rows, by `max_spout_pending` or by the high-water mark, and a dead letter."""
    ledger = open_ledger(Store(url), "small", ackers=1, slab_limit=100, high_water_mark=limit)
    spout = StreamSpout(ledger, SpoutOptions("s", "lines", "id", attempts=1, max_spout_pending=most))
    spout.write(lines(1))
    fail(ledger, lambda row: True)
    assert settler.settle(ledger) == Stepped(dead=1)
    [letter] = letters(ledger)
    return ledger, spout, letter


@pytest.mark.parametrize(
    ("most", "limit", "error"),
    [(10, 20_000_000, SpoutPendingFull), (None, 10, TrackRejected)],
    ids=["max_spout_pending", "high-water mark"],
)
def test_a_dead_letter_that_finds_no_room_is_refused_and_holds_nothing_up(
    url: str, raw: "redis.Redis", most: int | None, limit: int, error: type[Exception]
) -> None:
    ledger, spout, letter = with_a_dead_letter(url, most, limit)
    spout.write(lines(10, first=1))
    for _ in range(2):
        with pytest.raises(error):
            ledger.run(dead_letters.replay(ledger.core, letter.id))
    assert letters(ledger) == [letter]
    assert not [key for key in raw.scan_iter(b"*rows:*") if raw.ttl(key) >= 0]
    consume(ledger)
    assert settler.settle(ledger) == Stepped(acked=10)
    ledger.run(dead_letters.replay(ledger.core, letter.id))
    consume(ledger)
    assert settler.settle(ledger) == Stepped(acked=1)
    assert_settled(raw)


@pytest.mark.parametrize(("most", "limit"), [(10, 20_000_000), (None, 10)])
def test_a_replay_for_which_the_room_is_gone_when_it_is_stored_does_not_wait_for_it(
    url: str, monkeypatch: pytest.MonkeyPatch, most: int | None, limit: int
) -> None:
    ledger, spout, letter = with_a_dead_letter(url, most, limit)
    commit = commits.commit

    def late(*what: Any) -> Any:
        monkeypatch.setattr(commits, "commit", commit)
        spout.write(lines(10, first=1))
        return commit(*what)

    monkeypatch.setattr(commits, "commit", late)
    ledger.run(dead_letters.replay(ledger.core, letter.id))
    assert letters(ledger) == []
    assert pending(ledger)["pending"] == 11
    consume(ledger)
    assert settler.settle(ledger) == Stepped(acked=11)


@pytest.mark.parametrize("reported", [False, True])
def test_a_full_store_of_dead_letters_holds_outcomes_back_until_some_are_replayed_or_discarded(
    ledger: Ledger, raw: "redis.Redis", monkeypatch: pytest.MonkeyPatch, reported: bool
) -> None:
    monkeypatch.setattr(config, "DEAD_LETTERS", 5)
    # One step may go over the limit: what it has stored does not wait.
    spout = StreamSpout(
        ledger, SpoutOptions("s", "lines", "id", attempts=1, outcomes=reported, max_spout_pending=8)
    )
    spout.write(lines(8))
    fail(ledger, lambda row: True)
    assert settler.settle(ledger) == Stepped(dead=8)
    spout.write(lines(8, first=8))
    fail(ledger, lambda row: True)
    heard: list[Any] = []
    for _ in range(2):
        with pytest.raises(DeadLettersFull, match="8 dead letters, its most"):
            settler.settle(ledger, "s", on_outcomes=heard.append)
    assert heard == []
    assert pending(ledger) == {"pending": 8, "acked": 0, "replayed": 0, "dead": 8}
    assert len(rows(ledger, "s.outcomes") if reported else []) == (8 if reported else 0)
    # There is room for a replay though all rows pend: their outcomes wait for it.
    first, second, third, fourth, *_ = letters(ledger)
    for letter in (first, second):
        ledger.run(dead_letters.replay(ledger.core, letter.id))
    for letter in (third, fourth):
        ledger.run(dead_letters.discard(ledger.core, [letter.id]))
    consume(ledger)
    assert settler.settle(ledger, "s", on_outcomes=heard.append) == Stepped(acked=2, dead=8)
    assert [int(one.message_id) for one in letters(ledger)] == list(range(4, 16))
    assert pending(ledger) == {"pending": 0, "acked": 2, "replayed": 0, "dead": 16}
    assert not list(raw.scan_iter(b"*rows:*"))


def test_outcomes_wait_for_no_dead_letters(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "DEAD_LETTERS", 1)
    StreamSpout(ledger, SpoutOptions("s", "lines", "id", attempts=1)).write(lines(1))
    fail(ledger, lambda row: True)
    assert settler.settle(ledger) == Stepped(dead=1)
    StreamSpout(ledger, HOW).write(lines(10, first=1))
    fail(ledger, lambda row: row["id"] == 7)
    assert settler.settle(ledger) == Stepped(acked=9, replayed=1)
