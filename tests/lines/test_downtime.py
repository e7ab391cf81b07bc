"""Requests of a line that nobody works on wait, wherever their rows are: the clocks of all sections stop."""

from collections.abc import Callable

import pytest
import redis

from acker.inspect.trees import clocks
from acker.ledger.client import open_ledger
from acker.store import keys
from acker.store.client import Store
from acker.streams import downtime
from acker.streams.log import heartbeats
from acker.streams.spouts import settler
from acker.workers import leases
from tests.helpers.builders.line_job import Job, shift_lease
from tests.helpers.builders.streaming import counters
from tests.helpers.models.leaks import assert_settled
from tests.helpers.servers.servers import raw_client, wait_until


def rotate(job: Job, times: int = 6) -> int:
    """Rotates as a ticker does; returns how many trees expired."""
    expired = 0
    for _ in range(times):
        job.ledger.run(downtime.keep(job.ledger.core))
        expired += job.ledger.tick(force=True).expired
    return expired


def nothing(_: Job) -> None:
    """No worker is up."""


def first_step(job: Job) -> None:
    """All rows wait in a gather, and no coordinator is up."""
    job.workers["fan"].work()


def some_of_the_first(job: Job) -> None:
    """Rows wait in a gather for others, which wait in a stream."""
    job.workers["fan"].step.rows = 1
    job.workers["fan"].work()


def released(job: Job) -> None:
    """Rows wait behind a gather, and only a coordinator is up."""
    first_step(job)
    job.coordinate()


def between_gathers(job: Job) -> None:
    """The first gather is over, and no coordinator is up that sees to the second."""
    released(job)
    while job.workers["count"].work():
        pass


@pytest.mark.parametrize(
    "until", [nothing, first_step, some_of_the_first, released, between_gathers], ids=lambda one: one.__name__
)
def test_requests_wait_wherever_nobody_works_on_them(
    valkey_url: str, valkey_raw: "redis.Redis", until: Callable[[Job], None]
) -> None:
    job = Job(open_ledger(Store(valkey_url), "t", ackers=3), group=2)
    job.ask(4, 0)
    until(job)
    in_flight = job.ledger.run(clocks.page(job.ledger.core)).trees
    assert {one.bucket for one in in_flight if one.state == "pending"} == {"waiting"}
    assert rotate(job) == 0
    job.work()
    assert sorted(job.sums) == [0, 4]
    assert settler.settle(job.ledger).acked == 2
    assert counters(job.ledger)["acked"] == counters(job.ledger)["tracked"] == 6
    for _ in range(3):
        job.ledger.tick(force=True)
    assert_settled(valkey_raw)


@pytest.mark.parametrize("lease", [leases.LEASE, leases.MOST_LEASE])
@pytest.mark.parametrize("alive", [True, False])
def test_rows_that_a_worker_has_taken_wait_from_its_third_missed_sign_of_life_on(
    job: Job, alive: bool, lease: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A ticker knows before the lease of the worker ends, which may be longer than the message timeout."""
    monkeypatch.setattr(leases, "LEASE", lease)
    job.ask(4, 0)
    worker = job.workers["fan"]
    worker.step.run = lambda *_: 1 / 0  # type: ignore[assignment, method-assign]
    with pytest.raises(ZeroDivisionError):
        worker.work()
    # Alive for as long as the rotations may take.
    shift_lease(worker, 60 if alive else -heartbeats.MISSED * heartbeats.period(job.ledger.core))
    assert job.ledger.run(leases.alive(job.ledger.core, "asks", worker._slot)) == 1
    assert rotate(job) == (6 if alive else 0)


def test_a_request_that_has_waited_has_the_whole_timeout_in_all_sections(valkey_url: str) -> None:
    job = Job(open_ledger(Store(valkey_url), "t", ackers=3, message_timeout=1.0))
    job.ask(3)
    with raw_client(valkey_url) as client:
        [(entry, _)] = client.xrange(keys.Stream("t", "asks").entries.decode())
        published = int(entry.split(b"-")[0])
        wait_until(lambda: client.time()[0] * 1000 - published > 1500)
    assert rotate(job, 3) == 0
    assert job.ledger.tick(force=True).expired == 0  # the next one would expire all sections
    first_step(job)
    assert job.ledger.tick(force=True).expired == 0
    job.work()
    assert job.sums == [3]
    assert counters(job.ledger)["acked"] == 3
