"""The ticker and the settler make a line's gathers go on."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import pytest

from acker.cli.app import run
from acker.ledger.client import open_ledger
from acker.ledger.slabs.sections import SPOUT
from acker.lines.coordinate_all import Coordinating
from acker.spark import settling
from acker.store import keys
from acker.store.client import Store
from acker.store.operation import command
from acker.streams.spouts import settler
from tests.helpers.builders.line_job import Job
from tests.helpers.faces.api import serving


def job_of(url: str, name: str) -> Job:
    job = Job(open_ledger(Store(url), name, ackers=2))
    job.ask(3, 0)
    return job


def work(job: Job) -> int:
    return sum(one.work() for one in job.workers.values())


@contextmanager
def of_spark(url: str) -> Iterator[None]:
    with settling(url=url, topology="t"):
        yield


def of_the_service(url: str) -> AbstractContextManager[object]:
    return serving(url, history=False)


def of_ticks(_: str) -> AbstractContextManager[object]:
    return nullcontext()


@pytest.mark.parametrize("by", [of_spark, of_the_service, of_ticks])
def test_who_settles_coordinates_too(
    valkey_url: str,
    by: object,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ACKER_URL", valkey_url)
    job = job_of(valkey_url, "t")
    assert callable(by)
    with by(valkey_url):
        while len(job.sums) < 2:
            work(job)
            if by is of_ticks:
                assert run(["tick", "--once"]) == 0
    assert sorted(job.sums) == [0, 3]


def test_a_bad_topology_keeps_no_other_waiting(valkey_url: str, caplog: pytest.LogCaptureFixture) -> None:
    jobs = [job_of(valkey_url, name) for name in ("a", "b")]
    open_ledger(Store(valkey_url), "without", ackers=1)
    store = jobs[0].ledger.store
    for job in jobs:
        work(job)
    broken = keys.Shard("a", 0, 2).outcomes(SPOUT)
    store.send([command("UNLINK", broken), command("SET", broken, "no stream")])
    everything = Coordinating(store)
    for _ in range(2):
        everything.step()
        while work(jobs[1]):
            everything.step()
    assert jobs[0].sums == []
    assert sorted(jobs[1].sums) == [0, 3]
    assert len([one for one in caplog.records if one.name == "acker.lines.coordinate_all"]) == 1
    store.send([command("UNLINK", broken)])
    assert settler.settle(jobs[1].ledger).acked == 2
