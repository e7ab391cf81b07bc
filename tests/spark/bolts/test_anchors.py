"""Rows that lost their anchors, or have others: nothing of their batch is acked, and the message says why."""

from collections.abc import Callable

import pandas as pd
import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everyone imports it

from acker.errors import ValidationError
from acker.spark import Collector, anchors, bolt, job
from tests.helpers.builders.pipeline import Pipeline

pytestmark = pytest.mark.slow

NO_ANCHORS = r"rows for stream 'copies' have no anchors, .* pass anchored=False"
Work = Callable[[DataFrame, Collector], object]


def run_job(pipeline: Pipeline, work: Work) -> None:
    with job(pipeline.spark, url=pipeline.url, topology="t", name="copy") as collector:
        work(collector.take("lines"), collector)


def without_column(rows: DataFrame, collector: Collector) -> None:
    collector.emit(rows.select("line"), "copies")


def collected_without_alias(rows: DataFrame, collector: Collector) -> None:
    collector.emit(rows.groupBy("line").agg(F.collect_list("_acker")), "copies")


def outer_joined(rows: DataFrame, collector: Collector) -> None:
    known = rows.sparkSession.createDataFrame([("1",), ("no such line",)], "line string")
    collector.emit(known.join(rows, "line", "left"), "copies")


def filled_with_zeros(rows: DataFrame, collector: Collector) -> None:
    """After a full join whose other side is left out of what anchors the rows."""
    left, right = rows.filter("line < '5'"), rows.filter("line >= '5'").select("line")
    both = left.join(right, "line", "full")
    collector.emit(both.withColumn("_acker", F.coalesce("_acker", F.lit(0))), "copies")


def filled_with_zeros_in_arrays(rows: DataFrame, collector: Collector) -> None:
    collector.emit(rows.withColumn("_acker", F.array(F.lit(0).cast("bigint"))), "many")


def failed_with_zeros(rows: DataFrame, collector: Collector) -> None:
    collector.fail(rows.withColumn("_acker", F.lit(0).cast("bigint")), "bad")


def concatenated(rows: DataFrame, collector: Collector) -> None:
    """Null is what comes of an array and null."""
    both = F.concat(F.array("a._acker"), "b.many").alias("_acker")
    others = rows.filter("line = '1'").groupBy("line").agg(F.collect_list("_acker").alias("many"))
    joined = rows.alias("a").join(others.alias("b"), "line", "left")
    collector.emit(joined.select("line", both), "many")


def mapped(rows: DataFrame, collector: Collector) -> None:
    lost = rows.withColumn("_acker", F.expr("nullif(_acker, _acker)"))
    collector.emit_map(lost, lambda record: record["line"], "line string", "copies")


def through_pandas(rows: DataFrame, collector: Collector) -> None:
    """One null among the anchors, and pandas has rounded the others to floats."""
    more = rows.unionByName(rows.limit(1).withColumn("_acker", F.lit(None).cast("bigint")))
    grouped = more.groupBy(F.lit("all"))
    kept = grouped.applyInPandas(lambda found: found[found["_acker"].notnull()], "line string, _acker bigint")
    collector.emit(kept, "copies")


def failed_through_pandas(rows: DataFrame, collector: Collector) -> None:
    def shown(found: pd.DataFrame) -> pd.DataFrame:
        return found.assign(_acker=found["_acker"].astype(float).astype("int64"))

    collector.fail(rows.groupBy(F.lit("all")).applyInPandas(shown, "line string, _acker bigint"), "bad")


def failed_after_an_outer_join(rows: DataFrame, collector: Collector) -> None:
    """All that is to be failed has null: nothing is emitted, and nothing would be failed."""
    grouped = rows.groupBy("line").agg(F.collect_list("_acker").alias("_acker"))
    left, right = grouped.filter("line < '5'").alias("left"), grouped.filter("line >= '5'").alias("right")
    both = left.join(right, F.col("left.line") == F.col("right.line"), "full")
    collector.fail(both.select(F.concat("left._acker", "right._acker").alias("_acker")), "bad")


