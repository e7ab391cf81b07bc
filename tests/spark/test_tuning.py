"""The settings that acker recommends: Spark knows them, and a query does its work with them."""

from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from acker.spark import Collector, bolt, tuned
from acker.spark.tuning import settings
from tests.spark.pipeline import Pipeline


def test_what_is_set_on_the_builder_afterwards_wins() -> None:
    name = "spark.sql.execution.arrow.maxBytesPerBatch"
    builder = tuned(SparkSession.Builder())

    assert builder._options[name] == str(2**31 - 1)
    assert builder.config(name, "64m")._options[name] == "64m"


def test_a_query_with_all_settings_works_and_goes_on_from_its_checkpoint(
    spark: SparkSession, pipeline: Pipeline, valkey_url: str, tmp_path: Path
) -> None:
    @bolt(url=valkey_url, topology="t", name="copy")
    def copy(batch: DataFrame, collector: Collector) -> None:
        collector.emit(batch, stream="copies")

    chosen = settings(local_checkpoints=True)
    for name, value in chosen.items():
        spark.conf.set(name, value)
    try:
        for part in (["a", "b"], ["c"]):
            pipeline.spout(part)
            pipeline.run("copying", "lines", copy)
    finally:
        for name in chosen:
            spark.conf.unset(name)

    assert sorted(str(row["line"]) for row in pipeline.rows("copies")) == ["a", "b", "c"]
    assert sorted(path.name for path in (tmp_path / "copying" / "commits").glob("[0-9]*")) == ["0", "1"]
