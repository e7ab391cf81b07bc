"""A step knows when it has seen everything, in any order of events, also where the store is set back."""

import contextlib
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import pyarrow as pa
import pytest
import redis

from acker.errors import AckerError, FailedException
from acker.inspect.locate.drops import drops
from acker.ledger.client import open_ledger
from acker.ledger.outcomes.outcomes import OutcomeReader
from acker.ledger.slabs.sections import SPOUT, within
from acker.lines import Gather, Line, Out, Request, coordinator
from acker.store import keys
from acker.store.client import Store
from acker.streams.log import fairness
from acker.streams.log.segments import ANCHORS
from acker.streams.reader import StreamReader
from acker.streams.sources.spout_options import SpoutOptions
from acker.streams.spout import StreamSpout
from acker.streams.spouts import replays, settler
from acker.streams.upkeep import retention
from acker.workers.steps import FunctionStep, GatherStep
from acker.workers.worker import Worker
from tests.helpers.builders.gatherers import noting
from tests.helpers.faults.simulator import Moment, moment, set_back, tag
from tests.helpers.faults.turns import Turns

pytestmark = pytest.mark.damage
"""A store that forgets leaves rows without an owner."""

TASKS = 3


class Flow:
    """Requests n, of which a step makes n * n rows; the tasks of one gather count them, another adds up."""

    def __init__(
        self, url: str, turns: Turns, group: int, pause: int, ackers: int, fair_by: str = ""
    ) -> None:
        self.turns = turns
        self.pause = pause
        self.written: dict[str, int] = {}
        self.told: dict[int, set[tuple[int, int]]] = {}
        self.sums: dict[str, set[int]] = {}
        self.finished: Counter[tuple[int, int]] = Counter()
        self.wrong: list[str] = []
        self.acked: set[str] = set()
        self.answers: dict[str, set[tuple[int, int]]] = {}
        """What the last step was told of the attempt that was acked: how many counts, and their sum."""
        self.bad: set[str] = set()
        self.sizes: dict[int, int] = {}
        self.ledger = open_ledger(Store(url), "t", ackers=ackers)
        self.ticker = open_ledger(Store(url), "t")
        gathers = [Gather("rows", tasks=TASKS, by=("i",)), Gather("counts")]
        self.line = Line(self.ledger, "squares", gathers)
        self.line.step("fan", reads="numbers", fair_by="id" if fair_by else "")(self._fan)
        for name in ("even", "odd"):  # so requests of a group come to the end of their first section apart
            self.line.step(name, reads=name, fair_by=fair_by)(self._pass_on)
        flow = self

        @self.line.gather("count", reads="rows", fair_by=fair_by)
        class Count:
            def __init__(self, request: Request) -> None:
                self.request = request
                self.names: list[str] = []

            def execute(self, row: dict[str, Any]) -> None:
                self.names.append(row["id"])

            def finished(self, out: Out) -> None:
                flow.finished[self.request.id, self.request.task] += 1
                out.emit("counts", {"n": len(self.names), "id": self.names[0] if self.names else None})

        @self.line.gather("add", reads="counts", fair_by=fair_by)
        class Add:
            def __init__(self, request: Request) -> None:
                self.request = request
                self.counts: list[dict[str, Any]] = []

            def execute(self, row: dict[str, Any]) -> None:
                self.counts.append(row)

            def finished(self, _: Out) -> None:
                flow.add(self.request, self.counts)

        self.options = SpoutOptions(
            "requests", "numbers", "id", attempts=1000, line="squares", group=group, outcomes=False
        )
        self.spout = StreamSpout(self.ledger, self.options)
        self.workers = [Worker(self.ledger, one.step, most_rows=20) for one in self.line.workers()]
        self.workers += [Worker(self.ledger, one.step) for one in self.line.workers()]
        self.readers = [OutcomeReader(self.ledger.core, SPOUT) for _ in range(2)]
        self.memory = coordinator.Memory()

    @staticmethod
    def _fan(row: dict[str, Any], out: Out) -> None:
        for i in range(row["n"] ** 2):
            out.emit("odd" if row["n"] % 2 else "even", {"i": i, "id": row["id"]})

    def _pass_on(self, row: dict[str, Any], out: Out) -> None:
        if row["i"] == 0 and row["id"] in self.bad:
            self.bad.discard(row["id"])
            raise FailedException("once")
        out.emit("rows", row)

    def add(self, request: Request, counts: list[dict[str, Any]]) -> None:
        self.told.setdefault(request.id, set()).add((len(counts), sum(row["n"] for row in counts)))
        names = {str(row["id"]) for row in counts if row.get("id") is not None}
        total = sum(row["n"] for row in counts)
        if len(counts) != TASKS or len(names) > 1:
            self.wrong.append(f"{counts}: a row of each task was expected, all of one request")
        for name in names:
            if total != self.written[name] ** 2:
                self.wrong.append(f"{name}: {total} rows, not {self.written[name] ** 2}")
            self.sums.setdefault(name, set()).add(total)

    def source(self) -> None:
        if not self.turns.calm and len(self.written) < 24:
            number = len(self.written)
            new = {f"r{n}": self.sizes.get(n, (0, 1, 2, 5)[n % 4]) for n in range(number, number + 3)}
            self.written |= new
            self.bad |= {name for name in new if name.endswith("3")}
            self.spout.write(pa.table({"id": list(new), "n": list(new.values())}))

    def coordinate(self, number: int) -> None:
        reader, core = self.readers[number], self.ledger.core
        try:
            if number:
                self.ledger.run(coordinator.step(core, reader))
            else:  # as a line's own
                asked = reader.blocking(1)
                asked.args = [*asked.args[:3], *asked.args[5:]]  # without its "BLOCK 1"
                [come] = self.ledger.store.send([asked])
                come = come if self.turns.chance.random() < 0.8 else None
                self.ledger.run(coordinator.step(core, reader, memory=self.memory, come=come))
        except AckerError:
            self.memory = coordinator.Memory()
            self.readers[number] = OutcomeReader(self.ledger.core, SPOUT)
            raise

    def settle(self) -> None:
        self.ledger.run(replays.step(self.ledger.core, "requests", self._outcomes))

    def _outcomes(self, table: pa.Table) -> None:
        for row in table.to_pylist():
            name = str(row["message_id"].decode())
            if row["status"] == "acked":
                self.acked.add(name)
                request = int(within(pa.array([row["anchor"]]).to_numpy(), 1)[0])
                self.answers[name] = self.told.get(request, set())
                if self.written[name] and self.sums.get(name) != {self.written[name] ** 2}:
                    self.wrong.append(f"{name} is acked: {self.sums.get(name)}")

    def tick(self) -> None:
        for _ in range(self.turns.chance.randrange(self.pause)):
            self.turns.wait()
        self.ticker.tick(force=True)

    def run(self, rounds: int) -> None:
        acts: dict[str, Callable[[], object]]
        acts = {"source": self.source, "settle": self.settle, "ticker": self.tick}
        acts |= {f"coordinator {n}": partial(self.coordinate, n) for n in range(2)}
        acts |= {f"worker {n}": one.work for n, one in enumerate(self.workers)}

        def patient(act: Callable[[], object]) -> None:
            with contextlib.suppress(AckerError):
                act()

        self.turns.run({name: partial(patient, act) for name, act in acts.items()}, rounds)
        for _ in range(10):  # each alone: so many outcomes may wait
            every: list[Callable[[], object]]
            every = [*(one.work for one in self.workers), partial(self.coordinate, 0), self.settle]
            for act in every:
                patient(act)


