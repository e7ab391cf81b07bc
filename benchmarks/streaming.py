"""The time of a line through two streaming jobs: from append to the completion of its tree.

    uv run python -m benchmarks.streaming [--rates 1000,20000] [--seconds 60] [--untuned] [--json]

A spout tracks and appends lines, a tenth of a second's worth at a time. Query one emits their words, ten to a
line, query two reads the words into a sink that drops them; both run in one Spark session on two cores, each
starting a batch as soon as the last is done. Measured is by the store's clock, from the track of a line, just
before its append, to the completion of its tree, for all lines of `--seconds` after a warm-up.

Beside it, for each query, the median of a micro-batch's time and what of it is acker's: planning (what Spark
calls latestOffset) and, in the driver, everything but the batch's own Spark jobs. The rest is Spark's own. So
is what two queries cost that do the same with rows of Spark's rate source and without acker: "Spark alone". A
record waits for half a batch on average, and then for its own, in each query.
"""

import argparse
import json
import os
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everyone imports it
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from acker import Topology
from acker.collectors.spout import Spout
from acker.embedded import EmbeddedServer
from acker.embedded.java import ensure_java
from acker.spark import Collector, bolt, register
from acker.streams import Stream, StreamWriter
from benchmarks.options import Number, Several
from benchmarks.spark import drop, exploded, lines_table, session

WARM_UP = 20.0
EVERY = 0.1
ALONE = 20
STARTS = 5


def started(writer: DataStreamWriter) -> StreamingQuery:
    """Starts a query and waits for its first look at its source.

    Spark gives the Python worker that plans batches 10 s to start, which a busy machine may not keep.
    """
    for _ in range(STARTS):
        query = writer.start()
        while query.isActive:
            if query.status["message"].startswith("Waiting") or query.recentProgress:
                return query
            time.sleep(0.1)
    raise SystemExit(f"a query failed at {STARTS} starts")


class Timed:
    """A bolt, with the times of its batches and of the Spark jobs in them."""

    def __init__(self, url: str, name: str, function: Callable[[DataFrame, Collector], None]) -> None:
        self.function = function
        self.bolt = bolt(url=url, topology="streaming", name=name)(self._timed)
        self.jobs: list[float] = []
        self.totals: list[float] = []

    def _timed(self, batch: DataFrame, collector: Collector) -> None:
        start = time.perf_counter()
        self.function(batch, collector)
        self.jobs.append(time.perf_counter() - start)

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        """The function that `foreachBatch` calls."""
        start = time.perf_counter()
        self.bolt(batch, batch_id)
        self.totals.append(time.perf_counter() - start)

    def own(self, batches: int) -> float:
        """Median seconds of a batch that are not Spark's, of the last so many."""
        pairs = zip(self.totals[-batches:], self.jobs[-batches:], strict=True)
        return statistics.median(total - job for total, job in pairs)


class Appending(threading.Thread):
    """Tracks and appends lines at a steady rate, until it is stopped."""

    def __init__(self, topology: Topology, spout: Spout, rate: int) -> None:
        super().__init__(name="spout", daemon=True)
        self._writer = StreamWriter(topology.ledger, "lines")
        self._spout = spout
        self._lines = lines_table(max(1, round(rate * EVERY)), 1)
        self._ids = [b"%d" % number for number in range(self._lines.num_rows)]
        self._stopped = threading.Event()
        self.late = 0.0

    def run(self) -> None:
        """Appends when it is due; `late` tells the most seconds that it was behind."""
        due = time.monotonic()
        while not self._stopped.wait(max(0.0, due - time.monotonic())):
            self.late = max(self.late, time.monotonic() - due)
            batch = self._writer.batch(self._lines)
            anchors, _ = self._spout.emit_many(self._ids, values=batch.ids())
            self._writer.publish(batch, anchors)
            due += EVERY

    def stop(self) -> None:
        """Ends it."""
        self._stopped.set()
        self.join()


def latencies(spout: Spout, seconds: float) -> list[float]:
    """The latencies of the outcomes that come in so many seconds."""
    found, deadline = [], time.monotonic() + seconds
    while (left := deadline - time.monotonic()) > 0:
        for outcome in spout.outcomes(min(1.0, left)):
            if outcome.status != "acked" or outcome.latency is None:
                raise SystemExit(f"a line was {outcome.status}: {outcome.reason}")
            found.append(outcome.latency)
            spout.confirm(outcome)
    return found


def batches(query: StreamingQuery, since: float) -> list[dict[str, Any]]:
    """Spark's progress of a query's batches with rows, begun after an instant (Unix seconds)."""
    start = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(since))
    return [one for one in query.recentProgress if one["timestamp"] > start and one["numInputRows"]]


def medians(found: list[dict[str, Any]]) -> dict[str, float]:
    """Median milliseconds of each part of the batches."""
    names = {name for one in found for name in one["durationMs"]}
    return {name: statistics.median(one["durationMs"].get(name, 0) for one in found) for name in names}


