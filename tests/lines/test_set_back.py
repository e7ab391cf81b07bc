"""A store is set back between any two requests of a commit, to any moment of it: `finished` gets all rows."""

import contextlib
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pyarrow as pa
import pytest
import redis

from acker.errors import AckerError
from acker.ledger.client import open_ledger
from acker.ledger.outcomes.outcomes import OutcomeReader
from acker.ledger.slabs.sections import SPOUT
from acker.lines import Out, coordinator
from acker.store import keys
from acker.store.client import Store
from acker.store.operation import Reply
from acker.store.operation import Request as Asked
from acker.streams import StreamReader
from acker.streams.commits import at_once as commits_at_once
from acker.streams.commits import release
from acker.streams.log import fencing, subscriptions
from acker.streams.sources.spout_options import SpoutOptions
from acker.streams.spout import StreamSpout
from acker.streams.spouts import settler
from acker.workers.steps import FunctionStep
from acker.workers.worker import Worker
from tests.helpers.builders.gatherers import counting_ends
from tests.helpers.builders.line_job import Job
from tests.helpers.faults.cuts import before_script
from tests.helpers.faults.simulator import Moment, moment, set_back, tag
from tests.helpers.faults.stepping import Stepping

ROWS = 3
FARTHEST = 8
"""Exchanges that are lost at a time."""


def losing(
    monkeypatch: pytest.MonkeyPatch, raw: "redis.Redis", first: int, after: int, act: Callable[[], object]
) -> bool:
    """Does something while a store loses some exchanges, from `first` on; False where it ends before that."""
    send, number, before, own = Store.send, 0, list[Moment](), threading.get_ident()

    def counted(store: Store, requests: Sequence[Asked]) -> list[Reply]:
        nonlocal number
        if threading.get_ident() != own:
            return send(store, requests)
        if number == first:
            before.append(moment(raw))
        if number == after:
            set_back(raw, before.pop())
        number += 1
        return send(store, requests)

    with monkeypatch.context() as patch:
        patch.setattr(Store, "send", counted)
        with contextlib.suppress(AckerError):  # it is tried again
            act()
    return number > after


def losing_its_record(
    monkeypatch: pytest.MonkeyPatch,
    raw: "redis.Redis",
    script: str,
    meanwhile: Callable[[], object],
    act: Callable[[], object],
) -> None:
    """Commits phase by phase: before `script` the store forgets the commit, not what was staged for it."""
    monkeypatch.setattr(commits_at_once, "MOST", 0)
    before = list[Moment]()

    def begin() -> None:
        before_script(monkeypatch, "begin_commit", lambda: before.append(moment(raw)), act)

    def lose() -> None:
        set_back(raw, before.pop())
        meanwhile()

    before_script(monkeypatch, script, lose, begin)


@pytest.mark.parametrize(
    ("who", "script"), [("fan", "gather"), ("count", "gather"), ("coordinator", "release")]
)
def test_who_goes_on_when_others_did_the_same_after_a_loss_publishes_nothing(
    valkey_url: str, valkey_raw: "redis.Redis", monkeypatch: pytest.MonkeyPatch, who: str, script: str
) -> None:
    job = Job(open_ledger(Store(valkey_url), "t", ackers=3), attempts=9, group=2)
    core, finished = job.ledger.core, counting_ends(monkeypatch, job.workers["count"].step)
    job.ask(*[ROWS] * 4)
    if who != "fan":
        job.workers["fan"].work()
    if who == "coordinator":
        other = partial(job.ledger.run, coordinator.step(core, OutcomeReader(core, SPOUT)))
        losing_its_record(monkeypatch, valkey_raw, script, other, job.coordinate)
    else:
        job.coordinate()
        one, another = (Worker(job.ledger, job.workers[who].step) for _ in range(2))
        losing_its_record(monkeypatch, valkey_raw, script, taking_over(one, another), one.work)
    settle_all(job)
    assert set(job.sums) == {ROWS}
    if who == "coordinator":  # the work of a step is done twice, and has its effects once
        assert set(finished.values()) == {1}


def taking_over(one: Worker, another: Worker) -> Callable[[], object]:
    """Has a worker do what another one has taken and not committed, as when that is taken for dead."""

    def work() -> None:
        one.end()
        assert another.work()

    return work


