"""A batch acks what its own run has read by its own plan, and a checkpoint goes on at its own place only."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everyone imports it
from pyspark.sql.streaming.readwriter import DataStreamWriter
from pyspark.sql.types import BooleanType

from acker.errors import UnknownOffset
from acker.ledger.client import Ledger
from acker.spark import Collector, bolt, track
from acker.spark.options.options import Options
from acker.spark.runtime.versions import spark_schema
from acker.spark.source.reading import StreamingReader as SparkReader
from acker.streams import Stream
from acker.streams.log import schemas, subscriptions
from tests.helpers.builders.pipeline import Pipeline

pytestmark = pytest.mark.slow


def checks(works: Path) -> Callable[[str], Column]:
    """A column of lines that raises as long as a file is missing."""

    def ready(line):  # type: ignore[no-untyped-def]
        if not works.exists():
            raise RuntimeError("on purpose")
        return True

    return F.udf(ready, BooleanType())


def query(pipeline: Pipeline, rows: DataFrame, way: str, works: Path) -> DataStreamWriter:
    """A query that copies rows, as a bolt or by itself; it ends in its batch as long as a file is missing."""
    check = checks(works)

    @bolt(url=pipeline.url, topology="t", name="copy")
    def copy(batch: DataFrame, collector: Collector) -> None:
        collector.emit(batch.filter(check("line")), stream="copies")

    if way == "writer":
        return pipeline.writing("copy", rows.filter(check("line")), "copies")
    writer = rows.writeStream.foreachBatch(copy).trigger(availableNow=True)
    return writer.option("checkpointLocation", str(pipeline.directory / "copy"))


@pytest.mark.parametrize("way", ["bolt", "writer"])
def test_sources_that_come_in_another_order_after_a_crash_are_an_error(pipeline: Pipeline, way: str) -> None:
    """The sources of a union over a Python set come in any order."""
    works = pipeline.directory / "works"
    for stream in ("left", "right"):
        pipeline.spout([f"{stream} {n}" for n in range(3)], stream)
    pipeline.spout(["right 3"], "right")

    def start(*streams: str) -> None:
        left, right = (pipeline.read_stream(stream) for stream in streams)
        pipeline.finish(query(pipeline, left.union(right), way, works))

    with pytest.raises(Exception, match="on purpose"):
        start("left", "right")
    works.touch()
    found = (
        "goes on here with subscription 'default' of stream '(left|right)' of topology 't', but this source "
        "reads subscription 'default' of stream '(right|left)'.* come in the same order at each start"
    )
    with pytest.raises(Exception, match=found):
        start("right", "left")
    assert pipeline.counters() == {"tracked": 7}
    start("left", "right")
    lines = {f"{stream} {n}" for stream in ("left", "right") for n in range(3)} | {"right 3"}
    assert {row["line"] for row in pipeline.rows("copies")} == lines
    pipeline.consume("copies")
    assert pipeline.counters() == {"tracked": 7, "acked": 7}


@pytest.mark.parametrize("way", ["bolt", "writer"])
def test_what_a_run_that_was_cut_has_read_is_not_acked_by_the_next(pipeline: Pipeline, way: str) -> None:
    """The next run takes less at a time: its plan was removed from the checkpoint, and the limit lowered."""
    works = pipeline.directory / "works"
    works.touch()
    pipeline.spout(["n0"])
    pipeline.finish(query(pipeline, pipeline.read_stream("lines"), way, works))
    works.unlink()
    pipeline.spout([f"n{n}" for n in range(1, 5)], segments=4)
    with pytest.raises(Exception, match="on purpose"):
        pipeline.finish(query(pipeline, pipeline.read_stream("lines"), way, works))
    works.touch()
    for name in ("1", ".1.crc"):
        (pipeline.directory / "copy" / "offsets" / name).unlink()
    pipeline.finish(query(pipeline, pipeline.read_stream("lines", max_segments=1), way, works))
    assert sorted(str(row["line"]) for row in pipeline.rows("copies")) == [f"n{n}" for n in range(5)]
    pipeline.consume("copies")
    assert pipeline.counters() == {"tracked": 5, "acked": 5}


@pytest.mark.parametrize(
    "way", ["bolt", "writer", pytest.param("spout", marks=pytest.mark.connect(only=False))]
)
def test_a_checkpoint_that_was_restored_two_batches_back_is_an_error(pipeline: Pipeline, way: str) -> None:
    """Else the commit of the batch that had its number would be taken for its own, its rows passed over."""
    works, files = pipeline.directory / "works", pipeline.directory / "files"
    works.touch()
    files.mkdir()
    checkpoint, copy = pipeline.directory / "copy", pipeline.directory / "restored"

    def run(line: str) -> None:
        if way == "spout":
            (files / line).write_text(line)
            texts = pipeline.spark.readStream.text(str(files)).withColumnRenamed("value", "line")
            rows = track(texts, url=pipeline.url, topology="t", spout="files", message_id="line")
        else:
            pipeline.spout([line])
            rows = pipeline.read_stream("lines")
        pipeline.finish(query(pipeline, rows, "writer" if way == "writer" else "bolt", works))

    run("n0")
    shutil.copytree(checkpoint, copy)
    run("n1")
    run("n2")
    pipeline.consume("copies")
    before = pipeline.counters()
    shutil.rmtree(checkpoint)
    shutil.copytree(copy, checkpoint)
    with pytest.raises(
        Exception, match=r"CommitOrderError: batch 1 of query .* the store has a commit of that"
    ):
        run("n3")
    assert pipeline.counters() == {**before, "tracked": 3 if way == "spout" else 4}
    assert pipeline.rows("copies") == []


def test_a_checkpoint_that_was_restored_to_before_a_crash_is_an_error(pipeline: Pipeline) -> None:
    """Of a query that writes as a spout; the rerun after the crash has stored the commit."""
    works, files = pipeline.directory / "works", pipeline.directory / "files"
    checkpoint, copy = pipeline.directory / "copy", pipeline.directory / "restored"
    files.mkdir()

    def run(line: str) -> None:
        (files / line).write_text(line)
        texts = pipeline.spark.readStream.text(str(files)).withColumnRenamed("value", "line")
        pipeline.finish(
            pipeline.writing("copy", texts.filter(checks(works)("line")), "copies", message_id="line")
        )

    works.touch()
    run("n0")
    shutil.copytree(checkpoint, copy)
    works.unlink()
    with pytest.raises(Exception, match="on purpose"):
        run("n1")
    works.touch()
    run("n2")
    assert pipeline.counters() == {"tracked": 3}
    shutil.rmtree(checkpoint)
    shutil.copytree(copy, checkpoint)
    with pytest.raises(Exception, match=r"CommitOrderError: batch 1 of query .* has a commit of that"):
        run("n3")
    assert pipeline.counters() == {"tracked": 3}


def reader_of(pipeline: Pipeline, stream: str, **options: object) -> SparkReader:
    schema = spark_schema(pipeline.ledger.run(schemas.read(pipeline.ledger.core, stream)))
    return SparkReader(Options.parse(pipeline.options(stream, **options)), schema)


def test_an_offset_is_of_a_reader_and_slot(pipeline: Pipeline, caplog: pytest.LogCaptureFixture) -> None:
    pipeline.spout(["a", "b", "c"], segments=3)
    pipeline.spout(["x"], "others")
    reader = reader_of(pipeline, "lines", max_segments=2)
    start = reader.initialOffset()
    end = reader.latestOffset(start)
    assert len(reader.partitions(start, end)[0].members) == 2  # type: ignore[attr-defined]
    for other in (reader_of(pipeline, "others"), reader_of(pipeline, "lines", subscription="audit")):
        with pytest.raises(
            UnknownOffset, match="subscription 'default' of stream 'lines' of topology 't', but"
        ):
            other.latestOffset(end)
        with pytest.raises(UnknownOffset, match="of stream 'lines' of topology 't', but this source reads"):
            other.partitions(other.initialOffset(), end)
    with pytest.raises(UnknownOffset, match="written by another version of acker"):
        reader.partitions({"reader": end["reader"], "at": 0}, end)
    assert reader.latestOffset(end)["at"] == 3
    unknown = {**end, "reader": "nobody"}
    for first in (0, 1):
        with pytest.raises(UnknownOffset, match=r"reader nobody of .* which has no such reader"):
            reader.partitions({**unknown, "at": first}, unknown)
    assert "nobody" not in Stream(pipeline.ledger, "lines").readers()


def test_a_batch_of_rows_that_were_given_back_is_an_error(pipeline: Pipeline) -> None:
    pipeline.spout(["a"])
    reader = reader_of(pipeline, "lines")
    start = reader.initialOffset()
    end = reader.latestOffset(start)
    reader.partitions(start, end)
    assert Stream(pipeline.ledger, "lines").give_back(end["reader"]) == 1
    with pytest.raises(UnknownOffset, match="given back to others"):
        reader.partitions(start, end)


def test_a_query_goes_on_without_the_rows_of_a_subscription_that_was_lost(
    pipeline: Pipeline, caplog: pytest.LogCaptureFixture
) -> None:
    """With its store, or because somebody has dropped it: nobody can have them any more."""
    pipeline.spout(["a"])
    reader = reader_of(pipeline, "lines")
    start = reader.initialOffset()
    end = reader.latestOffset(start)
    reader.partitions(start, end)
    Stream(pipeline.ledger, "lines").unsubscribe("default")
    pipeline.spout(["b"])
    again = reader_of(pipeline, "lines")
    [part] = again.partitions(start, end)
    assert part.members == ()  # type: ignore[attr-defined]
    assert "the rows of the batch are gone" in caplog.text
    assert again.latestOffset(end)["at"] == end["at"] + 1


def test_a_reader_is_known_after_all_that_it_had_was_acked(ledger: Ledger) -> None:
    slot = ledger.run(subscriptions.subscribe(ledger.core, "lines", "default"))
    assert not ledger.run(subscriptions.log(ledger.core, "lines", slot, "nobody"))
    assert not ledger.run(subscriptions.knows(ledger.core, "lines", slot, "nobody"))
    ledger.run(subscriptions.claim(ledger.core, "lines", slot, "reader", 0, name="default"))
    assert ledger.run(subscriptions.knows(ledger.core, "lines", slot, "reader"))
    assert ledger.run(subscriptions.log(ledger.core, "lines", slot, "reader"))
