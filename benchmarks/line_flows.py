"""Topologies of `benchmarks.lines`: their steps, and the waiters at their streams."""

import threading
import time
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from acker import Topology
from acker.ledger.outcomes.outcomes import OutcomeReader
from acker.ledger.slabs.sections import SPOUT
from acker.lines import Gather, Line, Out, Request, coordinator
from acker.streams.sources.spout_options import SpoutOptions
from acker.streams.spout import StreamSpout
from acker.streams.spouts import settler
from acker.workers.steps import FunctionStep
from acker.workers.worker import Worker
from benchmarks.servers import client

_HOUR = 3600.0
_LONGEST = 600.0


class Flow:
    """Three steps; the last one gathers, or not."""

    def __init__(self, url: str, name: str, tuples: int, lines: bool) -> None:
        self.topology = Topology(url, name, message_timeout=_HOUR)
        self.ledger = self.topology.ledger
        self.seen = self.complete = 0
        self.reader = OutcomeReader(self.ledger.core, SPOUT)
        flow = self

        def fan(_: dict[str, Any], out: Out) -> None:
            for number in range(tuples):
                out.emit("parts", {"n": number})

        def work(row: dict[str, Any], out: Out) -> None:
            out.emit("sums", {"n": row["n"] + 1})

        def add(row: dict[str, Any], _: Out) -> None:
            flow.seen += row["n"]

        class Sum:
            def __init__(self, _: Request) -> None:
                self.sum = 0

            def execute(self, row: dict[str, Any]) -> None:
                self.sum += row["n"]

            def finished(self, _: Out) -> None:
                flow.seen += self.sum
                flow.complete += 1

        if lines:
            line = Line(self.ledger, "flow", [Gather("sums")])
            line.step("fan", reads="requests")(fan)
            line.step("work", reads="parts")(work)
            line.gather("add", reads="sums")(Sum)
            self.workers = line.workers()
        else:
            steps = (("fan", "requests", fan), ("work", "parts", work), ("add", "sums", add))
            self.workers = [
                Worker(self.ledger, FunctionStep(step, reads, function)) for step, reads, function in steps
            ]
        how = SpoutOptions("requests", "requests", "request", line="flow" if lines else "")
        self.spout = StreamSpout(self.ledger, how)
        for worker in self.workers:
            worker.work()

    def run(self, requests: int) -> None:
        """Has requests go through all steps, and settles them."""
        self.spout.write(pa.table({"request": [str(number) for number in range(requests)]}))
        settled = 0
        while settled < requests:
            for worker in self.workers:
                while worker.work():
                    pass
            while self.ledger.run(coordinator.step(self.ledger.core, self.reader)):
                pass
            settled += settler.settle(self.ledger, "requests").acked


class Gathering:
    """A line whose first step has a row wait at its gather; what it holds back keeps a request open."""

    def __init__(self, url: str, group: int | None) -> None:
        self.topology = Topology(url, "bench", message_timeout=_HOUR)
        self.ledger = self.topology.ledger
        self.finished = 0
        self.line = Line(self.ledger, "line", [Gather("rows"), Gather("last")])
        self.core, self.reader = self.ledger.core, OutcomeReader(self.ledger.core, SPOUT)
        gathering = self

        @self.line.step("pass", reads="requests")
        def pass_on(row: dict[str, Any], out: Out) -> None:
            out.emit("rows", {"n": 1})
            if row["held"]:
                out.emit("parked", {"n": 1})

        @self.line.gather("count", reads="rows")
        class Count:
            def __init__(self, _: Request) -> None:
                pass

            def execute(self, _: dict[str, Any]) -> None:
                pass

            def finished(self, _: Out) -> None:
                gathering.finished += 1

        self.first, self.second = self.line.workers()
        how = SpoutOptions("requests", "requests", "request", line="line", group=group)
        self.spout = StreamSpout(self.ledger, how)
        self.single = StreamSpout(
            self.ledger, SpoutOptions("singles", "requests", "request", line="line", group=1)
        )
        self.first.work()
        self.second.work()

    def write(self, requests: int, held: bool, spout: StreamSpout | None = None) -> None:
        """Begins requests."""
        names = [str(number) for number in range(requests)]
        (spout or self.spout).write(pa.table({"request": names, "held": [held] * requests}))

    def gather(self) -> None:
        """Has what was begun wait at the gather."""
        while self.first.work():
            pass

    def release(self) -> None:
        """Has what is complete go on, and works on it."""
        while self.ledger.run(coordinator.step(self.core, self.reader)):
            pass
        while self.second.work():
            pass


class Arrival:
    """The arrival of the next entry in one of some streams."""

    def __init__(self, url: str, streams: Sequence[bytes]) -> None:
        self._raw = client(url)
        self._last: dict[bytes, Any] = {}
        for key in streams:
            newest = self._raw.xrevrange(key, count=1)
            self._last[key] = newest[0][0] if newest else b"0-0"
        self._at: list[float] = []
        self._thread = threading.Thread(target=self._wait)

    def __enter__(self) -> "Arrival":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.join()
        self._raw.close()

    def _wait(self) -> None:
        if self._raw.xread(self._last, block=round(_LONGEST * 1000)):
            self._at.append(time.perf_counter())

    def at(self) -> float:
        """Waits for it."""
        self._thread.join()
        return self._at[0]
