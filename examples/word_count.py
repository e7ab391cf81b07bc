"""Word count in two jobs that only share the ledger: a line is acked when all its words are counted.

python -m examples.word_count [--url redis://127.0.0.1:6379/0]
"""

from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everyone imports it

from acker.spark import Acker, Collector
from examples.common import finish, start, write_json

POEM = ["the quick brown fox", "jumps over the lazy dog", "the end"]


def run(spark: SparkSession, url: str, directory: Path) -> dict[str, int]:
    """Counts the words of some lines; returns word -> count."""
    acker = Acker(url, "wordcount", ackers=4)  # with a setting, the topology is made
    write_json(
        directory / "in", "poem.json", ({"id": f"poem:{n}", "line": line} for n, line in enumerate(POEM))
    )
    files = spark.readStream.schema("id string, line string").json(str(directory / "in"))
    lines = acker.track(files, "lines", message_id="id")

    @acker.bolt("split")
    def split(batch: DataFrame, collector: Collector) -> None:
        words = batch.select(F.explode(F.split("line", " ")).alias("word"), "_acker")
        collector.emit(words, stream="words")  # anchored to their lines

    @acker.bolt("count")
    def count(batch: DataFrame, collector: Collector) -> None:
        # Anything that a batch may write again: a batch of the same number overwrites what it wrote before.
        counts = batch.groupBy("word").count()
        counts.write.mode("overwrite").parquet(str(directory / "counts" / f"batch={collector.key}"))

    finish(lines.writeStream.foreachBatch(split), directory / "split")
    finish(acker.read_stream(spark, "words").writeStream.foreachBatch(count), directory / "count")
    print(acker.settle())  # Stepped(acked=3, ...)
    counted = spark.read.parquet(str(directory / "counts")).groupBy("word").sum("count").collect()
    return {row[0]: row[1] for row in counted}


if __name__ == "__main__":
    start(run, __doc__ or "")
