"""A step gets all rows of an external stream, and acks the rows that it was given."""

import os
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everyone imports it

from acker import FailedException, Topology
from acker.errors import UnknownSubscription, ValidationError
from acker.spark import Acker
from acker.spark.bolts.collector import Collector
from acker.spark.external.look import Look, Looker, read_stamps
from tests.helpers.builders.pipeline import Pipeline

pytestmark = pytest.mark.slow

ROWS = 200
SCHEMA = "value string, _acker_stamp string"


@pytest.fixture
def items(acker: Acker, topology: Topology, spark: SparkSession, tmp_path: Path) -> str:
    """Rows in files, from a job that tracks them."""
    where = str(tmp_path / "items")
    with acker.job(spark, "parse") as collector:
        numbers = spark.range(0, ROWS, 1, 3).selectExpr("string(id) value")
        rows = acker.track(numbers, "src", message_id="value").select("value", "_acker")
        collector.emit(rows, "items", to=lambda w: w.mode("append").parquet(where), segment_rows=20)
    return where


def test_a_job_acks_the_rows_that_it_was_given_and_a_second_one_changes_nothing(
    spark: SparkSession, acker: Acker, topology: Topology, items: str
) -> None:
    for _ in range(2):
        with acker.job(spark, "count") as collector:
            rows = collector.receive(spark.read.parquet(items), "items")
            assert rows.count() == ROWS
            assert rows.filter("_acker != 0").count() in (ROWS, 0)
        assert topology.counters()["acked"] == ROWS
    assert topology.counters()["late"] == topology.counters()["orphaned"] == 0


def test_marked_rows_say_if_they_were_received_before(
    spark: SparkSession, acker: Acker, topology: Topology, items: str, tmp_path: Path
) -> None:
    def words(rows: DataFrame, step: str = "count") -> dict[str, int]:
        with acker.job(spark, step) as collector:
            marked = collector.receive(rows, "items", duplicates="mark")
            return {row[0]: row[1] for row in marked.groupBy("_acker_known").count().collect()}

    table, part = spark.read.parquet(items), str(tmp_path / "part")
    with pytest.raises(ValidationError, match="'drop'"), acker.job(spark, "count") as collector:
        collector.receive(table, "items", duplicates="drop")
    table.filter("value < '5'").write.parquet(part)  # a part of each segment
    some = spark.read.parquet(part).count()
    assert words(spark.read.parquet(part)) == {"first": some}
    strange = spark.createDataFrame([("x", None), ("y", "no stamp")], SCHEMA)
    stamps = F.collect_list("_acker_stamp").alias("_acker_stamp")
    assert words(table.groupBy(F.expr("value < '5'")).agg(stamps)) == {"first": 1, "copy": 1}
    assert words(table.union(strange)) == {"copy": ROWS, "untracked": 2}
    assert words(table, "late") == {"over": ROWS}, "it has joined when they were sent"


def test_rows_that_fail_fail_their_records_alone(
    spark: SparkSession, acker: Acker, topology: Topology, items: str
) -> None:
    with acker.job(spark, "count") as collector:
        rows = collector.receive(spark.read.parquet(items), "items")
        collector.fail(rows.filter("value in ('7', '8')"), "odd")
    assert topology.counters()["failed"] == 2
    assert topology.counters()["acked"] == ROWS - 2


def test_a_bolt_acks_the_rows_of_its_batches_and_a_query_that_leaves_out_rows_is_refused(
    pipeline: Pipeline, acker: Acker, topology: Topology, items: str
) -> None:
    @acker.bolt("count", receives="items")
    def count(batch: DataFrame, collector: Collector) -> None:
        collector.fail(batch.filter("value = '7'"), "odd")

    files = pipeline.spark.readStream.schema(SCHEMA).parquet(items)
    with pytest.raises(PySparkException, match="explode_outer"):
        pipeline.run_on(files.selectExpr("explode(array(value)) value", "_acker_stamp"), "exploded", count)
    assert topology.counters()["failed"] == 0
    pipeline.run_on(files, "count", count)
    assert topology.counters()["failed"] == 1
    assert topology.counters()["acked"] == ROWS - 1


