"""An executor dies with stamped rows that a sink has still to read: these are stamped anew, and refused."""

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from acker import Topology
from acker.spark import Acker, Sink
from acker.spark.external.verdicts import TwoLists
from tests.helpers.builders.pipeline import Pipeline
from tests.helpers.faults import attempts

pytestmark = pytest.mark.slow

ROWS = 40


class Killer:
    """Ends all executors that have stamped rows, once, in a task behind the shuffle of these rows."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def note(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """In the tasks before the shuffle: notes their executor."""
        (self.directory / f"executor-{attempts.executor()}").touch()
        yield from batches

    def kill(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """In a task behind it."""
        with suppress(FileExistsError):
            os.close(os.open(self.directory / "killed", os.O_CREAT | os.O_EXCL))
            noted = [int(path.name.partition("-")[2]) for path in self.directory.glob("executor-*")]
            for pid in sorted(noted, key=lambda pid: pid == attempts.executor()):
                os.kill(pid, signal.SIGKILL)
            raise RuntimeError("on purpose")  # where its own executor lives, it reads the rows again
        yield from batches


def test_rows_whose_shuffled_output_is_lost_are_refused_and_persisted_from_then_on(
    spark: SparkSession, acker: Acker, pipeline: Pipeline, tmp_path: Path
) -> None:
    killer, where = Killer(tmp_path), str(tmp_path / "items")

    def prepare(rows: DataFrame) -> DataFrame:
        return rows.repartition(1).mapInArrow(killer.kill, rows.schema)

    with Topology(pipeline.url, "t", linger=None) as topology:
        topology.incoming("items", subscription="count")
        pipeline.spout([str(number) for number in range(ROWS)], "orders", segments=4)

        def parse() -> None:
            with acker.job(spark, "parse") as collector:
                orders = collector.take("orders")
                noted = orders.mapInArrow(killer.note, orders.schema)
                to = Sink(lambda w: w.mode("append").parquet(where), prepare=prepare)
                collector.emit(noted, "items", to=to)

        with pytest.raises(TwoLists, match="persist=True"):
            parse()
        assert (tmp_path / "killed").exists()
        parse()
        with acker.job(spark, "count") as collector:
            rows = collector.receive(spark.read.parquet(where), "items")
            assert rows.select("line").distinct().count() == ROWS
        counters = topology.counters()
        assert (counters["acked"], counters["late"], counters["orphaned"]) == (ROWS, 0, 0)