def measure(spark: SparkSession, url: str, directory: Path, rate: int, seconds: float) -> dict[str, Any]:
    """Runs both queries at a rate."""
    with Topology(url, "streaming", ackers=4, message_timeout=600.0) as topology:
        spout = topology.spout("lines", max_spout_pending=100 * rate)
        for name in ("lines", "words"):
            Stream(topology.ledger, name).subscribe("default")

        def query_of(stream: str, schema: str, run: Timed) -> StreamingQuery:
            options = {"url": url, "topology": "streaming", "stream": stream}
            frame = spark.readStream.format("acker").schema(schema).options(**options).load()
            place = str(directory / f"{rate}-{stream}")
            return started(frame.writeStream.foreachBatch(run).option("checkpointLocation", place))

        split = Timed(url, "split", emit)
        read = Timed(url, "read", drop)
        queries = [
            query_of("lines", "number bigint, line string, _acker bigint", split),
            query_of("words", "word string, _acker bigint", read),
        ]
        appending = Appending(topology, spout, rate)
        appending.start()
        latencies(spout, WARM_UP)
        since, appending.late = time.time(), 0.0
        found = latencies(spout, seconds)
        reported = {}
        for name, query, timed in (("split", queries[0], split), ("read", queries[1], read)):
            done = batches(query, since)
            parts = medians(done)
            own = parts.get("latestOffset", 0) + 1000 * timed.own(min(len(done), len(timed.jobs)))
            reported[name] = {
                "batches": len(done),
                "ms": parts["triggerExecution"],
                "acker_ms": own,
                "parts": parts,
            }
        late = appending.late
        appending.stop()
        for query in queries:
            query.stop()
    p50, p99 = np.percentile(found, [50, 99])
    return {"lines": len(found), "p50": p50, "p99": p99, "late": late, **reported}


def emit(batch: DataFrame, collector: Collector) -> None:
    """Emits the words of a batch."""
    collector.emit(exploded(batch), "words")


def count(rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Hands all rows to Python, as staging does, and tells how many."""
    yield pa.RecordBatch.from_pydict({"rows": [sum(batch.num_rows for batch in rows)]})


def alone(spark: SparkSession, directory: Path, rate: int) -> list[float]:
    """Median milliseconds of a batch of each query without acker."""
    line = " ".join(f"word{number}" for number in range(10))
    source = spark.readStream.format("rate").option("rowsPerSecond", rate).load()
    lines = source.select(F.lit(line).alias("line"), F.col("value").alias("_acker"))
    queries = []

    def split(batch: DataFrame, _: int) -> None:
        exploded(batch).mapInArrow(count, "rows long").collect()

    def read(batch: DataFrame, _: int) -> None:
        drop(exploded(batch))

    for name, function in (("split", split), ("read", read)):
        place = str(directory / f"{rate}-alone-{name}")
        queries.append(started(lines.writeStream.foreachBatch(function).option("checkpointLocation", place)))
    queries[0].awaitTermination(ALONE)
    since = time.time()
    queries[0].awaitTermination(ALONE)
    found = [medians(batches(query, since))["triggerExecution"] for query in queries]
    for query in queries:
        query.stop()
    return found


def main() -> None:
    """Measures at each rate."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--rates", type=Several(Number()), default=(1_000, 20_000), help="lines a second, with commas"
    )
    parser.add_argument("--seconds", type=Number(float), default=60.0)
    parser.add_argument("--untuned", action="store_true", help="Spark's settings as they come")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    ensure_java()
    table: dict[int, dict[str, Any]] = {}
    with ExitStack() as stack:
        url = stack.enter_context(EmbeddedServer(append_only=False)).url
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True)))
        spark = session(not asked.untuned)
        stack.callback(spark.stop)
        register(spark)
        for rate in asked.rates:
            row = measure(spark, url, directory / "acker", rate, asked.seconds)
            row["alone_ms"] = alone(spark, directory / "alone", rate)
            table[rate] = row
            if asked.json:
                continue
            print(
                f"{rate:,} lines/s: p50 {row['p50']:.2f} s, p99 {row['p99']:.2f} s of {row['lines']:,} lines"
                f"   (load {os.getloadavg()[0]:.1f}, appended {row['late']:.2f} s late at most)"
            )
            for name, by_itself in zip(("split", "read"), row["alone_ms"], strict=True):
                one = row[name]
                print(
                    f"    {name}: {one['batches']} batches of {one['ms']:.0f} ms, of these acker's "
                    f"{one['acker_ms']:.0f} ms; Spark alone {by_itself:.0f} ms; {json.dumps(one['parts'])}",
                    flush=True,
                )
    if asked.json:
        print(json.dumps(table, indent=1))


if __name__ == "__main__":
    main()
