"""DataFrames as spouts: what Spark repeats is tracked once, what fails comes again or is buried."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everyone imports it

from acker.errors import ValidationError
from acker.spark import (
    Collector,
    bolt,
    dead_letters,
    outcomes,
    replay,
    settling,
    watermark,
)
from acker.streams.commits import publishing
from acker.streams.spouts import settler
from acker.streams.spouts.replays import Stepped
from tests.helpers.builders.pipeline import Pipeline
from tests.helpers.faults.attempts import Attempts, at_once, numbers, staged_by
from tests.helpers.faults.cuts import as_in_a_cluster
from tests.helpers.servers.sparks import several_batches


def test_rows_that_are_written_with_a_message_id_are_tracked_and_emitted_at_once(pipeline: Pipeline) -> None:
    rows = pipeline.spark.range(0, 1000, 1, 3).select("id", F.concat(F.lit("n"), "id").alias("name"))
    options = pipeline.options("numbers", message_id="id", spout="s", attempt="attempt", segment_rows=100)
    flaky = Attempts(pipeline.url).of(rows)
    with at_once(pipeline.spark):
        flaky.write.format("acker").options(**options).mode("append").save()
    assert numbers(pipeline.attempts("numbers")) == {1}
    assert numbers(staged_by(pipeline.url)) == {0}
    assert pipeline.counters() == {"tracked": 1000}
    found = pipeline.rows("numbers")
    assert sorted(row["id"] for row in found) == list(range(1000))  # type: ignore[type-var]
    assert len({row["_acker"] for row in found}) == 1000
    bad = [row["_acker"] for row in found if row["id"] % 100 == 7]  # type: ignore[operator]
    pipeline.ledger.fail(bad, "seven")  # type: ignore[arg-type]
    pipeline.consume("numbers")
    assert settler.settle(pipeline.ledger) == Stepped(acked=990, replayed=10)
    back = pipeline.load("numbers")
    assert sorted((row.id, row.attempt) for row in back.collect()) == [(n, 2) for n in range(7, 1000, 100)]
    assert not pipeline.without_time_to_live("staged")

    streamed = Attempts(pipeline.url).of(pipeline.files([f"line {n}" for n in range(50)]))
    for _ in range(2):
        with at_once(pipeline.spark):
            written = pipeline.writing("direct", streamed, "lines", message_id="value", segment_rows=4)
            pipeline.finish(written)
    assert len(pipeline.rows("lines")) == 50
    assert not pipeline.attempts("lines") & staged_by(pipeline.url)
    pipeline.consume("lines")
    assert settler.settle(pipeline.ledger, "lines") == Stepped(acked=50)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"attempts": 2}, "option attempts: expected with message_id, which is missing"),
        ({"message_id": "id", "attempts": 0}, "option attempts: expected a whole number from 1"),
        ({"message_id": "nope"}, "expected one of the columns id, got 'nope'"),
        ({"message_id": "id", "partition": "id"}, "partition: expected with offset"),
    ],
)
def test_options_of_a_spout_are_checked(pipeline: Pipeline, options: dict[str, Any], message: str) -> None:
    writer = pipeline.spark.range(3).write.format("acker").options(**pipeline.options("x", **options))
    with pytest.raises(Exception, match=message):
        writer.mode("append").save()
    assert pipeline.counters() == {}


@pytest.mark.connect(only=False)
@pytest.mark.oldest
def test_a_tracked_dataframe_goes_through_bolts_and_what_fails_comes_again(pipeline: Pipeline) -> None:
    lines = [f"line {n}" for n in range(100)]
    rows = pipeline.tracked(pipeline.files(lines), attempts=2, attempt="attempt", outcomes=True)

    attempts = Attempts(pipeline.url)

    @bolt(url=pipeline.url, topology="t", name="split", segment_rows=4)
    def split(batch: DataFrame, collector: Collector) -> None:
        # Several evaluations of the batch, one of which fails and is repeated: the same trees in all of them.
        collector.emit(batch.select("value", "attempt"), stream="seen", anchored=False)
        words = batch.select(F.explode(F.split("value", " ")).alias("word"), "_acker")
        collector.emit(attempts.of(words), stream="words")
        collector.fail(batch.filter("value like '%7' and attempt = 1 or value = 'line 7'"), "seven")

    def seen() -> list[tuple[object, object]]:
        found = [(row["value"], row["attempt"]) for row in pipeline.rows("seen")]
        pipeline.consume("seen")
        return sorted(found, key=str)

    with at_once(pipeline.spark):
        pipeline.run_on(rows, "split", split)
    assert pipeline.counters() == {"tracked": 100, "failed": 10}
    assert numbers(pipeline.attempts("words")) == {1}
    assert numbers(staged_by(pipeline.url)) == {0}
    pipeline.consume("words")
    assert settler.settle(pipeline.ledger) == Stepped(acked=90, replayed=10)
    assert seen() == sorted((line, 1) for line in lines)

    # The query goes on where it was; the replays are a batch like any other.
    with at_once(pipeline.spark):
        pipeline.run_on(rows, "split", split)
    assert seen() == sorted((f"line {n}", 2) for n in range(7, 100, 10))
    pipeline.consume("words")
    assert settler.settle(pipeline.ledger) == Stepped(acked=9, dead=1)
    assert pipeline.pending() == {"pending": 0, "acked": 99, "replayed": 10, "dead": 1}

    reported = outcomes(pipeline.spark, url=pipeline.url, topology="t", spout="s", streaming=False).collect()
    assert len(reported) == 110
    assert sum(row.final for row in reported) == 100
    [letter] = dead_letters(pipeline.spark, url=pipeline.url, topology="t").collect()
    assert (bytes(letter.message_id), letter.reason, letter.attempts) == (b"line 7", "seven", 2)
    assert letter.row == '{"value": "line 7", "attempt": 2}'

    replay(url=pipeline.url, topology="t", letter=letter.id)
    pipeline.run_on(rows, "split", split)
    assert settler.settle(pipeline.ledger).replayed == 1
    assert not pipeline.without_time_to_live("staged:", "tracked:")


def test_a_union_of_parts_of_a_tracked_batch_tracks_each_row_once(pipeline: Pipeline) -> None:
    """Both branches evaluate the whole batch, in one stage, and each emits its half."""
    rows = pipeline.tracked(pipeline.files([f"line {n}" for n in range(20)]))

    @bolt(url=pipeline.url, topology="t", name="halves")
    def halves(batch: DataFrame, collector: Collector) -> None:
        odd = F.substring("value", -1, 1).cast("int") % 2 == 1
        collector.emit(batch.filter(odd).unionByName(batch.filter(~odd)), stream="both")

    pipeline.run_on(rows, "halves", halves)
    assert pipeline.counters() == {"tracked": 20}
    assert len({row["_acker"] for row in pipeline.rows("both")}) == 20
    pipeline.consume("both")
    assert pipeline.counters() == {"tracked": 20, "acked": 20}


@pytest.mark.slow
def test_a_tracked_dataframe_is_written_without_a_bolt(pipeline: Pipeline) -> None:
    rows = pipeline.tracked(pipeline.files(["a b", "c", "a b", ""] * 25, parts=4), offset=None)
    words = rows.select(F.explode(F.split("value", " ")).alias("word"), "_acker")
    # The roots' tasks are of another stage than the writer's.
    flaky = Attempts(pipeline.url).of(words.repartition(3))
    for _ in range(2):
        with at_once(pipeline.spark):
            pipeline.finish(pipeline.writing("direct", flaky, "words", segment_rows=4))
    assert len(pipeline.rows("words")) == 150
    assert numbers(pipeline.attempts("words")) == {1}
    lost = staged_by(pipeline.url)
    assert len(lost) == 3
    assert numbers(lost) == {0}
    assert pipeline.counters() == {"tracked": 100}
    pipeline.consume("words")
    assert pipeline.counters() == {"tracked": 100, "acked": 100}
    assert not pipeline.without_time_to_live("staged:", "tracked:", "payload")


@pytest.mark.slow
def test_one_task_that_works_on_several_partitions_tracks_them_all(pipeline: Pipeline) -> None:
    rows = pipeline.tracked(pipeline.files(["same"] * 20 + [f"n{n}" for n in range(20)], parts=4))

    attempts = Attempts(pipeline.url)

    @bolt(url=pipeline.url, topology="t", name="few", segment_rows=4)
    def few(batch: DataFrame, collector: Collector) -> None:
        collector.emit(attempts.of(batch.coalesce(1)), stream="copies")
        assert batch.count() == 40

    with at_once(pipeline.spark):
        pipeline.run_on(rows, "few", few)
    assert len(pipeline.rows("copies")) == 40
    assert numbers(pipeline.attempts("copies")) == {1}
    lost = staged_by(pipeline.url)
    assert len(lost) == 1
    assert numbers(lost) == {0}
    assert pipeline.counters() == {"tracked": 40}
    pipeline.consume("copies")
    assert pipeline.counters() == {"tracked": 40, "acked": 40}
    assert not pipeline.without_time_to_live("staged:", "tracked:", "payload")


@several_batches
def test_a_job_group_of_the_bolts_own_hides_no_row_and_ends_with_the_batch(pipeline: Pipeline) -> None:
    groups: list[str | None] = []

    @bolt(url=pipeline.url, topology="t", name="grouped")
    def grouped(batch: DataFrame, collector: Collector) -> None:
        context = batch.sparkSession.sparkContext
        groups.append(context.getLocalProperty("spark.jobGroup.id"))
        context.setJobGroup("mine", "a group of my own")
        collector.emit(batch, stream="copies")

    rows = pipeline.files([f"n{n}" for n in range(20)], parts=2)
    source = pipeline.spark.readStream.option("maxFilesPerTrigger", 1).schema(rows.schema)
    pipeline.run_on(pipeline.tracked(source.text(str(pipeline.directory / "in"))), "grouped", grouped)
    assert len(groups) == 2
    assert len(set(groups)) == 1
    assert "mine" not in groups
    assert pipeline.counters() == {"tracked": 20}
    pipeline.consume("copies")
    assert pipeline.counters() == {"tracked": 20, "acked": 20}


@pytest.mark.slow
def test_evaluations_that_disagree_fail_the_batch_before_anything_is_committed(pipeline: Pipeline) -> None:
    changing = pipeline.files([f"n{n}" for n in range(20)]).withColumn(
        "at", F.expr("java_method('java.util.UUID', 'randomUUID')")
    )
    rows = pipeline.tracked(changing)

    @bolt(url=pipeline.url, topology="t", name="twice")
    def twice(batch: DataFrame, collector: Collector) -> None:
        collector.emit(batch, stream="a")
        collector.emit(batch, stream="b")

    with pytest.raises(Exception, match="evaluated several times, with other rows or partitions"):
        pipeline.run_on(rows, "twice", twice)
    assert pipeline.counters() == {}

    @bolt(url=pipeline.url, topology="t", name="kept")
    def once(batch: DataFrame, collector: Collector) -> None:
        batch.persist()
        collector.emit(batch, stream="a")
        collector.emit(batch, stream="b")
        batch.unpersist()

    pipeline.run_on(rows, "twice", once)
    assert pipeline.counters() == {"tracked": 20}


def test_a_batch_run_again_tracks_nothing_twice(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    source = pipeline.files([f"n{n}" for n in range(30)])
    calls: list[int] = []

    @bolt(url=pipeline.url, topology="t", name="moody")
    def moody(batch: DataFrame, collector: Collector) -> None:
        calls.append(1)
        collector.emit(batch, stream="copies")
        if len(calls) == 1:
            raise RuntimeError("on purpose")

    with pytest.raises(Exception, match="on purpose"):
        pipeline.run_on(pipeline.tracked(source), "moody", moody)
    assert pipeline.counters() == {}

    # Another call of track is what another driver has; and it cuts its commit after the trees are tracked.
    def cut(*arguments: Any) -> Any:
        raise RuntimeError("cut")

    with monkeypatch.context() as patch:
        as_in_a_cluster(patch)
        patch.setattr(publishing, "divide", cut)
        with pytest.raises(Exception, match="cut"):
            pipeline.run_on(pipeline.tracked(source), "moody", moody)
    assert pipeline.counters() == {"tracked": 30}
    pipeline.run_on(pipeline.tracked(source), "moody", moody)
    assert len(calls) == 2
    assert len(pipeline.rows("copies")) == 30
    pipeline.consume("copies")
    assert pipeline.counters() == {"tracked": 30, "acked": 30}


def test_a_batch_waits_for_room_and_a_watermark_follows(pipeline: Pipeline) -> None:
    source = pipeline.files([str(n) for n in range(100)], parts=1).withColumn(
        "offset", F.col("value").cast("long")
    )
    rows = pipeline.tracked(source, max_spout_pending=100, offset="offset")
    reported: list[str] = []

    @bolt(url=pipeline.url, topology="t", name="end")
    def end(batch: DataFrame, collector: Collector) -> None:
        collector.fail(batch.filter("offset = 150"), "not that one")

    def on_outcomes(table: pa.Table) -> None:
        reported.extend(table.column("status").to_pylist())

    pipeline.run_on(rows, "end", end)
    assert watermark(url=pipeline.url, topology="t", spout="s") == {"": 0}
    pipeline.files([str(n) for n in range(100, 200)], parts=1)
    # The second batch has room only when the first is settled: its commit does so by itself.
    pipeline.run_on(rows, "end", end)
    assert watermark(url=pipeline.url, topology="t", spout="s") == {"": 100}
    with settling(url=pipeline.url, topology="t", spout="s", on_outcomes=on_outcomes) as running:
        running.step()
    assert sorted(set(reported)) == ["acked", "failed"]
    assert watermark(url=pipeline.url, topology="t", spout="s") == {"": 150}


def test_a_source_that_is_not_files_is_a_spout_too(pipeline: Pipeline) -> None:
    rate = pipeline.spark.readStream.format("rate-micro-batch").option("numPartitions", 2)
    rows = pipeline.tracked(rate.option("rowsPerBatch", 20).load())

    @bolt(url=pipeline.url, topology="t", name="odd")
    def odd(batch: DataFrame, collector: Collector) -> None:
        collector.emit(batch.filter("value % 2 = 1"), stream="odd")

    for _ in range(2):
        pipeline.run_on(rows, "odd", odd)
    found = sorted(int(str(row["value"])) for row in pipeline.rows("odd"))
    assert found == list(range(1, 2 * len(found), 2))
    pipeline.consume("odd")
    assert pipeline.counters() == {"tracked": 2 * len(found), "acked": 2 * len(found)}
    assert len(found) >= 20


def test_a_dataframe_that_cannot_be_tracked_is_refused(pipeline: Pipeline, tmp_path: Path) -> None:
    stream = pipeline.files(["a"])
    with pytest.raises(ValidationError, match="message_id: expected one of the columns value, got 'nope'"):
        pipeline.tracked(stream, message_id="nope")
    for version in ("nope", 3):
        with pytest.raises(
            ValidationError, match=f"version: expected one of the columns value, got {version!r}"
        ):
            pipeline.tracked(stream, version=version)
    with pytest.raises(ValidationError, match=r"version: expected a column of numbers, .* one of map<"):
        pipeline.tracked(stream.selectExpr("value", "map(1, 2) pairs"), version="pairs")
    with pytest.raises(ValidationError, match="unknown option 'attemts'"):
        pipeline.tracked(stream, attemts=3)
    with pytest.raises(ValidationError, match="have trees: they cannot be tracked again"):
        pipeline.tracked(stream.withColumn("_acker", F.lit(1).cast("long")))