def of_other_rows(rows: DataFrame, collector: Collector) -> None:
    """Reading acks nothing, so these rows are somebody else's."""
    source = rows.sparkSession.read.format("acker").options(**collector_options(collector, "others"))
    collector.emit(rows.unionByName(source.load()), "copies")


def collector_options(collector: Collector, stream: str) -> dict[str, str]:
    return {"url": collector._ledger.store.url, "topology": "t", "stream": stream}


def test_a_job_whose_rows_lost_their_anchors_acks_nothing(pipeline: Pipeline) -> None:
    pipeline.spout([str(n) for n in range(900)])
    pipeline.spout(["other"], "others")
    refused: dict[Work, str] = {
        without_column: NO_ANCHORS,
        collected_without_alias: NO_ANCHORS,
        outer_joined: f"1 {NO_ANCHORS}",
        concatenated: "899 rows for stream 'many' have no anchors",
        filled_with_zeros: "455 rows for stream 'copies' have 0 in their column _acker .* anchored=False",
        filled_with_zeros_in_arrays: "900 rows for stream 'many' have 0 in their column _acker",
        failed_with_zeros: "900 rows to be failed have 0 in their column _acker",
        mapped: f"900 {NO_ANCHORS}",
        through_pandas: "anchors: expected odd numbers.* Pandas makes floats",
        failed_through_pandas: "anchors: expected odd numbers.* Pandas makes floats",
        failed_after_an_outer_join: "900 rows to be failed have null in their column _acker",
        of_other_rows: "rows for stream 'copies' are anchored to 1 trees that the batch has not read",
    }
    for work, message in refused.items():
        with pytest.raises(Exception, match=message):  # a task's error is Spark's
            run_job(pipeline, work)
        assert pipeline.counters() == {"tracked": 901}, work
        assert pipeline.rows("copies") == []
        assert not pipeline.without_time_to_live("staged", "failing")


def test_what_the_messages_tell_to_do_acks_what_was_processed(pipeline: Pipeline) -> None:
    pipeline.spout([str(n) for n in range(4)])

    def copy(rows: DataFrame, collector: Collector) -> None:
        rows.createOrReplaceTempView("lines")
        asked = rows.sparkSession.sql("SELECT line, _ACKER FROM lines")
        assert collector.emit(asked, "copies") == 4
        known = rows.sparkSession.createDataFrame([("1",), ("none",)], "line string")
        assert collector.emit(known.join(rows, "line", "left"), "known", anchored=False) == 2
        assert collector.emit(rows.select("line"), "seen", anchored=False) == 4
        left, right = rows.alias("a"), rows.filter("line = '1'").alias("b")
        joined = left.join(right, "line", "left")
        with pytest.raises(
            ValidationError, match=r"expected one column _acker, got 2 among .*anchors\(a\._acker"
        ):
            Collector.emit.__wrapped__(collector, joined, "pairs")  # type: ignore[attr-defined]
        pairs = joined.select("line", anchors("a._acker", F.col("b._acker")).alias("_acker"))
        assert collector.emit(pairs, "pairs") == 4

    run_job(pipeline, copy)
    assert pipeline.rows("lines") == []
    assert pipeline.counters() == {"tracked": 4}
    for stream in ("copies", "pairs", "seen"):
        pipeline.consume(stream)
    assert pipeline.counters() == {"tracked": 4, "acked": 3}
    pipeline.consume("known")
    assert pipeline.counters() == {"tracked": 4, "acked": 4}


