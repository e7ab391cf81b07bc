r"""Spark application 2: reads words and writes them to an idempotent sink.

    python -m acker.demo.count --url redis://127.0.0.1:6379/0 --topology demo --checkpoint /tmp/count \
        --sink /tmp/words.db

A batch may run twice, and a record comes again when it failed: the sink is keyed by (message id, position),
so neither counts a word twice. The sink is written before the function returns, and only then is anything
acked: what is acked is in the sink.
"""

import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everyone imports it

from acker.demo import application
from acker.demo.faults import FLAKY_WORDS, POISON_EVERY, Faults
from acker.demo.sink import Sink
from acker.spark import Collector, bolt, register

WORDS = "message_id string, position int, word string, attempt int, _acker bigint"
"""The columns of the stream `words`."""


def reason_to_fail(faults: Faults) -> Column:
    """Why a word fails its record; null where it does not."""
    never, at_first = F.lit(None).cast("string"), F.lit(None).cast("string")
    if faults.poison_every:
        poisoned = F.crc32(F.encode("message_id", "UTF-8")) % faults.poison_every == 0
        never = F.when(poisoned, F.lit("this record fails always"))
    if faults.flaky:
        flaky = (F.col("attempt") == 1) & F.col("word").isin(*faults.flaky)
        at_first = F.when(flaky, F.format_string("the word '%s' fails at first", "word"))
    return F.coalesce(never, at_first)


class Count:
    """Writes each batch of words to the sink, and fails the records that it can't count."""

    def __init__(self, sink: Sink, faults: Faults) -> None:
        self.sink = sink
        self.faults = faults

    def __call__(self, batch: DataFrame, collector: Collector) -> None:
        """When it returns, the words are acked, but for the trees that it fails."""
        # One pass over the batch: here the rows come to the driver, where the database is.
        rows = batch.withColumn("reason", reason_to_fail(self.faults)).toArrow()
        failed = pc.is_valid(rows["reason"])
        self.sink.write(rows.filter(pc.invert(failed)))
        if pc.any(failed).as_py():
            collector.fail(batch.sparkSession.createDataFrame(rows.filter(failed)), F.col("reason"))


def main() -> None:
    """Runs until SIGTERM."""
    parser = application.arguments(__doc__)
    parser.add_argument("--sink", required=True, help="the SQLite database to write to")
    parser.add_argument("--flaky", default=",".join(FLAKY_WORDS), help="words that fail at first")
    parser.add_argument("--poison-every", type=int, default=POISON_EVERY, help="one record of so many fails")
    options = parser.parse_args()
    spark = application.session("count", options.master)
    register(spark)
    words = (
        spark.readStream.format("acker")
        .schema(WORDS)
        .options(url=options.url, topology=options.topology, stream="words", max_rows=200_000)
        .load()
    )
    count = Count(Sink(options.sink), Faults.parse(options.flaky, options.poison_every))
    query = (
        words.writeStream.queryName("count")
        .foreachBatch(bolt(url=options.url, topology=options.topology, name="count")(count))
        .option("checkpointLocation", options.checkpoint)
        .trigger(processingTime=application.TRIGGER)
    )
    application.run(spark, query.start)
    spark.stop()


if __name__ == "__main__":
    main()
