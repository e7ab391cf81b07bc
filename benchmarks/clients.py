"""Client processes that update a ledger side by side."""

import multiprocessing
import time
from collections.abc import Iterable
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Self

import numpy as np

from acker.ledger.client import Ledger, open_ledger
from acker.ledger.ids import Ids
from acker.store.client import Store
from benchmarks.ledger import in_batches
from benchmarks.servers import Took, cpu_seconds

TIMEOUT = 60.0


def opened(url: str, topology: str = "bench", **settings: int) -> Ledger:
    """A ledger that is never full, and patient."""
    if settings:
        settings.setdefault("high_water_mark", 1_000_000_000)
    return open_ledger(Store(url, timeout=TIMEOUT), topology, **settings)  # type: ignore[arg-type]


class Clients:
    """`count` processes. Each is one client with two threads: one encodes while the other waits.

    nodes: the URLs of all servers behind `url`, where that is a cluster.
    """

    def __init__(self, url: str, count: int, nodes: Iterable[str] = ()) -> None:
        self._nodes = list(nodes) or [url]
        self._pipes: list[Connection] = []
        self._processes = []
        context = multiprocessing.get_context("spawn")
        for _ in range(count):
            own, theirs = context.Pipe()
            process = context.Process(target=_run, args=(url, theirs), daemon=True)
            process.start()
            theirs.close()
            self._pipes.append(own)
            self._processes.append(process)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for pipe in self._pipes:
            pipe.close()
        for process in self._processes:
            process.join()

    def update(self, anchors: Ids, deltas: Ids, batch: int, topology: str = "bench") -> Took:
        """Each process updates an equal share, in calls of `batch`; how long until the last was done."""
        parts = len(self._pipes)
        for pipe, own, words in zip(
            self._pipes, np.array_split(anchors, parts), np.array_split(deltas, parts), strict=True
        ):
            pipe.send((topology, own, words, batch))
        for pipe in self._pipes:
            pipe.recv()
        before = self._cpu()
        start = time.perf_counter()
        for pipe in self._pipes:
            pipe.send(None)
        problems = [problem for pipe in self._pipes if (problem := pipe.recv())]
        seconds = time.perf_counter() - start
        if problems:
            raise RuntimeError(problems[0])
        return Took(seconds, self._cpu() - before)

    def _cpu(self) -> float:
        return sum(map(cpu_seconds, self._nodes))


def _run(url: str, pipe: Connection) -> None:
    """Runs a client process until its pipe ends."""
    while True:
        try:
            topology, anchors, deltas, batch = pipe.recv()
        except EOFError:
            return
        ledger = opened(url, topology)
        ledger.counters()  # connected before the clock runs
        pipe.send(None)
        pipe.recv()
        try:
            in_batches(ledger, anchors, deltas, batch)
        except Exception as error:  # noqa: BLE001 - the parent raises it
            pipe.send(repr(error))
        else:
            pipe.send(None)
