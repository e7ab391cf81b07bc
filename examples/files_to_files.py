"""Files to files: a record is acked when the file that holds its result is written.

python -m examples.files_to_files [--url redis://127.0.0.1:6379/0]
"""

from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everyone imports it

from acker.spark import Collector, bolt, settling, track
from examples.common import finish, start, write_json


def run(spark: SparkSession, url: str, directory: Path) -> tuple[int, dict[str, int]]:
    """Converts JSON to Parquet; returns how many rows came out, and outcomes by status."""
    for part in range(3):
        records = ({"id": f"{part}:{n}", "celsius": n - 50} for n in range(100))
        write_json(directory / "in", f"{part}.json", records)
    readings = track(
        spark.readStream.schema("id string, celsius double").json(str(directory / "in")),
        url=url, topology="files", spout="readings", message_id="id", attempts=1, ackers=4,
    )  # fmt: skip

    @bolt(url=url, topology="files", name="convert")
    def convert(batch: DataFrame, collector: Collector) -> None:
        good = batch.filter("celsius >= -40")
        collector.fail(batch.filter("celsius < -40"), F.concat(F.lit("colder than possible: "), "celsius"))
        results = good.select("id", (F.col("celsius") * 9 / 5 + 32).alias("fahrenheit"))
        results.write.mode("overwrite").parquet(str(directory / "out" / f"batch={collector.key}"))

    found: dict[str, int] = {}

    def on_outcomes(outcomes: pa.Table) -> None:
        for status in outcomes.column("status").to_pylist():
            found[status] = found.get(status, 0) + 1

    with settling(url=url, topology="files", spout="readings", on_outcomes=on_outcomes) as settler:
        finish(readings.writeStream.foreachBatch(convert), directory / "convert")
        settler.step()
    return spark.read.parquet(str(directory / "out")).count(), found


if __name__ == "__main__":
    start(run, __doc__ or "")