class Undisturbed(Turns):
    """Turns without a store that is set back: replies are lost, calls come again late."""

    def _lose(self) -> None:
        pass


@pytest.fixture
def lanes(monkeypatch: pytest.MonkeyPatch) -> None:
    """So few rows are in all lanes, where streams are read fairly."""
    monkeypatch.setattr(fairness, "LIGHT", 2)
    monkeypatch.setattr(fairness, "FACTOR", 2)
    monkeypatch.setattr(fairness, "SEGMENT_ROWS", 7)


@pytest.mark.usefixtures("lanes")
@pytest.mark.parametrize("fair_by", ["", ANCHORS])
@pytest.mark.parametrize("seed", [0, 1, 2, *(pytest.param(n, marks=pytest.mark.slow) for n in (3, 4, 5))])
def test_each_request_is_finished_once_by_each_task_with_all_its_rows(
    valkey_url: str, valkey_raw: "redis.Redis", seed: int, fair_by: str
) -> None:
    """No tick expires anything: so each request has one attempt."""
    turns = Undisturbed(seed, valkey_raw, 2500, (1,))
    groups = (1, 2, 3)[seed % 3]
    flow = Flow(valkey_url, turns, groups, pause=10**6, ackers=1 + seed % 3, fair_by=fair_by)
    flow.sizes = {4: 10, 6: 30 if fair_by else 100}  # fairly read, it is in segments of 7 rows
    flow.tick = lambda: None  # type: ignore[method-assign]
    flow.run(rounds=60)
    assert not flow.wrong
    assert flow.acked == set(flow.written)
    counters = {name: value for name, value in flow.ledger.counters().items() if value}
    again = sum(name.endswith("3") for name in flow.written)
    assert again
    assert not flow.bad
    assert counters["failed"] == 3 * again
    assert counters["tracked"] == counters["acked"] + counters["failed"] == 3 * (len(flow.written) + again)
    assert set(flow.finished.values()) == {1}