def test_queries_that_read_without_anchors_are_refused_when_they_emit(pipeline: Pipeline) -> None:
    """Started before the stream had trees: rows come without the column, though they have some by now."""
    plain = pipeline.spark.createDataFrame([("old",)], "line string")
    pipeline.append(plain, "lines")
    before = pipeline.read_stream("lines")
    assert before.columns == ["line"]
    pipeline.spout(["new"])

    @bolt(url=pipeline.url, topology="t", name="copy")
    def copy(batch: DataFrame, collector: Collector) -> None:
        collector.emit(batch, "copies")

    with pytest.raises(
        Exception, match=f"{NO_ANCHORS}.* was started before its stream had trees; then start"
    ):
        pipeline.run_on(before, "copy", copy)
    assert pipeline.counters() == {"tracked": 1}
    assert pipeline.rows("copies") == []
    pipeline.run("copy", "lines", copy)
    assert sorted(str(row["line"]) for row in pipeline.rows("copies")) == ["new", "old"]
    assert [row["_acker"] for row in pipeline.rows("copies") if row["line"] == "old"] == [0]
    assert pipeline.counters() == {"tracked": 1}
    pipeline.consume("copies")
    assert pipeline.counters() == {"tracked": 1, "acked": 1}


def test_a_query_that_writes_rows_without_anchors_is_refused_unless_it_says_so(pipeline: Pipeline) -> None:
    pipeline.spout(["a"])
    read = pipeline.read_stream("lines")
    rows = read.select("line")
    zeros = read.withColumn("_acker", F.lit(0).cast("bigint"))
    for lost, message in ((zeros, "1 rows for stream 'copies' have 0 in their"), (rows, NO_ANCHORS)):
        with pytest.raises(Exception, match=message):
            pipeline.finish(pipeline.writing("direct", lost, "copies"))
        assert pipeline.counters() == {"tracked": 1}
        assert pipeline.rows("copies") == []
    pipeline.finish(pipeline.writing("direct", rows, "copies", anchored="false"))
    assert len(pipeline.rows("copies")) == 1
    assert pipeline.counters() == {"tracked": 1, "acked": 1}


def test_anchors_of_any_shape_are_put_together_once_each(pipeline: Pipeline) -> None:
    high = -(2**63)
    rows = pipeline.spark.createDataFrame(
        [
            (1, 5, [7, None, high], [[5, 7], [2, None], None]),
            (2, None, None, None),
            (3, 0, [0], []),
            (4, 0, [3], []),
        ],
        "id int, a bigint, b array<bigint>, `c.d` array<array<bigint>>",
    )
    found = rows.select("id", anchors("a", F.col("b"), "`c.d`").alias("_acker"))
    assert {row.id: row._acker for row in found.collect()} == {1: [5, 7, high, 2], 2: [], 3: [0], 4: [3]}
    [all_of_a] = rows.agg(anchors(F.collect_list("a"), F.collect_list("b")).alias("_acker")).collect()
    assert sorted(all_of_a._acker) == [high, 3, 5, 7]
    with pytest.raises(ValidationError, match="expected one or more columns"):
        anchors()


def test_a_schema_names_the_column_of_anchors_as_spark_lets_it(pipeline: Pipeline) -> None:
    """Both to read with and in held rows."""
    rows = pipeline.spark.readStream.format("acker").schema("line string, _ACKER bigint")

    @bolt(url=pipeline.url, topology="t", name="keep")
    def keep(batch: DataFrame, collector: Collector) -> None:
        held = collector.held("line string, _ACKER bigint")
        collector.emit(held, stream="copies")
        collector.hold(batch)

    for line in ("a", "b"):
        pipeline.spout([line])
        query = rows.options(**pipeline.options("lines")).load().writeStream.foreachBatch(keep)
        checkpoint = str(pipeline.directory / "keep")
        pipeline.finish(query.option("checkpointLocation", checkpoint).trigger(availableNow=True))
    assert [row["line"] for row in pipeline.rows("copies")] == ["a"]
    pipeline.consume("copies")
    assert pipeline.counters() == {"tracked": 2, "acked": 1}
