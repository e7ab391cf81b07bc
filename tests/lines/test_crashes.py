"""Workers of a line may die: the line goes on exactly, and nothing is left over (test_histories.py)."""

import subprocess
import sys

import pytest
import redis

from acker.ledger.client import open_ledger
from acker.lines import Out, coordinator
from acker.store import keys
from acker.store.client import Store
from acker.store.operation import command
from acker.streams.spouts import settler
from acker.workers import leases
from acker.workers.worker import Worker
from tests.helpers.builders.line_job import Job
from tests.helpers.builders.streaming import counters
from tests.helpers.models.leaks import assert_settled
from tests.helpers.servers.servers import wait_until

HANGING = """
import sys, time
from acker.workers import leases
leases.LEASE = 0.5
from acker.ledger.client import open_ledger
from acker.store import keys
from acker.store.client import Store
from acker.store.operation import command
from tests.helpers.builders.line_job import Job
job = Job(open_ledger(Store(sys.argv[1]), "t"))
step, rows = job.line._steps["count"], []
make = step._make

class Hanging(make):
    def execute(self, row):
        rows.append(row)
        if len(rows) == 3:
            print("between two rows", flush=True)
            time.sleep(600)
        super().execute(row)

step._make = Hanging
with job.line.work():
    time.sleep(600)
"""


def settled(job: Job) -> None:
    """Settles, and works on what is tried again, until all requests are acked."""
    job.work()
    while settler.settle(job.ledger, "asks").replayed:
        job.work()


def test_a_worker_killed_between_rows_repeats(valkey_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "LEASE", 0.5)
    job = Job(open_ledger(Store(valkey_url), "t", ackers=2))
    job.ask(10, 0)
    with subprocess.Popen([sys.executable, "-c", HANGING, valkey_url], stdout=subprocess.PIPE) as worker:
        assert worker.stdout
        assert worker.stdout.readline() == b"between two rows\n"
        worker.kill()
    with job.line.work():
        wait_until(lambda: len(job.sums) == 2)
    assert sorted(job.sums) == [0, 10]
    assert settler.settle(job.ledger).acked == 2


def test_what_is_known_of_groups_goes_though_their_coordinator_was_killed(
    valkey_url: str, valkey_raw: "redis.Redis", monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else it would stay for two weeks."""
    job = Job(open_ledger(Store(valkey_url), "t", ackers=2), group=1)
    job.ask(3, 0)
    job.work()  # by a coordinator that forgets nothing
    core, known = job.ledger.core, [key.decode() for key in valkey_raw.scan_iter("*progress*")]
    assert len(known) == 4
    assert job.ledger.run(coordinator.sweep(core)) == 0  # it may be alive
    monkeypatch.setattr(coordinator, "ABANDONED", -1.0)
    assert job.ledger.run(coordinator.sweep(core)) == 4
    assert all(0 < valkey_raw.ttl(key) <= 2 * job.ledger.config.message_timeout for key in known)
    assert not list(valkey_raw.scan_iter("*}:gone"))


def test_who_takes_over_lets_go_of_what_a_dead_worker_had_acked(
    job: Job, valkey_raw: "redis.Redis", monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else its rows would stay for a day, for a batch that no worker runs again."""
    job.ask(3)
    monkeypatch.setattr(leases, "LEASE", -1.0)
    job.workers["fan"].work(again=True)  # the next claim would let go of them
    kept = "acker:{t/asks}:payload:*", "acker:{t/asks}:unacked:*"
    assert [len(valkey_raw.keys(one)) for one in kept] == [1, 1]
    other = Worker(job.ledger, job.workers["fan"].step)
    other._slot = job.workers["fan"]._slot
    assert other.recover() == 0
    assert [len(valkey_raw.keys(one)) for one in kept] == [0, 0]
    monkeypatch.undo()
    job.work()
    assert job.sums == [3]


def test_a_bundle_goes_whole_to_one_of_two_readers_whatever_they_take(valkey_url: str) -> None:
    job = Job(open_ledger(Store(valkey_url), "t", ackers=2), group=1)
    more = [f"more-{n}" for n in range(5)]
    for name in more:
        job.line.step(name, reads="asks")(Job._fan)
    job.workers |= {one.step.name: one for one in job.line.workers() if one.step.name in more}
    for name in more:
        job.workers[name].work()
    job.ask(40, 50)
    for name in ("fan", *more):
        job.workers[name].work()
    job.coordinate()
    readers = [Worker(job.ledger, job.workers["count"].step, most_rows=20) for _ in range(2)]
    taken = [reader.work() for _ in range(2) for reader in readers]
    assert taken == [7] * 4  # of each of two requests and tasks six segments, and the last word
    job.work()
    assert sorted(job.sums) == [6 * 40, 6 * 50]


@pytest.mark.parametrize("released", [False, True])
def test_a_request_that_expires_while_it_gathers_is_tried_again_from_the_start(
    valkey_url: str, valkey_raw: "redis.Redis", released: bool
) -> None:
    job = Job(open_ledger(Store(valkey_url), "t", ackers=2), attempts=2)
    job.line.step("slow", reads="asks")(lambda _, __: None)
    slow = job.workers["slow"] = next(one for one in job.line.workers() if one.step.name == "slow")
    slow.work()
    job.ask(5, 0)
    job.workers["fan"].work()
    if released:
        slow.work()
        job.coordinate()
        while job.workers["count"].work():
            pass
    for _ in range(3):
        job.ledger.tick(force=True)
    job.coordinate()
    if not released:
        [waiting] = job.ledger.store.send(
            [command("HGET", keys.Stream("t", "rows").subscriptions, "waiting")]
        )
        assert waiting == b"0"
    job.work()
    assert settler.settle(job.ledger).replayed == 2
    settled(job)
    assert sorted(job.sums) == [0, 5]
    over_before = 4 if released else 0
    assert counters(job.ledger)["acked"] == 6 + over_before
    for _ in range(3):
        job.ledger.tick(force=True)
    assert_settled(valkey_raw)


def test_a_failed_finish_fails_its_request_alone_without_its_emits(valkey_url: str) -> None:
    job, failed = Job(open_ledger(Store(valkey_url), "t", ackers=2), attempts=2), list[int]()
    make = job.workers["count"].step._make  # type: ignore[union-attr]

    class Failing(make):  # type: ignore[misc, valid-type]
        def finished(self, out: Out) -> None:
            super().finished(out)
            if self.n and not failed:
                failed.append(self.n)
                raise ValueError("in the end")

    job.workers["count"].step._make = Failing  # type: ignore[union-attr]
    job.ask(0, 0, 9)
    job.work()
    assert job.sums == [0, 0]
    assert len(failed) == 1
    settled(job)
    assert job.sums == [0, 0, 9]


def test_what_comes_when_all_was_flushed_is_worked_on(valkey_url: str, valkey_raw: "redis.Redis") -> None:
    job = Job(open_ledger(Store(valkey_url), "t", ackers=2))
    with job.line.work():
        job.ask(3)
        wait_until(lambda: job.sums == [3])
        valkey_raw.flushall()
        again = Job(open_ledger(Store(valkey_url), "t", ackers=2))
        again.ask(4)
        wait_until(lambda: job.sums == [3, 4])
    assert settler.settle(again.ledger).acked == 1
