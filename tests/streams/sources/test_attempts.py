"""A row's attempts: which failures are for good, and what a dead letter keeps of each."""

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import redis
from hypothesis import given
from hypothesis import strategies as st

from acker.collectors.topology import Topology
from acker.errors import PermanentFailure, ValidationError
from acker.ledger import ids
from acker.ledger.client import Ledger, open_ledger
from acker.ledger.ids import as_ids
from acker.ledger.outcomes import outcomes
from acker.ledger.outcomes.outcomes import Confirmation, Entry, OutcomeReader
from acker.ledger.settings.config import bounded_reason
from acker.ledger.slabs.causes import Cause
from acker.store import keys
from acker.store.client import Store
from acker.store.operation import Request
from acker.streams import StreamReader
from acker.streams.dead_letters import dead_letters
from acker.streams.sources import attempts
from acker.streams.sources.attempts import Attempt, decisive, with_attempt
from acker.streams.sources.spout_options import SpoutOptions
from acker.streams.spout import StreamSpout
from acker.streams.spouts import backoff, replays, settler
from acker.streams.spouts.replays import Stepped
from tests.helpers.builders.kept_rows import HOW, Keeping, consume, letters, lines, pending, rows
from tests.helpers.models.leaks import assert_settled
from tests.helpers.models.ledger_state import read_all

pytestmark = pytest.mark.cluster(slow=True)


@pytest.fixture
def ledger(url: str) -> Ledger:
    return open_ledger(Store(url), "t", ackers=3, slab_limit=100)


def fail_all(ledger: Ledger, cause: Callable[[int], Cause]) -> None:
    """A bolt: fails each row of the stream for a cause of its own."""
    for row in rows(ledger):
        anchor = as_ids([row["_acker"]], "anchors")
        ledger.send(ledger.core.fail(anchor, cause(row["id"]).encode()))
    consume(ledger)


def looks_for_rows(raw: "redis.Redis") -> int:
    """The number of commands so far that asked for the rows of outcomes."""
    clustered = isinstance(raw, redis.RedisCluster)
    servers = raw.info("commandstats", target_nodes="primaries").values() if clustered else [raw.info("all")]
    return sum(one.get("cmdstat_hmget", {"calls": 0})["calls"] for one in servers)


def expire(ledger: Ledger) -> None:
    for _ in range(3):
        ledger.tick(force=True)
    consume(ledger)


def test_a_dead_letter_keeps_every_attempt_and_the_last_reason(
    ledger: Ledger, keeping: Keeping, raw: "redis.Redis"
) -> None:
    keeping.write(ledger, lines(3))
    fail_all(ledger, lambda n: Cause(f"malformed {n}", "validate"))
    keeping.settle(ledger)
    fail_all(ledger, lambda n: Cause(f"error 500 {n}", "price", batch=17))
    reported: list[dict[str, Any]] = []
    keeping.settle(ledger, on_outcomes=lambda table: reported.extend(table.to_pylist()))
    assert [(row["step"], row["batch"]) for row in reported] == [("price", 17)] * 3
    assert [(row["id"], row["attempt"]) for row in rows(ledger)] == [(0, 3), (1, 3), (2, 3)]
    assert attempts.COLUMN not in rows(ledger)[0]
    expire(ledger)
    assert keeping.settle(ledger, on_outcomes=reported.append) == Stepped(dead=3)
    waited = "not acked within the message timeout of 30 s"
    for n, letter in enumerate(letters(ledger)):
        assert (letter.status, letter.reason, letter.step, letter.batch, letter.attempts) == (
            "expired", f"error 500 {n}", "price", 17, 3,
        )  # fmt: skip
        assert [(one.number, one.status, one.reason, one.step, one.batch) for one in letter.history] == [
            (1, "failed", f"malformed {n}", "validate", -1),
            (2, "failed", f"error 500 {n}", "price", 17),
            (3, "expired", waited, "", -1),
        ]
        times = [one.at for one in letter.history]
        assert times == sorted(times)
        assert times[-1] == letter.at
        assert letter.row == {"id": n, "line": f"line {n}", "offset": n, "attempt": 3}
    assert_settled(raw)


def test_a_dead_letter_that_is_replayed_begins_anew(ledger: Ledger) -> None:
    StreamSpout(ledger, SpoutOptions("s", "lines", "id", attempts=1)).write(lines(1))
    fail_all(ledger, lambda _: Cause("bad"))
    settler.settle(ledger)
    [letter] = letters(ledger)
    ledger.run(dead_letters.replay(ledger.core, letter.id))
    fail_all(ledger, lambda _: Cause("still bad"))
    settler.settle(ledger)
    [again] = letters(ledger)
    assert [(one.number, one.reason) for one in again.history] == [(1, "still bad")]


