"""Operators with state, in queries and in the text of their plans."""

import logging
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from acker.spark import Collector, bolt, track
from acker.spark.queries.plan_check import of_text
from acker.streams import Stream, StreamWriter
from tests.helpers.builders.pipeline import Pipeline
from tests.helpers.servers.servers import wait_until

pytestmark = pytest.mark.slow


def clicks(pipeline: Pipeline, stream: str = "lines", **options: object) -> DataFrame:
    return pipeline.read_stream(stream, **options).withColumn("at", F.current_timestamp())


def distinct(rows: DataFrame) -> DataFrame:
    return rows.dropDuplicates(["line"])


def counted(rows: DataFrame) -> DataFrame:
    windows = rows.withWatermark("at", "1 minute").groupBy(F.window("at", "1 minute"), "line")
    return windows.agg(F.min("_acker").alias("_acker")).select("line", "_acker")


def paired(rows: DataFrame) -> DataFrame:
    return rows.alias("l").join(rows.alias("r"), "line").select("line", F.col("l._acker"))


def named(rows: DataFrame) -> DataFrame:
    rows.createOrReplaceTempView("lines_named")
    text = "WITH kept AS (SELECT * FROM lines_named), some AS (SELECT * FROM kept LIMIT 2) SELECT * FROM some"
    return rows.sparkSession.sql(text)


WAYS: dict[str, tuple[Callable[[DataFrame], DataFrame], str]] = {
    "distinct": (distinct, "dropDuplicates over rows of stream 'lines'"),
    "within": (
        lambda rows: rows.withWatermark("at", "1 minute").dropDuplicatesWithinWatermark(["line"]),
        "dropDuplicatesWithinWatermark over",
    ),
    "limit": (
        lambda rows: rows.limit(2),
        "limit over rows of stream 'lines', which have trees",
    ),
    "named": (named, "limit over rows of stream 'lines'"),
    "window": (counted, "an aggregate over .*collector.hold"),
    "pairs": (paired, "reads stream 'lines' in two places for one subscription"),
}


@pytest.mark.slow
@pytest.mark.parametrize("sink", ["bolt", "writer"])
def test_operators_with_state_are_refused_over_trees_and_go_on_without(pipeline: Pipeline, sink: str) -> None:
    @bolt(url=pipeline.url, topology="t", name="copy")
    def copy(batch: DataFrame, collector: Collector) -> None:
        collector.emit(batch, stream="copies")

    def run(name: str, rows: DataFrame) -> None:
        if sink == "writer":
            return pipeline.finish(pipeline.writing(name, rows, "copies"))
        query = rows.writeStream.foreachBatch(copy).trigger(availableNow=True)
        return pipeline.finish(query.option("checkpointLocation", str(pipeline.directory / name)))

    for name in (*WAYS, "plain"):
        Stream(pipeline.ledger, "lines").subscribe(name)
    pipeline.spout(["a", "b", "b"])
    for name, (over, message) in WAYS.items():
        rows = over(clicks(pipeline, subscription=name)).select("line", "_acker")
        with pytest.raises(Exception, match=f"UnsafePlan: .*{message}"):
            run(name, rows)
    assert pipeline.rows("copies") == []
    assert pipeline.counters() == {"tracked": 3}
    # Without state: a watermark alone drops nothing.
    run("plain", clicks(pipeline, subscription="plain").withWatermark("at", "1 second").drop("at"))
    # Of rows without trees a query keeps what it likes.
    StreamWriter(pipeline.ledger, "free").write(pa.table({"line": ["x", "x", "y"]}))
    run("free", distinct(pipeline.read_stream("free")))
    assert sorted(str(row["line"]) for row in pipeline.rows("copies")) == ["a", "b", "b", "x", "y"]
    # And what is deduplicated before it has trees is not tracked twice.
    (pipeline.directory / "files").mkdir()
    (pipeline.directory / "files" / "1").write_text("z\nz\n")
    texts = pipeline.spark.readStream.text(str(pipeline.directory / "files")).toDF("line")
    where: dict[str, Any] = {"url": pipeline.url, "topology": "t", "spout": "files", "message_id": "line"}
    run("track", track(texts.dropDuplicates(["line"]), **where))
    assert [row["line"] for row in pipeline.rows("copies")].count("z") == 1
    with pytest.raises(Exception, match=r"UnsafePlan: .*dropDuplicates over rows of acker.spark.track"):
        run("tracked", track(texts, **where).dropDuplicates(["line"]))
    pipeline.consume("copies")
    assert pipeline.counters() == {"tracked": 4, "acked": 1}


