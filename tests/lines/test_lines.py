"""Lines in plain Python: requests go through them whole, also where workers and coordinators die."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import redis

from acker.errors import AckerError
from acker.inspect.locate.stuck import stuck
from acker.inspect.locate.why import GATED, why
from acker.ledger import ids
from acker.ledger.calls.core import Core
from acker.ledger.client import Ledger, open_ledger
from acker.ledger.outcomes import outcomes
from acker.ledger.outcomes.outcomes import OutcomeReader
from acker.ledger.slabs import sections
from acker.ledger.slabs.sections import SPOUT
from acker.lines import Out, arrivals, coordinator
from acker.store import keys
from acker.store.client import Store
from acker.store.operation import Operation, command
from acker.streams.commits import anchoring, commit
from acker.streams.commits.contents import Commit
from acker.streams.log import gathers, schemas, segments
from acker.streams.spouts import settler
from acker.streams.staging import staging
from acker.streams.stream import Stream
from acker.streams.upkeep import retention
from acker.workers import leases
from acker.workers.steps import FunctionStep
from acker.workers.worker import Worker
from tests.helpers.builders.line_job import Job, shift_lease
from tests.helpers.builders.streaming import counters, slot_of, take
from tests.helpers.models.leaks import assert_settled
from tests.helpers.servers.servers import wait_until


@pytest.mark.cluster(slow=True)
def test_a_request_is_finished_by_each_task_also_without_rows(url: str) -> None:
    job = Job(open_ledger(Store(url), "t", ackers=3))
    job.ask(0, 1, 2, 100)
    job.work()
    assert sorted(job.sums) == [0, 1, 2, 100]
    assert settler.settle(job.ledger).acked == 4
    assert counters(job.ledger)["acked"] == 12


def test_the_ends_of_bundles_count_as_no_rows_of_their_stream(job: Job) -> None:
    job.ask(0, 1, 2)
    job.workers["fan"].work()
    job.coordinate()

    def figures(stream: str) -> tuple[int, int, int]:
        [one] = Stream(job.ledger, stream).totals().subscriptions
        return one.rows_published, one.rows_acked, one.rows_behind

    def emitted(stream: str) -> int:
        [count] = job.ledger.store.send([command("HGET", keys.Stream("t", stream).subscriptions, "emitted")])
        return int(count)

    assert (figures("rows"), emitted("rows")) == ((3, 0, 3), 3)
    job.work()
    assert (figures("rows"), emitted("rows")) == ((3, 3, 0), 3)
    assert (figures("counts"), emitted("counts")) == ((6, 6, 0), 6)
    job.ask(1, name="dropped")
    job.workers["fan"].work()
    job.coordinate()
    rows = Stream(job.ledger, "rows")
    rows.limit(max_bytes=1)
    job.ledger.run(retention.retain(job.ledger.core, "rows"))
    assert figures("rows") == (4, 3, 0)


def test_threads_work_on_thousands_of_requests_at_once_until_they_are_stopped(valkey_url: str) -> None:
    job = Job(open_ledger(Store(valkey_url), "t", ackers=2), group=16)
    for one in job.workers.values():
        one.end()
    job.spout.write(pa.table({"id": [f"r{n}" for n in range(3000)], "n": [n % 5 for n in range(3000)]}))
    done = 0
    with job.line.work(threads=2):
        while done < 3000:
            done += settler.settle(job.ledger).all
    assert sorted(job.sums) == sorted(n % 5 for n in range(3000))
    for stream, step in (("asks", "fan"), ("rows", "count"), ("counts", "add")):
        workers = keys.Stream("t", stream).workers(slot_of(job.ledger, stream, step))
        [left] = job.ledger.store.send([command("EXISTS", workers)])
        assert not left


def test_a_step_whose_subscription_was_dropped_works_on_what_comes_after(job: Job) -> None:
    Stream(job.ledger, "asks").unsubscribe("fan")
    Stream(job.ledger, "rows").unsubscribe("count")
    job.work()
    job.ask(3)
    job.work()
    assert job.sums == [3]


def test_a_reset_in_one_section_is_of_the_request_in_all(job: Job) -> None:
    roots, others = job.ask(3), job.ask(4)
    assert job.ledger.reset_timeout(roots.anchors(2)) == 3
    assert job.ledger.reset_timeout([*roots.anchors(1), *others.anchors(3), 2 * 77 + 1]) == 6


def test_a_reset_costs_no_more_for_slabs_that_only_look_as_if_they_were_of_a_line(job: Job) -> None:
    core = job.ledger.core
    kept = ids.firsts_of(ids.seeded_ids(1, 0, 1000))  # as slabs of kept rows are named
    alike, own = sections.lines(kept) > 0, sections.lines(kept) == job.line.definition.number
    assert 200 < alike.sum() < 300
    assert 0 < own.sum() < 20

    calls = len(job.ledger.run(core.resetting(kept[~own])).calls)
    assert calls == len(core.reset_timeout(kept[~own], {}).calls)
    assert 2 * calls < len(core.reset_timeout(kept[~own]).calls)
    # Of the line that there is the sections are reset that it has, of whatever shape of its.
    roots = job.ask(3)
    all_of_it = [int(roots.anchors(section)[0]) for section in (1, 2, 3)]
    for anchor in all_of_it:
        found = sections.everywhere(np.array([anchor]), sections.counted(records(job)))
        assert sorted(found.tolist()) == sorted(all_of_it)
    assert job.ledger.reset_timeout([*kept, all_of_it[1]]) == 3


def records(job: Job) -> list[bytes]:
    [found] = job.ledger.store.send([command("HVALS", keys.lines("t"))])
    return list(found)


def test_a_line_that_cannot_be_read_counts_with_all_sections(job: Job) -> None:
    assert sections.counted(records(job)) == {1: 3}
    assert sections.counted([b"2 {", b"3 7"]) == {2: 8, 3: 8}
    assert sections.counted([*records(job), b"x [1]"]) is None
    roots = job.ask(3)
    job.ledger.store.send([command("HSET", keys.lines("t"), "line", "1 {")])
    assert job.ledger.reset_timeout(roots.anchors(2)) == 3


@pytest.mark.parametrize("gone", [False, True])
def test_requests_whose_group_is_that_of_others_draw_another_one(
    job: Job, monkeypatch: pytest.MonkeyPatch, gone: bool
) -> None:
    """gone: of others that are over. What is known of their group has rows dropped as late ones."""
    seeds, draw = list[int](), segments.new_seed

    def drawn() -> int:
        return seeds.pop() if seeds else draw()

    own = SimpleNamespace(**(vars(segments) | {"new_seed": drawn}))
    monkeypatch.setattr("acker.streams.sources.roots.segments", own)
    seeds.append(7)
    first = job.ask(3)
    if gone:
        job.work()
        assert settler.settle(job.ledger).acked == 1
    seeds += [7, 7]
    second = job.ask(4, name="again")
    assert not seeds
    assert first.seed == 7
    assert second.seed != 7
    job.work()
    assert sorted(job.sums) == [3, 4]
    assert settler.settle(job.ledger).acked == 2 - gone


def test_groups_that_are_drawn_together_are_each_another_one() -> None:
    assert gathers.all_differ(ids.as_ids([1, 3]))
    assert not gathers.all_differ(ids.as_ids([3, 3]))


@pytest.mark.parametrize("ackers", [1, 2, 3])
def test_rows_of_unread_requests_are_found_before_a_commit(valkey_url: str, ackers: int) -> None:
    """The trees of a request lie in any shards."""
    job = Job(open_ledger(Store(valkey_url), "t", ackers=ackers), group=1)
    own, other = (int(job.ask(1).anchors()[0]) for _ in range(2))
    batch = take(job.ledger, "asks", "fan", reader="r" * 32, segments=1)
    staged = [stage_rows(job.ledger, anchor) for anchor in (own, other)]
    job.ledger.run(anchoring.check(job.ledger.core, staged[:1], [batch]))
    with pytest.raises(
        AckerError, match="rows for stream 'rows' are anchored to 1 trees that the batch has not read"
    ):
        job.ledger.run(anchoring.check(job.ledger.core, staged, [batch]))


def test_one_request_fails_alone_in_all_its_sections(valkey_url: str) -> None:
    job = Job(open_ledger(Store(valkey_url), "t", ackers=2), attempts=2)
    bad = {2}

    def fan(row: dict[str, Any], out: Out) -> None:
        for i in range(row["n"]):
            out.emit("rows", {"i": i})
        if row["n"] in bad:
            bad.clear()
            raise OSError("no route")

    job.workers["fan"].step._function = fan  # type: ignore[union-attr]
    job.ask(1, 2, 3)
    job.work()
    assert sorted(job.sums) == [1, 3]
    assert counters(job.ledger)["failed"] == 3
    settled = settler.settle(job.ledger)
    assert (settled.acked, settled.replayed) == (2, 1)
    job.work()
    assert sorted(job.sums) == [1, 2, 3]


def test_lost_rows_fail_their_requests(job: Job, valkey_url: str, valkey_raw: "redis.Redis") -> None:
    roots = job.ask(5)
    job.workers["fan"].work()
    found = job.ledger.run(why(job.ledger.core, int(roots.anchors(2)[0])))
    assert {one.held_by for one in found.places} == {"waits there until all rows of its request are written"}
    assert "in stream rows for subscription count, waits there until" in found.places[0].text()
    # What is left of the ack value is the section's gate, which is no tuple: these are all.
    assert (found.complete, found.rest) == (True, GATED)
    last = job.ledger.run(why(job.ledger.core, int(roots.anchors(3)[0])))
    assert (last.places, last.complete, last.rest) == ((), True, GATED)
    valkey_raw.delete(keys.Stream("t", "rows").payload(found.places[0].segment).decode())
    job.work()
    assert job.sums == []
    settler.settle(job.ledger)
    assert counters(job.ledger)["failed"] == 2


def test_who_has_the_rows_of_a_worker_is_told_and_whether_it_is_alive(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases, "LEASE", leases.MOST_LEASE)  # longer than the looks may take
    roots = job.ask(5)
    worker = job.workers["fan"]
    told = list[str]()

    def look(row: dict[str, Any], out: Any) -> None:
        core = job.ledger.core
        [place] = job.ledger.run(why(core, int(roots.anchors(1)[0]))).places
        [share] = job.ledger.run(stuck(core)).stuck[0].shares
        assert place.taken_by == share.holder
        assert place.taken_by is not None
        told.append(place.taken_by.text())

    worker.step = FunctionStep("fan", "asks", look)
    worker.work()
    assert told == [f"worker {worker.reader}, which is alive"]


def test_a_worker_taken_for_dead_commits_nothing(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "LEASE", -1.0)
    job.ask(4)
    [slow, other] = [Worker(job.ledger, job.workers["fan"].step) for _ in range(2)]
    run, given = slow.step.run, list[int]()

    def paused(*args: Any) -> Any:
        made = run(*args)
        if not given:
            given.append(0)
            monkeypatch.setattr(leases, "LEASE", 10.0)
            other.work()  # finds out where it reads
            given[0] = other.recover()
            assert other.work() == 1
        return made

    monkeypatch.setattr(slow.step, "run", paused)
    assert slow.work() == 0
    assert given == [1]
    monkeypatch.undo()
    job.work()
    assert job.sums == [4]


def test_a_dead_worker_loses_its_rows_over_a_clock_step(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    job.ask(4)
    [dead, other] = [Worker(job.ledger, job.workers["fan"].step) for _ in range(2)]
    monkeypatch.setattr(leases, "LEASE", 0.1)
    with monkeypatch.context() as patched:
        patched.setattr(dead.step, "run", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            dead.work()
    shift_lease(dead, 3_600)
    other.work()
    wait_until(other.recover)
    job.work()  # its own workers may count as dead by then, and begin anew
    job.work()
    assert job.sums == [4]


def test_a_group_that_has_gone_is_released_once(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    """One releases it and dies; one has read of it, too, and goes on when a third has forgotten it."""
    roots = job.ask(3)
    job.workers["fan"].work()
    core, noting, gone = job.ledger.core, arrivals.noting, list[bytes]()
    progress = keys.Stream("t", "rows").progress(sections.group_of(ids.slab_of(int(roots.anchors(1)[0]))))

    def paused(*args: Any) -> Any:
        monkeypatch.setattr(arrivals, "noting", noting)
        job.ledger.run(coordinator.step(core, OutcomeReader(core, SPOUT), gone))
        job.ledger.run(coordinator.forget(core, gone))
        [left] = job.ledger.store.send([command("TTL", progress)])
        assert 0 < left <= 2 * job.ledger.config.message_timeout
        job.ledger.store.send([command("UNLINK", progress)])  # that time is over
        return noting(*args)

    def dying(*_: Any) -> Operation[None]:
        yield from ()

    with monkeypatch.context() as patch:
        patch.setattr(outcomes, "confirm", dying)
        job.ledger.run(coordinator.step(core, OutcomeReader(core, SPOUT), gone))
    assert gone == [progress]
    monkeypatch.setattr(arrivals, "noting", paused)
    job.ledger.run(coordinator.step(core, OutcomeReader(core, SPOUT)))
    assert gone == []
    job.work()
    assert job.sums == [3]
    assert settler.settle(job.ledger).acked == 1


def test_rows_after_their_group_are_dropped_and_counted(job: Job, valkey_raw: "redis.Redis") -> None:
    roots = job.ask(3)
    first = int(roots.anchors(1)[0])
    staged = stage_rows(job.ledger, first)
    job.ledger.fail(roots.anchors(1))
    job.coordinate()
    before = job.ledger.store.send([command("HGET", keys.Stream("t", "rows").subscriptions, "too_late")])
    assert before == [None]
    job.ledger.run(publish(job.ledger, staged))
    [late] = job.ledger.store.send([command("HGET", keys.Stream("t", "rows").subscriptions, "too_late")])
    assert late == b"2"
    job.work()
    settler.settle(job.ledger)
    for _ in range(3):
        job.ledger.tick(force=True)
    assert_settled(valkey_raw)


def stage_rows(ledger: Ledger, anchor: int) -> Any:
    rows = pa.table({"i": [0, 1], "_acker": pa.array([anchor, anchor])})
    ledger.run(schemas.record(ledger.core, "rows", rows.schema))
    return ledger.run(staging.stage(ledger.core, staging.Staging("rows"), rows.to_batches()))


def publish(ledger: Ledger, staged: Any) -> Any:
    return commit.commit(ledger.core, "late", 0, Commit((staged,)))


def test_a_new_column_of_another_worker_fails_nobody(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker whose rows are null in a column leaves it out, where there was no stream when it looked."""
    enlist, seen = schemas.enlist, list[str]()

    def enlist_before(core: Core, name: str) -> Operation[bytes | None]:
        if name != "counts" or seen:
            return (yield from enlist(core, name))
        seen.append(name)
        columns = [("n", pa.int64()), ("id", pa.string()), ("_acker", pa.int64())]
        yield from schemas.record(core, name, pa.schema(columns))
        return None

    monkeypatch.setattr(schemas, "enlist", enlist_before)
    job.ask(3)
    job.work()
    assert seen
    assert job.sums == [3]
