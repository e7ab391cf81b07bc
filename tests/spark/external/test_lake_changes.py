"""Tables of Delta and Iceberg that change while rows go by them: columns, partitions, files, all rows."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, DataFrameWriter
from pyspark.sql import functions as F  # noqa: N812 - as everyone imports it

from acker import Topology
from acker.spark import Acker, sink
from acker.spark.bolts.collector import Collector
from tests.helpers.builders.lake import ROWS, SEGMENT, Table, send
from tests.helpers.builders.pipeline import Diary, Pipeline

pytestmark = [pytest.mark.lake, pytest.mark.timeout(900)]


@pytest.fixture
def topology(pipeline: Pipeline) -> Iterator[Topology]:
    with Topology(pipeline.url, "t", linger=None) as made:
        for subscription in ("price", "proof"):
            made.incoming("items", subscription=subscription)
        yield made


def test_a_table_may_get_columns_and_partitions_between_two_attempts_of_a_batch(
    pipeline: Pipeline, topology: Topology, table: Table
) -> None:
    acker, runs, rows_given = Acker(pipeline.url, "t"), Diary(pipeline.directory / "runs"), list[int]()

    def to(writer: DataFrameWriter) -> None:
        table.to(writer.option("mergeSchema", "true"))

    @acker.bolt("parse")
    def parse(batch: DataFrame, collector: Collector) -> None:
        rows = batch.select("value", "_acker")
        if runs.read():
            if table.kind == "iceberg":
                table.spark.sql(f"alter table {table.items} add columns (more int)")
                table.spark.sql(f"alter table {table.items} add partition field bucket(2, value)")
            rows = rows.selectExpr("*", "int(value) more")
        collector.emit(rows, "items", to=to, segment_rows=SEGMENT)
        if runs.note("sent") == 1:
            raise RuntimeError("between the write and the commit")

    @acker.bolt("price", receives="items")
    def price(batch: DataFrame, _: Collector) -> None:
        rows_given.append(batch.count())

    lines = acker.track(pipeline.files([*map(str, range(ROWS))]), "src", message_id="value")
    with pytest.raises(PySparkException, match="between the write and the commit"):
        pipeline.run_on(lines, "parse", parse)
    pipeline.run_on(table.stream(), "price", price)
    pipeline.run_on(lines, "parse", parse)
    pipeline.run_on(table.stream(), "price", price)
    assert rows_given == [ROWS, ROWS]
    assert topology.counters()["acked"] == 0, "subscription proof waits"
    everything = table.spark.read.format(table.kind).load(table.items)
    assert acker.reconcile(everything, "items", "proof").complete
    counters = topology.counters()
    assert (counters["acked"], counters["failed"], counters["orphaned"]) == (ROWS, 0, 0)


def test_rows_of_files_that_vacuum_deletes_while_the_function_runs_are_not_acked(
    pipeline: Pipeline, topology: Topology, tmp_path: Path
) -> None:
    spark, acker, where = pipeline.spark, Acker(pipeline.url, "t"), str(tmp_path / "items")

    @acker.bolt("price", receives="items")
    def price(batch: DataFrame, _: Collector) -> None:
        assert batch.count() == ROWS
        spark.sql(f"delete from delta.`{where}`")
        spark.sql(f"vacuum delta.`{where}` retain 0 hours")

    assert send(pipeline, lambda w: w.format("delta").mode("append").save(where), 0) == ROWS
    with pytest.raises(PySparkException, match="FILE_NOT_EXIST"):
        pipeline.run_on(spark.readStream.format("delta").load(where), "price", price)
    lacking = acker.reconcile(spark.read.format("delta").load(where), "items", "proof")
    assert (lacking.stamps, lacking.complete) == (0, False)
    assert topology.counters()["acked"] == topology.counters()["failed"] == 0


OVERWRITES: dict[str, Callable[[Any], None]] = {
    "create": lambda table: table.using("iceberg").create(),
    "createOrReplace": lambda table: table.using("iceberg").createOrReplace(),
    "overwrite": lambda table: table.overwrite(F.lit(True)),
    "overwritePartitions": lambda table: table.overwritePartitions(),
}


def write_anew(name: str, write: Callable[[Any], None], write_to: Callable[[str], Any]) -> None:
    """Writes a table by a way of `OVERWRITES`."""
    write(write_to(name))


def test_a_batch_that_writes_a_table_anew_again_is_acked_by_the_rows_that_are_left(
    pipeline: Pipeline, lake: str
) -> None:
    spark, acker, lines = pipeline.spark, Acker(pipeline.url, "t"), [str(value) for value in range(ROWS)]
    with acker.open() as topology:
        for done, (way, write) in enumerate(OVERWRITES.items()):
            name, stream = f"{lake}.{way}", f"{way}d"
            if way.startswith("overwrite"):
                columns = "(line string, _acker_stamp string, part int)"
                spark.sql(f"create table {name} {columns} using iceberg partitioned by (part)")
                spark.sql(f"insert into {name} values ('old', null, 0)")
            topology.incoming(stream, subscription="proof")
            pipeline.spout(lines, way)
            to = sink(partial(write_anew, name, write), v2=True, skips=False)
            for run in (2,) if way == "create" else (1, 2):
                with suppress(ZeroDivisionError), acker.job(spark, "parse", run=way) as collector:
                    rows = collector.take(way).selectExpr("line", "_acker", "int(line) % 2 part")
                    collector.emit(rows, stream, to=to, segment_rows=SEGMENT)
                    1 / (run - 1)  # the first run dies between the write and the commit
            assert topology.counters()["acked"] == done * ROWS
            proof = acker.reconcile(spark.table(name), stream, "proof")
            assert (proof.complete, proof.stamps) == (True, ROWS)
            assert topology.counters()["acked"] == (done + 1) * ROWS
            assert topology.counters()["failed"] == topology.counters()["orphaned"] == 0
