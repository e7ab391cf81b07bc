"""Records that would end a task, and so their whole batch, for ever: each fails alone."""

import asyncio
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql.types import DateType, LongType, StructField, StructType

from acker.errors import ValidationError
from acker.spark.records.calls import Calls
from acker.spark.records.mapping import RecordMapper

ROWS = StructType([StructField("day", DateType()), StructField("_acker", LongType())])
SCHEMA = StructType([StructField("n", LongType())])


def mapped(
    function: Any, days: list[int], concurrency: int | None = None
) -> tuple[list[tuple[int, int]], dict[int, str]]:
    """Maps records of days since 1970, in trees 0, 1, ...: trees and results; trees and reasons."""
    mapper = RecordMapper(Calls.make(function, concurrency, None), SCHEMA, ROWS)
    column = pa.array(np.array(days, dtype=np.int32)).cast(pa.date32())
    batch = pa.RecordBatch.from_arrays([column, pa.array(range(len(days)), pa.int64())], ["day", "_acker"])
    rows = [row for part in mapper(iter([batch])) for row in part.to_pylist()]
    failed = {row["_acker"]: row["_acker_failed"] for row in rows if row["_acker_failed"]}
    return [(row["_acker"], row["n"]) for row in rows if not row["_acker_failed"]], failed


async def year(record: dict[str, Any]) -> int:
    await asyncio.sleep(0)
    return int(record["day"].year)


@pytest.mark.parametrize("function", [year, lambda record: record["day"].year], ids=["async", "plain"])
@pytest.mark.parametrize("days", [[0, 3_000_000, 365], [3_000_000], [-800_000, 0]])
def test_a_record_that_python_cannot_have_fails_alone(function: Any, days: list[int]) -> None:
    rows, failed = mapped(function, days)
    good = [place for place, day in enumerate(days) if day in (0, 365)]
    assert rows == [(place, 1970 + days[place] // 365) for place in good]
    assert failed.keys() == set(range(len(days))) - set(good)
    assert all(reason.startswith(("ValueError", "OverflowError")) for reason in failed.values())


def test_an_exception_without_a_text_fails_its_record_by_its_type() -> None:
    class Broken(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no text")

    def function(record: dict[str, Any]) -> int:
        raise Broken

    assert mapped(function, [0]) == ([], {0: "Broken"})


def test_what_is_cancelled_by_what_it_calls_fails_alone_and_no_record_is_passed_over() -> None:
    async def function(record: dict[str, Any]) -> int:
        if record["day"].day == 2:  # as libraries do for their own time limits
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
        await asyncio.sleep(0)
        return int(record["day"].day)

    rows, failed = mapped(function, list(range(5)), concurrency=1)
    assert failed == {1: "CancelledError"}
    assert rows == [(0, 1), (2, 3), (3, 4), (4, 5)]


def test_functions_that_yield_are_refused() -> None:
    def plain(record: dict[str, Any]) -> Any:
        yield 1

    async def asynchronous(record: dict[str, Any]) -> Any:
        yield 1

    class Client:
        def __call__(self, record: dict[str, Any]) -> Any:
            yield 1

    for function in (plain, asynchronous, Client()):
        with pytest.raises(ValidationError, match="returns its rows as a list"):
            Calls.make(function, None, None)