def test_a_query_that_writes_rows_with_trees_to_files_by_itself_ends(pipeline: Pipeline) -> None:
    pipeline.spout(["a"])
    tracked = pipeline.tracked(pipeline.files(["b"]))
    for name, rows in (("read", pipeline.read_stream("lines")), ("tracked", tracked)):
        writer = rows.drop("_acker").writeStream.format("parquet")
        writer = writer.option("path", str(pipeline.directory / f"{name}.parquet"))
        with pytest.raises(PySparkException, match=r"to files by itself(.|\n)*collector\.emit"):
            pipeline.finish(pipeline.checkpointed(name, writer))
    assert pipeline.counters() == {"tracked": 1}


@pytest.mark.slow
def test_missing_acks_and_sharers_are_logged(pipeline: Pipeline, caplog: pytest.LogCaptureFixture) -> None:
    pipeline.spout(["a", "b"])
    source = Stream(pipeline.ledger, "lines")
    rows = pipeline.read_stream("lines")
    with caplog.at_level(logging.WARNING, logger="acker"):
        query = rows.writeStream.format("memory").queryName("look").start()
        try:
            wait_until(lambda: pipeline.spark.sql("select * from look").count() == 2, 120)
            other = rows.writeStream.format("noop").queryName("other").start()
            other.stop()
        finally:
            query.stop()
    assert "query look reads lines and acks nothing of it" in caplog.text
    assert "query other reads stream 'lines' of topology 't' as query look does" in caplog.text
    # Nobody can go on from a temporary checkpoint: what such a query took is given back.
    wait_until(lambda: source.readers() == {}, 60)
    pipeline.consume("lines")
    assert pipeline.counters() == {"tracked": 2, "acked": 2}


@pytest.mark.slow
@pytest.mark.parametrize("sink", ["bolt", "writer"])
def test_a_query_with_asynchronous_progress_does_not_start(pipeline: Pipeline, sink: str) -> None:
    """Spark refuses the sink itself, unless a setting of its own tests says not to."""

    @bolt(url=pipeline.url, topology="t", name="copy")
    def copy(batch: DataFrame, collector: Collector) -> None:
        collector.emit(batch, stream="copies")

    pipeline.spout(["a"] * 4)
    query = pipeline.query("copy", "lines", copy)
    if sink == "writer":
        query = pipeline.writing("copy", pipeline.read_stream("lines"), "copies")
    query = query.trigger(processingTime="0 seconds").option("asyncProgressTrackingEnabled", "true")
    with pytest.raises(Exception, match="does not support async progress tracking"):
        query.start()
    forced = query.option("_asyncProgressTrackingOverrideSinkSupportCheck", "true").start()
    with pytest.raises(Exception, match=r"UnsafePlan: .*its checkpoint lacks batches|unknown option"):
        forced.awaitTermination(240)
    assert pipeline.counters() == {"tracked": 4}
    assert pipeline.rows("copies") == []


SCAN = "MicroBatchScan[line#1, _acker#2L] (Python)"


@pytest.mark.parametrize(
    ("plan", "operators", "tracked"),
    [
        (f"*(1) Project [line#1]\n+- {SCAN}", {}, ""),
        (
            f"StreamingGlobalLimit 3, state [\n+- Exchange\n   +- StreamingLocalLimit 3\n      +- {SCAN}",
            {"*": "limit"},
            "",
        ),
        (
            "StreamingDeduplicate [line#1]\n"
            "+- Exchange hashpartitioning(line#1, 2)\n"
            "   +- *(2) Union\n"
            "      :- *(2) LocalLimit 5\n"
            "      :  +- MapInArrow acker_track(value#39)#34, [value#35], false\n"
            "      :     +- *(1) Project [value#39]\n"
            "      :        +- StreamingGlobalLimit 2\n"
            "      :           +- FileScan text [value#39]\n"
            f"      +- *(2) Project [value#32]\n         +- {SCAN}",
            {"*": "dropDuplicates"},
            "dropDuplicates",
        ),
        (
            "MapInArrow acker_track(value#39)#34, [value#35], false\n"
            "+- StateStoreSave [window#52], state info [\n   +- FileScan text [StreamingDeduplicate#39]",
            {},
            "",
        ),
        (
            f"TransformWithStateInPySpark f(x)\n:- Sort\n:  +- {SCAN}\n+- LocalTableScan",
            {"*": "transformWithState"},
            "",
        ),
        (f"Union\n:- StateStoreSave [a]\n:  +- FileScan text\n+- {SCAN}", {}, ""),
    ],
)  # fmt: skip
def test_a_plan_tells_which_operators_keep_state(plan: str, operators: dict[str, str], tracked: str) -> None:
    found = of_text("== Physical Plan ==\n" + plan + "\n\n")
    assert found is not None
    assert (dict(found.operators), found.tracked) == (operators, tracked)


def test_what_is_no_plan_tells_nothing() -> None:
    assert of_text("No physical plan. Waiting for data.\n") is None
