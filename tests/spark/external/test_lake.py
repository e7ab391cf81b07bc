"""External streams by tables of Delta and Iceberg, on the newest Spark that both have a build for.

`tests/spark/test_clusters.py` runs these in an environment of that Spark: one session for all of them.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everyone imports it

from acker import Topology, cli
from acker.spark import Acker, delta, iceberg
from acker.spark.bolts.collector import Collector
from tests.helpers.builders.lake import ROWS, Table, send
from tests.helpers.builders.pipeline import Diary, Pipeline

pytestmark = [pytest.mark.lake, pytest.mark.timeout(900)]

ODD = 7
"""The row that fails in each run of its batch."""


@pytest.fixture
def topology(pipeline: Pipeline) -> Iterator[Topology]:
    with Topology(pipeline.url, "t", linger=None) as made:
        made.incoming("items", subscription="price")
        made.incoming("items", subscription="proof")
        yield made


def reconciled(pipeline: Pipeline, table: Table, run: Callable[..., dict[str, Any]]) -> dict[str, Any]:
    """The answer of `acker reconcile`, of the table through which the rows went."""
    command = ["reconcile", "t", "items", "--subscription", "proof", f"--{table.kind}", table.items]
    return run(*command, "--url", pipeline.url, "--json")


@pytest.fixture
def command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., dict[str, Any]]:
    """Runs `acker` in this process and in the session of the tests; returns its answer."""
    monkeypatch.setattr(SparkSession, "stop", lambda _: None)

    def run(*arguments: str) -> dict[str, Any]:
        capsys.readouterr()
        with pytest.raises(SystemExit) as end:
            cli.main(list(arguments))
        told = capsys.readouterr()
        assert end.value.code in (0, 1), told.err
        answer: dict[str, Any] = json.loads(told.out)
        return answer

    return run


def test_rows_go_by_a_table_and_a_batch_that_runs_again_is_in_its_sink_once(
    pipeline: Pipeline, topology: Topology, table: Table, command: Callable[..., dict[str, Any]]
) -> None:
    acker, runs = Acker(pipeline.url, "t"), Diary(pipeline.directory / "runs")

    @acker.bolt("price", receives="items")
    def price(batch: DataFrame, collector: Collector) -> None:
        collector.fail(batch.filter(f"value = {ODD}"), "odd", retry=False)
        good = batch.filter(f"value != {ODD}").select("value")
        table.write(good, collector)
        if runs.note(sorted(int(row.value) for row in batch.collect())) == 1:
            raise RuntimeError("between the write and the commit")

    assert send(pipeline, table.to, 0) == ROWS
    with pytest.raises(PySparkException, match="between the write and the commit"):
        pipeline.run_on(table.stream(), "price", price)
    assert topology.counters().get("failed", 0) == topology.counters().get("acked", 0) == 0
    pipeline.run_on(table.stream(), "price", price)
    wanted = [value for value in range(ROWS) if value != ODD]
    assert table.values() == wanted
    assert runs.read() == [list(range(ROWS))] * 2
    assert topology.counters()["failed"] == 1
    assert topology.counters().get("acked", 0) == 0, "subscription proof waits"
    answer = reconciled(pipeline, table, command)
    assert (answer["complete"], answer["stamps"], answer["foreign"]) == (True, ROWS, 0)
    assert topology.counters()["acked"] == ROWS - 1

    table.tidy()
    pipeline.run_on(table.stream(), "price", price)
    assert send(pipeline, table.to_v2(), 100) == ROWS
    pipeline.run_on(table.stream(), "price", price)
    later = [value for run in runs.read()[2:] for value in run]
    assert later == list(range(100, 100 + ROWS)), "files that were written anew are not read"
    assert table.values() == wanted + list(range(100, 100 + ROWS))
    table.tidy()
    assert topology.counters()["acked"] == ROWS - 1
    assert reconciled(pipeline, table, command)["complete"]
    assert reconciled(pipeline, table, command)["complete"]
    assert topology.counters()["acked"] == 2 * ROWS - 1
    assert topology.counters()["failed"] == 1
    assert topology.counters()["orphaned"] == 0


def test_a_change_feed_gives_all_images_of_a_row_and_it_counts_once(
    pipeline: Pipeline, topology: Topology, tmp_path: Path
) -> None:
    spark, acker, where = pipeline.spark, Acker(pipeline.url, "t"), str(tmp_path / "items")
    images = list[tuple[str, str]]()
    spark.sql(
        f"create table delta.`{where}` (value string, _acker_stamp string) using delta "
        "tblproperties ('delta.enableChangeDataFeed' = 'true')"
    )
    assert send(pipeline, lambda w: w.format("delta").mode("append").save(where), 0) == ROWS
    spark.sql(f"update delta.`{where}` set value = 'new' where value = '3'")
    spark.sql(f"delete from delta.`{where}` where value = '5'")

    @acker.bolt("price", receives="items")
    def price(batch: DataFrame, _: Collector) -> None:
        images.extend((row._change_type, row.value) for row in batch.filter("_acker != 0").collect())

    feed = spark.readStream.format("delta").options(readChangeFeed=True, startingVersion=0).load(where)
    pipeline.run_on(feed, "price", price)
    changed = [("update_preimage", "3"), ("update_postimage", "new"), ("delete", "5")]
    assert sorted(images) == sorted([*(("insert", str(value)) for value in range(ROWS)), *changed])
    lacking = acker.reconcile(spark.read.format("delta").load(where), "items", "proof")
    assert (lacking.stamps, lacking.missing) == (ROWS - 1, 1), "a deleted row is not in the table"
    feed = spark.read.format("delta").options(readChangeFeed=True, startingVersion=0).load(where)
    assert acker.reconcile(feed, "items", "proof").complete
    assert topology.counters()["acked"] == ROWS


def test_a_column_that_is_too_short_for_stamps_refuses_them(
    pipeline: Pipeline, topology: Topology, tmp_path: Path
) -> None:
    where = str(tmp_path / "items")
    pipeline.spark.sql(f"create table delta.`{where}` (value string, _acker_stamp varchar(32)) using delta")
    with pytest.raises(Py4JJavaError, match="exceeds char/varchar type length limitation"):
        send(pipeline, lambda w: w.format("delta").mode("append").save(where), 0)
    assert pipeline.spark.read.format("delta").load(where).count() == 0
    assert topology.counters()["acked"] == 0


def test_a_session_of_its_own_needs_no_setting_but_the_jars(pipeline: Pipeline, topology: Topology) -> None:
    table = Table(pipeline.spark, "delta", str(pipeline.directory / "items"), "")
    assert send(pipeline, table.to, 0) == ROWS
    command = [sys.executable, "-c", "from acker.cli import main; main()", "reconcile", "t", "items"]
    command += ["--subscription", "proof", "--url", pipeline.url, "--conf", "spark.master=local[1]"]

    def run(*more: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run([*command, *more], check=False, capture_output=True, text=True)

    for kind, package in (("delta", "io.delta:delta-spark"), ("iceberg", "org.apache.iceberg:iceberg-spark")):
        refused = run(f"--{kind}", table.items)
        assert refused.returncode not in (0, 1), refused.stdout
        assert f"add --conf spark.jars.packages={package}" in " ".join(refused.stderr.split())
    told = run("--delta", table.items, "--conf", f"spark.jars={os.environ['ACKER_TEST_LAKE']}")
    assert told.stdout.startswith("complete: "), told.stderr
    assert told.returncode == 0


MERGE = """
    merge into delta.`{}` as kept using latest on kept.id = latest.id
    when matched and latest.version > kept.version then update set *
    when not matched then insert *
