"""Spark application 1: reads lines, emits their words.

    python -m acker.demo.split --url redis://127.0.0.1:6379/0 --topology demo --checkpoint /tmp/split

Each word is anchored to the line that it comes from, by the column `_acker`. A line's tree goes on where its
words go; a line without words is done here.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everyone imports it

from acker.demo import application
from acker.demo.text import WORD
from acker.spark import Collector, bolt, register

LINES = "message_id string, line string, attempt int, _acker bigint"
"""The columns of the stream `lines`. Named here, so that the application can start before the first line."""


def split(batch: DataFrame, collector: Collector) -> None:
    """Emits the words of a batch of lines. When it returns, the lines are acked."""
    words = F.regexp_extract_all("line", F.lit(WORD), F.lit(0))
    rows = batch.select("message_id", "attempt", F.posexplode(words).alias("position", "word"), "_acker")
    collector.emit(
        rows.select("message_id", "position", F.lower("word").alias("word"), "attempt", "_acker"),
        stream="words",
    )


def main() -> None:
    """Runs until SIGTERM."""
    options = application.arguments(__doc__).parse_args()
    spark = application.session("split", options.master)
    register(spark)
    lines = (
        spark.readStream.format("acker")
        .schema(LINES)
        .options(url=options.url, topology=options.topology, stream="lines")
        .load()
    )
    query = (
        lines.writeStream.queryName("split")
        .foreachBatch(bolt(url=options.url, topology=options.topology, name="split")(split))
        .option("checkpointLocation", options.checkpoint)
        .trigger(processingTime=application.TRIGGER)
    )
    application.run(spark, query.start)
    spark.stop()


if __name__ == "__main__":
    main()
