"""Writes and jobs in a batch of another step: they commit by themselves, so a rerun would double them."""

from collections.abc import Callable

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from acker.errors import AckerError
from acker.ledger.client import open_ledger
from acker.spark import Collector, bolt, job
from acker.store.client import Store
from tests.helpers.builders.pipeline import Diary, Pipeline


def write(pipeline: Pipeline, rows: DataFrame, **options: object) -> None:
    """As a batch write, to the stream "copies"."""
    pipeline.append(rows, "copies", **options)


@pytest.mark.connect(only=False)
def test_writes_and_jobs_in_the_function_of_a_bolt_are_refused(pipeline: Pipeline) -> None:
    pipeline.spout(["a", "b"])
    url, options = pipeline.url, pipeline.options("copies")
    refused = Diary(pipeline.directory / "refused")
    open_ledger(Store(url), "other", ackers=1)

    def save(rows: DataFrame, **more: str) -> None:
        rows.write.format("acker").mode("append").options(**{**options, **more}).save()

    def run_job(rows: DataFrame) -> None:
        with job(rows.sparkSession, url=url, topology="t", name="inner", run="monday") as inner:
            inner.emit(rows, stream="copies")

    @bolt(url=url, topology="t", name="copy")
    def copy(batch: DataFrame, collector: Collector) -> None:
        rows = batch.drop("_acker")
        save(rows, run=collector.key, topology="other")
        uses: list[Callable[[], None]] = [
            lambda: save(batch),
            lambda: save(rows, run="monday"),
            lambda: save(rows, message_id="line"),
            lambda: run_job(rows),
        ]
        for use in uses:
            try:
                use()
            except (AckerError, PySparkException) as error:
                refused.note(str(error))
        raise RuntimeError("on purpose")

    with pytest.raises(Exception, match="on purpose"):
        pipeline.run("copy", "lines", copy)
    found = refused.read()
    assert ["in the function of a bolt commits by itself" in text for text in found] == [True] * 4
    assert ["collector.emit" in text for text in found] == [True] * 3 + [False]
    assert pipeline.rows("copies") == []
    assert pipeline.counters() == {"tracked": 2}


@pytest.mark.connect(only=False)
def test_a_write_in_the_block_of_a_job_is_refused(pipeline: Pipeline) -> None:
    pipeline.spout(["a", "b"])
    where = {"url": pipeline.url, "topology": "t"}
    with (
        pytest.raises(Exception, match=r"in the block of a job commits by itself.* collector\.emit"),
        job(pipeline.spark, **where, name="copy") as collector,
    ):
        write(pipeline, collector.take("lines"))
    assert pipeline.rows("copies") == []
    assert len(pipeline.rows("lines")) == 2
    write(pipeline, pipeline.spark.createDataFrame([("c",)], "line string"))  # after it: as ever
    assert len(pipeline.rows("copies")) == 1
    open_ledger(Store(pipeline.url), "other", ackers=1)
    with job(pipeline.spark, **where, name="copy") as collector:  # to another topology nothing else leads
        write(pipeline, collector.take("lines").drop("_acker"), topology="other", run="tuesday")
    assert pipeline.counters() == {"tracked": 2, "acked": 2}


def test_a_write_in_a_plain_function_has_a_name_and_reads_no_stream(pipeline: Pipeline) -> None:
    """Without a name a rerun writes its rows again; and what is read of a stream is never acked."""
    files = pipeline.directory / "files"
    files.mkdir()
    (files / "one").write_text("a\nb\n")
    texts = pipeline.spark.readStream.text(str(files)).withColumnRenamed("value", "line")

    def run(rows: DataFrame, name: str, function: Callable[[DataFrame, int], None]) -> None:
        checkpoint = str(pipeline.directory / name)
        writer = rows.writeStream.foreachBatch(function).trigger(availableNow=True)
        pipeline.finish(writer.option("checkpointLocation", checkpoint))

    with pytest.raises(Exception, match=r"in a function of foreachBatch is done again .* the option run"):
        run(texts, "plain", lambda batch, number: write(pipeline, batch))
    assert pipeline.rows("copies") == []
    for name in ("plain", "again"):
        run(
            texts, name, lambda batch, number: write(pipeline, batch, run=f"load-{number}", message_id="line")
        )
    assert sorted(str(row["line"]) for row in pipeline.rows("copies")) == ["a", "b"]
    pipeline.consume("copies")

    pipeline.spout(["c"])
    lines = pipeline.read_stream("lines")
    with pytest.raises(Exception, match=r"has read streams, or tracked rows, and acks nothing of them"):
        run(lines, "lines", lambda batch, number: write(pipeline, batch, run=f"lines-{number}"))
    assert pipeline.rows("copies") == []
