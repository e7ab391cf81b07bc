"""A request of very many rows keeps no small ones waiting, in Python steps."""

from typing import Any

import pyarrow as pa
import pytest

from acker.errors import UnreadableRecord, ValidationError
from acker.ledger.client import Ledger, open_ledger
from acker.ledger.outcomes.outcomes import OutcomeReader
from acker.ledger.slabs.sections import SPOUT
from acker.lines import Gather, Line, Out, Request, coordinator
from acker.store import keys
from acker.store.client import Store
from acker.store.operation import command
from acker.streams.log import fairness, subscriptions
from acker.streams.sources.spout_options import SpoutOptions
from acker.streams.spout import StreamSpout
from acker.workers.steps import FunctionStep
from acker.workers.worker import Worker
from tests.helpers.builders.streaming import counters

BIG, SMALL, SMALL_ONES = 40_000, 5, 100


@pytest.fixture(autouse=True)
def scale(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thirtieth of the rows."""
    monkeypatch.setattr(fairness, "LIGHT", 1_024)
    monkeypatch.setattr(fairness, "SEGMENT_ROWS", 1_024)


@pytest.fixture
def ledger(valkey_url: str) -> Ledger:
    return open_ledger(Store(valkey_url), "t", ackers=2)


class Flow:
    """A line: requests of n rows, each of which a step hands on to a gather."""

    def __init__(self, ledger: Ledger, step: str, gather: str) -> None:
        self.ledger = ledger
        self.line = Line(ledger, "line", [Gather("done")])
        self.seen: list[str] = []
        self.finished: list[tuple[int, int]] = []
        self.line.step("fan", reads="asks")(self._fan)
        self.line.step("work", reads="rows", fair_by=step)(self._work)
        flow = self

        @self.line.gather("count", reads="done", fair_by=gather)
        class Count:
            def __init__(self, _: Request) -> None:
                self.n = 0

            def execute(self, _: dict[str, Any]) -> None:
                self.n += 1

            def finished(self, _: Out) -> None:
                flow.finished.append((self.n, len(flow.seen)))

        self.fan, self.work, self.count = (
            Worker(ledger, one.step, most_rows=2_000) for one in self.line.workers()
        )
        for one in (self.fan, self.work, self.count):
            one.work()  # subscribes
        how = SpoutOptions("asks", "asks", "id", line="line", group=1)
        self.spout = StreamSpout(ledger, how)
        self.reader = OutcomeReader(ledger.core, SPOUT)

    @staticmethod
    def _fan(row: dict[str, Any], out: Out) -> None:
        for i in range(row["n"]):
            out.emit("rows", {"of": row["id"], "i": i})

    def _work(self, row: dict[str, Any], out: Out) -> None:
        self.seen.append(row["of"])
        out.emit("done", {"i": row["i"]})

    def write(self, name: str, *numbers: int) -> None:
        """Writes requests, and all rows of theirs."""
        self.spout.write(pa.table({"id": [f"{name}{at}" for at in range(len(numbers))], "n": numbers}))
        while self.fan.work():
            pass

    def coordinate(self) -> None:
        while self.ledger.run(coordinator.step(self.ledger.core, self.reader)):
            pass


@pytest.mark.parametrize("fair", [True, False])
def test_small_requests_do_not_wait_for_a_large_one(ledger: Ledger, fair: bool) -> None:
    flow = Flow(ledger, "_acker" if fair else "", "_acker" if fair else "")
    flow.write("big", BIG)
    flow.write("small", *[SMALL] * SMALL_ONES)
    while flow.work.work() + flow.count.work():
        flow.coordinate()
    assert sorted(n for n, _ in flow.finished) == [SMALL] * SMALL_ONES + [BIG]
    last = max(seen for n, seen in flow.finished if n == SMALL)
    assert (flow.seen[:last].count("big0") < BIG / 2) == fair
    assert counters(ledger)["acked"] == 2 * (SMALL_ONES + 1)
    [memory] = ledger.store.send([command("STRLEN", keys.Stream("t", "rows").volumes)])
    assert (0 < memory <= 1 << 16) == fair


def test_small_bundles_do_not_wait_for_a_large_one(ledger: Ledger) -> None:
    flow = Flow(ledger, "", "_acker")
    for _ in range(3):
        flow.write("big", 3_000)
    flow.write("small", *[SMALL] * 20)
    while flow.work.work():
        pass
    flow.coordinate()
    while flow.count.work():
        pass
    order = [n for n, _ in flow.finished]
    assert sorted(order) == [SMALL] * 20 + [3_000] * 3
    assert order.index(3_000) > 0
    assert order[-2:] == [3_000] * 2


def test_a_batch_goes_round_the_keys_and_keeps_the_order_of_each(ledger: Ledger) -> None:
    done: list[tuple[str, int]] = []
    step = FunctionStep("each", "plain", lambda row, _: done.append((row["of"], row["i"])), fair_by="of")
    worker = Worker(ledger, step)
    worker.work()
    spout = StreamSpout(ledger, SpoutOptions("rows", "plain", "i"))
    spout.write(pa.table({"of": ["a", "a", "a", "b", None], "i": [0, 1, 2, 3, 4]}))
    assert worker.work() == 1
    assert done == [("a", 0), ("b", 3), (None, 4), ("a", 1), ("a", 2)]


def test_a_stream_is_read_fairly_by_one_column(ledger: Ledger) -> None:
    line = Line(ledger, "line", [Gather("done")])
    line.step("one", reads="rows", fair_by="customer")(print)
    with pytest.raises(
        ValidationError, match="'rows' is read fairly by column 'customer', so it cannot be read by"
    ):
        line.step("other", reads="rows", fair_by="_acker")(print)
    with pytest.raises(ValidationError, match=r"'done' gathers, .* by request: expected '_acker', got 'n'"):
        line.gather("count", reads="done", fair_by="n")(print)
    with pytest.raises(ValidationError, match="fair_by: expected the name of a column, got 3"):
        line.step("third", reads="rows", fair_by=3)(print)  # type: ignore[arg-type]
    worker = Worker(ledger, FunctionStep("x", "plain", print, fair_by="a"))
    slot = ledger.run(subscriptions.subscribe(ledger.core, "plain", "x"))
    ledger.store.send([command("HSET", keys.Stream("t", "plain").subscriptions, f"cursor:{slot}", "?")])
    with pytest.raises(UnreadableRecord, match=f"how far subscription number {slot} has read"):
        worker.work()
