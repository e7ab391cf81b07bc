"""The data source and bolts, on executors in JVMs of their own."""

from typing import Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everyone imports it
from pyspark.sql.functions import col, collect_list, explode, split

from acker.ledger.steps import step_registry
from acker.spark import Collector, FailedException, bolt
from acker.streams import Stream
from tests.helpers.builders.pipeline import Pipeline

KINDS = ("tinyint", "smallint", "int", "float", "boolean", "decimal(20,3)")


def words(batch: DataFrame) -> DataFrame:
    return batch.select(explode(split("line", " ")).alias("word"), "_acker")


@pytest.mark.oldest
def test_a_batch_is_written_and_read_back_without_acking(pipeline: Pipeline) -> None:
    frame = pipeline.spark.range(1000).select(
        "id",
        F.concat(F.lit("n"), "id").alias("name"),
        F.struct(F.array("id").alias("list"), F.current_timestamp().alias("at")).alias("nested"),
        F.create_map(F.lit("k"), col("id").cast("double")).alias("map"),
        *((col("id") % 100).cast(kind).alias(kind.split("(")[0]) for kind in KINDS),
        F.expr("array(named_struct('a', map('x', array(id)), 'b', null))").alias("deep"),
        F.expr("encode(cast(id as string), 'UTF-8')").alias("bytes"),
        F.expr("date_add(date'2026-01-01', cast(id as int))").alias("day"),
        F.expr("timestamp_ntz'2026-01-01 00:00:00'").alias("local"),
        F.expr("make_dt_interval(0, 0, 0, id)").alias("span"),
    )
    writer = frame.write.format("acker").options(
        **pipeline.options("numbers", segment_rows=100, stream_max_age=3600, stream_max_bytes=10**9)
    )
    writer.mode("append").save()
    back = pipeline.load("numbers")
    assert back.schema.simpleString() == frame.schema.simpleString()
    assert sorted(row.id for row in back.collect()) == list(range(1000))
    assert back.agg(F.sum("map.k"), F.sum(col("nested.list")[0])).first() == (499500.0, 499500)
    narrow = pipeline.spark.read.format("acker").schema("name string").options(**pipeline.options("numbers"))
    assert narrow.load().distinct().count() == 1000
    assert back.count() == 1000
    assert sorted(back.select(*frame.columns).drop("nested").collect()) == frame.drop("nested").collect()
    totals = Stream(pipeline.ledger, "numbers").totals()
    assert (totals.segments, totals.max_age, totals.max_bytes) == (10, 3600, 10**9)
    assert not pipeline.without_time_to_live("staged")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"compresion": "lz4"},
            "unknown option 'compresion' .did you mean 'compression'",
        ),
        ({"max_rows": "many"}, "option max_rows: expected a whole number from 1 to"),
        ({"compression": "gzip"}, "option compression: expected lz4, zstd or none, got 'gzip'"),
        ({"stream": "a/b"}, "stream: expected 1 to 64 of"),
        ({"url": "http://x"}, "url: expected redis://"),
        (
            {"topology": "nothing"},
            "the store holds no topology 'nothing'.*The first program that names a setting",
        ),
        ({"ackers": "5"}, "ackers is 3, asked for 5"),
        ({"stream": "nothing"}, "has no stream 'nothing' yet: nothing was written to it. It has no stream"),
    ],
)
def test_a_bad_option_is_a_clear_error(pipeline: Pipeline, options: dict[str, str], message: str) -> None:
    given = {**pipeline.options("lines"), **options}
    with pytest.raises(Exception, match=message):
        pipeline.spark.read.format("acker").options(**given).load()


