"""Any line, any requests, any history of deaths, repeats and ticks: each gather has all rows, once.

What the steps are given is compared with tests/helpers/models/lines_model.py.
"""

import contextlib
import json
import os
import random
import uuid
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pyarrow as pa
import pytest
import redis
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from acker.errors import AckerError, FailedException, PermanentFailure
from acker.ledger.client import open_ledger
from acker.ledger.outcomes.outcomes import OutcomeReader
from acker.ledger.slabs.sections import SPOUT, within
from acker.lines import Gather, Line, Out, Request, coordinator
from acker.store import keys
from acker.store.client import Store
from acker.store.operation import Reply
from acker.store.operation import Request as Asked
from acker.streams.sources.spout_options import SpoutOptions
from acker.streams.spout import StreamSpout
from acker.streams.spouts import settler
from acker.workers.worker import Worker
from tests.helpers.faults.cuts import killed_after
from tests.helpers.faults.simulator import Killed
from tests.helpers.models.leaks import assert_settled
from tests.helpers.models.lines_model import LinesModel, Shape, dumped

EXAMPLES, FEW = int(os.environ.get("ACKER_HISTORIES", "25")), 8
PHASES = tuple(Phase) if os.environ.get("ACKER_HISTORIES_SHRINK") else (Phase.explicit, Phase.generate)
"""A failing history is made shorter only when asked for: that takes minutes."""
SEEDS = st.integers(0, 2**32 - 1)
DIES = st.one_of(st.none(), st.none(), st.integers(1, 70))
"""After how many requests who works is killed, if at all."""
PLACES = st.integers(0, 2**20)


