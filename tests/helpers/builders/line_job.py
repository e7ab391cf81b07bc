"""A line of two gathers with its workers, which a test drives by hand."""

from typing import Any

import pyarrow as pa

from acker.ledger import ids
from acker.ledger.client import Ledger
from acker.ledger.outcomes.outcomes import OutcomeReader
from acker.ledger.slabs import sections
from acker.ledger.slabs.sections import SPOUT
from acker.lines import Gather, Line, Out, Request, coordinator
from acker.store import keys
from acker.store.operation import command
from acker.streams.sources.roots import Roots
from acker.streams.sources.spout_options import SpoutOptions
from acker.streams.spout import StreamSpout
from acker.workers.worker import Worker


def new_first(line: int) -> int:
    """The first anchor of a new group of a line's requests, in its first section."""
    return int(sections.firsts(line, 1, ids.new_ids(1))[0])


def shift_lease(worker: Worker, seconds: float) -> None:
    """Makes the lease of a worker end that much later, as if the clock of the store had been set back."""
    workers = keys.Stream(worker.ledger.config.name, worker.step.reads).workers(worker._slot)
    [stored] = worker.ledger.store.send([command("HGET", workers, worker.reader)])
    until, length = stored.split()
    moved = int(until) + round(seconds * 1000)
    worker.ledger.store.send([command("HSET", workers, worker.reader, b"%d %s" % (moved, length))])


class Job:
    """A line of two gathers: requests of n rows, which two tasks count, and one adds up."""

    def __init__(self, ledger: Ledger, *, attempts: int = 1, group: int | None = None) -> None:
        self.ledger = ledger
        self.sums: list[int] = []
        self.line = Line(ledger, "line", [Gather("rows", tasks=2, by=("i",)), Gather("counts")])
        self.line.step("fan", reads="asks")(self._fan)
        sums = self.sums

        @self.line.gather("count", reads="rows")
        class Count:
            def __init__(self, _: Request) -> None:
                self.n = 0

            def execute(self, _: dict[str, Any]) -> None:
                self.n += 1

            def finished(self, out: Out) -> None:
                out.emit("counts", {"n": self.n})

        @self.line.gather("add", reads="counts")
        class Add:
            def __init__(self, _: Request) -> None:
                self.n = 0

            def execute(self, row: dict[str, Any]) -> None:
                self.n += row["n"]

            def finished(self, _: Out) -> None:
                sums.append(self.n)

        self.workers = {one.step.name: one for one in self.line.workers()}
        self.reader = OutcomeReader(ledger.core, SPOUT)
        how = SpoutOptions("asks", "asks", "id", attempts=attempts, line="line", group=group)
        self.spout = StreamSpout(ledger, how)
        for one in self.workers.values():
            one.work()  # subscribes

    @staticmethod
    def _fan(row: dict[str, Any], out: Out) -> None:
        for i in range(row["n"]):
            out.emit("rows", {"i": i})

    def ask(self, *numbers: int, name: str = "r") -> Roots:
        [made] = self.spout.write(
            pa.table({"id": [f"{name}{place}" for place in range(len(numbers))], "n": numbers})
        )
        return made

    def coordinate(self) -> None:
        while self.ledger.run(coordinator.step(self.ledger.core, self.reader)):
            pass

    def work(self) -> None:
        """Until nothing happens any more."""
        done = 1
        while done:
            done = sum(one.work() for one in self.workers.values())
            done += self.ledger.run(coordinator.step(self.ledger.core, self.reader))