"""


def test_a_table_that_is_merged_by_id_and_version_has_each_record_once_and_its_newest_state(
    pipeline: Pipeline, tmp_path: Path
) -> None:
    spark, acker, steps = pipeline.spark, Acker(pipeline.url, "t"), Diary(tmp_path / "steps")
    gold, changes = str(tmp_path / "gold"), tmp_path / "changes"
    spark.sql(f"create table delta.`{gold}` (id string, version int, amount int) using delta")
    changes.mkdir()

    @acker.bolt("merge")
    def merge(batch: DataFrame, collector: Collector) -> None:
        if steps.note("merge") == 1:
            raise RuntimeError("killed before the merge")
        flaky = "id = '3' and version = 1" if "failed" not in steps.read() else "false"
        collector.fail(batch.filter(flaky), "not now")
        newest = collector.newest(batch.filter(f"not ({flaky})"), "id", "version")
        newest.select("id", "version", "amount").createOrReplaceTempView("latest")
        batch.sparkSession.sql(MERGE.format(gold))
        if steps.note("merged") == 3:
            raise RuntimeError("killed before the commit")
        steps.note("failed")

    def run(*rows: tuple[int, int]) -> None:
        lines = [json.dumps({"id": str(id_), "version": v, "amount": 10 * id_ + v}) for id_, v in rows]
        (changes / f"{len(list(changes.iterdir()))}.json").write_text("\n".join(lines))
        files = spark.readStream.schema("id string, version int, amount int").json(str(changes))
        named = files.withColumn("name", F.concat_ws(":", "id", "version"))
        pipeline.run_on(acker.track(named, "changes", message_id="name", attempts=3), "merge", merge)

    for killed in ("before the merge", "before the commit"):
        with pytest.raises(PySparkException, match=f"killed {killed}"):
            run(*((id_, 1) for id_ in range(6)) if "merge" in killed else ())
    run()
    run((3, 2), (5, 2), (5, 3), (6, 1))
    acker.settle("changes")
    run()  # the replay of version 1 of id 3 comes behind version 2
    acker.settle("changes")
    versions = {3: 2, 5: 3}
    rows = sorted(tuple(row) for row in spark.read.format("delta").load(gold).collect())
    assert rows == [(str(n), versions.get(n, 1), 10 * n + versions.get(n, 1)) for n in range(7)]
    with acker.open() as topology:
        counters = topology.counters()
    assert (counters["failed"], counters["acked"]) == (1, counters["tracked"] - 1)


@pytest.mark.parametrize("format_", ["delta", "iceberg"])
def test_rows_are_read_again_by_their_key(
    spark: SparkSession, lake: str, tmp_path: Path, format_: str
) -> None:
    table = str(tmp_path / "there") if format_ == "delta" else f"{lake}.there"

    def write(rows: DataFrame) -> None:
        how = rows.write.format(format_).mode("overwrite")
        how.save(table) if format_ == "delta" else how.saveAsTable(table)

    write(spark.range(5).selectExpr("id", "'old' word"))
    first = 0 if format_ == "delta" else spark.table(f"{table}.snapshots").collect()[0].snapshot_id
    write(spark.range(3, 8).selectExpr("id", "'new' word"))
    ids = spark.createDataFrame([(2,), (4,)], "id long")
    then = (
        delta.reread(table, "id", version=first)
        if format_ == "delta"
        else iceberg.reread(table, "id", snapshot=first)
    )
    now = delta.reread(table, "id") if format_ == "delta" else iceberg.reread(table, "id")
    assert [(row.id, row.word) for row in now(ids).collect()] == [(4, "new")]
    assert sorted((row.id, row.word) for row in then(ids).collect()) == [(2, "old"), (4, "old")]
