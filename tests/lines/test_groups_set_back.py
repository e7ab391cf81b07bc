"""A store is set back while coordinators work: a group goes on with all its requests, and not before."""

from functools import partial
from typing import Any

import pyarrow as pa
import pytest
import redis

from acker.errors import FailedException
from acker.ledger.client import open_ledger
from acker.ledger.outcomes.outcomes import OutcomeReader
from acker.ledger.slabs.sections import SPOUT
from acker.lines import Gather, Line, Out, coordinator
from acker.store.client import Store
from acker.streams.commits import at_once as commits_at_once
from acker.streams.sources.spout_options import SpoutOptions
from acker.streams.spout import StreamSpout
from acker.streams.spouts import settler
from acker.workers.steps import FunctionStep, GatherStep
from acker.workers.worker import Worker
from tests.helpers.builders.gatherers import counting_ends, noting
from tests.helpers.builders.line_job import Job
from tests.helpers.faults.cuts import before_script
from tests.helpers.faults.simulator import moment, set_back
from tests.helpers.faults.stepping import Stepping

ROWS = 3


def test_a_request_that_was_over_before_a_loss_is_not_taken_for_over_when_others_of_its_group_are(
    valkey_url: str, valkey_raw: "redis.Redis", monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store is set back when the coordinator has read an outcome, and before it notes that."""
    ledger = open_ledger(Store(valkey_url), "t", ackers=1)
    Line(ledger, "line", [Gather("rows")])

    def fan(row: dict[str, Any], out: Out) -> None:
        out.emit(row["id"], {"id": row["id"]})

    def pass_on(row: dict[str, Any], out: Out) -> None:
        out.emit("rows", {"id": row["id"]})

    found = list[list[str]]()

    workers = [Worker(ledger, FunctionStep("fan", "asks", fan))]
    workers += [Worker(ledger, FunctionStep(name, name, pass_on)) for name in ("a", "b")]
    workers.append(Worker(ledger, GatherStep("note", "rows", noting(found.append))))
    for one in workers:
        assert not one.work()
    reader = OutcomeReader(ledger.core, SPOUT)
    coordinate = partial(ledger.run, coordinator.step(ledger.core, reader))
    how = SpoutOptions("asks", "asks", "id", line="line", group=2)
    StreamSpout(ledger, how).write(pa.table({"id": ["a", "b"]}))
    assert workers[0].work()
    before = moment(valkey_raw)
    assert workers[1].work()
    before_script(monkeypatch, "chain", lambda: set_back(valkey_raw, before), coordinate)
    assert not list(valkey_raw.scan_iter("*:progress:*"))
    assert workers[2].work()
    assert ledger.run(coordinator.step(ledger.core, reader)) == 1
    assert ledger.run(coordinator.step(ledger.core, reader)) == 0  # it is noted, and keeps nobody waiting
    for _ in range(4):
        ledger.run(coordinator.step(ledger.core, reader))
        for one in workers[1:]:
            one.work()
    assert sorted(found) == [["a"], ["b"]]
    assert settler.settle(ledger, "asks").acked == 2


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("at_once", [True, False])
def test_a_group_is_not_released_without_a_request_whose_outcome_was_just_lost(
    valkey_url: str, valkey_raw: "redis.Redis", monkeypatch: pytest.MonkeyPatch, at_once: bool, fails: bool
) -> None:
    """What another coordinator has noted of it had completed the group. Worked on again, it fails, too."""
    if not at_once:
        monkeypatch.setattr(commits_at_once, "MOST", 0)
    job = Job(open_ledger(Store(valkey_url), "t", ackers=2), group=2)
    core, finished = job.ledger.core, counting_ends(monkeypatch, job.workers["count"].step)
    for name in "ab":  # the requests of a group come apart
        job.line.step(name, reads=name)(job._fan)
    job.workers |= {one.step.name: one for one in job.line.workers() if one.step.name in "ab"}
    step = FunctionStep("fan", "asks", lambda row, out: out.emit(row["id"], {"n": row["n"]}))
    apart = Worker(job.ledger, step)
    for one in (apart, job.workers["a"], job.workers["b"]):
        assert not one.work()
    job.spout.write(pa.table({"id": ["a", "b"], "n": [ROWS, ROWS]}))
    assert apart.work() == 1
    assert job.workers["a"].work() == 1
    before = moment(valkey_raw)
    going = Stepping(job.ledger, coordinator.step(core, job.reader))
    going.until("chain")
    assert job.workers["b"].work() == 1
    other = Stepping(job.ledger, coordinator.step(core, OutcomeReader(core, SPOUT)))
    other.until("chain")
    other.go_on(1)  # it has noted what it knows, and ends
    going.go_on(1)
    going.until("chain" if at_once else "stage")
    set_back(valkey_raw, before)
    if fails:
        Worker(job.ledger, FunctionStep("b", "b", refuse)).work()
    going.go_on()
    job.workers["count"].work()
    job.coordinate()
    job.workers["b"] = Worker(job.ledger, job.workers["b"].step)
    job.work()
    assert job.sums == [ROWS] * (2 - fails)
    assert len({one.id for one in finished}) == 2 - fails
    assert settler.settle(job.ledger, "asks").acked == 2 - fails


def refuse(_: dict[str, Any], __: Out) -> None:
    raise FailedException("no")
