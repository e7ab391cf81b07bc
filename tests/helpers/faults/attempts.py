"""Attempts of tasks that have staged rows when they fail, lose or are killed, and what they leave.

Spark hands rows to the next Python process by the Arrow batch, of 10,000 rows unless they end before, and
Python hands them back by 64 KB. So of few rows nothing is staged before the task has had all of them,
unless its session has the settings `AT_ONCE`.
"""

import os
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import redis
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession

from acker.streams.log import segments

AT_ONCE = {
    "spark.sql.execution.arrow.maxRecordsPerBatch": "4",
    "spark.sql.execution.pandas.udf.buffer.size": "16",
}
"""Rows are handed on by fours."""
ENOUGH = 20
"""Of so many rows of a task, some are staged before the last is there: with segments of at most 10 rows."""
BY = "by"
"""A column: which attempt a row is from."""


@contextmanager
def at_once(spark: SparkSession) -> Iterator[None]:
    """Queries and jobs that are started meanwhile have the settings `AT_ONCE`."""
    for name, value in AT_ONCE.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name in AT_ONCE:
            spark.conf.unset(name)


class Attempts:
    """Tells of each row which attempt it is from; the first attempt of a task fails when some are staged.

    fails: whether any does.
    """

    def __init__(self, url: str, fails: bool = True) -> None:
        self.url = url
        self.fails = fails

    def of(self, rows: DataFrame) -> DataFrame:
        """The rows with the column `BY`."""
        return rows.mapInArrow(self, labelled(rows))

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows of an attempt."""
        rows = yield from label(batches)
        if self.fails and first_attempt():
            if rows >= ENOUGH:
                wait_until_staged(self.url)
            raise RuntimeError("on purpose")


def labelled(rows: DataFrame) -> str:
    """The schema of rows with their column `BY`."""
    return ", ".join(
        [*(f"`{one.name}` {one.dataType.simpleString()}" for one in rows.schema), f"{BY} string"]
    )


def label(batches: Iterator[pa.RecordBatch]) -> Generator[pa.RecordBatch, None, int]:
    """Adds the column `BY` to the rows of this attempt; returns how many there were."""
    rows = 0
    for batch in batches:
        rows += batch.num_rows
        yield batch.append_column(BY, pa.array([own_name()] * batch.num_rows, pa.string()))
    return rows


def own_name() -> str:
    """The name of the attempt that this process works for: `<partition.attempt.task attempt>`."""
    context = TaskContext.get()
    assert context is not None
    return f"<{context.partitionId()}.{context.attemptNumber()}.{context.taskAttemptId()}>"


def executor() -> int:
    """The process of the executor that this task's Python belongs to."""
    assert TaskContext.get() is not None
    pid = os.getpid()
    while Path(f"/proc/{pid}/comm").read_text().strip() != "java":
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return pid


def first_attempt() -> bool:
    """True if this process works for the first attempt of its task."""
    context = TaskContext.get()
    assert context is not None
    return context.attemptNumber() == 0


def wait_until_staged(url: str) -> None:
    """Returns when something is staged of the rows that this attempt has called its own."""
    wait_for(lambda: own_name() in staged_by(url))


def staged_by(url: str) -> set[str]:
    """The attempts whose names are in rows, or in reasons of failures, that are staged and not published."""
    found: set[str] = set()
    with redis.Redis.from_url(url) as client:
        for key in client.scan_iter(count=1000):
            if b":payload:" in key or b":failing:" in key:
                staged = client.ttl(key) > 0
                payload = (
                    (client.get(key) if b":payload:" in key else client.hget(key, "rows")) if staged else None
                )
                if payload is not None:
                    found |= names_in(pa.Table.from_batches(segments.decode(payload)).to_pylist())
    return found


def names_in(rows: list[dict[str, Any]]) -> set[str]:
    """The attempts that rows are from."""
    texts = [value for row in rows for value in row.values() if isinstance(value, str) and "<" in value]
    return {f"<{text.rpartition('<')[2].partition('>')[0]}>" for text in texts}


def numbers(names: set[str]) -> set[int]:
    """The numbers of attempts, 0 for a task's first."""
    return {int(name.split(".")[1]) for name in names}


def wait_for(condition: Callable[[], Any], seconds: float = 200.0) -> None:
    """Returns when the condition is true; TimeoutError after that time."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError("nobody came")
        time.sleep(0.05)
