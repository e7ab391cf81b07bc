"""A step's mistake costs the request that it worked on, no other one, and no thread that works."""

import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pytest

from acker.drpc import out as drpc_out
from acker.errors import FailedException, ValidationError
from acker.ledger.client import Ledger, open_ledger
from acker.ledger.outcomes.outcomes import OutcomeReader
from acker.lines import Gather, Line, Out
from acker.store.client import Store
from acker.streams import StreamReader, StreamWriter
from acker.streams.log import schemas
from acker.streams.log.segments import Segment
from acker.streams.sources.spout_options import SpoutOptions
from acker.streams.spout import StreamSpout
from acker.workers import row_columns
from acker.workers.steps import FunctionStep, Read
from acker.workers.worker import Worker
from tests.helpers.servers.servers import wait_until


def panic(error: BaseException) -> None:
    raise error


def deep(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


class Unshowable:
    def __repr__(self) -> str:
        raise RuntimeError


class Untouchable(Exception):
    """Not even its class can be asked for."""

    def __getattribute__(self, name: str) -> Any:
        raise SystemExit


class Ending(Exception):
    def __str__(self) -> str:
        raise SystemExit


@pytest.fixture
def ledger(valkey_url: str) -> Ledger:
    return open_ledger(Store(valkey_url), "t", ackers=2)


def asked(ledger: Ledger, mistake: Callable[[Out], object]) -> tuple[int, str]:
    """One bad request among good ones: how many of these were finished, and why the bad one has failed."""
    good = list[int]()
    made = Line(ledger, "line", [Gather("rows", 2, ("i",))])

    @made.step("fan", reads="asks")
    def fan(row: dict[str, Any], out: Out) -> None:
        if row["id"] == "bad":
            mistake(out)
        else:
            out.emit("rows", {"i": 1})

    @made.gather("all", reads="rows")
    class All:
        def __init__(self, _: object) -> None:
            self.rows = list[Any]()

        def execute(self, row: dict[str, Any]) -> None:
            self.rows.append(row)

        def finished(self, _: Out) -> None:
            good.extend(row["i"] for row in self.rows)

    how = SpoutOptions("asks", "asks", "id", attempts=1, line="line", group=1)
    StreamSpout(ledger, how).write(pa.table({"id": ["a", "bad", "b"]}))
    reader, ended = OutcomeReader(ledger.core, "asks"), list[Any]()

    def over() -> bool:
        ended.extend(ledger.run(reader.read()))
        return sum(len(slab.indexes or (0,)) for entry in ended for slab in entry.slabs) == 3

    with made.work():
        wait_until(over, timeout=60.0)
    [reason] = [slab.cause.reason for entry in ended if entry.status == "failed" for slab in entry.slabs]
    return len(good), reason


@pytest.mark.parametrize(
    ("mistake", "said"),
    [
        (lambda _: sys.exit(3), "SystemExit: 3"),
        (lambda _: panic(KeyboardInterrupt("mine")), "KeyboardInterrupt: mine"),
        (lambda _: panic(BaseException("as pyo3's PanicException")), "PanicException"),
        (lambda _: panic(Ending("mine")), "Ending"),
        (lambda _: panic(Untouchable()), "Untouchable"),
        (lambda _: panic(FailedException("\ud800")), "?"),
        (lambda out: out.emit("rows", {"i": "\ud800"}), "column 'i'"),
        (lambda out: out.emit("rows", {"i": 1, "\ud800": 1}), "surrogates not allowed"),
        (lambda out: out.emit("rows", {"i": 1, "a": {"\ud800": 1}}), "column 'a'"),
        (lambda out: out.emit("rows", {"i": 1, "a": deep(60)}), "at most 50 levels"),
        (lambda out: out.emit("rows", {"i": 1, "a": deep(900)}), ""),
        (lambda out: out.emit("rows", {"i": 1, "a": Unshowable()}), "column 'a'"),
        (lambda out: out.emit("rows", {"i": 1.5}), "column 'i': expected int64, got 1.5"),
        (lambda out: out.emit("rows", {"i": True}), "column 'i': expected int64, got True (bool)"),
        (lambda out: out.emit("rows", {"i": 1, "I": 2}), "'i' and 'I' differ in case only"),
        (lambda out: out.emit("no-line", {"i": object()}), "column 'i'"),
    ],
)
def test_a_mistake_fails_its_request(ledger: Ledger, mistake: Callable[[Out], object], said: str) -> None:
    rows = pa.schema([pa.field("i", pa.int64()), pa.field("_acker", pa.int64())])
    ledger.run(schemas.record(ledger.core, "rows", rows))
    good, reason = asked(ledger, mistake)
    assert good == 2
    assert said in reason


def test_a_handler_of_logs_that_raises_costs_no_request(ledger: Ledger) -> None:
    class Broken(logging.Handler):
        def emit(self, _: logging.LogRecord) -> None:
            raise ConnectionError("no log")

    handler = Broken()
    logging.getLogger("acker").addHandler(handler)
    try:
        good, reason = asked(ledger, lambda _: panic(ValueError("bad")))
    finally:
        logging.getLogger("acker").removeHandler(handler)
    assert (good, reason) == (2, "in section rows: ValueError: bad")


def test_the_log_of_a_batch_whose_records_all_fail_is_bounded(caplog: pytest.LogCaptureFixture) -> None:
    def wrong(row: Mapping[str, Any], _: object) -> None:
        raise ValueError(row["i"])

    rows = pa.record_batch({"i": range(1000), "_acker": range(1, 1001)})
    segment = Segment("id", 1000, 1, 1, (), (), "", 0, 1)
    made = FunctionStep("wrong", "rows", wrong).run(0, [Read(segment, [rows])])
    assert len(made.failed) == 1000
    assert len(caplog.records) == 101


def test_rows_that_cannot_gather_fail_their_request_alone(ledger: Ledger) -> None:
    Line(ledger, "other", [Gather("elsewhere")])
    good, reason = asked(ledger, lambda out: out.emit("elsewhere", {"i": 1}))
    assert good == 2
    assert "expected rows of line" in reason


def test_a_worker_goes_on_after_an_odd_error(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    work, once = Worker.work, [RuntimeError("unforeseen")]

    def raising(self: Worker, *, again: bool = False) -> int:
        if self.step.name == "fan" and once:
            raise once.pop()
        return work(self, again=again)

    monkeypatch.setattr(Worker, "work", raising)
    good, _ = asked(ledger, lambda _: panic(FailedException("bad")))
    assert (good, once) == (2, [])


def test_a_row_that_a_column_cannot_hold_takes_no_other_row_with_it(ledger: Ledger) -> None:
    """The type of a new column comes from all rows that are emitted together, whatever is wrong with one."""
    values = {"a": 1, "b": 1.5, "c": "text", "d": 2, "e": True}

    def copy(row: dict[str, Any], out: Out) -> None:
        out.emit("made", {"id": row["id"], "v": values[row["id"]], "n": 7 if row["id"] != "d" else 2**70})

    worker = Worker(ledger, FunctionStep("copy", "asks", copy))
    assert not worker.work()
    StreamSpout(ledger, SpoutOptions("asks", "asks", "id", attempts=1)).write(pa.table({"id": [*values]}))
    assert worker.work() == 1
    assert {row["id"]: row["v"] for row in StreamReader(ledger, "made").rows()} == {"a": 1}
    ended = ledger.run(OutcomeReader(ledger.core, "asks").read())
    assert {slab.cause.reason for one in ended if one.status == "failed" for slab in one.slabs} == {
        "ValidationError: column 'v': expected int64, got 1.5 (float), which it cannot hold exactly",
        "ValidationError: column 'v': expected int64, got 'text' (str)",
        f"ValidationError: column 'n': expected int64, got {2**70} (int), which it cannot hold exactly",
        "ValidationError: column 'v': expected int64, got True (bool)",
    }


def test_a_row_that_python_cannot_have_fails_alone(ledger: Ledger) -> None:
    seen = list[str]()
    plain = pa.array([b"a", "caf\u00e9".encode("latin-1"), b"c"])
    text = pa.StringArray.from_buffers(3, plain.buffers()[1], plain.buffers()[2])
    days = pa.array([0, 0, 3_000_000], pa.int32()).cast(pa.date32())
    worker = Worker(ledger, FunctionStep("see", "asks", lambda row, _: seen.append(row["name"])))
    assert not worker.work()
    rows = pa.table({"id": ["1", "2", "3"], "name": text, "day": days})
    StreamSpout(ledger, SpoutOptions("asks", "asks", "id", attempts=1)).write(rows)
    assert worker.work() == 1
    assert seen == ["a"]
    ended = ledger.run(OutcomeReader(ledger.core, "asks").read())
    assert [slab.cause.reason for one in ended if one.status == "failed" for slab in one.slabs] == [
        "ValidationError: column 'name': Python has no value for this string: 'caf\ufffd'",
        "ValidationError: column 'day': Python has no value for this date32[day]: '[10183-09-21]'",
    ]


def test_many_columns_cost_what_they_are(ledger: Ledger) -> None:
    def seconds(count: int) -> float:
        table, _ = row_columns.table([{**{f"c{n}": n for n in range(count)}, "_acker": 1}], None)
        ledger.run(schemas.record(ledger.core, f"wide{count}", table.schema))
        begun = time.process_time()
        ledger.run(schemas.record(ledger.core, f"wide{count}", table.schema))
        return time.process_time() - begun

    seconds(10)
    assert seconds(4000) < 40 * seconds(400)  # by the square of them it would be 100


def test_threads_of_a_step_emit_until_it_returns_and_then_are_refused(ledger: Ledger) -> None:
    kept = list[Out]()

    def fan(row: dict[str, Any], out: Out) -> None:
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(lambda i: out.emit("made", {"id": row["id"], "i": i}), range(3)))
        kept.append(out)
        if len(kept) > 1:  # as a thread of the first record that nobody waited for
            with pytest.raises(ValidationError, match="before the step has returned"):
                kept[0].emit("made", {"id": "late", "i": 0})

    worker = Worker(ledger, FunctionStep("fan", "asks", fan))
    assert not worker.work()
    StreamSpout(ledger, SpoutOptions("asks", "asks", "id")).write(pa.table({"id": ["a", "b"]}))
    assert worker.work() == 1
    with pytest.raises(ValidationError, match="before the step has returned"):
        kept[1].emit("made", {"id": "late", "i": 0})
    rows = [row for table in StreamReader(ledger, "made").tables() for row in table.to_pylist()]
    assert sorted((row["id"], row["i"]) for row in rows) == [(id_, i) for id_ in "ab" for i in range(3)]


class Ends(Mapping[str, object]):
    """A row in which the step returns while it is taken: others go on in the meantime."""

    def __init__(self, out: Out) -> None:
        self._out = out

    def __getitem__(self, name: str) -> object:
        if name != "id":
            raise KeyError(name)
        self._out.end()
        return 1

    def __iter__(self) -> Iterator[str]:
        return iter(["id"])

    def __len__(self) -> int:
        return 1


def test_a_row_that_comes_too_late_is_refused_however_late_that_shows() -> None:
    whole = Out()
    out = whole.of(7)
    with pytest.raises(ValidationError, match="before the step has returned"):
        out.emit("made", Ends(out))
    assert whole.rows == {}


def test_a_step_does_not_return_while_a_row_of_it_is_put_down() -> None:
    returned = threading.Event()
    seen = list[bool]()

    class Rows(dict[str, list[dict[str, object]]]):
        def setdefault(self, stream: str, rows: Any = None) -> Any:
            thread.start()
            seen.append(returned.wait(0.5))
            return super().setdefault(stream, rows)

    def leave() -> None:
        out.end()
        returned.set()

    thread = threading.Thread(target=leave)
    whole = Out()
    whole.rows = Rows()
    out = whole.of(7)
    out.emit("made", {"id": 1})
    thread.join(60)
    assert (seen, returned.is_set()) == ([False], True)
    assert whole.rows == {"made": [{"id": 1, "_acker": 7}]}


def test_a_step_does_not_return_while_a_result_of_it_is_put_down() -> None:
    returned = threading.Event()
    seen = list[bool]()

    class Results(dict[int, str]):
        def __contains__(self, anchor: object) -> bool:
            thread.start()
            seen.append(returned.wait(0.5))
            return super().__contains__(anchor)

    def leave() -> None:
        out.end()
        returned.set()

    thread = threading.Thread(target=leave)
    whole = drpc_out.Out("function", None, (), 1)
    whole._results = Results()
    out = whole.of(7)
    out.result(1)
    thread.join(60)
    assert (seen, returned.is_set()) == ([False], True)
    assert whole._results == {7: "1"}


def test_a_result_that_is_given_after_the_step_is_refused() -> None:
    out = drpc_out.Out("function", None, (), 1).of(7)
    out.end()
    with pytest.raises(ValidationError, match="a row or a result after that"):
        out.result(1)


def test_a_row_without_a_tree_that_fails_costs_no_other_one(ledger: Ledger) -> None:
    def copy(row: dict[str, Any], out: Out) -> None:
        out.emit("made", {"id": row["id"] if row["id"] != "b" else object()})
        if row["id"] == "c":
            panic(FailedException("bad"))

    worker = Worker(ledger, FunctionStep("copy", "asks", copy))
    assert not worker.work()
    StreamWriter(ledger, "asks").write(pa.table({"id": ["a", "b", "c", "d"]}))
    assert worker.work() == 1
    assert sorted(str(row["id"]) for row in StreamReader(ledger, "made").rows()) == ["a", "d"]
