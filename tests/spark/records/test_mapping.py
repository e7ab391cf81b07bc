"""Functions per record, in a task: what one record does is no other's business. Without a session."""

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Iterator
from functools import partial
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

from acker.errors import FailedException, ValidationError
from acker.ledger.client import Ledger
from acker.spark.records.calls import Calls
from acker.spark.records.mapping import RecordMapper, mapped_schema
from acker.spark.records.poison import Suspects

pytestmark = pytest.mark.slow

ROWS = StructType([StructField("n", LongType()), StructField("_acker", LongType())])
SCHEMA = StructType([StructField("n", IntegerType()), StructField("text", StringType())])


def mapped(
    function: Any, numbers: range, concurrency: int | None = None, timeout: float | None = None
) -> tuple[list[dict[str, Any]], dict[int, str]]:
    """Maps records of two batches; rows that were made, and anchors of failed ones with their reasons."""
    mapper = RecordMapper(Calls.make(function, concurrency, timeout), SCHEMA, ROWS)
    half = len(numbers) // 2
    batches = [
        pa.RecordBatch.from_pydict({"n": list(part), "_acker": [1000 + n for n in part]})
        for part in (numbers[:half], numbers[half:])
    ]
    rows = [row for batch in mapper(iter(batches)) for row in batch.to_pylist()]
    assert len({row.pop("_acker_run") for row in rows}) == 1
    failed = {row["_acker"]: row["_acker_failed"] for row in rows if row["_acker_failed"] is not None}
    return [row for row in rows if row["_acker_failed"] is None], failed


def test_records_that_raise_fail_alone_with_type_and_text() -> None:
    def function(record: dict[str, Any]) -> Any:
        number = record["n"]
        if number == 1:
            raise ValueError("one")
        if number == 2:
            raise FailedException("two")
        if number == 3:
            raise KeyError
        return {
            4: None,
            5: [(5, "a"), {"n": 5}],
            6: (6,),
            7: ("seven", "b"),
            8: {"x": 1},
            9: (9, "y" * 5000),
        }.get(number, (number, "ok"))

    rows, failed = mapped(function, range(10))
    assert [(row["n"], (row["text"] or "")[:2]) for row in rows] == [(0, "ok"), (5, "a"), (5, ""), (9, "yy")]
    assert failed == {
        1007: "ValidationError: column 'n': expected int, got 'seven' (str)",
        1001: "ValueError: one",
        1002: "two",
        1003: "KeyError",
        1006: "ValidationError: result has 1 columns, the schema 2",
        1008: "ValidationError: result has columns that the schema has not: x",
    }


def test_results_that_are_work_nobody_has_done_fail_their_record() -> None:
    async def fetch(number: int) -> str:
        return str(number)

    results = (
        lambda record: (record["n"], fetch(record["n"])),
        lambda record: (record["n"], map(str, [1])),
        lambda record: {"n": record["n"], "text": (part for part in "ab")},
        lambda record: (record["n"], "done"),
    )
    rows, failed = mapped(lambda record: results[record["n"]](record), range(4))
    assert [row["text"] for row in rows] == ["done"]
    assert [failed[1000 + n].split(":")[2] for n in range(3)] == [
        f" expected {type_}, got a {kind}"
        for type_, kind in (("string", "coroutine"), ("string", "map"), ("string", "generator"))
    ]


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise SystemExit


class Key:
    """A key of a dict that nobody can look at."""

    def __str__(self) -> str:
        raise Unspeakable

    __repr__ = __str__


def test_a_result_that_cannot_be_looked_at_fails_its_record_alone() -> None:
    deep: list[Any] = []
    for _ in range(10_000):
        deep = [deep]

    class Rows(list[Any]):
        def __iter__(self) -> Iterator[Any]:
            raise Unspeakable

    async def fetch() -> None: ...

    def panic(_: dict[str, Any]) -> Any:
        raise Unspeakable

    results = (lambda _: {Key(): 1}, lambda _: deep, lambda _: Rows([1]), lambda _: (Key(), ""), panic)
    undone = (lambda _: fetch(), lambda _: (fetch(), "a"), lambda _: (1, "done"))
    rows, failed = mapped(lambda record: (*results, *undone)[record["n"]](record), range(8))
    assert [row["text"] for row in rows] == ["done"]
    assert sorted(failed) == [1000 + n for n in range(7)]
    assert (failed[1002], failed[1004]) == ("Unspeakable", "Unspeakable")
    assert all("got a coroutine: its work is not done" in failed[place] for place in (1005, 1006))


def test_reasons_are_bounded() -> None:
    def function(record: dict[str, Any]) -> Any:
        raise ValueError("ü" * 2000)

    _, failed = mapped(function, range(2))
    assert all(len(reason.encode()) <= 1024 for reason in failed.values())


def test_asynchronous_functions_run_side_by_side_but_bounded_and_in_one_loop() -> None:
    under_way, most = 0, 0
    loops = set()
    full = asyncio.Event()

    async def function(record: dict[str, Any], suffix: str) -> tuple[int, str]:
        nonlocal under_way, most
        loops.add(asyncio.get_running_loop())
        under_way += 1
        most = max(most, under_way)
        if most == 5:
            full.set()
        await full.wait()  # would wait for ever where they do not run side by side
        under_way -= 1
        if record["n"] % 10 == 3:
            raise ValueError(str(record["n"]))
        return record["n"], suffix

    rows, failed = mapped(partial(function, suffix="!"), range(40), concurrency=5)
    assert [row["n"] for row in rows] == [n for n in range(40) if n % 10 != 3]
    assert failed == {1000 + n: f"ValueError: {n}" for n in (3, 13, 23, 33)}
    assert most == 5
    assert len(loops) == 1


