"""Records that would end a task, and so their whole batch, for ever: each fails alone."""

import asyncio
import os
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import DateType, LongType, StructField, StructType

from acker.errors import FailedException, SchemaMismatch, ValidationError
from acker.spark import Collector, bolt, track
from acker.spark.records.calls import Calls
from acker.spark.records.mapping import RecordMapper
from acker.streams.dead_letters import dead_letters
from acker.streams.spouts import settler
from acker.streams.spouts.replays import Stepped
from tests.helpers.builders.pipeline import Pipeline

pytestmark = pytest.mark.slow

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


def test_a_record_that_ends_its_worker_is_a_dead_letter_and_the_query_goes_on(pipeline: Pipeline) -> None:
    def words(record: dict[str, Any]) -> Any:
        if record["value"] == "fatal":
            os._exit(9)
        return record["value"].upper()

    @bolt(url=pipeline.url, topology="t", name="split")
    def split(batch: DataFrame, collector: Collector) -> None:
        collector.emit_map(batch, words, "word string", stream="words")

    (pipeline.directory / "in").mkdir()
    (pipeline.directory / "in" / "0.txt").write_text("a\nb\nfatal\nc\n")
    lines = pipeline.spark.readStream.text(str(pipeline.directory / "in"))
    done = []
    for _ in range(2):
        rows = track(lines, url=pipeline.url, topology="t", spout="s", message_id="value", attempts=2)
        pipeline.finish(pipeline.checkpointed("split", rows.writeStream.foreachBatch(split)))
        done.append(settler.settle(pipeline.ledger))
    assert done == [Stepped(replayed=1), Stepped(dead=1)]
    assert sorted(str(row["word"]) for row in pipeline.rows("words")) == ["A", "B", "C"]
    [letter] = pipeline.ledger.run(dead_letters.page(pipeline.ledger.core)).letters
    assert letter.reason == "the record ended its process with exit code 9, each time it was tried"
    assert (letter.row, letter.attempts) == ({"value": "fatal"}, 2)


def test_an_exception_for_records_in_a_udf_ends_the_batch_with_the_way_out(pipeline: Pipeline) -> None:
    pipeline.spout(["a", "bad"])

    @F.udf("string", useArrow=False)
    def check(line: str) -> str:
        if line == "bad":
            raise FailedException("no such word")
        return line

    @bolt(url=pipeline.url, topology="t", name="split")
    def split(batch: DataFrame, collector: Collector) -> None:
        collector.emit(batch.withColumn("line", check("line")), stream="words")

    with pytest.raises(Exception, match=r"raised FailedException.*collector\.map, which runs a function per"):
        pipeline.run("split", "lines", split)
    assert pipeline.counters() == {"tracked": 2}


def test_rows_that_lack_a_column_of_a_spout_are_refused_with_the_way_out(pipeline: Pipeline) -> None:
    how: dict[str, Any] = {"url": pipeline.url, "topology": "t", "spout": "s", "message_id": "value"}
    rows = pipeline.spark.readStream.format("rate").load()
    track(rows, **how)
    with pytest.raises(
        SchemaMismatch,
        match=r"timestamp: expected timestamp.*, got no such column\. Keep a column that is gone",
    ):
        track(rows.drop("timestamp"), **how)
    assert "timestamp" in track(rows.withColumn("timestamp", F.lit(None).cast("timestamp")), **how).columns
