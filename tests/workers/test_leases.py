"""Signs of life: all workers of a process send them together, and they hold as long as needed."""

import socket
import time
from types import SimpleNamespace

import pytest

from acker.ledger.client import Ledger, open_ledger
from acker.lines.line import renew
from acker.store.client import Store
from acker.workers import leases
from acker.workers.steps import FunctionStep
from acker.workers.worker import Worker
from tests.helpers.builders.line_job import Job
from tests.helpers.faults.proxy import proxied


def alive(ledger: Ledger, worker: Worker) -> int:
    return ledger.run(leases.alive(ledger.core, worker.step.reads, worker._slot))


def test_the_signs_of_life_of_all_workers_are_one_exchange_with_the_store(
    valkey_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """128 leases that are renewed one after the other take 25 s where the store is 200 ms away."""
    monkeypatch.setattr(leases, "LEASE", 600.0)  # none is over before the last worker has begun
    exchanges = list[bytes]()

    def far(_: socket.socket, request: bytes) -> None:
        if b"EVAL" in request:
            exchanges.append(request)
            time.sleep(0.2)

    with proxied(valkey_url) as proxy:
        job = Job(open_ledger(Store(proxy.url), "t", ackers=1))
        step = FunctionStep("many", "asks", lambda *_: None)
        workers = [Worker(job.ledger, step) for _ in range(128)]
        for one in workers:
            one.work()
        assert alive(job.ledger, workers[0]) == 128
        proxy.passed = far
        before = len(exchanges)
        renew(job.line, workers, leases.Renewals())
        assert len(exchanges) - before <= 4  # pieces of a large one


def test_a_lease_is_as_long_as_signs_of_life_need(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    """A step that holds the interpreter for 13 s keeps its whole process from giving any."""
    now, renewals, worker = [1000.0], leases.Renewals(), job.workers["fan"]
    monkeypatch.setattr(leases, "time", SimpleNamespace(monotonic=lambda: now[0]))

    def pause(seconds: float) -> float:
        now[0] += seconds
        renew(job.line, [worker], renewals)
        return renewals.lease

    period = renewals.period(job.ledger.core)
    assert [pause(period), pause(period)] == [leases.LEASE] * 2
    assert pause(13 + period) == pytest.approx(leases.LEASE + 39)
    assert pause(period) == pytest.approx(leases.LEASE + 39)
    assert pause(500) == leases.MOST_LEASE
    for _ in range(leases._ROUNDS):
        pause(period)
    assert renewals.lease == leases.LEASE, "what was long ago is forgotten"