def test_a_batch_with_trees_of_its_own_receives_only_rows_of_elsewhere_and_fails_with_them(
    pipeline: Pipeline, acker: Acker, topology: Topology, items: str
) -> None:
    spark = pipeline.spark

    @acker.bolt("count")
    def itself(batch: DataFrame, collector: Collector) -> None:
        collector.receive(batch, "items")

    @acker.bolt("count")
    def dropped(batch: DataFrame, collector: Collector) -> None:
        collector.receive(batch.drop("_acker"), "items")

    @acker.bolt("count")
    def elsewhere(batch: DataFrame, collector: Collector) -> None:
        collector.receive(spark.read.parquet(items), "items")
        raise FailedException("not today")

    files = spark.readStream.schema(SCHEMA).parquet(items)
    tracked = acker.track(files, "again", message_id="value", partitions=2)
    for bolt, why in ((itself, "trees of their own"), (dropped, "a batch that has trees of its own")):
        with pytest.raises(PySparkException, match=why):
            pipeline.run_on(tracked, f"refused {why}", bolt)
    assert topology.counters()["acked"] == topology.counters()["failed"] == 0
    pipeline.run_on(tracked, "elsewhere", elsewhere)
    assert topology.counters()["failed"] == 2 * ROWS  # records of the files, and of the query


def test_a_row_fails_the_trees_that_its_stamp_does_not_have(
    pipeline: Pipeline, acker: Acker, topology: Topology, items: str
) -> None:
    pipeline.spout(["7", "no item"], "orders")
    with acker.job(pipeline.spark, "count") as collector:
        orders = collector.take("orders")
        rows = collector.receive(pipeline.spark.read.parquet(items), "items").drop("_acker")
        joined = orders.join(rows, orders["line"] == rows["value"], "left")
        collector.fail(joined.filter("value is null"), "no item")
    assert topology.counters()["failed"] == 1
    assert topology.counters()["acked"] == ROWS + 1


def test_a_row_that_a_reader_drops_for_another_column_gets_no_bit(
    spark: SparkSession, acker: Acker, topology: Topology, tmp_path: Path
) -> None:
    where = str(tmp_path / "csv")
    with acker.job(spark, "parse") as collector:
        numbers = spark.range(0, ROWS, 1, 1).selectExpr("if(id = 7, 'bad', string(id)) value")
        rows = acker.track(numbers, "src", message_id="value").select("value", "_acker")
        collector.emit(rows, "items", to=lambda w: w.mode("append").csv(where), segment_rows=1)
    with acker.job(spark, "count") as collector:
        read = spark.read.schema("value int, _acker_stamp string").option("mode", "DROPMALFORMED")
        assert collector.receive(read.csv(where), "items").agg({"value": "count"}).head() == (ROWS - 1,)
    assert topology.counters()["acked"] == ROWS - 1


