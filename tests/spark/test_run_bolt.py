"""A bolt tried on a static DataFrame, as who tests it does (acker/testing.py)."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everyone imports it

from acker import AckerError, FailedException, ValidationError
from acker.spark import Acker, Collector, anchors
from acker.spark.bolts.bolt import Bolt
from acker.testing import run_bolt

production = Acker("redis://production.invalid:1/0", "shop")


@production.bolt("split")
def split_lines(batch: DataFrame, collector: Collector) -> None:
    collector.fail(batch.filter("line = ''"), "empty")
    words = batch.filter("line != ''").select(F.explode(F.split("line", " ")).alias("word"), "_acker")
    collector.emit(words, stream="words")


@production.bolt("price", segment_rows=1)
def price(batch: DataFrame, collector: Collector) -> None:
    collector.emit_map(batch, _price, "price double", stream="prices")


def _price(record: dict[str, Any]) -> float:
    return float(record["line"])


@production.bolt("pair")
def pair(batch: DataFrame, collector: Collector) -> None:
    rows = batch.unionByName(collector.held(batch.schema)).persist()
    found = rows.groupBy("line").agg(
        F.count("*").alias("n"), anchors(F.collect_list("_acker")).alias("_acker")
    )
    both = found.filter("n > 1")
    collector.emit(both, stream="pairs")
    collector.hold(rows.join(both, "line", "left_anti"))
    rows.unpersist()


def lines(spark: SparkSession, *texts: str) -> DataFrame:
    return spark.createDataFrame([(text,) for text in texts], "line string")


def test_the_emits_the_fails_and_the_acks_of_a_bolt_are_there_to_look_at(spark: SparkSession) -> None:
    result = run_bolt(split_lines, lines(spark, "a b", "", "c"))
    assert result.streams == ("words",)
    assert sorted(row.word for row in result.emitted("words")) == ["a", "b", "c"]
    anchored = sorted((row.word, [of.line for of in roots]) for row, roots in result.anchored("words"))
    assert anchored == [("a", ["a b"]), ("b", ["a b"]), ("c", ["c"])]
    assert result.emitted("nothing") == []
    assert [(one.row.line, one.reason, one.retry) for one in result.failed] == [("", "empty", True)]
    assert [row.line for row in result.acked] == ["a b", "c"]
    assert result.waiting == []


def test_a_record_that_its_function_refuses_has_failed_alone(spark: SparkSession) -> None:
    result = run_bolt(price, lines(spark, "1.5", "free"))
    assert [row.price for row in result.emitted("prices")] == [1.5]
    [failed] = result.failed
    assert failed.row.line == "free"
    assert failed.reason.startswith("ValueError: could not convert")


def test_what_a_bolt_holds_is_there_for_its_next_batch(spark: SparkSession) -> None:
    first = run_bolt(pair, lines(spark, "x", "y"))
    assert ([row.line for row in first.waiting], first.acked) == (["x", "y"], [])
    assert sorted(row.line for row in first.emitted("pair.held")) == ["x", "y"]
    second = run_bolt(pair, lines(spark, "y"), after=first)
    [(row, roots)] = second.anchored("pairs")
    assert (row.n, [of.line for of in roots]) == (2, ["y", "y"])
    assert [row.line for row in second.acked] == ["y", "y"]
    assert [row.line for row in second.waiting] == ["x"]


def test_emitted_rows_are_acked_and_shown_whatever_they_are_called(spark: SparkSession) -> None:
    @production.bolt("split")
    def emitting(batch: DataFrame, collector: Collector) -> None:
        collector.emit(batch.withColumn("cls", F.lit(7)).withColumn("self", F.lit(8)), stream="split.words")

    result = run_bolt(emitting, lines(spark, "a"))
    [row] = result.emitted("split.words")
    assert (row["line"], row["cls"], row["self"]) == ("a", 7, 8)
    assert ([row.line for row in result.acked], result.waiting) == (["a"], [])


def test_errors_of_a_function_are_raised_and_a_failed_batch_fails_rows(spark: SparkSession) -> None:
    def run(function: Any) -> Any:
        return run_bolt(production.bolt("one")(function), lines(spark, "a", "b"))

    def wrong(batch: DataFrame, collector: Collector) -> None:
        raise KeyError("no such column")

    def failing(batch: DataFrame, collector: Collector) -> None:
        raise FailedException("not today")

    def losing(batch: DataFrame, collector: Collector) -> None:
        collector.emit(batch.drop("_acker"), stream="words")

    with pytest.raises(KeyError, match="no such column"):
        run(wrong)
    assert [one.reason for one in run(failing).failed] == ["not today", "not today"]
    with pytest.raises(AckerError, match="have no anchors"):
        run(losing)


def test_what_cannot_be_tried_is_refused_and_a_bolt_elsewhere_names_the_way(spark: SparkSession) -> None:
    plain: Any = print
    with pytest.raises(ValidationError, match=r"expected a bolt, as @acker.bolt makes it"):
        run_bolt(plain, lines(spark, "a"))
    with pytest.raises(ValidationError, match="expected 1 to 100,000 rows, got 0"):
        run_bolt(split_lines, lines(spark).limit(0))
    with pytest.raises(ValidationError, match="expected rows without _acker"):
        run_bolt(split_lines, lines(spark, "a").withColumn("_acker", F.lit(1)))
    assert isinstance(split_lines, Bolt)
    with pytest.raises(AckerError, match=r"in a test: acker\.testing\.run_bolt\(bolt, rows\)"):
        split_lines(lines(spark, "a"), 0)


def test_a_bolt_that_receives_a_stream_gets_its_rows_with_stamps_and_sends_others(
    spark: SparkSession, tmp_path: Path
) -> None:
    @production.bolt("received", receives="items")
    def received(batch: DataFrame, collector: Collector) -> None:
        assert batch.columns == ["line", "_acker_stamp", "_acker"]
        collector.fail(batch.filter("line = ''"), "empty")
        good = batch.filter("line != ''")
        collector.emit(good, "words")
        collector.emit(good, "files", to=lambda w: w.parquet(str(tmp_path / "files")))

    result = run_bolt(received, lines(spark, "a", "", "b"))
    assert sorted(row.line for row in result.emitted("words")) == ["a", "b"]
    assert [(one.row.line, one.reason) for one in result.failed] == [("", "empty")]
    assert [row.line for row in result.acked] == ["a", "b"]
    assert (result.streams, result.waiting) == (("words",), [])
    assert spark.read.parquet(str(tmp_path / "files")).count() == 2
    with pytest.raises(ValidationError, match="without _acker_stamp"):
        run_bolt(received, spark.createDataFrame([("a",)], "_acker_stamp string"))