def test_rows_failed_for_good_are_dead_letters_and_others_are_tried_again(
    ledger: Ledger, keeping: Keeping
) -> None:
    keeping.write(ledger, lines(10))
    fail_all(ledger, lambda n: Cause("bad", "split", retry=n % 2 == 0))
    assert keeping.settle(ledger) == Stepped(replayed=5, dead=5)
    assert {row["id"] for row in rows(ledger)} == {0, 2, 4, 6, 8}
    assert {
        (letter.row["id"], letter.reason, letter.step, letter.attempts) for letter in letters(ledger)
    } == {(n, "bad", "split", 1) for n in (1, 3, 5, 7, 9)}
    assert pending(ledger) == {"pending": 5, "acked": 0, "replayed": 5, "dead": 5}


def test_the_first_fail_of_a_tree_decides_whether_it_is_tried_again(ledger: Ledger, keeping: Keeping) -> None:
    keeping.write(ledger, lines(2))
    [first, second] = [row["_acker"] for row in rows(ledger)]
    ledger.fail([first], "for good", retry=False)
    ledger.fail([first], "not for good")
    ledger.fail([second], "not for good")
    ledger.fail([second], "for good", retry=False)
    consume(ledger)
    assert keeping.settle(ledger) == Stepped(replayed=1, dead=1)
    assert [letter.reason for letter in letters(ledger)] == ["for good"]


def test_a_fail_for_good_that_comes_before_its_track_is_for_good(url: str) -> None:
    ledger = open_ledger(Store(url), "early", ackers=1)
    anchors = ids.new_anchors(40)  # of one slab, with more reasons than wait for a track
    for n, anchor in enumerate(anchors.tolist()):
        cause = Cause(f"reason {n}", "check", retry=n % 2 == 0)
        ledger.send(ledger.core.fail(as_ids([anchor], "anchors"), cause.encode()))
    ledger.track(anchors, ids.new_ids(40), [b"m"] * 40, spout="s")
    found = {
        index: reported.cause
        for entry in read_all(ledger, OutcomeReader(ledger.core, "s"))
        for reported in entry.slabs
        for index in reported.indexes_in(40)
    }
    assert {n: one.retry for n, one in found.items()} == {n: n % 2 == 0 for n in range(40)}
    assert found[3] == Cause("reason 3", "check", retry=False)
    assert found[39].reason.startswith("failed before its track, for a reason that was not kept")


def test_basic_bolts_fail_for_good_by_the_exception(url: str) -> None:
    with Topology(url, "plain", ackers=1) as topology:
        spout = topology.spout("s")

        @topology.basic_bolt("check")
        def check(_: object, *, fine: bool) -> None:
            raise ValidationError("not now") if fine else PermanentFailure("no such shop")

        [good] = spout.emit("good")
        [bad] = spout.emit("bad")
        with pytest.raises(ValidationError):
            check(good, fine=True)
        check(bad, fine=False)
        topology.flush()
        reported = {one.message_id: (one.reason, one.step, one.retry) for one in spout.outcomes(5.0)}
        assert reported == {
            b"good": ("ValidationError: not now", "check", True),
            b"bad": ("no such shop", "check", False),
        }


def test_rows_with_the_column_of_attempts_are_refused(ledger: Ledger) -> None:
    table = lines(1).append_column(attempts.COLUMN, [["x"]])
    with pytest.raises(ValidationError, match=attempts.COLUMN):
        StreamSpout(ledger, HOW).write(table)
    assert StreamReader(ledger, "lines").ack_all() == 0


def test_a_row_waits_for_its_next_attempt_and_holds_nothing_up_that_comes_behind(
    ledger: Ledger, keeping: Keeping
) -> None:
    how = SpoutOptions("s", "lines", "id", attempts=2, backoff=3600.0)
    keeping.write(ledger, lines(250), how)
    fail_all(ledger, lambda n: Cause(f"busy {n}", retry=n != 7))  # an entry of its own for each
    keeping.write(ledger, lines(50, first=300), how)
    consume(ledger)
    assert keeping.settle(ledger) == Stepped(acked=50, dead=1)
    assert pending(ledger) == {"pending": 249, "acked": 50, "replayed": 0, "dead": 1}
    assert keeping.settle(ledger) == Stepped()
    assert rows(ledger) == []


def test_nothing_is_held_up_by_more_than_a_step_looks_at_that_waits(
    ledger: Ledger, raw: "redis.Redis", monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outcomes, "READ_ENTRIES", 10)
    monkeypatch.setattr(replays, "STEP_LOOK", 40)
    options = SpoutOptions("s", "lines", "id", attempts=2, backoff=3600.0)
    StreamSpout(ledger, options).write(lines(250))
    fail_all(ledger, lambda n: Cause(f"busy {n}"))
    StreamSpout(ledger, options).write(lines(50, first=300))
    consume(ledger)
    assert settler.settle(ledger) == Stepped(acked=50)

    settling = settler.Settler(ledger.store, ["t"])
    settling.step()
    looks = looks_for_rows(raw)
    assert settling.step() == 0
    assert looks_for_rows(raw) == looks  # what waits was not read again
    StreamSpout(ledger, options).write(lines(50, first=400))
    consume(ledger)
    assert settling.step() == 50


