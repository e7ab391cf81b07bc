"""Mistakes that would lose rows without a word: batches of two bolts, or of two topologies."""

import logging

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everyone imports it
from pyspark.sql.streaming.readwriter import DataStreamWriter

from acker.ledger.client import open_ledger
from acker.spark import Collector, bolt
from acker.spark.options.options import Options
from acker.spark.runtime.versions import spark_schema
from acker.spark.source.partitions import deal
from acker.spark.source.reading import Reader
from acker.store.client import Store
from acker.streams import StreamReader, StreamWriter
from acker.streams.log import schemas
from acker.streams.log.subscriptions import Range
from tests.helpers.builders.pipeline import Diary, Pipeline
from tests.helpers.servers.servers import wait_until

pytestmark = pytest.mark.slow


def test_a_second_bolt_for_a_batch_is_an_error_and_not_passed_over(pipeline: Pipeline) -> None:
    pipeline.spout(["a", "b"])
    seen = Diary(pipeline.directory / "seen")

    @bolt(url=pipeline.url, topology="t", name="both")
    def note(batch: DataFrame, collector: Collector) -> None:
        seen.note(sorted(row.line for row in batch.collect()))

    def parts(batch: DataFrame, batch_id: int) -> None:
        note(batch.filter("line = 'a'"), batch_id)
        note(batch.filter("line = 'b'"), batch_id)

    with pytest.raises(Exception, match=r"was called with a part of its batch \(Filter\), and would ack"):
        pipeline.run("both", "lines", parts)
    assert pipeline.counters() == {"tracked": 2}

    def each(batch: DataFrame, batch_id: int) -> None:
        wider = batch.withColumn("length", F.length("line")).repartition(2).cache()
        note(wider, batch_id)
        note(batch, batch_id)

    with pytest.raises(Exception, match="batch 0 was committed by bolt 'both', so 'both' could do nothing"):
        pipeline.run("both", "lines", each)
    assert seen.read() == [["a", "b"]]


def test_what_is_read_of_another_topology_is_an_error(pipeline: Pipeline) -> None:
    pipeline.spout(["a"])
    other = {"url": pipeline.url, "topology": "other"}
    rows = StreamWriter(open_ledger(Store(pipeline.url), "other", ackers=2), "lines")
    rows.write(pa.table({"line": ["b"]}))
    theirs = pipeline.spark.readStream.format("acker").options(**other, stream="lines").load()

    @bolt(url=pipeline.url, topology="t", name="both")
    def both(batch: DataFrame, collector: Collector) -> None:
        collector.emit(batch, stream="words")

    def run(writer: DataStreamWriter, name: str) -> None:
        checkpoint = str(pipeline.directory / name)
        pipeline.finish(writer.option("checkpointLocation", checkpoint).trigger(availableNow=True))

    together = pipeline.read_stream("lines").union(theirs).writeStream.foreachBatch(both)
    with pytest.raises(Exception, match="so it cannot ack rows of other"):
        run(together, "both")
    pipeline.spout(["c"], stream="more")
    across = pipeline.read_stream("more").writeStream.format("acker").options(**other, stream="words")
    with pytest.raises(Exception, match="the inputs of batch 0 are unknown"):
        run(across, "across")
    assert not pipeline.rows("words")
    assert not list(StreamReader(rows.ledger, "words").rows())


def test_held_rows_of_before_a_column_was_added_have_null_there(pipeline: Pipeline) -> None:
    seen = Diary(pipeline.directory / "seen")

    @bolt(url=pipeline.url, topology="t", name="keep")
    def keep(batch: DataFrame, collector: Collector) -> None:
        rows = batch.unionByName(collector.held(batch.schema)).persist()
        seen.note(sorted(str(list(row)) for row in rows.drop("_acker").collect()))
        collector.hold(rows)

    pipeline.spout(["a"])
    pipeline.run("keep", "lines", keep)
    more = pipeline.spark.createDataFrame([("b", 7)], "line string, more int")
    pipeline.append(more, "lines")
    pipeline.run("keep", "lines", keep)
    assert seen.read() == [["['a']"], ["['a', None]", "['b', 7]"]]
    assert pipeline.counters() == {"tracked": 1}


def test_a_look_at_a_stream_passes_over_what_is_acked_meanwhile(pipeline: Pipeline) -> None:
    pipeline.spout(["a", "b"], segments=2)
    schema = spark_schema(pipeline.ledger.run(schemas.read(pipeline.ledger.core, "lines")))
    reader = Reader(Options.parse(pipeline.options("lines")), schema)
    [part] = reader.partitions()
    assert sum(batch.num_rows for batch in reader.read(part)) == 2
    StreamReader(pipeline.ledger, "lines").ack_all()
    assert list(reader.read(part)) == []


def test_a_batch_whose_segments_are_all_gone_is_reported_of_all_the_same() -> None:
    batch = Range("lines", 0, "reader", 3, 5)
    [part] = deal([], batch, None)
    assert (part.members, part.batch) == ((), batch)
    assert deal([], None, None) == []


def test_a_bolt_that_writes_its_anchors_somewhere_is_named_once(
    pipeline: Pipeline, caplog: pytest.LogCaptureFixture
) -> None:
    where = str(pipeline.directory / "sink")

    @bolt(url=pipeline.url, topology="t", name="plain")
    def plain(batch: DataFrame, collector: Collector) -> None:
        batch.drop("_acker").write.mode("append").json(where)
        batch.write.mode("append").json(where)

    @bolt(url=pipeline.url, topology="t", name="sound")
    def sound(batch: DataFrame, collector: Collector) -> None:
        batch.drop("_acker").write.mode("append").json(where)
        assert batch.count()

    pipeline.spout(["a"], "others")
    pipeline.spout(["a", "b"], segments=2)
    with caplog.at_level(logging.WARNING, logger="acker"):
        pipeline.run("sound", "others", sound)
        pipeline.run("plain", "lines", plain, max_segments=1)
        wait_until(lambda: "bolt 'plain' writes rows with the column _acker" in caplog.text, 30)
    assert caplog.text.count("writes rows with the column _acker") == 1