def test_rows_of_a_plain_stream_are_published_by_one_of_two_after_a_loss(
    valkey_url: str, valkey_raw: "redis.Redis", monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = open_ledger(Store(valkey_url), "t", ackers=2)
    step = FunctionStep("pass", "asks", lambda row, out: out.emit("made", {"id": row["id"]}))
    one, another = (Worker(ledger, step) for _ in range(2))
    assert not one.work()
    StreamSpout(ledger, SpoutOptions("asks", "asks", "id")).write(pa.table({"id": ["a", "b"]}))
    losing_its_record(monkeypatch, valkey_raw, "publish", taking_over(one, another), one.work)
    rows = [row["id"] for table in StreamReader(ledger, "made").tables() for row in table.to_pylist()]
    assert sorted(rows) == ["a", "b"]


def test_what_a_batch_finds_acked_is_not_acked_by_it_where_the_store_forgets_that_meanwhile(
    valkey_url: str, valkey_raw: "redis.Redis", monkeypatch: pytest.MonkeyPatch
) -> None:
    """A commit is cut when it has acked its rows; they are not worked on again, and then it never was."""
    monkeypatch.setattr(commits_at_once, "MOST", 0)
    ledger = open_ledger(Store(valkey_url), "t", ackers=1)
    worker = Worker(ledger, FunctionStep("pass", "asks", lambda row, out: out.emit("made", row)))
    assert not worker.work()
    StreamSpout(ledger, SpoutOptions("asks", "asks", "id", attempts=9)).write(pa.table({"id": ["a", "b"]}))
    before = list[Moment]()

    def cut() -> None:
        raise AckerError("the store does not answer")

    def begin() -> None:
        before_script(monkeypatch, "note_segments", cut, worker.work)

    before_script(monkeypatch, "begin_commit", lambda: before.append(moment(valkey_raw)), begin)
    before_script(monkeypatch, "begin_commit", lambda: set_back(valkey_raw, before.pop()), worker.work)
    reader, made, acked = StreamReader(ledger, "made"), list[str](), 0
    for _ in range(8):
        worker.work()
        made += [row["id"] for table in reader.tables() for row in table.to_pylist()]
        reader.ack_all()
        acked += settler.settle(ledger, "asks").acked
        ledger.tick(force=True)
    assert acked == 2
    assert sorted(made) == ["a", "b"]


def test_what_is_bound_up_to_the_middle_of_a_bundle_is_given_back_as_a_whole(
    valkey_url: str, valkey_raw: "redis.Redis"
) -> None:
    """A copy of the call that binds a reader comes late, and its segments have other numbers by now."""
    job = Job(open_ledger(Store(valkey_url), "t", ackers=1))
    job.ask(ROWS)
    assert job.workers["fan"].work()
    job.coordinate()
    core, run = job.ledger.core, job.ledger.run
    slot = run(subscriptions.find(core, "rows", "count"))
    claimed = run(subscriptions.claim(core, "rows", slot, "dead", 0, name="count"))
    assert claimed == 4, "of each task rows, and a last word"
    valkey_raw.hset(keys.Stream("t", "rows").bound(slot, "dead"), "dead 0", "1 attempt")
    back, bound = run(fencing.take_back(core, "rows", slot, "dead"))
    assert (back, len(bound)) == (2, 1)
    assert job.workers["count"].work() == 2
    assert run(release.give_back(core, "rows", slot, "dead")) == 2
    job.work()
    assert job.sums == [ROWS]


def test_rows_whose_hold_alone_was_lost_are_held_again(
    valkey_url: str, valkey_raw: "redis.Redis", monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where nodes of a cluster lose moments that others keep. No tree has to expire for that."""
    monkeypatch.setattr(commits_at_once, "MOST", 0)
    job = Job(open_ledger(Store(valkey_url), "t", ackers=3), group=2)
    job.ask(*[ROWS] * 4)
    own = {tag(keys.Stream("t", "rows").entries)}
    before = list[Moment]()

    def work() -> None:
        before_script(monkeypatch, "hold", lambda: before.append(moment(valkey_raw)), job.workers["fan"].work)

    before_script(monkeypatch, "gather", lambda: set_back(valkey_raw, before.pop(), own), work)
    job.work()
    assert sorted(job.sums) == [ROWS] * 4
    assert settler.settle(job.ledger, "asks").acked == 4


@pytest.mark.parametrize("once", [False, True])
def test_nothing_is_committed_of_rows_whose_tuples_a_node_has_lost_while_they_were_worked_on(
    valkey_url: str, valkey_raw: "redis.Redis", once: bool
) -> None:
    """They are in no tree any more, and what was made of them would be."""
    ledger = open_ledger(Store(valkey_url), "t", ackers=1)
    before = list[Moment]()

    def make(row: dict[str, Any], out: Out) -> None:
        set_back(valkey_raw, before.pop(), {tag(ledger.core.shards[0].slabs)})
        out.emit("made", {"id": row["id"]})

    first = Worker(ledger, FunctionStep("first", "asks", lambda row, out: out.emit("rows", row)))
    second = Worker(ledger, FunctionStep("second", "rows", make), once=once)
    for one in (first, second):
        assert not one.work()
    made = StreamReader(ledger, "made")
    StreamSpout(ledger, SpoutOptions("asks", "asks", "id")).write(pa.table({"id": ["a"]}))
    before.append(moment(valkey_raw))
    assert first.work()
    assert not second.work()
    assert not before
    second.work()  # it begins anew
    assert list(made.tables()) == []
    pending = ledger.counters()
    assert pending["tracked"] - pending["acked"] - pending["failed"] == 1


def settle_all(job: Job) -> None:
    """Works until all four requests are acked; they may have to expire first."""
    acked = 0
    while acked < 4:
        job.work()
        acked += settler.settle(job.ledger, "asks").acked
        job.ledger.tick(force=True)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("who", "at_once", "ends"),
    [
        *((who, at_once, False) for who in ("fan", "count", "coordinator") for at_once in (True, False)),
        ("fan", False, True),
        ("count", False, True),
    ],
)
def test_a_store_that_is_set_back_in_a_commit_finishes_no_request_without_all_its_rows(
    valkey_url: str,
    valkey_raw: "redis.Redis",
    monkeypatch: pytest.MonkeyPatch,
    who: str,
    at_once: bool,
    ends: bool,
) -> None:
    """Small commits are carried out by one script, others phase by phase.

    ends: who has committed then gives back what is not acked, and others work on that.
    """
    if not at_once:
        monkeypatch.setattr(commits_at_once, "MOST", 0)
    tried = 0
    for lost in range(1, FARTHEST + 1):
        first = 0
        while True:
            valkey_raw.flushall()
            job = Job(open_ledger(Store(valkey_url), "t", ackers=3), attempts=9, group=2)
            job.ask(*[ROWS] * 4)
            if who != "fan":
                job.workers["fan"].work()
            if who == "count":
                job.coordinate()
            act = job.coordinate if who == "coordinator" else job.workers[who].work
            if not losing(monkeypatch, valkey_raw, first, first + lost, act):
                break
            if ends:
                job.workers[who].end()
                job.workers[who] = Worker(job.ledger, job.workers[who].step)
            settle_all(job)
            assert set(job.sums) == {ROWS}, (first, lost)
            first, tried = first + 1, tried + 1
    assert tried >= (4 + 3 + 2 + 1 if at_once else 8 * FARTHEST)  # of five exchanges at least, at once


def test_nothing_is_published_where_the_store_has_forgotten_that_the_commit_is_final(
    valkey_url: str, valkey_raw: "redis.Redis", monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others would work on it at once, and the commit could be dropped for that, and made again."""
    monkeypatch.setattr(commits_at_once, "MOST", 0)
    job = Job(open_ledger(Store(valkey_url), "t", ackers=2), group=2)
    job.ask(ROWS, ROWS)
    going = Stepping(job.ledger, job.workers["fan"]._work(False))
    going.until("advance_commit")
    before = moment(valkey_raw)
    going.until("gather")
    set_back(valkey_raw, before)
    going.go_on(1)
    assert not list(valkey_raw.scan_iter("*:gathered:*"))
    going.go_on()
    job.work()
    assert job.sums == [ROWS] * 2
    assert not list(valkey_raw.scan_iter("*:made:*"))
    assert settler.settle(job.ledger, "asks").acked == 2


@pytest.mark.parametrize("once", [False, True])
@pytest.mark.parametrize("who", ["fan", "count", "add"])
def test_requests_that_a_worker_had_acked_fail_at_once_where_the_store_knows_that_no_more(
    valkey_url: str, valkey_raw: "redis.Redis", monkeypatch: pytest.MonkeyPatch, who: str, *, once: bool
) -> None:
    """While it lives nobody else has what it took: they would wait until their time is over."""
    job = Job(open_ledger(Store(valkey_url), "t", ackers=3), attempts=2)
    job.workers[who] = Worker(job.ledger, job.workers[who].step, once=once)
    before = list[Moment]()
    for _ in range(2):  # by its second batch it has a commit that the store knows of
        job.ask(2, 3)
        for name, worker in job.workers.items():
            if name == who and len(job.sums) == 2:
                before_script(monkeypatch, "chain", lambda: before.append(moment(valkey_raw)), worker.work)
            worker.work()
            job.coordinate()
    set_back(valkey_raw, before.pop())
    settled = Counter[str]()
    for _ in range(3):
        job.work()
        found = settler.settle(job.ledger, "asks")
        settled.update(acked=found.acked, replayed=found.replayed, dead=found.dead)
    assert +settled == ({"acked": 2, "dead": 2} if once else {"acked": 4, "replayed": 2})
    assert once or sorted(job.sums[-2:]) == [2, 3]
