"""Rows that come when their request is over, however long ago, are dropped and counted: none waits."""

from typing import Any

import pyarrow as pa
import pytest
import redis

from acker.ledger.client import open_ledger
from acker.lines import coordinator
from acker.store import keys
from acker.store.client import Store
from acker.store.operation import Request
from acker.streams.commits import commit as commits
from acker.streams.commits import scripts
from acker.streams.commits.contents import Commit
from acker.streams.log import schemas
from acker.streams.sources.roots import Roots
from acker.streams.spouts import settler
from acker.streams.staging import staging
from acker.workers.steps import StepOutput
from tests.helpers.builders.line_job import Job
from tests.helpers.faults.cuts import as_in_a_cluster, script_by_script
from tests.helpers.models.leaks import assert_settled

ROWS = keys.Stream("t", "rows")


def end_for_good(job: Job, roots: Roots, raw: "redis.Redis") -> None:
    """Fails a request, and has the store forget all that it knows of it."""
    anchors, gone = roots.anchors(1), list[bytes]()
    job.ledger.fail(anchors)
    job.ledger.run(coordinator.step(job.ledger.core, job.reader, gone))
    job.ledger.run(coordinator.forget(job.ledger.core, gone))
    settler.settle(job.ledger)
    for _ in range(3):
        job.ledger.tick(force=True)
    raw.unlink(*raw.keys("*progress*"))  # their time is over


def assert_dropped(job: Job, rows: int, raw: "redis.Redis") -> None:
    """All rows of the stream came too late, and nothing is left of any request."""
    assert int(raw.hget(ROWS.subscriptions.decode(), "too_late") or 0) == rows
    job.work()
    assert job.sums == []
    for _ in range(3):
        job.ledger.tick(force=True)
    assert_settled(raw)


@pytest.mark.parametrize("apart", [False, True])
def test_a_step_that_ends_long_after_its_request_leaves_nothing(
    job: Job, valkey_raw: "redis.Redis", monkeypatch: pytest.MonkeyPatch, apart: bool
) -> None:
    if apart:
        script_by_script(monkeypatch)
    roots, worker = job.ask(3, 4), job.workers["fan"]
    run = worker.step.run

    def slow(*args: Any) -> StepOutput:
        made = run(*args)
        end_for_good(job, roots, valkey_raw)
        return made

    monkeypatch.setattr(worker.step, "run", slow)
    worker.work()
    assert_dropped(job, 7, valkey_raw)


def test_a_commit_finished_after_its_request_leaves_nothing(job: Job, valkey_raw: "redis.Redis") -> None:
    roots = job.ask(2)
    staged = stage_rows(job, roots)
    end_for_good(job, roots, valkey_raw)
    job.ledger.run(commits.commit(job.ledger.core, "late", 0, Commit((staged,))))
    assert_dropped(job, 2, valkey_raw)


def test_what_a_look_says_of_a_group_holds_no_longer_than_it_is_known_to_be_over(
    job: Job, valkey_raw: "redis.Redis", monkeypatch: pytest.MonkeyPatch
) -> None:
    """A commit may be paused between its look and what it does then: it looks again."""
    staged = stage_rows(job, job.ask(2))
    gather, said = scripts.gather, list[int]()

    def paused(config: Any, stream: Any, ttl: int, known: int, *more: Any) -> Request:
        said.append(known)
        return gather(config, stream, ttl, known if len(said) > 1 else -1, *more)

    monkeypatch.setattr(scripts, "gather", paused)
    as_in_a_cluster(monkeypatch)
    job.ledger.run(commits.commit(job.ledger.core, "late", 0, Commit((staged,))))
    assert said == [2000 * 30, 2000 * 30]
    assert valkey_raw.hget(ROWS.subscriptions.decode(), "waiting") == b"2"


def test_rows_of_a_group_of_which_one_request_is_over_wait_for_the_others(valkey_url: str) -> None:
    job = Job(open_ledger(Store(valkey_url), "t", ackers=2), group=2)
    roots = job.ask(2, 3)
    job.ledger.fail(roots.anchors(1)[:1])
    job.coordinate()
    job.work()
    assert job.sums == [3]


def stage_rows(job: Job, roots: Roots) -> staging.Staged:
    anchor, core = int(roots.anchors(1)[0]), job.ledger.core
    rows = pa.table({"i": [0, 1], "_acker": pa.array([anchor, anchor])})
    job.ledger.run(schemas.record(core, "rows", rows.schema))
    return job.ledger.run(staging.stage(core, staging.Staging("rows"), rows.to_batches()))
