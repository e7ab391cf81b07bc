"""Rows go to sinks of users: what counts as sent is what the sink has, or nothing of the batch is acked."""

import secrets
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, DataFrameWriterV2, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everyone imports it

from acker import AckerError, FailedException, Topology
from acker.spark import Acker, sink
from acker.spark.bolts.collector import Collector
from acker.spark.external.sinks import Sink, Write
from tests.helpers.builders.pipeline import Pipeline

ROWS, PARTS = 400, 4


def send(acker: Acker, spark: SparkSession, to: Sink | Write, **how: Any) -> int:
    """A job that tracks rows and sends them; returns how many."""

    def emit(collector: Collector) -> int:
        numbers = spark.range(0, ROWS, 1, PARTS).select(F.col("id").cast("string").alias("value"))
        rows = acker.track(numbers, "src", message_id="value").select("value", "_acker")
        return collector.emit(rows, "items", to=to, **how)

    with acker.job(spark, "parse", run="monday") as collector:
        return emit(collector)


def persisted(spark: SparkSession) -> set[int]:
    """The RDDs that the session keeps, of earlier tests too: these may go at any time."""
    return {kept.id() for kept in spark.sparkContext._jsc.sc().getRDDStorageInfo()}


def count(topology: Topology, rows: DataFrame) -> int:
    """Acks the rows of a sink, all of them; returns how many have a tree that waits."""
    items = topology.incoming("items", subscription="count")
    found = items.read([row[0] for row in rows.select("_acker_stamp").collect()])
    items.ack(found)
    topology.flush()
    return sum(row.tracked for row in found)


def test_rows_in_files_are_acked_when_their_consumer_has_worked_on_all(
    spark: SparkSession, acker: Acker, topology: Topology, tmp_path: Path
) -> None:
    where = str(tmp_path / "items")
    before = persisted(spark)
    assert send(acker, spark, lambda w: w.mode("append").parquet(where), segment_rows=30) == ROWS
    assert persisted(spark) <= before  # nothing is persisted without need
    rows = spark.read.parquet(where)
    assert "_acker" not in rows.columns
    assert topology.counters()["acked"] == 0
    assert count(topology, rows) == ROWS
    assert topology.counters()["acked"] == ROWS
    assert topology.counters()["late"] == topology.counters()["orphaned"] == 0


def test_rows_go_to_a_table_by_a_writer_of_version_two_that_writes_once(
    spark: SparkSession, acker: Acker, topology: Topology, tmp_path: Path
) -> None:
    name, where = f"items_{secrets.token_hex(4)}", str(tmp_path / "items")

    def write(write_to: Callable[[str], DataFrameWriterV2]) -> None:
        writer = write_to(name).using("parquet").option("path", where)
        writer.create()
        with pytest.raises(AckerError, match="has written before"):
            writer.create()

    try:
        assert send(acker, spark, sink(write, v2=True), segment_rows=30) == ROWS
        assert all(where in file for file in spark.table(name).inputFiles())
        assert count(topology, spark.table(name)) == ROWS
    finally:
        spark.sql(f"drop table if exists {name}")
    assert topology.counters()["acked"] == ROWS


def test_a_batch_fails_where_its_function_goes_on_without_rows_that_may_be_in_the_sink(
    pipeline: Pipeline, acker: Acker, topology: Topology
) -> None:
    @acker.bolt("parse")
    def parse(batch: DataFrame, collector: Collector) -> None:
        with suppress(FailedException):
            collector.emit(batch, "items", to=lambda _: None)

    pipeline.run_on(pipeline.tracked(pipeline.files(["a", "b"])), "parse", parse)
    assert topology.counters()["failed"] == 2
    pipeline.spout(["c"], "orders")
    with acker.job(pipeline.spark, "parse") as collector, suppress(FailedException):
        collector.emit(collector.take("orders"), "items", to=lambda _: None)
    assert topology.counters()["failed"] == 3
    with acker.job(pipeline.spark, "parse") as collector, suppress(FailedException):
        numbers = pipeline.spark.range(3).selectExpr("string(id) value")
        tracked = acker.track(numbers, "src", message_id="value")
        collector.emit(tracked, "items", to=lambda _: None)  # no task has tracked a row
    assert topology.counters()["failed"] == 6
    assert topology.counters()["acked"] == 0
