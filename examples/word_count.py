"""Word count in two jobs that only share the ledger: a line is acked when all its words are counted.

python -m examples.word_count [--url redis://127.0.0.1:6379/0]
"""

from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everyone imports it

from acker import Topology
from acker.spark import Collector, bolt, track
from acker.streams.settler import settle
from examples.common import finish, start, write_json

POEM = ["the quick brown fox", "jumps over the lazy dog", "the end"]


def run(spark: SparkSession, url: str, directory: Path) -> dict[str, int]:
    """Counts the words of some lines; returns word -> count."""
    topology = Topology(url, "wordcount")
    write_json(
        directory / "in", "poem.json", ({"id": f"poem:{n}", "line": line} for n, line in enumerate(POEM))
    )
    lines = track(
        spark.readStream.schema("id string, line string").json(str(directory / "in")),
        url=url, topology="wordcount", spout="lines", message_id="id",
    )  # fmt: skip

    @bolt(url=url, topology="wordcount", name="split")
    def split(batch: DataFrame, collector: Collector) -> None:
        words = batch.select(F.explode(F.split("line", " ")).alias("word"), "_acker")
        collector.emit(words, stream="words")  # anchored to their lines

    @bolt(url=url, topology="wordcount", name="count")
    def count(batch: DataFrame, collector: Collector) -> None:
        # Anything that a batch may write again: a batch of the same number overwrites what it wrote before.
        counts = batch.groupBy("word").count()
        counts.write.mode("overwrite").parquet(str(directory / "counts" / f"batch={collector.key}"))

    finish(lines.writeStream.foreachBatch(split), directory / "split")
    words = spark.readStream.format("acker").options(url=url, topology="wordcount", stream="words").load()
    finish(words.writeStream.foreachBatch(count), directory / "count")
    print(settle(topology.ledger))  # Stepped(acked=3, ...)
    topology.close()
    counted = spark.read.parquet(str(directory / "counts")).groupBy("word").sum("count").collect()
    return {row[0]: row[1] for row in counted}


if __name__ == "__main__":
    start(run, __doc__ or "")