def test_a_file_that_is_written_anew_under_its_name_gets_no_bits_and_one_that_stays_is_looked_at_once(
    spark: SparkSession, acker: Acker, topology: Topology, items: str, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    first, other, _ = sorted(Path(items).glob("part-*.parquet"))
    where, looks = tmp_path / "one" / first.name, list[DataFrame]()
    where.parent.mkdir()

    def counted(rows: DataFrame, looker: Looker) -> Look:
        looks.append(rows)
        return read_stamps(rows, looker)

    monkeypatch.setattr("acker.spark.external.receiving.read_stamps", counted)
    for new, acked, looked in ((other, 0, 2), (None, spark.read.parquet(str(other)).count(), 1)):
        if new:
            shutil.copy(first, where)
        os.utime(where, (1, 1.234))
        with acker.job(spark, "count") as collector:
            collector.receive(spark.read.parquet(str(where.parent)), "items")
            del looks[:-1]  # a process that knew the stream of an emptied store has looked twice
            if new:
                shutil.copy(new, where)
        assert (topology.counters()["acked"], len(looks)) == (acked, looked)


@pytest.mark.parametrize("by", ["job", "query"])
def test_rows_of_a_file_that_is_deleted_while_the_function_runs_are_acked_by_no_run(
    pipeline: Pipeline, acker: Acker, topology: Topology, items: str, by: str
) -> None:
    spark = pipeline.spark
    gone, *others = sorted(Path(items).glob("part-*.parquet"))

    @acker.bolt("count", receives="items")
    def count(_: DataFrame, __: Collector) -> None:
        gone.unlink(missing_ok=True)

    def run(skips: str = "false") -> None:
        if by == "query":
            files = spark.readStream.schema(SCHEMA).option("ignoreMissingFiles", skips).parquet(items)
            pipeline.run_on(files, "count", count)
            return
        with acker.job(spark, "count") as collector:
            table = spark.read.schema(SCHEMA).parquet(items)  # listed anew by each run
            collector.receive(table, "items")
            gone.unlink(missing_ok=True)

    with pytest.raises((PySparkException, Py4JJavaError), match="FILE_NOT_EXIST"):
        run()
    assert topology.counters()["acked"] == 0
    run(skips="true")
    left = spark.read.parquet(*map(str, others)).count()
    assert topology.counters()["acked"] == left < ROWS
    assert topology.counters()["failed"] == topology.counters()["orphaned"] == 0


def test_rows_of_an_rdd_in_a_batch_of_files_get_no_bits_if_a_later_evaluation_lacks_them(
    pipeline: Pipeline, acker: Acker, topology: Topology, items: str, tmp_path: Path
) -> None:
    gone = tmp_path / "gone"

    @acker.bolt("count")
    def count(batch: DataFrame, collector: Collector) -> None:
        kept = batch.rdd.filter(lambda _: not gone.exists())
        collector.receive(pipeline.spark.createDataFrame(kept, SCHEMA), "items")
        gone.touch()

    pipeline.run_on(pipeline.spark.readStream.schema(SCHEMA).parquet(items), "count", count)
    assert topology.counters()["acked"] == 0


def test_a_table_is_reconciled_again_and_says_which_rows_it_lacks(
    spark: SparkSession, acker: Acker, topology: Topology, items: str, tmp_path: Path
) -> None:
    table = spark.read.parquet(items)
    with pytest.raises(UnknownSubscription, match="'gold'"):
        acker.reconcile(table, "items", "gold")
    part = str(tmp_path / "part")
    table.filter("value != '7'").selectExpr("value", "_acker_stamp proof").write.parquet(part)
    for _ in range(2):
        proof = acker.reconcile(spark.read.parquet(part), "items", "count", column="proof")
        assert (proof.rows, proof.stamps, proof.missing, proof.segments) == (ROWS - 1, ROWS - 1, 1, 1)
        assert not proof.complete
    assert topology.counters()["acked"] < ROWS
    program = str(Path(sys.executable).with_name("acker"))
    command = [program, "reconcile", "t", "items", "--subscription", "count", "--url", acker.url]
    command += [
        "--sql",
        f"select * from parquet.`{part}`",
        "--column",
        "proof",
        "--conf",
        "spark.master=local[1]",
    ]
    told = subprocess.run(command, check=False, capture_output=True, text=True)
    assert told.stdout.startswith("missing: 1 row of 1 segment, sent for count"), told.stderr
    assert told.returncode == 1
    joined = table.groupBy().agg(F.collect_list("_acker_stamp").alias("_acker_stamp"))
    assert acker.reconcile(joined, "items", "count").complete
    assert topology.counters()["acked"] == ROWS


def test_a_mapped_row_of_an_attempt_that_does_not_count_fails_no_record(
    pipeline: Pipeline, acker: Acker, topology: Topology, tmp_path: Path
) -> None:
    pipeline.spout(["a", "b"], "orders")
    where = str(tmp_path / "orders")
    for attempt in (1, 2):
        with suppress(ZeroDivisionError), acker.job(pipeline.spark, "parse") as collector:
            orders = collector.take("orders").selectExpr("line", f"{attempt} attempt", "_acker")
            collector.emit(orders, "items", to=lambda w: w.mode("append").parquet(where))
            1 / (attempt - 1)

    def first_fails(row: dict[str, Any]) -> str:
        assert sorted(row) == ["attempt", "line"]
        if row["attempt"] == 1:
            raise ValueError(row["line"])
        return str(row["line"])

    with acker.job(pipeline.spark, "count") as collector:
        rows = collector.receive(pipeline.spark.read.parquet(where), "items")
        mapped = collector.map(rows, first_fails, "upper string")
        assert mapped.columns == ["upper", "_acker", "_acker_stamp"]
        assert collector.emit_map(mapped, lambda row: row["upper"], "upper string", "uppers") == 2
    assert topology.counters()["failed"] == 0
    assert acker.read(pipeline.spark, "uppers").columns == ["upper", "_acker"]


def test_a_query_without_a_function_passes_rows_on_and_receives_them(
    pipeline: Pipeline, acker: Acker, topology: Topology, items: str, tmp_path: Path
) -> None:
    topology.incoming("copies", subscription="last")
    files, where = pipeline.spark.readStream.schema(SCHEMA).parquet(items), str(tmp_path / "copies")
    with pytest.raises(ValidationError, match="only go with to="):
        acker.write_stream(files, "copies", receives="items")
    writer = acker.write_stream(
        files, "copies", lambda w: w.mode("append").parquet(where), name="count", receives="items"
    )
    writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True)
    writer.start().awaitTermination()
    assert topology.counters()["acked"] == 0, "each record has a row in copies"
    assert acker.reconcile(pipeline.spark.read.parquet(where), "copies", "last").complete
    assert topology.counters()["acked"] == ROWS
