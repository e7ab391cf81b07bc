"""What users put into tasks that ends them: a record that does fails alone, of others the way out is said."""

import os
from typing import Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everyone imports it

from acker.errors import FailedException, SchemaMismatch
from acker.spark import Collector, bolt, track
from acker.streams.dead_letters import dead_letters
from acker.streams.spouts import settler
from acker.streams.spouts.replays import Stepped
from tests.helpers.builders.pipeline import Pipeline


def test_a_record_that_ends_its_worker_is_a_dead_letter_and_the_query_goes_on(pipeline: Pipeline) -> None:
    def words(record: dict[str, Any]) -> Any:
        if record["value"] == "fatal":
            os._exit(9)
        return record["value"].upper()

    @bolt(url=pipeline.url, topology="t", name="split")
    def split(batch: DataFrame, collector: Collector) -> None:
        collector.emit_map(batch, words, "word string", stream="words")

    (pipeline.directory / "in").mkdir()
    (pipeline.directory / "in" / "0.txt").write_text("a\nb\nfatal\nc\n")
    lines = pipeline.spark.readStream.text(str(pipeline.directory / "in"))
    done = []
    for _ in range(2):
        rows = track(lines, url=pipeline.url, topology="t", spout="s", message_id="value", attempts=2)
        pipeline.finish(pipeline.checkpointed("split", rows.writeStream.foreachBatch(split)))
        done.append(settler.settle(pipeline.ledger))
    assert done == [Stepped(replayed=1), Stepped(dead=1)]
    assert sorted(str(row["word"]) for row in pipeline.rows("words")) == ["A", "B", "C"]
    [letter] = pipeline.ledger.run(dead_letters.page(pipeline.ledger.core)).letters
    assert letter.reason == "the record ended its process with exit code 9, each time it was tried"
    assert (letter.row, letter.attempts) == ({"value": "fatal"}, 2)


def test_an_exception_for_records_in_a_udf_ends_the_batch_with_the_way_out(pipeline: Pipeline) -> None:
    pipeline.spout(["a", "bad"])

    @F.udf("string", useArrow=False)
    def check(line: str) -> str:
        if line == "bad":
            raise FailedException("no such word")
        return line

    @bolt(url=pipeline.url, topology="t", name="split")
    def split(batch: DataFrame, collector: Collector) -> None:
        collector.emit(batch.withColumn("line", check("line")), stream="words")

    with pytest.raises(Exception, match=r"raised FailedException.*collector\.map, which runs a function per"):
        pipeline.run("split", "lines", split)
    assert pipeline.counters() == {"tracked": 2}


def test_rows_that_lack_a_column_of_a_spout_are_refused_with_the_way_out(pipeline: Pipeline) -> None:
    how: dict[str, Any] = {"url": pipeline.url, "topology": "t", "spout": "s", "message_id": "value"}
    rows = pipeline.spark.readStream.format("rate").load()
    track(rows, **how)
    with pytest.raises(
        SchemaMismatch,
        match=r"timestamp: expected timestamp.*, got no such column\. Keep a column that is gone",
    ):
        track(rows.drop("timestamp"), **how)
    assert "timestamp" in track(rows.withColumn("timestamp", F.lit(None).cast("timestamp")), **how).columns
