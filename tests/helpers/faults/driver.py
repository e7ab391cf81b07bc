"""A driver in a process of its own, to be killed: splits lines into words, all that there are.

As a bolt in batches of a query, as a query that writes by itself (--direct), or as a batch job (--job), which
also tracks the rows of a DataFrame of its own.
"""

import argparse
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import explode, rand, split

from acker.spark import Collector, Sink, bolt, job, register, track, tuned
from acker.store.operation import Operation
from acker.streams.commits import chunks, commit
from tests.helpers.faults import attempts
from tests.helpers.faults.attempts import wait_for, wait_until_staged

whole_commit = commit.commit


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--url", required=True)
    parser.add_argument("--checkpoint", required=True)
    way = parser.add_mutually_exclusive_group()
    way.add_argument("--direct", action="store_true")
    way.add_argument("--job", help="the name of the run")
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--die", help="before the commit (a job), after it, or after so many exchanges of it")
    parser.add_argument("--partitions", type=int, default=2)
    parser.add_argument("--random", action="store_true", help="drop some rows, others in each run")
    parser.add_argument("--gates", help="a directory where attempts of one task wait for each other")
    parser.add_argument("--copies", help="a directory to which a bolt sends the words, too, as parquet files")
    given = parser.parse_args()

    builder = tuned(SparkSession.builder, local_checkpoints=True, pip_workers=True).master(given.master)
    builder = builder.config("spark.ui.enabled", "false").config("spark.sql.shuffle.partitions", "2")
    if given.gates:
        builder = builder.config("spark.speculation", "true").config("spark.speculation.interval", "100ms")
        builder = builder.config("spark.speculation.quantile", "0.3")
        builder = builder.config("spark.speculation.multiplier", "1.1").config(map={**attempts.AT_ONCE})
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    register(spark)
    where: dict[str, Any] = {"url": given.url, "topology": "t", "timeout": 300}  # a proxy may hold us up

    def die() -> None:
        gateway: Any = spark.sparkContext._gateway
        os.kill(gateway.proc.pid, signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)

    def dying(*arguments: Any) -> Operation[bool]:
        operation, replies = whole_commit(*arguments), None
        try:
            for _ in range(1000 if given.die == "after" else int(given.die)):
                replies = yield operation.send(replies)  # type: ignore[arg-type]
        except StopIteration:
            pass
        die()
        return False

    if given.die not in (None, "before"):
        commit.commit = dying  # type: ignore[assignment]
        if given.die != "after":
            chunks.MOST, chunks.MOST_CHUNKS = 4, 1  # so that a commit takes some exchanges

    def words(lines: DataFrame) -> DataFrame:
        rows = lines.repartition(given.partitions)
        if given.random:
            rows = rows.filter(rand() < 0.5)
        if given.gates:
            rows = rows.mapInArrow(Gates(given.gates, given.url), attempts.labelled(rows))
        word = explode(split("line", " ")).alias("word")
        return rows.select(word, *(name for name in rows.columns if name != "line"))

    @bolt(**where, name="split", segment_rows=100)
    def split_lines(batch: DataFrame, collector: Collector) -> None:
        collector.emit(words(batch), stream="words")
        if given.copies:
            rows = batch.repartition(given.partitions).select(
                explode(split("line", " ")).alias("word"), "_acker"
            )
            gates = Gates(f"{given.gates}/copies", given.url)
            to = Sink(
                lambda w: w.parquet(given.copies),
                prepare=lambda stamped: stamped.mapInArrow(gates.stamped, stamped.schema),
            )
            collector.emit(rows, "copies", to=to, segment_rows=100)

    def run_job() -> None:
        with job(spark, **where, name="split", run=given.job, segment_rows=100) as work:
            work.emit(words(work.take("lines")), stream="words")
            numbers = spark.range(0, 50, 1, given.partitions)
            own = track(numbers, **where, spout="numbers", message_id="id")
            work.emit(own, stream="numbers")
            if given.die == "before":
                die()

    if given.job:
        run_job()
    else:
        lines = spark.readStream.format("acker").options(**where, stream="lines").load()
        direct = words(lines).writeStream.format("acker").options(**where, stream="words", segment_rows=100)
        query = direct if given.direct else lines.writeStream.foreachBatch(split_lines)
        query.option("checkpointLocation", given.checkpoint).trigger(availableNow=True)
        query.start().awaitTermination()
    spark.stop()


class Gates:
    """Lets the speculative copy of task 1 win, and the copy of task 2 lose.

    Each attempt passes its rows on until some are staged, and then waits: a loser for ever.
    """

    def __init__(self, directory: str, url: str) -> None:
        self.directory = directory
        self.url = url

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows, and which attempt each is from (tests/helpers/faults/attempts.py)."""
        context = TaskContext.get()
        assert context is not None
        task, copy = context.partitionId(), context.attemptNumber() > 0
        assert (yield from attempts.label(batches)) >= 100  # so their words are more than a segment
        wait_until_staged(self.url)
        self._wait(task, copy)

    def stamped(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows, of which each has its stamp by then, and all of the task's are staged."""
        context = TaskContext.get()
        assert context is not None
        yield from batches
        self._wait(context.partitionId(), context.attemptNumber() > 0)

    def _wait(self, task: int, copy: bool) -> None:
        reported = Path(self.directory) / f"{task}-{'copy' if copy else 'original'}"
        reported.touch()
        if (task == 1 and not copy) or (task == 2 and copy):
            wait_for(lambda: False)
        if task == 2:
            wait_for((Path(self.directory) / "2-copy").exists)


if __name__ == "__main__":
    main()