class Histories(RuleBasedStateMachine):
    """A line of steps that do what the plan of a request says, two workers for each, and the model of it."""

    url: str

    @initialize(seed=SEEDS)
    def open(self, seed: int) -> None:
        chance = random.Random(seed)
        self.raw = redis.Redis.from_url(self.url)
        self.raw.flushall()
        self.copies: list[Asked] = []
        self.send = Store.send
        Store.send = lambda store, asked, noting=self._noting: noting(store, asked)  # type: ignore[method-assign, misc]
        self.ledger = open_ledger(Store(self.url), f"t{uuid.uuid4().hex}", ackers=chance.randint(1, 3))
        self.model = LinesModel(Shape.make(chance))
        shape = self.model.shape
        gathers = [Gather(f"gather{n}", tasks, ("key",)) for n, tasks in enumerate(shape.tasks, 1)]
        self.line = Line(self.ledger, "line", gathers)
        for section in range(1, len(gathers) + 2):
            self.line.step(f"flow{section}", reads=f"flow{section}")(partial(self._flow, section))
        for number in range(1, len(gathers) + 1):
            self.line.gather(f"gather{number}", reads=f"gather{number}")(self._gathering(number))
        self.workers = [*self.line.workers(), *self.line.workers()]
        for one in self.workers:
            one.work()
        self.coordinators = [OutcomeReader(self.ledger.core, SPOUT) for _ in range(2)]
        how = SpoutOptions("asks", "flow1", "id", attempts=1000, attempt="attempt", line="line")
        self.spouts = [
            StreamSpout(self.ledger, how),
            *(StreamSpout(self.ledger, SpoutOptions(**{**_fields(how), "group": n})) for n in (1, 2)),
        ]

    def _noting(self, store: Store, asked: Sequence[Asked]) -> list[Reply]:
        self.copies += [one for one in asked if one.script is not None and not one.script.reads]
        del self.copies[:-300]
        return self.send(store, asked)

    def _flow(self, section: int, row: dict[str, Any], out: Out) -> None:
        for kind, *more in json.loads(row["todo"]):
            if kind == "flow":
                out.emit(
                    f"flow{section}",
                    {"id": more[0], "todo": dumped(more[1]), "attempt": row["attempt"]},
                )
            elif kind == "gather":
                out.emit(f"gather{more[0]}", {"label": more[1], "key": more[1], "attempt": row["attempt"]})
            elif kind == "bad":
                raise PermanentFailure("bad")
            elif row["attempt"] <= more[0]:
                raise FailedException("at first")

    def _gathering(self, number: int) -> type[Any]:
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

    @rule(seed=SEEDS, count=st.integers(1, 5), spout=st.integers(0, 2))
    def ask(self, seed: int, count: int, spout: int) -> None:
        chance = random.Random(seed)
        plans = [self.model.plan(chance) for _ in range(count)]
        rows = {"id": [one.name for one in plans], "todo": [dumped(one.todo) for one in plans]}
        self.spouts[spout].write(pa.table(rows))

    @rule(place=PLACES, dies=DIES)
    def work(self, place: int, dies: int | None) -> None:
        place %= len(self.workers)
        one = self.workers[place]
        if self._lives(one.work, dies):
            return
        self.workers[place] = Worker(self.ledger, one.step)
        if one._slot >= 0:  # its time is over
            own = keys.Stream(self.ledger.config.name, one.step.reads)
            self.raw.hset(own.workers(one._slot).decode(), one.reader, 1)

    @rule(place=PLACES)
    def recover(self, place: int) -> None:
        self.workers[place % len(self.workers)].recover()

    @rule(place=st.integers(0, 1), dies=DIES)
    def coordinate(self, place: int, dies: int | None) -> None:
        if not self._lives(partial(self._coordinate, place), dies):
            self.coordinators[place] = OutcomeReader(self.ledger.core, SPOUT)

    def _coordinate(self, place: int) -> int:
        return self.ledger.run(coordinator.step(self.ledger.core, self.coordinators[place]))

    @rule(dies=DIES)
    def settle(self, dies: int | None) -> None:
        self._lives(self._settle, dies)

    def _settle(self) -> int:
        return settler.settle(self.ledger, "asks", self._outcomes).all

    def _outcomes(self, table: pa.Table) -> None:
        for row in table.to_pylist():
            if row["final"]:
                request = int(within(pa.array([row["anchor"]]).to_numpy(), 1)[0])
                self.model.ended(row["message_id"].decode(), row["status"], request)

    @rule()
    def tick(self) -> None:
        self.ledger.tick(force=True)

    @rule(place=PLACES)
    def deliver_late(self, place: int) -> None:
        """A copy of a request comes once more: of one that was made any time before."""
        if self.copies:
            with contextlib.suppress(AckerError):
                self.send(self.ledger.store, [self.copies[place % len(self.copies)]])

    @staticmethod
    def _lives(act: Callable[[], object], dies: int | None) -> bool:
        if dies is None:
            act()
            return True
        try:
            with killed_after(dies):
                act()
        except Killed:
            return False
        return True

    def teardown(self) -> None:
        try:
            if hasattr(self, "spouts"):
                self._end()
        finally:
            Store.send = self.send  # type: ignore[method-assign]
            self.raw.close()

    def _end(self) -> None:
        """Nobody dies any more: all that was asked ends, and nothing is left."""
        self.coordinators[0] = OutcomeReader(self.ledger.core, SPOUT)
        for _ in range(200):
            for one in self.workers:
                one.recover()
            done = sum(one.work() for one in self.workers) + self._coordinate(0) + self._settle()
            if not done:
                if self.model.is_over():
                    break
                self.ledger.tick(force=True)  # what a late copy has spoilt, or who died, expires
        assert self.model.is_over(), self.model.plans.keys() - self.model.over.keys()
        for _ in range(3):
            self.ledger.tick(force=True)
        self._coordinate(0)
        self._settle()
        assert_settled(self.raw)


def _fields(how: SpoutOptions) -> dict[str, Any]:
    return {
        name: getattr(how, name) for name in ("spout", "stream", "message_id", "attempts", "attempt", "line")
    }


def test_each_gather_has_all_rows_of_each_request_once(valkey_url: str, pytestconfig: pytest.Config) -> None:
    """With --slow, as in CI, of three times as many histories."""
    Histories.url = valkey_url
    number = EXAMPLES if pytestconfig.getoption("--slow") else min(FEW, EXAMPLES)
    bounded = settings(max_examples=number, stateful_step_count=40, derandomize=True, phases=PHASES)
    run_state_machine_as_test(Histories, settings=bounded)
