"""Bolts that look at a part of their batch: returning and raising is about all of it nonetheless."""

from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame

from acker.spark import Collector, FailedException, bolt
from tests.helpers.builders.pipeline import Diary, Pipeline


def run(
    pipeline: Pipeline,
    function: Callable[[DataFrame, Collector], None],
    through: Callable[[DataFrame], DataFrame] | None = None,
) -> None:
    """Runs a bolt on the union of two streams of several segments."""
    pipeline.spout(["bad"] * 10, "first", segments=2)
    pipeline.spout(["good"] * 10, "second", segments=2)
    rows = pipeline.read_stream("first", partitions=2).union(pipeline.read_stream("second", partitions=2))
    pipeline.finish(
        pipeline.checkpointed(
            "strict",
            (through(rows) if through else rows).writeStream.foreachBatch(
                bolt(url=pipeline.url, topology="t", name="strict")(function)
            ),
        )
    )


@pytest.mark.everywhere
def test_a_batch_of_two_streams_that_is_read_in_part_fails_or_is_acked_as_a_whole(pipeline: Pipeline) -> None:
    def strict(batch: DataFrame, collector: Collector) -> None:
        if not batch.filter("line = 'bad'").isEmpty():
            raise FailedException("bad ones")

    def early(batch: DataFrame, collector: Collector) -> None:
        if batch.first() is not None:
            return
        collector.emit(batch, stream="copies")

    run(pipeline, strict)
    assert pipeline.rows("first") == pipeline.rows("second") == []
    assert pipeline.outcomes() == {"bad ones": 20}
    run(pipeline, early)
    assert pipeline.rows("first") == pipeline.rows("second") == []
    assert pipeline.counters() == {"tracked": 40, "failed": 20, "acked": 20}
    assert not pipeline.without_time_to_live("staged", "notes")


def test_rows_that_are_not_of_the_batch_do_not_hide_that_it_was_read_in_part(pipeline: Pipeline) -> None:
    def summary(batch: DataFrame, collector: Collector) -> None:
        found = [(row.line,) for row in batch.take(1)]
        samples = batch.sparkSession.createDataFrame(found, "line string")
        collector.emit(samples, stream="samples", anchored=False)

    run(pipeline, summary)
    assert len(pipeline.rows("samples")) == 1
    assert pipeline.rows("first") == pipeline.rows("second") == []
    pipeline.consume("samples")
    assert pipeline.counters() == {"tracked": 20, "acked": 20}


def test_a_batch_that_a_sink_has_read_is_not_read_again(pipeline: Pipeline) -> None:
    diary = Diary(pipeline.directory / "read")

    def noting(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            diary.note(batch.num_rows)
            yield batch

    def sink(batch: DataFrame, collector: Collector) -> None:
        batch.write.format("noop").mode("overwrite").save()

    run(pipeline, sink, lambda rows: rows.mapInArrow(noting, rows.schema))
    assert sum(diary.read()) == 20
    assert pipeline.counters() == {"tracked": 20, "acked": 20}


def test_tracked_rows_that_were_not_read_fail_with_their_batch(pipeline: Pipeline) -> None:
    """Otherwise nobody would replay them."""
    batches: list[int] = []

    @bolt(url=pipeline.url, topology="t", name="strict")
    def strict(batch: DataFrame, collector: Collector) -> None:
        batches.append(collector.batch_id)
        assert batch.first() is not None
        raise FailedException("not now")

    rate = pipeline.spark.readStream.format("rate-micro-batch").option("numPartitions", 2)
    pipeline.finish(
        pipeline.checkpointed(
            "strict",
            pipeline.tracked(rate.option("rowsPerBatch", 20).load()).writeStream.foreachBatch(strict),
        )
    )
    assert batches
    assert pipeline.counters() == {"tracked": 20 * len(batches), "failed": 20 * len(batches)}
