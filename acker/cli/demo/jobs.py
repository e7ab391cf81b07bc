r"""Counts the words of text: a spout and two Spark applications that only share the ledger. To copy from.

    export ACKER_URL=redis://127.0.0.1:6379/0
    python -m acker.cli.demo.jobs spout --topology wordcount --message-timeout 60 --lines 1000
    python -m acker.cli.demo.jobs split --topology wordcount --checkpoint /tmp/split
    python -m acker.cli.demo.jobs count --topology wordcount --checkpoint /tmp/count --sink /tmp/words.db

They may start in any order: lines wait for their reader. `acker demo` runs all three, and checks the sink.
With `--words /tmp/words` for both applications, words travel in files there, and not through the store; with
`--words kafka://127.0.0.1:9092/words` in a topic.
"""

import sys
import time
from collections.abc import Iterable
from itertools import islice

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everyone imports it
from pyspark.sql.streaming.readwriter import DataStreamWriter

from acker import Topology
from acker.cli.demo import application
from acker.cli.demo.options import ATTEMPTS, FLAKY_WORDS, MAX_SPOUT_PENDING, POISON_EVERY, Faults
from acker.cli.demo.records import Records
from acker.cli.demo.sink import Sink
from acker.cli.demo.text import WORD, Line, find_files, read_lines
from acker.cli.demo.transports import COLUMNS, Transport, transport_of
from acker.ledger.client import Ledger
from acker.spark import Acker, Collector
from acker.streams import SpoutOptions, StreamSpout
from acker.streams.spouts import settler
from acker.streams.spouts.settler import Settler

SPOUT = "text"
LINES = "message_id string, line string, attempt int, _acker bigint"
"""The columns of the stream `lines`. Named here, so that an application can start before the first line."""
WORDS = f"{COLUMNS}, _acker bigint"
"""The columns of the stream `words`."""
_BATCH = 5_000
_WAIT = 0.1