def test_rows_that_a_store_has_given_and_forgot_so_are_worked_on_once(
    valkey_url: str, valkey_raw: "redis.Redis"
) -> None:
    """A worker has taken rows, and the store is set back to before that: another one is given them."""
    ledger = open_ledger(Store(valkey_url), "t")
    before: list[Moment] = []

    def fan(row: dict[str, Any], out: Out) -> None:
        if before:
            set_back(valkey_raw, before.pop())
        out.emit("made", {"n": row["n"]})

    workers = [Worker(ledger, FunctionStep("fan", "numbers", fan), most_rows=20) for _ in range(2)]
    for one in workers:
        assert not one.work()
    spout = StreamSpout(ledger, SpoutOptions("requests", "numbers", "id"))
    spout.write(pa.table({"id": ["a", "b"], "n": [1, 2]}))
    before.append(moment(valkey_raw))
    assert not workers[0].work()
    assert workers[1].work() == 1
    assert not workers[0].work()
    made = [row["n"] for table in StreamReader(ledger, "made").tables() for row in table.to_pylist()]
    assert made == [1, 2]
    assert ledger.counters()["tracked"] == 2


@pytest.mark.parametrize("lost", [(), (0,), (0, 1)])
def test_rows_that_only_some_nodes_know_of_are_worked_on_once_by_the_attempt_that_is_acked(
    valkey_url: str, valkey_raw: "redis.Redis", lost: tuple[int, ...]
) -> None:
    """A step's stream is set back to before that was read, and shards with it or not, on other nodes."""
    ledger = open_ledger(Store(valkey_url), "t", ackers=2)
    Line(ledger, "line", [Gather("made")])

    def fan(row: dict[str, Any], out: Out) -> None:
        out.emit("made", {"id": row["id"]})

    found = Counter[str]()

    note = Worker(ledger, GatherStep("note", "made", noting(found.update)))
    fans = [Worker(ledger, FunctionStep("fan", "numbers", fan)) for _ in range(2)]
    for one in (*fans, note):
        assert not one.work()
    names = [f"r{n}" for n in range(20)]
    how = SpoutOptions("requests", "numbers", "id", line="line", group=1, attempts=1000)
    StreamSpout(ledger, how).write(pa.table({"id": names}))
    before = moment(valkey_raw)
    assert fans[0].work()
    shards = [ledger.core.shards[number].slabs for number in lost]
    set_back(valkey_raw, before, {tag(key) for key in [keys.Stream("t", "numbers").entries, *shards]})
    assert fans[1].work()
    acked = 0
    for _ in range(40):
        fans[1].work()
        ledger.run(coordinator.step(ledger.core, OutcomeReader(ledger.core, SPOUT)))
        note.work()
        acked += settler.settle(ledger).acked
    assert acked == len(names)
    assert found == Counter(names)


