"""A collector belongs to its batch: misuse, writes of their own and late calls are never acked."""

import contextlib
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from acker.errors import AckerError, FailedException, SchemaMismatch, ValidationError
from acker.ledger.client import open_ledger
from acker.spark import Collector, bolt, job, track
from acker.spark.bolts import bolt_function
from acker.store.client import Store
from tests.helpers.builders.pipeline import Diary, Pipeline

pytestmark = pytest.mark.slow


def test_stray_threads_are_of_the_batch_and_a_later_call_is_an_error(pipeline: Pipeline) -> None:
    """The rows are tracked by the batch itself, which its tasks know by the thread that starts them."""
    collectors: list[Collector] = []
    pool = ThreadPoolExecutor(2)
    source = pipeline.directory / "source"
    source.mkdir()
    (source / "lines.txt").write_text("a b\nc d\n")
    lines = track(
        pipeline.spark.readStream.text(str(source)),
        url=pipeline.url,
        topology="t",
        spout="s",
        message_id="value",
    )

    @bolt(url=pipeline.url, topology="t", name="split")
    def split(batch: DataFrame, collector: Collector) -> None:
        collectors.append(collector)
        words = batch.select(F.explode(F.split("value", " ")).alias("word"), "_acker")
        for stream in ("words", "copies"):
            pool.submit(collector.emit, words, stream)

    pipeline.run_on(lines, "split", split)
    [collector] = collectors
    for stream in ("words", "copies"):
        assert sorted(str(row["word"]) for row in pipeline.rows(stream)) == ["a", "b", "c", "d"]
        assert pipeline.counters() == {"tracked": 2}
        pipeline.consume(stream)
    assert pipeline.counters() == {"tracked": 2, "acked": 2}
    empty = pipeline.spark.createDataFrame([], "word string, _acker bigint")
    with pytest.raises(AckerError, match=r"collector.emit was called when batch 0 of 'split' was over"):
        collector.emit(empty, stream="words")
    with job(pipeline.spark, url=pipeline.url, topology="t", name="load") as ended:
        pass
    with pytest.raises(AckerError, match=r"collector.hold was called when job 'load' was over"):
        ended.hold(empty)


def test_a_batch_with_a_failed_call_is_not_committed_if_it_goes_on(pipeline: Pipeline) -> None:
    keys = Diary(pipeline.directory / "keys")

    def run(checkpoint: str, stream: str) -> None:
        @bolt(url=pipeline.url, topology="t", name="split")
        def split(batch: DataFrame, collector: Collector) -> None:
            keys.note(collector.key)
            collector.emit(batch, stream="copies")
            with contextlib.suppress(SchemaMismatch):
                collector.emit(batch.withColumn("more", F.lit(1)).drop("line"), stream=stream)

        pipeline.run(checkpoint, "lines", split)

    pipeline.spout(["a", "b"])
    with pytest.raises(
        Exception, match=r"collector.emit has failed in it .* can run again. SchemaMismatch: "
    ):
        run("split", "copies")
    assert pipeline.rows("copies") == []
    assert len(pipeline.rows("lines")) == 2
    run("split", "others")
    assert [len(pipeline.rows(stream)) for stream in ("copies", "others", "lines")] == [2, 2, 0]
    pipeline.spout(["c"])
    run("afresh", "others")
    first, again, afresh = keys.read()
    assert first == again != afresh
    assert first.endswith("-0")
    assert afresh.endswith("-0")
    with pytest.raises(AckerError, match=r"job 'load' is not committed, for collector.take has failed"):
        load(pipeline)


def load(pipeline: Pipeline) -> None:
    with job(pipeline.spark, url=pipeline.url, topology="t", name="load", run="r1") as collector:
        assert collector.key == "load@r1"
        with contextlib.suppress(ValidationError):
            collector.take("no such stream")


def test_what_is_no_bolt_is_reported_at_once() -> None:
    def split(batch: DataFrame, collector: Collector) -> None: ...

    def lonely(batch: DataFrame) -> None: ...

    async def later(batch: DataFrame, collector: Collector) -> None: ...

    def yielding(batch: DataFrame, collector: Collector) -> Any:
        yield batch

    decorated: Any = bolt
    given: dict[str, Any] = {"url": "redis://127.0.0.1:1", "topology": "t", "name": "split"}
    makers: dict[str, Callable[[], object]] = {
        r"expected @bolt\(url=..., topology=..., name=...\) above a function, got a function": lambda: bolt(
            split
        ),
        "got 'redis://127.0.0.1:1' in place of url=": lambda: bolt("redis://127.0.0.1:1", "t", "split"),
        "got no topology, name": lambda: bolt(url="redis://127.0.0.1:1"),
        "expected one function of a batch and a collector, got 2 arguments": lambda: decorated(**given)(
            split, 0
        ),
        r"got lonely\(batch": lambda: decorated(**given)(lonely),
        "has a `yield`: later": lambda: decorated(**given)(later),
        "has a `yield`: yielding": lambda: decorated(**given)(yielding),
    }
    for match, make in makers.items():
        with pytest.raises(ValidationError, match=match):
            make()
    called: Any = bolt(**given)(split)
    with pytest.raises(AckerError, match="which calls it with a batch and its number, got str and str"):
        called("batch", "collector")


def test_a_function_that_returns_its_work_undone_acks_nothing(pipeline: Pipeline) -> None:
    @bolt(url=pipeline.url, topology="t", name="lazy")
    def lazy(batch: DataFrame, collector: Collector) -> object:
        return (collector.emit(batch, stream="copies") for _ in range(1))

    pipeline.spout(["a"])
    with pytest.raises(Exception, match="has returned generator, so its work is not done"):
        pipeline.run("lazy", "lines", lazy)
    assert len(pipeline.rows("lines")) == 1


def test_a_function_that_returns_what_still_works_is_refused_and_what_that_raised_is_raised() -> None:
    def given(result: object) -> None:
        bolt_function.call(lambda batch, collector: result, "lazy", None, None)

    waiting, done, bad, left = (Future[int]() for _ in range(4))
    done.set_result(1)
    bad.set_exception(FailedException("no such word"))
    left.set_exception(SystemExit(3))
    stop = threading.Event()
    thread = threading.Thread(target=stop.wait, daemon=True)
    for result, kind in ((waiting, "Future"), ([done, waiting], "Future"), (thread, "Thread")):
        with pytest.raises(AckerError, match=f"has returned {kind}, so its work is not done"):
            given(result)
    thread.start()
    try:
        with pytest.raises(AckerError, match="has returned Thread, so its work is not done"):
            given((done, thread))
    finally:
        stop.set()
        thread.join()
    given([done, thread])
    with pytest.raises(FailedException, match="no such word"):
        given(bad)
    with pytest.raises(AckerError, match=r"'lazy' has raised SystemExit\(3\)"):
        given(left)


def test_a_function_that_ends_the_program_ends_its_query_unacked(pipeline: Pipeline) -> None:
    @bolt(url=pipeline.url, topology="t", name="leaves")
    def leaves(batch: DataFrame, collector: Collector) -> None:
        collector.emit(batch, stream="copies")
        sys.exit("no configuration")

    pipeline.spout(["a"])
    with pytest.raises(
        Exception, match=r"'leaves' has raised SystemExit\(no configuration\): its query ends"
    ):
        pipeline.run("leaves", "lines", leaves)
    assert len(pipeline.rows("lines")) == 1


def write(pipeline: Pipeline, rows: DataFrame, **options: object) -> None:
    """Writes a batch to the stream "copies"."""
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
