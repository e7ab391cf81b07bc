"""The size of a worker's claim: what others could do is left to them."""

import asyncio
import threading
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from acker.errors import ValidationError
from acker.ledger.client import open_ledger
from acker.ledger.user_functions.async_calls import Pace
from acker.lines import line
from acker.lines.line import look_after, renew
from acker.store.client import Store
from acker.store.operation import Request
from acker.streams import SpoutOptions, StreamSpout
from acker.workers import leases, room
from acker.workers import worker as workers_worker
from acker.workers.steps import FunctionStep, worked
from acker.workers.worker import Worker
from tests.helpers.builders.line_job import Job
from tests.helpers.builders.streaming import counters


def test_rows_that_wait_side_by_side_are_taken_together(valkey_url: str) -> None:
    ledger, all_there = open_ledger(Store(valkey_url), "t", ackers=1), asyncio.Barrier(20)

    async def meet(_: dict[str, Any], __: object) -> None:
        await all_there.wait()

    step = FunctionStep("meet", "rows", meet, pace=Pace(concurrency=20, timeout=60.0))
    worker = Worker(ledger, step)
    worker.work()  # subscribes
    spout = StreamSpout(ledger, SpoutOptions("rows", "rows", "id"))
    spout.write(pa.table({"id": [str(number) for number in range(20)]}), segments=20)
    assert worker.work() == 20
    assert counters(ledger)["acked"] == 20


def test_a_worker_takes_a_second_of_work(valkey_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = open_ledger(Store(valkey_url), "t", ackers=1)
    now, sizes = [0.0], list[int]()

    class Clock:
        @staticmethod
        def monotonic() -> float:
            return now[0]

    def work(_: dict[str, Any], __: object) -> None:
        now[0] += 0.1
        sizes[-1] += 1

    monkeypatch.setattr(workers_worker, "time", Clock)
    step = FunctionStep("slow", "rows", work)
    worker, other = (Worker(ledger, step, most_rows=1_000) for _ in range(2))
    worker.work()  # subscribes
    spout = StreamSpout(ledger, SpoutOptions("rows", "rows", "id"))
    spout.write(pa.table({"id": [str(number) for number in range(900)]}), segments=900)
    while not sizes or sizes[-1]:
        sizes.append(0)
        (other if len(sizes) == 2 else worker).work()
    assert sizes[0] == 500  # what one call gives at most; 50 s of work, as it turns out
    assert set(sizes[1:6]) <= {9, 10}  # also by the other one, which has not worked before


def test_a_worker_takes_no_more_bytes_than_its_step_may_and_its_part_of_those_of_its_process(
    valkey_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A larger row is taken alone, and what is compressed well counts as it is in memory."""
    ledger = open_ledger(Store(valkey_url), "t", ackers=1)
    shared = room.Room(1 << 20)
    monkeypatch.setattr(room, "OF_PROCESS", shared)
    worker = Worker(ledger, FunctionStep("look", "rows", lambda *_: None, max_bytes=400_000))
    worker.work()  # subscribes
    spout = StreamSpout(ledger, SpoutOptions("rows", "rows", "id"))
    for name, kilobytes in (("small", [90] * 12), ("large", [90, 2_000, 90, 90])):
        rows = {"id": [f"{name}{place}" for place in range(len(kilobytes))]}
        texts = ["x" * 1000 * size for size in kilobytes]
        spout.write(pa.table({**rows, "text": texts}), segments=len(kilobytes))
    with shared.shared_by(2):
        assert [worker.work() for _ in range(2)] == [4, 4]
    with shared.shared_by(8):  # each has an eighth of a mebibyte
        assert worker.work() == 1
    assert [worker.work() for _ in range(4)] == [4, 1, 2, 0]
    with pytest.raises(ValidationError, match="max_bytes: expected int from 1 to"):
        worked(print, max_bytes=0)


def test_a_bundle_is_taken_whole_whatever_it_holds(job: Job) -> None:
    job.ask(40, 50)
    job.workers["fan"].work()
    job.coordinate()
    job.workers["count"].step.max_bytes = 1
    assert [job.workers["count"].work() for _ in range(3)] == [2, 2, 0]  # a request's rows, and its last word
    job.work()
    assert sorted(job.sums) == [40, 50]


def test_idle_threads_cost_by_their_number(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not as the square of that: hundreds would take so long that all of them counted as dead."""
    send, sent, costs = Store.send, 0, list[int]()
    monkeypatch.setattr(leases, "LEASE", 600.0)  # none is over before its renewal

    def counted(store: Store, requests: Sequence[Request]) -> list[Any]:
        nonlocal sent
        # Callers of a test before may still wait for a moment, with stores of their own.
        sent += len(requests) if store is job.line.ledger.store else 0
        return send(store, requests)

    for threads in (4, 8, 12):
        its = [worker for _ in range(threads) for worker in job.line.workers()]
        for one in its:
            one.work()  # it counts as alive
        with monkeypatch.context() as patched:
            patched.setattr(Store, "send", counted)
            sent = 0
            renew(job.line, its, leases.Renewals())
            look_after(job.line, its, threading.Event())
        costs.append(sent)
    assert costs[2] - costs[1] == costs[1] - costs[0] == 4 * len(job.line._steps)


def test_a_worker_looks_again_at_the_bell(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each look at an empty stream takes the store's time from workers that have rows."""
    worker, pauses = job.workers["fan"], list[float]()
    worker.step.rows = 1
    for name in "ab":
        job.ask(1, name=name)

    class Noting(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            pauses.append(timeout or 0)
            if len(pauses) > 4:
                stop.set()
            return False

    stop = threading.Event()
    line._run(worker, stop, Noting())
    wait = line._PAUSE
    assert pauses == [wait, 0, wait, wait, wait], "the first, the second, which is the last, and nothing"