@pytest.mark.slow
@pytest.mark.usefixtures("lanes")
@pytest.mark.parametrize("fair_by", ["", ANCHORS])
def test_a_store_that_is_set_back_never_finishes_a_request_without_all_its_rows(
    valkey_url: str, valkey_raw: "redis.Redis", fair_by: str
) -> None:
    """As one store is. Where nodes of a cluster lose moments that others keep, rows may be there twice."""
    acked = losses = 0
    for seed in range(24):
        valkey_raw.flushall()
        turns = Turns(seed, valkey_raw, 1500, (1, 2, 3, 5, 8, 13, 21, 34))
        groups = (1, 2, 3)[seed % 3]
        flow = Flow(valkey_url, turns, groups, pause=200, ackers=1 + seed % 2, fair_by=fair_by)
        flow.run(rounds=20)
        assert not flow.wrong, seed
        acked, losses = acked + len(flow.acked), losses + turns.losses
    assert acked > 20
    assert losses > 100


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(n, marks=pytest.mark.slow) for n in (2, 3))])
def test_streams_that_drop_what_they_have_no_room_for_finish_no_request_without_all_its_rows(
    valkey_url: str, valkey_raw: "redis.Redis", seed: int
) -> None:
    """Requests fail for the limits of streams, at any moment, and are tried again."""
    turns = Undisturbed(seed, valkey_raw, 3000, (1,))
    flow = Flow(valkey_url, turns, (1, 2, 3)[seed % 3], pause=10**6, ackers=1 + seed % 2)
    gathering = ("rows", "counts")

    def limit() -> None:
        dropped = any(valkey_raw.exists(keys.Stream("t", stream).drops) for stream in gathering)
        narrow = not turns.calm and (turns.chance.random() < 0.7 or not dropped)
        for stream in gathering:
            flow.ledger.run(retention.limit(flow.ledger.core, stream, max_bytes=500 if narrow else 10**9))

    flow.tick = limit  # type: ignore[method-assign]
    flow.run(rounds=80)
    assert not flow.wrong
    assert flow.acked == set(flow.written)
    assert flow.ledger.run(drops(flow.ledger.core))


@pytest.mark.slow
def test_of_nodes_that_lose_moments_which_others_keep_no_request_is_acked_without_each_row_once(
    valkey_url: str, valkey_raw: "redis.Redis"
) -> None:
    """As of a cluster. A request that is not acked may be finished without rows: it is tried again."""
    acked = losses = 0
    for seed in range(8):
        valkey_raw.flushall()
        turns = Turns(seed, valkey_raw, 1500, (1, 2, 3, 5, 8, 13, 21, 34), whole=False)
        flow = Flow(valkey_url, turns, group=(1, 2, 3)[seed % 3], pause=200, ackers=1 + seed % 2)
        flow.run(rounds=20)
        wanted = {name: {(TASKS, flow.written[name] ** 2)} for name in flow.acked}
        assert flow.answers == wanted, seed
        acked, losses = acked + len(flow.acked), losses + turns.losses
    assert acked > 50
    assert losses > 30
