"""Whatever format, plan and table rows go by: each record is acked by the rows that came whole, no other."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, DataFrameWriter, SparkSession

from acker import Topology
from acker.spark import Acker
from acker.spark.external.sinks import Write
from acker.streams import Stream
from tests.helpers.builders.pipeline import Pipeline

ROWS = 24
SCHEMA = "value string, _acker_stamp string"
Shape = Callable[[DataFrame], DataFrame]


@pytest.fixture
def topology(pipeline: Pipeline) -> Iterator[Topology]:
    with Topology(pipeline.url, "t", linger=None) as made:
        for stream in ("items", "others"):
            made.incoming(stream, subscription="count")
        yield made


def send(
    acker: Acker, spark: SparkSession, stream: str, to: Write, shape: Shape = lambda rows: rows, size: int = 5
) -> None:
    """A job that tracks numbers in four partitions, and sends them."""
    with acker.job(spark, f"parse-{stream}") as collector:
        numbers = spark.range(0, ROWS, 1, 4).selectExpr("string(id) value")
        rows = acker.track(numbers, stream, message_id="value").select("value", "_acker")
        collector.emit(shape(rows), stream, to=to, segment_rows=size)


def receive(acker: Acker, rows: DataFrame, stream: str = "items") -> list[tuple[str, bool]]:
    """A job that receives rows; returns each with True if it has a tree."""
    with acker.job(rows.sparkSession, "count") as collector:
        given = collector.receive(rows, stream).selectExpr("value", "_acker").collect()
    return sorted((row[0], bool(row[1])) for row in given)


ALL = sorted((str(number), True) for number in range(ROWS))


@pytest.mark.parametrize("format_", ["parquet", "orc", "json", "csv"])
def test_rows_go_by_files_of_a_format(
    spark: SparkSession, acker: Acker, topology: Topology, tmp_path: Path, format_: str
) -> None:
    where = str(tmp_path / "items")
    send(acker, spark, "items", lambda w: w.format(format_).save(where))
    assert receive(acker, spark.read.schema(SCHEMA).format(format_).load(where)) == ALL
    assert topology.counters()["acked"] == ROWS


def of_one_task(rows: DataFrame) -> DataFrame:
    """Four partitions, some of them empty, in a task of its own each, then in one."""
    return rows.filter("int(value) > 11").coalesce(1).union(rows.filter("int(value) <= 11"))


def shuffled(rows: DataFrame) -> DataFrame:
    """Partitions that Spark puts together by their size, as it runs."""
    return rows.repartition("value")


@pytest.mark.parametrize("shape", [of_one_task, shuffled])
def test_rows_go_by_plans_whose_tasks_are_not_their_partitions(
    spark: SparkSession, acker: Acker, topology: Topology, tmp_path: Path, shape: Shape
) -> None:
    where = str(tmp_path / "items")

    def to(w: DataFrameWriter) -> None:
        (w.partitionBy("part") if shape is shuffled else w).parquet(where)

    send(acker, spark, "items", to, lambda rows: shape(rows).selectExpr("*", "int(value) % 3 part"))
    assert receive(acker, spark.read.parquet(where)) == ALL
    assert topology.counters()["acked"] == ROWS


@pytest.mark.slow
def test_a_partition_of_many_rows_goes_in_segments_of_bounded_size(
    spark: SparkSession, acker: Acker, topology: Topology, tmp_path: Path
) -> None:
    where, many = str(tmp_path / "items"), 600_000
    copies = spark.range(0, many // ROWS, 1, 1).select("id")
    send(
        acker,
        spark,
        "items",
        lambda w: w.parquet(where),
        lambda rows: rows.crossJoin(copies).coalesce(1),
        5_000,
    )
    table = spark.read.parquet(where)
    assert table.count() == many
    assert Stream(topology.ledger, "items").totals().segments == many // 5_000
    with acker.job(spark, "count") as collector:
        collector.receive(table.coalesce(1), "items").write.format("noop").mode("overwrite").save()
    counters = topology.counters()
    assert (counters["acked"], counters["late"], counters["orphaned"]) == (ROWS, 0, 0)


def test_a_row_of_several_records_in_several_shards_is_acked_for_all(
    spark: SparkSession, acker: Acker, topology: Topology, tmp_path: Path
) -> None:
    where = str(tmp_path / "items")
    pairs = "string(int(value) div 2) value", "_acker"
    send(
        acker, spark, "items", lambda w: w.parquet(where),
        lambda rows: rows.selectExpr(*pairs).groupBy("value").agg({"_acker": "collect_list"})
        .selectExpr("value", "`collect_list(_acker)` _acker"),
    )  # fmt: skip
    table = spark.read.parquet(where)
    receive(acker, table.filter("value != '3'"))
    assert 0 < topology.counters()["acked"] < ROWS, "the segment of that row waits"
    receive(acker, table)
    assert topology.counters()["acked"] == ROWS


def test_cut_stamps_and_those_of_another_stream_come_as_rows_without_a_tree(
    spark: SparkSession, acker: Acker, topology: Topology, tmp_path: Path
) -> None:
    items, others, cut = (str(tmp_path / name) for name in ("items", "others", "cut"))
    send(acker, spark, "items", lambda w: w.parquet(items))
    send(acker, spark, "others", lambda w: w.parquet(others))
    short = "if(value = '3', left(_acker_stamp, 32), _acker_stamp) _acker_stamp"
    spark.read.parquet(items).selectExpr("value", short).write.parquet(cut)
    both = spark.read.parquet(cut, others)
    assert receive(acker, both) == sorted([*((value, value != "3") for value, _ in ALL), *UNTRACKED])
    assert ROWS - 5 <= topology.counters()["acked"] < ROWS, "the segment of the cut stamp waits"
    assert receive(acker, both, "others")
    assert topology.counters()["acked"] >= 2 * ROWS - 5


UNTRACKED = [(value, False) for value, _ in ALL]