class TextSpout:
    """Emits each line as the root of a tree, and takes what becomes of the trees.

    The store keeps the lines in flight, `max_spout_pending` at most. Lines that fail or expire are emitted
    again from there, and are dead letters after their last attempt.
    """

    def __init__(
        self, ledger: Ledger, lines: Iterable[Line], max_spout_pending: int, attempts: int = ATTEMPTS
    ) -> None:
        self.records = Records()
        self._lines = iter(lines)
        self._most = max_spout_pending
        # Segments worth a micro-batch, several of which are in flight.
        self._batch = max(1, min(_BATCH, max_spout_pending // 4))
        self._exhausted = False
        how = SpoutOptions(
            SPOUT, "lines", "message_id", attempts, attempt="attempt", max_spout_pending=max_spout_pending
        )
        self._spout = StreamSpout(ledger, how)
        self._settler = Settler(
            ledger.store, [ledger.config.name], spout=SPOUT, on_outcomes=self.records.take
        )

    @property
    def finished(self) -> bool:
        """Return True if each line has its final outcome."""
        return self._exhausted and not self.records.status.in_flight

    def step(self) -> None:
        """Emits what there is room for, and takes the outcomes that have come; waits a moment for them."""
        waited = True
        while not self._exhausted and self._most - self.records.status.in_flight >= self._batch:
            lines = list(islice(self._lines, self._batch))
            self._exhausted = len(lines) < self._batch
            names = [line.message_id for line in lines]
            # First: a tree may have its outcome before the call that tracks it returns.
            self.records.emitted(names)
            self._spout.write(pa.table({"message_id": names, "line": [line.text for line in lines]}))
            waited = False
        if not self._settler.step() and waited:
            time.sleep(_WAIT)

    def close(self) -> None:
        """Leaves later outcomes, such as of a replayed dead letter, to the settler."""
        settler.settle(self._spout.ledger, SPOUT)


def split(acker: Acker, spark: SparkSession, to: Transport | None = None) -> DataStreamWriter:
    """Application 1: reads lines, emits their words. to: their way, if it is not the store."""

    @acker.bolt("split")
    def emit_words(batch: DataFrame, collector: Collector) -> None:
        # Each word is anchored to its line by `_acker`. When this returns, the lines are acked: a line's tree
        # goes on where its words go, and a line without words is done.
        words = F.transform(F.regexp_extract_all("line", F.lit(WORD), F.lit(0)), F.lower)
        rows = batch.select("message_id", "attempt", F.posexplode(words).alias("position", "word"), "_acker")
        if to is not None:  # stamped rows, and the store has no row of them
            collector.emit(to.packed(rows), stream="words", to=to.sink())
        else:
            collector.emit(rows, stream="words")

    return acker.read_stream(spark, "lines", schema=LINES).writeStream.foreachBatch(emit_words)


def count(
    acker: Acker, spark: SparkSession, sink: Sink, faults: Faults, by: Transport | None = None
) -> DataStreamWriter:
    """Application 2: writes words to an idempotent sink, and fails some records on purpose.

    A batch may run twice, and a record comes again when it failed: the sink is keyed by (message id,
    position), so neither counts a word twice. by: the way of the words, if it is not the store.
    """

    @acker.bolt("count")
    def write_words(batch: DataFrame, collector: Collector) -> None:
        if by is not None:
            batch = by.unpacked(collector.receive(batch, "words"))
        # One pass over the batch: here the rows come to the driver, where the database is.
        rows = batch.withColumn("reason", reason_to_fail(faults)).toArrow()
        failed = pc.is_valid(rows["reason"])
        sink.write(rows.filter(pc.invert(failed)))  # what is acked is in the sink: only returning acks
        if pc.any(failed).as_py():
            collector.fail(batch.sparkSession.createDataFrame(rows.filter(failed)), F.col("reason"))

    if by is not None:
        words = by.read(spark)
    else:
        words = acker.read_stream(spark, "words", schema=WORDS, max_rows=200_000)
    return words.writeStream.foreachBatch(write_words)


def reason_to_fail(faults: Faults) -> Column:
    """Returns the reason of a word to fail its record, or null. `Faults` has the same rule."""
    never, at_first = F.lit(None).cast("string"), F.lit(None).cast("string")
    if faults.poison_every:
        poisoned = F.crc32(F.encode("message_id", "UTF-8")) % faults.poison_every == 0
        never = F.when(poisoned, F.lit("this record fails always"))
    if faults.flaky:
        flaky = (F.col("attempt") == 1) & F.col("word").isin(*faults.flaky)
        at_first = F.when(flaky, F.format_string("the word '%s' fails at first", "word"))
    return F.coalesce(never, at_first)


def declare(url: str, topology: str, spark: SparkSession, by: Transport) -> None:
    """Makes the place of words that do not go by the store, and the subscription that they are sent for."""
    by.declare(spark)
    with Topology(url, topology) as opened:
        opened.incoming("words", subscription="count")


def main() -> None:
    """Runs one of the three: an application until SIGTERM, the spout until each line has its outcome."""
    parser = application.arguments(__doc__)
    parser.add_argument("job", choices=("spout", "split", "count"))
    parser.add_argument("--sink", default="words.db", help="count: the SQLite database to write to")
    parser.add_argument("--flaky", default=",".join(FLAKY_WORDS), help="count: words that fail at first")
    parser.add_argument("--poison-every", type=int, default=POISON_EVERY, help="count: one of so many fails")
    parser.add_argument("--words", default="", help="split, count: a directory, or kafka://HOST:PORT/TOPIC")
    parser.add_argument("--input", nargs="*", default=[], help="spout: text to read (default: Python's own)")
    parser.add_argument("--lines", type=int, default=0, help="spout: most lines; 0: all")
    parser.add_argument("--message-timeout", type=float, help="spout: seconds, for a topology that is new")
    options = parser.parse_args()
    if options.job != "spout" and options.checkpoint is None:
        parser.error("--checkpoint: an application needs the directory of its checkpoint")
    if options.job == "spout":
        lines = read_lines(find_files(options.input), options.lines)
        with Topology(options.url, options.topology, message_timeout=options.message_timeout) as topology:
            spout = TextSpout(topology.ledger, lines, MAX_SPOUT_PENDING)
            while not spout.finished:
                spout.step()
            spout.close()
        sys.stdout.write(f"{spout.records.status}\n")
        return
    acker, spark = Acker(options.url, options.topology), application.session(options.job, options.master)
    by = transport_of(options.words)
    if by is not None:
        declare(options.url, options.topology, spark, by)
    if options.job == "split":
        query = split(acker, spark, by)
    else:
        faults = Faults.parse(options.flaky, options.poison_every)
        query = count(acker, spark, Sink(options.sink), faults, by)
    application.run(query.queryName(options.job).option("checkpointLocation", options.checkpoint))
    spark.stop()


if __name__ == "__main__":
    main()