@pytest.mark.connect(only=False)
@pytest.mark.oldest
def test_a_wrong_schema_is_an_error_before_anything_is_written(pipeline: Pipeline) -> None:
    options = pipeline.options("numbers")
    pipeline.spark.range(3).write.format("acker").options(**options).mode("append").save()
    wrong = pipeline.spark.range(3).select(col("id").cast("string"))
    with pytest.raises(Exception, match="id: expected int64, got string"):
        wrong.write.format("acker").options(**options).mode("append").save()
    with pytest.raises(Exception, match="nothing: expected no such column, got string"):
        pipeline.spark.read.format("acker").schema("nothing string").options(**options).load().collect()
    with pytest.raises(Exception, match="cannot be overwritten"):
        pipeline.spark.range(3).write.format("acker").options(**options).mode("overwrite").save()
    assert len(pipeline.rows("numbers")) == 3


def test_a_query_whose_reader_cannot_be_made_says_why(pipeline: Pipeline) -> None:
    options = pipeline.options("numbers")
    pipeline.spark.range(3).write.format("acker").options(**options).mode("append").save()
    rows = pipeline.spark.readStream.format("acker").schema("id string").options(**options).load()
    with pytest.raises(Exception, match="id: expected int64, got string") as raised:
        rows.writeStream.format("noop").trigger(availableNow=True).start().awaitTermination()
    assert "UnboundLocalError" not in str(raised.value)


def test_a_schema_evolves_by_added_columns(pipeline: Pipeline) -> None:
    def write(*columns: str) -> None:
        rows = pipeline.spark.range(2).selectExpr(*columns)
        pipeline.append(rows, "numbers")

    write("id")
    write("id", "named_struct('text', cast(id as string)) as more")
    write("id")  # a writer without the new column goes on
    back = pipeline.load("numbers")
    assert back.schema.simpleString() == "struct<id:bigint,more:struct<text:string>>"
    assert sorted(str(row.more and row.more.text) for row in back.collect()) == ["0", "1", *["None"] * 4]
    with pytest.raises(Exception, match="id: expected int64, got no such column"):
        write("named_struct('text', 'x') as more")


@pytest.mark.connect(only=False)
@pytest.mark.older
def test_two_jobs_in_a_chain_with_bad_records(pipeline: Pipeline) -> None:
    @bolt(url=pipeline.url, topology="t", name="split")
    def split_lines(batch: DataFrame, collector: Collector) -> None:
        assert collector.emit(words(batch), stream="words") == 3 * batch.count()

    def check(record: dict[str, Any]) -> dict[str, Any] | None:
        if record["word"].endswith("7"):
            raise ValueError(f"seven: {record['word'][-2:]}")
        if record["word"] == "skip":
            return None
        return {"word": record["word"].upper(), "size": 1 if record["word"] != "w5" else "wrong"}

    @bolt(url=pipeline.url, topology="t", name="count")
    def count(batch: DataFrame, collector: Collector) -> None:
        good = collector.map(batch, check, "word string, size int")
        collector.emit(good.filter("size > 0"), stream="good")
        collector.fail(batch.filter("word = 'w3'"), "three")
        collector.fail(batch.filter("word = 'w4'"), F.concat(F.lit("four: "), "word"))

    pipeline.spout([f"a skip w{n}" for n in range(100)], segments=3)
    pipeline.run("split", "lines", split_lines)
    assert pipeline.rows("lines") == []
    assert len(pipeline.rows("words")) == 300
    assert pipeline.counters() == {"tracked": 100}
    pipeline.run("count", "words", count)
    assert pipeline.rows("words") == []
    found = [row["word"] for row in pipeline.rows("good")]
    assert len(found) == 189
    assert set(found) == {"A"} | {f"W{n}" for n in range(100) if n % 10 != 7 and n != 5}
    reasons = pipeline.outcomes()
    assert reasons.pop("three") == reasons.pop("four: w4") == 1
    assert sum(n for reason, n in reasons.items() if reason.startswith("ValueError: seven: ")) == 10
    assert sum(reasons.values()) == 11, reasons  # and the one with a size that is no number
    pipeline.consume("good")
    # Each failed tree has good words that were emitted before it failed, and acked just now.
    assert pipeline.counters() == {"tracked": 100, "acked": 87, "failed": 13, "late": 13}
    assert not pipeline.without_time_to_live("staged", "payload", "failing", "notes")


