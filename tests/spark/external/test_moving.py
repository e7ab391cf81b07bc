"""A running stream moves from the store to files: a bolt sends to the new one, and both are read."""

from pathlib import Path

from pyspark.sql import DataFrame

from acker.spark import Acker
from acker.spark.bolts.collector import Collector
from tests.helpers.builders.pipeline import Diary, Pipeline


def test_a_managed_stream_becomes_an_external_one_under_a_new_name(
    pipeline: Pipeline, tmp_path: Path
) -> None:
    acker, where, seen = Acker(pipeline.url, "t"), str(tmp_path / "items"), Diary(tmp_path / "seen")

    @acker.bolt("split")
    def before(batch: DataFrame, collector: Collector) -> None:
        collector.emit(batch, "words")

    @acker.bolt("split")
    def after(batch: DataFrame, collector: Collector) -> None:
        collector.emit(batch.filter("line = 'c'"), "words")  # as while its old form still runs
        collector.emit(batch, "items", to=lambda w: w.mode("append").parquet(where))

    @acker.bolt("count")
    def managed(batch: DataFrame, _: Collector) -> None:
        seen.note(["words", *sorted(row.line for row in batch.collect())])

    @acker.bolt("count", receives="items")
    def external(batch: DataFrame, _: Collector) -> None:
        seen.note(["items", *sorted(row.line for row in batch.collect())])

    def files() -> DataFrame:
        return pipeline.spark.readStream.schema("line string, _acker_stamp string").parquet(where)

    with acker.open() as topology:
        topology.incoming("items", subscription="count")
        pipeline.spout(["a", "b"])
        pipeline.run("split", "lines", before)
        pipeline.spout(["c", "d"])
        pipeline.run("split", "lines", after)
        pipeline.run_on(files(), "count-items", external)
        assert topology.counters()["acked"] == 1, "c has a row in the old stream, too"
        pipeline.run("count-words", "words", managed)
        assert topology.counters()["acked"] == 4
    assert sorted(seen.read()) == [["items", "c", "d"], ["words", "a", "b", "c"]]
