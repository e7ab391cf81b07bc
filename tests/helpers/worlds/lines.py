"""The world of a line: requests of any plan, two processes of workers, two coordinators and a settler."""

import json
import random
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

import pyarrow as pa

from acker.errors import FailedException, PermanentFailure
from acker.ledger.client import Ledger
from acker.ledger.outcomes.outcomes import OutcomeReader
from acker.ledger.slabs.sections import SPOUT, within
from acker.lines import Gather, Line, Out, Request, coordinator
from acker.streams.log.segments import ANCHORS
from acker.streams.sources.spout_options import SpoutOptions
from acker.streams.spout import StreamSpout
from acker.streams.spouts import settler
from acker.streams.upkeep import retention
from acker.workers.worker import Worker
from tests.helpers.faults.simulator import World
from tests.helpers.models.leaks import assert_settled
from tests.helpers.models.lines_model import LinesModel, Shape, dumped
from tests.helpers.worlds.claims import take_for_dead

HOW: dict[str, Any] = {"attempts": 1000, "attempt": "attempt", "line": "line"}
_ROUNDS = 200


class LineWorld(World):
    """A line of up to three gathers: a plan says what a request does, the model what each gather has of it.

    The model: a task of a gather is told once that it has all of a request, and has all of it then; a request
    that is acked was told to all tasks. Whether streams are read fairly, and how requests are grouped, goes
    by the seed.
    """

    actors: ClassVar = ("work", "work_too", "coordinate", "coordinate_too", "settle")
    events: ClassVar = ("ask", "expire", "limit", "tick")
    scripts: ClassVar = (
        "claim_and_read", "note_arrivals", "release_bundle", "gather", "extend_rows", "begin_commit",
        "advance_commit", "apply_staged", "publish", "note_segments", "confirm", "settle",
        "end_commit", "chain",
    )  # fmt: skip
    settings: ClassVar = {"ackers": 2}

    def __init__(self, url: str, cluster: bool = False, seed: int = 0) -> None:
        super().__init__(url, cluster, seed)
        self.chance = random.Random(seed)
        self.fair_by = ANCHORS if seed % 3 == 2 else ""
        self.model = LinesModel(Shape.make(self.chance))
        self.narrow = False
        for worker in self.line(self.ledger).workers():
            worker.work()  # subscribes
        group = (None, 1, 2)[seed % 3]
        self.spout = StreamSpout(self.ledger, SpoutOptions("asks", "flow1", "id", group=group, **HOW))
        self.ask()

    def line(self, ledger: Ledger) -> Line:
        """The line, as a process has it."""
        shape = self.model.shape
        gathers = [Gather(f"gather{n}", tasks, ("key",)) for n, tasks in enumerate(shape.tasks, 1)]
        line = Line(ledger, "line", gathers)
        for section in range(1, len(gathers) + 2):
            step = line.step(f"flow{section}", reads=f"flow{section}", fair_by=self.fair_by)
            step(partial(self.flow, section))
        for number in range(1, len(gathers) + 1):
            step = line.gather(f"gather{number}", reads=f"gather{number}", fair_by=self.fair_by)
            step(self.gathering(number))
        return line

    @staticmethod
    def flow(section: int, row: dict[str, Any], out: Out) -> None:
        """An ordinary step: does what a row's plan says."""
        for kind, *more in json.loads(row["todo"]):
            if kind == "flow":
                todo = {"id": more[0], "todo": dumped(more[1]), "attempt": row["attempt"]}
                out.emit(f"flow{section}", todo)
            elif kind == "gather":
                out.emit(f"gather{more[0]}", {"label": more[1], "key": more[1], "attempt": row["attempt"]})
            elif kind == "bad":
                raise PermanentFailure("bad")
            elif row["attempt"] <= more[0]:
                raise FailedException("at first")

    def gathering(self, number: int) -> type[Any]:
        """The class of a gather, which notes what it has, and says something of it."""
        model, to = self.model, self.model.shape.then[number - 1]

        class Gathering:
            def __init__(self, request: Request) -> None:
                self.request = request
                self.labels: list[str] = []

            def execute(self, row: dict[str, Any]) -> None:
                self.labels.append(row["label"])

            def finished(self, out: Out) -> None:
                model.finished(self.request.id, number, self.request.task, self.labels)
                said = f"said by {number}.{self.request.task}"
                if to == "flow":
                    last = number == len(model.shape.tasks)
                    todo = [] if last else [["gather", number + 1, said]]
                    out.emit(f"flow{number + 1}", {"id": said, "todo": dumped(todo), "attempt": 0})
                elif to:
                    out.emit(f"gather{to}", {"label": said, "key": said, "attempt": 0})

        return Gathering

    def ask(self) -> None:
        """Two requests come."""
        plans = [self.model.plan(self.chance) for _ in range(2)]
        rows = {"id": [one.name for one in plans], "todo": [dumped(one.todo) for one in plans]}
        self.spout.write(pa.table(rows))

    def work(self, ledger: Ledger) -> None:
        """A process with a worker for each step."""
        self.work_for(self.line(ledger).workers(), 3)

    work_too = work

    @staticmethod
    def work_for(workers: list[Worker], rounds: int) -> int:
        """Lets workers work, and look after dead ones."""
        done = 0
        for _ in range(rounds):
            for worker in workers:
                worker.recover()
                done += worker.work()
        return done

    def coordinate(self, ledger: Ledger) -> None:
        """A coordinator, as a line's own: it waits for outcomes, and goes on by what has come."""
        reader, memory = OutcomeReader(ledger.core, SPOUT), coordinator.Memory()
        for _ in range(4):
            asked = reader.blocking(1)
            asked.args = [*asked.args[:3], *asked.args[5:]]  # without its "BLOCK 1"
            [come] = ledger.store.send([asked])
            ledger.run(coordinator.step(ledger.core, reader, memory=memory, come=come))

    def coordinate_too(self, ledger: Ledger) -> None:
        """A coordinator that remembers nothing."""
        reader = OutcomeReader(ledger.core, SPOUT)
        for _ in range(4):
            ledger.run(coordinator.step(ledger.core, reader))

    def settle(self, ledger: Ledger) -> int:
        """A settler's round."""
        return settler.settle(ledger, "asks", self.note).all

    def note(self, table: pa.Table) -> None:
        """The caller hears of outcomes."""
        for row in table.to_pylist():
            if row["final"]:
                request = int(within(pa.array([row["anchor"]]).to_numpy(), 1)[0])
                self.model.ended(row["message_id"].decode(), row["status"], request)

    def expire(self) -> None:
        """All workers are taken for dead."""
        take_for_dead(self.raw)

    def limit(self) -> None:
        """The streams of gathers have room for hardly anything, or have it again."""
        self.narrow = not self.narrow
        for number in range(1, len(self.model.shape.tasks) + 1):
            limited: Callable[..., Any] = partial(retention.limit, self.ledger.core, f"gather{number}")
            self.ledger.run(limited(max_bytes=500 if self.narrow else 10**9))

    def tick(self) -> None:
        """Time passes."""
        self.ledger.tick(force=True)

    def check(self) -> None:
        """Nobody dies any more: all requests end, as the model has it, and nothing is left."""
        if self.narrow:
            self.limit()
        self.expire()
        workers, reader = self.line(self.ledger).workers(), OutcomeReader(self.ledger.core, SPOUT)
        for _ in range(_ROUNDS):
            done = self.work_for(workers, 1) + self.settle(self.ledger)
            done += self.ledger.run(coordinator.step(self.ledger.core, reader))
            if not done:
                if self.model.is_over() or self.simulator.losses:
                    break
                self.tick()  # what a late copy has spoilt, or who died, expires
        if not (self.simulator.losses and self.simulator.cluster):
            self.model.check_seen()
        if self.simulator.losses:
            return
        assert self.model.is_over(), self.model.plans.keys() - self.model.over.keys()
        for _ in range(3):
            self.tick()
        self.ledger.run(coordinator.step(self.ledger.core, reader))
        self.settle(self.ledger)
        assert_settled(self.raw)