def test_a_batch_that_fails_as_a_whole_and_one_that_is_never_read(pipeline: Pipeline) -> None:
    calls = []

    @bolt(url=pipeline.url, topology="t", name="picky")
    def picky(batch: DataFrame, collector: Collector) -> None:
        calls.append(1)
        if len(calls) == 1:
            collector.emit(words(batch), stream="words")
            raise FailedException("not today")

    pipeline.spout(["a b"] * 30, segments=2)
    pipeline.run("picky", "lines", picky)
    assert pipeline.counters() == {"tracked": 30, "failed": 30}
    assert pipeline.rows("words") == pipeline.rows("lines") == []
    pipeline.spout(["a b"] * 20)
    pipeline.run("picky", "lines", picky)
    assert pipeline.counters() == {"tracked": 50, "failed": 30, "acked": 20}
    assert pipeline.rows("lines") == []


@pytest.mark.oldest
def test_rows_anchored_to_many_trees(pipeline: Pipeline) -> None:
    @bolt(url=pipeline.url, topology="t", name="group")
    def group(batch: DataFrame, collector: Collector) -> None:
        groups = words(batch).groupBy("word").agg(collect_list("_acker").alias("_acker"))
        collector.emit(groups, stream="groups")

    @bolt(url=pipeline.url, topology="t", name="end")
    def end(batch: DataFrame, collector: Collector) -> None:
        collector.fail(batch.filter("word = 'odd'"), "odd")

    pipeline.spout([f"all {'even' if n % 2 == 0 else 'odd'}" for n in range(1000)], segments=2)
    pipeline.run("group", "lines", group)
    assert {row["word"]: len(row["_acker"]) for row in pipeline.rows("groups")} == {  # type: ignore[arg-type]
        "all": 1000,
        "even": 500,
        "odd": 500,
    }
    assert pipeline.counters() == {"tracked": 1000}
    pipeline.run("end", "groups", end)
    assert pipeline.counters() == {"tracked": 1000, "acked": 500, "failed": 500}


def test_a_stream_is_written_without_a_bolt(pipeline: Pipeline) -> None:
    pipeline.spout(["a b c"] * 100, segments=4)

    for _ in range(2):
        rows = words(pipeline.read_stream("lines", max_rows=60, partitions=2))
        pipeline.finish(pipeline.writing("direct", rows, "words", stateless=True))

    assert len(pipeline.rows("words")) == 300
    assert pipeline.rows("lines") == []
    assert pipeline.counters() == {"tracked": 100}
    [step] = pipeline.ledger.run(step_registry.steps(pipeline.ledger.core))
    assert (step.name, step.kind, step.reads, step.emits) == ("words", "writer", ("lines",), ("words",))
    pipeline.consume("words")
    assert pipeline.counters() == {"tracked": 100, "acked": 100}


@pytest.mark.oldest
def test_a_function_per_record_may_make_no_row_or_many_in_one_pass(pipeline: Pipeline) -> None:
    def lines(record: dict[str, Any]) -> list[Any] | None:
        number = int(record["line"])
        if number % 5 == 0:
            raise FailedException(f"number {number % 2}")
        return [(number, part) for part in range(number % 5)] if number % 5 > 1 else None

    @bolt(url=pipeline.url, topology="t", name="many", segment_rows=7)
    def many(batch: DataFrame, collector: Collector) -> None:
        assert collector.emit_map(batch, lines, "number int, part int", stream="parts") == 180

    pipeline.spout([str(n) for n in range(100)], segments=3)
    pipeline.run("many", "lines", many)
    assert len(pipeline.rows("parts")) == 180
    assert pipeline.counters() == {"tracked": 100, "acked": 20, "failed": 20}
    assert pipeline.outcomes() == {"number 0": 10, "number 1": 10}
    pipeline.consume("parts")
    assert pipeline.counters() == {"tracked": 100, "acked": 80, "failed": 20}