def test_a_record_that_takes_too_long_is_cancelled_and_fails_alone() -> None:
    cancelled = []

    async def function(record: dict[str, Any]) -> tuple[int, str]:
        if record["n"] == 1:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cancelled.append(1)
                raise
        if record["n"] == 2:
            raise TimeoutError("its own")
        if record["n"] == 3:
            task = asyncio.ensure_future(asyncio.Event().wait())
            task.cancel()
            await task
        return record["n"], "ok"

    rows, failed = mapped(function, range(6), timeout=0.5)
    assert [row["n"] for row in rows] == [0, 4, 5]
    assert failed == {
        1001: "TimeoutError: no result within 0.5 s",
        1002: "TimeoutError: its own",
        1003: "CancelledError",
    }
    assert cancelled == [1]


def test_an_object_with_an_asynchronous_call_is_one_too() -> None:
    class Client:
        async def __call__(self, record: dict[str, Any]) -> tuple[int, str]:
            await asyncio.sleep(0)
            return record["n"], threading.current_thread().name

    rows, failed = mapped(Client(), range(4))
    assert len(rows) == 4
    assert not failed


def test_bad_values_are_refused() -> None:
    async def function(record: dict[str, Any]) -> None: ...

    with pytest.raises(ValidationError, match="async def"):
        Calls.make(lambda record: None, 4, None)
    with pytest.raises(ValidationError, match="concurrency: expected int from 1 to 10,000, got 0"):
        Calls.make(function, 0, None)
    with pytest.raises(ValidationError, match="timeout: expected float from"):
        Calls.make(function, None, 0.0)
    with pytest.raises(ValidationError, match="function: expected a function of a record"):
        Calls.make("f", None, None)  # type: ignore[arg-type]
    with pytest.raises(ValidationError, match="must not have _acker_run"):
        mapped_schema(StructType([StructField("_acker_run", LongType())]), ROWS)


def test_what_ends_a_program_fails_its_record_alone() -> None:
    class Stop(BaseException):
        pass

    def plain(record: dict[str, Any]) -> Any:
        if record["n"] == 1:
            sys.exit("no more")
        if record["n"] == 2:
            raise Stop
        return record["n"], "ok"

    async def asynchronous(record: dict[str, Any]) -> Any:
        return plain(record)

    for function in (plain, asynchronous):
        rows, failed = mapped(function, range(4))
        assert [row["n"] for row in rows] == [0, 3]
        assert failed == {1001: "SystemExit: no more", 1002: "Stop"}


def fatal(record: dict[str, Any]) -> Any:
    if record["n"] % 1000 == 7:
        os._exit(3)
    if record["n"] == 1500:
        os.kill(os.getpid(), signal.SIGSEGV)
    return record["n"], "ok"


async def fatal_too(record: dict[str, Any]) -> Any:
    await asyncio.sleep(0)
    return fatal(record)


@pytest.mark.parametrize("function", [fatal, fatal_too])
def test_records_that_end_their_process_are_found_by_the_next_attempt(function: Any, ledger: Ledger) -> None:
    suspects = Suspects.of(ledger, "step", function, "n int")
    mapper = RecordMapper(Calls.make(function, None, None), SCHEMA, ROWS, suspects)
    numbers = range(2_100)
    batch = pa.RecordBatch.from_pydict({"n": numbers, "_acker": [5000 + n for n in numbers]})
    child = os.fork()
    if not child:
        list(mapper(iter([batch])))
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
    rows = [row for part in mapper(iter([batch])) for row in part.to_pylist()]
    made = [row["n"] for row in rows if row["_acker_failed"] is None]
    assert made == [n for n in numbers if n not in (7, 1007, 1500, 2007)]
    ended = "the record ended its process {}, each time it was tried"
    assert {row["_acker"] - 5000: row["_acker_failed"] for row in rows if row["_acker_failed"]} == {
        **dict.fromkeys((7, 1007, 2007), ended.format("with exit code 3")), 1500: ended.format("by SIGSEGV"),
    }  # fmt: skip
    assert suspects.begin()  # for a while: it comes again as a replay
    suspects.end()


def test_a_task_that_ended_otherwise_leaves_no_suspicion(ledger: Ledger) -> None:
    pids = set()

    def function(record: dict[str, Any]) -> Any:
        pids.add(os.getpid())
        return record["n"], "ok"

    batch = pa.RecordBatch.from_pydict({"n": [1, 2], "_acker": [1, 2]})

    def breaks() -> Iterator[pa.RecordBatch]:
        yield batch
        raise OSError("its input is gone")

    mapper = RecordMapper(
        Calls.make(function, None, None), SCHEMA, ROWS, Suspects.of(ledger, "step", function, "")
    )
    with pytest.raises(OSError, match="its input is gone"):
        list(mapper(breaks()))
    next(mapper(iter([batch, batch])))  # a limit takes no more
    for _ in range(2):
        list(mapper(iter([batch])))
    assert pids == {os.getpid()}
