"""The two Spark applications: `split` hands the words of lines on, `count` writes them to the sink.

Like the jobs of the demo, but for faults: a query that ends with an error starts again, as under a
supervisor, the first has executors of their own, and the second fails poison and hangs where a record tells
it to.
"""

import os
import signal
import sys
import time
from pathlib import Path

import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everyone imports it
from pyspark.sql.streaming.readwriter import DataStreamWriter

from acker.cli.demo import application
from acker.cli.demo.sink import Sink
from acker.spark import Collector, bolt, register
from harness.chaos import clock
from harness.chaos.plan import CLIENT_TIMEOUT
from harness.chaos.records import HANG, POISON

SCHEMAS = {
    "lines": "message_id string, line string, _acker bigint",
    "words": "message_id string, position int, word string, _acker bigint",
}
_LONG = 30.0
_FAILURES = 10
"""So many errors in a row, each within 30 seconds, end the application: it starts anew."""


def split(batch: DataFrame, collector: Collector) -> None:
    """Emits the words of lines."""
    words = F.posexplode(F.split("line", " ")).alias("position", "word")
    collector.emit(batch.select("message_id", words, "_acker"), stream="words")


class Count:
    """Writes words to the sink. hang: seconds. hangs: a directory with a file for each record it hung at."""

    def __init__(self, sink: Sink, hang: float, hangs: Path) -> None:
        self.sink = sink
        self.hang = hang
        self.hangs = hangs

    def __call__(self, batch: DataFrame, collector: Collector) -> None:
        """Writes first; what it returns from is acked."""
        rows = batch.toArrow()
        hanging = rows.filter(pc.equal(rows["word"], HANG))["message_id"].to_pylist()
        marks = {self.hangs / message_id.split("/")[0] for message_id in hanging}
        if new := [mark for mark in marks if not mark.exists()]:
            for mark in new:
                mark.touch()
            time.sleep(self.hang)  # this is the fault
        poison = pc.equal(rows["word"], POISON)
        self.sink.write(rows.filter(pc.invert(poison)))
        if pc.any(poison).as_py():
            failed = batch.sparkSession.createDataFrame(rows.filter(poison))
            collector.fail(failed, F.concat(F.lit("poison: "), "message_id"))


def keep_running(spark: SparkSession, query: DataStreamWriter) -> None:
    """Runs a query until SIGTERM, starting it again after an error. Raises where it keeps failing."""
    failures = 0
    while True:
        began = time.monotonic()
        try:
            application.run(query)
            return
        except Exception as error:
            failures = failures + 1 if time.monotonic() - began < _LONG else 1
            sys.stderr.write(f"the query ended ({failures}): {str(error)[:2000]}\n")
            if failures >= _FAILURES:
                raise
            # A streaming query of the same name may still be ending.
            for other in spark.streams.active:
                other.stop()


def main() -> None:
    """Runs until SIGTERM."""
    clock.install()
    parser = application.arguments(__doc__)
    parser.add_argument("name", choices=("split", "count"))
    parser.add_argument("--sink", required=True)
    parser.add_argument("--hang", type=float, required=True)
    parser.add_argument("--hangs", type=Path, required=True)
    parser.add_argument("--message-timeout", type=float, required=True)
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    spark = application.session(options.name, options.master)
    register(spark)
    # With the message timeout the topology is made again where the store has lost it.
    settings = {
        "url": options.url,
        "topology": options.topology,
        "timeout": CLIENT_TIMEOUT,
        "message_timeout": options.message_timeout,
    }
    stream = "lines" if options.name == "split" else "words"
    function = split if options.name == "split" else Count(Sink(options.sink), options.hang, options.hangs)
    rows = spark.readStream.format("acker").schema(SCHEMAS[stream]).options(**settings, stream=stream).load()
    query = (
        rows.writeStream.queryName(options.name)
        .foreachBatch(bolt(**settings, name=options.name)(function))
        .option("checkpointLocation", options.checkpoint)
    )
    keep_running(spark, query)
    spark.stop()


if __name__ == "__main__":
    main()
