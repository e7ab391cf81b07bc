"""Asynchronous steps: many rows are under way at a time, and each request has what is its own."""

import asyncio
import contextlib
from typing import Any

import pyarrow as pa
import pytest

from acker.collectors.topology import Topology
from acker.drpc import LinearDRPC
from acker.drpc import Out as Answer
from acker.errors import DRPCFailed, FailedException, ValidationError
from acker.ledger.user_functions import event_loop
from acker.lines import Out, Request
from acker.streams.reader import StreamReader
from acker.streams.spouts import settler
from acker.workers.worker import Worker
from tests.helpers.builders.counting import Count
from tests.helpers.builders.line_job import Job


def emitted(job: Job, stream: str) -> list[Any]:
    return [row for table in StreamReader(job.ledger, stream).tables() for row in table.to_pylist()]


def test_so_many_rows_are_under_way_and_no_more_and_what_they_emit_is_in_their_order(job: Job) -> None:
    together, most, under_way = asyncio.Barrier(5), 0, 0

    @job.line.step("ask", reads="asks", concurrency=5)
    async def ask(row: dict[str, Any], out: Out) -> None:
        nonlocal most, under_way
        under_way += 1
        most = max(most, under_way)
        out.emit("asked", {"n": row["n"], "part": 1})
        await together.wait()  # never over, where fewer are under way
        await asyncio.sleep(0.01 * (row["n"] % 3))
        out.emit("asked", {"n": row["n"], "part": 2})
        under_way -= 1

    worker = Worker(job.ledger, job.line._steps["ask"])
    worker.work()
    job.ask(*range(20))
    assert worker.work()
    assert most == 5
    assert [(row["n"], row["part"]) for row in emitted(job, "asked")] == [
        (n, part) for n in range(20) for part in (1, 2)
    ]


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise ValueError


def test_what_a_row_raises_or_its_time_fails_its_request_alone(job: Job) -> None:
    async def fan(row: dict[str, Any], out: Out) -> None:
        for i in range(row["n"]):
            out.emit("rows", {"i": i})
        if row["n"] == 2:
            raise FailedException("no")
        if row["n"] == 3:
            await asyncio.sleep(60)
        if row["n"] == 4:
            asyncio.current_task().cancel()  # type: ignore[union-attr]
            await asyncio.sleep(60)
        if row["n"] == 5:
            raise SystemExit(1)
        if row["n"] == 7:
            raise Unspeakable
        if row["n"] == 8:
            raise KeyboardInterrupt
        if row["n"] == 9:
            raise GeneratorExit

    job.line.step("other", reads="asks", concurrency=1, timeout=0.05)(fan)
    job.workers["fan"].step = job.line._steps["other"]
    job.workers["fan"].step.name = "fan"
    job.ask(1, 2, 3, 4, 5, 6, 7, 8, 9)
    job.work()
    assert sorted(job.sums) == [1, 6]
    reasons = list[str]()
    settler.settle(job.ledger, "asks", lambda table: reasons.extend(table["reason"].to_pylist()))
    assert sorted(filter(None, reasons)) == [
        "in section rows: CancelledError",
        "in section rows: GeneratorExit",
        "in section rows: KeyboardInterrupt",
        "in section rows: SystemExit: 1",
        "in section rows: TimeoutError: no result within 0.05 s",
        "in section rows: Unspeakable",
        "in section rows: no",
    ]


def test_a_gathering_class_has_the_rows_of_a_request_one_after_another(job: Job) -> None:
    seen, together = dict[tuple[int, int], list[int]](), asyncio.Barrier(2)

    @job.line.gather("order", reads="rows")
    class Order:
        def __init__(self, request: Request) -> None:
            self.rows = seen[request.id, request.task] = []

        async def execute(self, row: dict[str, Any]) -> None:
            if row["i"] == 1:
                await together.wait()  # of two requests
            await asyncio.sleep(0.001 * (row["i"] % 3))
            if row["i"] >= 8 and 1 in self.rows:  # after both have met, in whichever task that was
                raise FailedException("eight or more")
            self.rows.append(row["i"])

        async def finished(self, out: Out) -> None:
            await asyncio.sleep(0.001)
            out.emit("ordered", {"n": len(self.rows)})

    worker = Worker(job.ledger, job.line._steps["order"])
    worker.work()
    roots = job.ask(8, 12)
    job.workers["fan"].work()
    job.coordinate()
    while worker.work():
        pass
    parts = [[rows for (one, _), rows in seen.items() if one == anchor] for anchor in roots.anchors(1)]
    assert all(rows == sorted(rows) for one in parts for rows in one)
    assert sorted(i for rows in parts[0] for i in rows) == [*range(8)]
    assert sum(row["n"] for row in emitted(job, "ordered") if row["_acker"] == roots.anchors(2)[0]) == 8
    assert job.ledger.counters()["failed"] == 1


def test_a_function_may_have_asynchronous_steps_that_share_a_loop(valkey_url: str) -> None:
    loops = set[int]()

    async def fan(row: dict[str, Any], out: Answer) -> None:
        loops.add(id(asyncio.get_running_loop()))
        if row["args"] == "bad":
            raise FailedException("bad arguments")
        for n in range(row["args"]):
            await asyncio.sleep(0)
            out.emit({"n": n})

    class Awaiting(Count):
        async def finished(self, out: Answer) -> None:  # type: ignore[override]
            loops.add(id(asyncio.get_running_loop()))
            await asyncio.sleep(0)
            super().finished(out)

    function = LinearDRPC("count").step("fan", fan, columns={"n": pa.int64()}, concurrency=10)
    function.gather("count", Awaiting)
    with Topology(valkey_url, "t", ackers=2) as topology, function.work(topology, threads=2):
        client = topology.drpc("count")
        assert client.execute_many(range(100)) == list(range(100))
        with pytest.raises(DRPCFailed, match="bad arguments"):
            client.execute("bad")
    assert len(loops) == 1


def test_a_loop_goes_on_when_a_step_ends_the_program() -> None:
    async def end(error: type[BaseException]) -> None:
        raise error

    async def one() -> int:
        return 1

    for error in (KeyboardInterrupt, SystemExit):
        with contextlib.suppress(error):
            event_loop.run(end(error))
        assert event_loop.run(one()) == 1


def test_what_is_not_asynchronous_has_no_concurrency_and_a_coroutine_of_it_is_refused(job: Job) -> None:
    for wrong in ({"concurrency": 3}, {"timeout": 1.0}):
        with pytest.raises(ValidationError, match="are for functions that are `async def`"):
            job.line.step("plain", reads="asks", **wrong)(print)
        with pytest.raises(ValidationError, match="are for functions that are `async def`"):
            LinearDRPC("f").step("one", print, columns={"n": pa.int64()}, **wrong)

    async def fan(_: dict[str, Any], __: Out, /) -> None:
        pass

    def plain(row: dict[str, Any], out: Out) -> object:
        return fan(row, out)

    with pytest.raises(ValidationError, match="concurrency: expected int from 1 to 10,000"):
        job.line.step("none", reads="asks", concurrency=0)(fan)
    job.workers["fan"].step._function = plain  # type: ignore[union-attr]
    job.ask(1)
    job.work()
    reasons = list[str]()
    settler.settle(job.ledger, "asks", lambda table: reasons.extend(table["reason"].to_pylist()))
    assert reasons == [
        "in section rows: expected a function that is done when it returns, or an asynchronous one, got a "
        "coroutine"
    ]
