"""How much a worker takes at a time: what others could do is left to them."""

import asyncio
import threading
from typing import Any

import pyarrow as pa
import pytest

from acker import Topology
from acker.drpc import LinearDRPC, Out
from acker.ledger.client import open_ledger
from acker.lines import workers
from acker.lines.steps import FunctionStep
from acker.lines.workers import Worker
from acker.store.client import Store
from acker.streams import StreamSpout, Tracking
from acker.streams.together import Pace
from tests.helpers.streaming import counters


class Count:
    def __init__(self, _: object) -> None:
        self.n = 0

    def execute(self, _: dict[str, Any]) -> None:
        self.n += 1

    def finished(self, out: Out) -> None:
        out.result(self.n)


def test_calls_that_come_at_one_time_are_worked_on_side_by_side(valkey_url: str) -> None:
    side_by_side = threading.Barrier(2, timeout=60)

    def meet(row: dict[str, Any], out: Out) -> None:
        if row["args"] in (0, 15):  # the first call and the last: one thread alone would wait for itself
            side_by_side.wait()
        out.emit({"n": 1})

    function = LinearDRPC("meeting", idempotent=True, attempts=1, timeout=100.0)
    function.step("meet", meet, columns={"n": pa.int64()}).gather("count", Count)
    topology = Topology(valkey_url, "t", ackers=2)
    with function.work(topology, threads=2):
        client = topology.drpc("meeting")
        client._sending = True  # nothing is written until all have asked
        asked = [client.begin(number).future for number in range(16)]
        threading.Thread(target=client._send, daemon=True).start()
        assert [one.result() for one in asked] == [1] * 16


def test_rows_that_wait_side_by_side_are_taken_together(valkey_url: str) -> None:
    ledger, all_there = open_ledger(Store(valkey_url), "t", ackers=1), asyncio.Barrier(20)

    async def meet(_: dict[str, Any], __: object) -> None:
        await all_there.wait()

    step = FunctionStep("meet", "rows", meet, pace=Pace(concurrency=20, timeout=60.0))
    worker = Worker(ledger, step)
    worker.work()  # subscribes
    spout = StreamSpout(ledger, Tracking("rows", "rows", "id"))
    spout.write(pa.table({"id": [str(number) for number in range(20)]}), segments=20)
    assert worker.work() == 20
    assert counters(ledger)["acked"] == 20


def test_a_worker_takes_about_as_much_as_it_does_in_a_second(
    valkey_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = open_ledger(Store(valkey_url), "t", ackers=1)
    now, pace, sizes = [0.0], [0.001], list[int]()

    class Clock:
        @staticmethod
        def monotonic() -> float:
            return now[0]

    def work(_: dict[str, Any], __: object) -> None:
        now[0] += pace[0]
        sizes[-1] += 1

    monkeypatch.setattr(workers, "time", Clock)
    worker = Worker(ledger, FunctionStep("slow", "rows", work), most_rows=1_000)
    worker.work()  # subscribes
    spout = StreamSpout(ledger, Tracking("rows", "rows", "id"))
    spout.write(pa.table({"id": [str(number) for number in range(900)]}), segments=900)
    while not sizes or sizes[-1]:
        sizes.append(0)
        worker.work()
        if sum(sizes) > 100:
            pace[0] = 0.1
    assert sizes[:3] == [8, 32, 128]
    assert sizes[3] == 500  # what one call gives at most; 50 s of work, as it turns out
    assert set(sizes[4:9]) <= {9, 10}