def test_a_settler_finds_passed_rows_when_due(
    ledger: Ledger, keeping: Keeping, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outcomes, "READ_ENTRIES", 10)
    monkeypatch.setattr(replays, "STEP_LOOK", 40)
    monkeypatch.setattr(replays, "STEP_REPLAYS", 7)
    keeping.write(ledger, lines(100), SpoutOptions("s", "lines", "id", attempts=2, backoff=0.4))
    fail_all(ledger, lambda n: Cause(f"busy {n}"))
    keeping.write(ledger, lines(20, first=200), SpoutOptions("s", "lines", "id", attempts=2, backoff=3600.0))
    fail_all(ledger, lambda n: Cause(f"busy {n}"))
    first, others = settler.Settler(ledger.store, ["t"]), settler.Settler(ledger.store, ["t"])
    deadline = time.monotonic() + 30
    while pending(ledger)["replayed"] < 100 and time.monotonic() < deadline:
        keeping.reread(ledger)
        first.step()
        others.step()
    assert sorted(row["id"] for row in rows(ledger)) == list(range(100))
    consume(ledger)
    assert first.step() + others.step() == 100
    assert pending(ledger) == {"pending": 20, "acked": 100, "replayed": 100, "dead": 0}


def test_the_next_attempt_comes_when_its_time_has_come_by_the_stores_clock(
    ledger: Ledger, keeping: Keeping
) -> None:
    keeping.write(ledger, lines(5), SpoutOptions("s", "lines", "id", attempts=2, backoff=0.4))
    fail_all(ledger, lambda _: Cause("busy"))
    ended = {
        entry.confirmation: entry.at
        for entry in ledger.outcomes(OutcomeReader(ledger.core, "s"))
        if entry.status == "failed"
    }
    replayed, deadline = 0, time.monotonic() + 30
    while replayed < 5 and time.monotonic() < deadline:
        replayed += keeping.settle(ledger).replayed
    [(seconds, micros)] = ledger.store.send([Request(keys.Spout("t", "s").kept, ["TIME"])])
    assert replayed == 5
    assert int(seconds) + int(micros) / 1e6 >= max(ended.values()) + 0.2
    fail_all(ledger, lambda _: Cause("still busy"))
    assert keeping.settle(ledger) == Stepped(dead=5)  # what is not tried again does not wait


# Without a server


@given(
    st.floats(0.001, 60),
    st.floats(0.001, 600),
    st.integers(1, 1_000),
    st.integers(0, 64),
    st.integers(0, 2**63),
)
def test_a_wait_is_doubled_each_time_up_to_its_limit(
    first: float, longest: float, number: int, shard: int, sequence: int
) -> None:
    entry = Entry(Confirmation(shard, b"%d-0" % sequence, b""), "failed", 0.0, ())
    options = SpoutOptions("s", "lines", "id", attempts=1000, backoff=first, max_backoff=longest)
    whole = min(longest, first * 2.0 ** min(number - 1, 64))
    assert whole / 2 <= backoff.delay(options, number, entry) <= whole
    assert backoff.delay(options, number, entry) == backoff.delay(options, number, replace(entry, at=5.0))
    assert backoff.delay(replace(options, backoff=0.0), number, entry) == 0.0


REASONS = st.text(max_size=1200)


@given(
    reason=REASONS,
    step=st.sampled_from(["", "split", "a.b-c_1"]),
    retry=st.booleans(),
    batch=st.integers(-1, 2**63 - 1),
)
def test_a_stored_cause_is_the_same(reason: str, step: str, retry: bool, batch: int) -> None:
    cause = Cause(reason, step, retry, batch)
    found = Cause.decode(cause.encode())
    assert (found.step, found.retry, found.batch) == (step, retry, batch if step else -1)
    assert found.reason == bounded_reason(reason)


def test_a_number_that_no_batch_has_is_none() -> None:
    assert Cause.parse("bad\0split 9223372036854775808").batch == -1


@given(st.lists(st.tuples(st.sampled_from(["failed", "expired"]), REASONS), min_size=1, max_size=40))
def test_a_bounded_history_keeps_the_first_and_the_last_attempts(ended: list[tuple[str, str]]) -> None:
    history: tuple[Attempt, ...] = ()
    whole = []
    for number, (status, reason) in enumerate(ended, 1):
        attempt = Attempt(number, status, Cause(reason).text(), "split", number % 3 - 1, float(number))
        whole.append(attempt)
        history = attempts.parse(attempts.pack(with_attempt(history, attempt)))
    assert len(history) == min(len(whole), attempts.MOST)
    numbers = [attempt.number for attempt in history]
    assert numbers == sorted(set(numbers))
    real = decisive(whole)
    assert {1, real.number, len(whole)} <= set(numbers)
    assert decisive(history) == real
    assert len(attempts.pack(history)) < 100_000
