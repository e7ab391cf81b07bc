"""Growth with the work: two streaming jobs over ever more lines.

    uv run python -m benchmarks.volume [--lines 300000,1000000,3000000] [--pending 300000] [--json]

A spout tracks and appends lines of ten words, never more than `--pending` ahead of their outcomes; query one
emits the words, query two reads them into a sink that drops them, until each line is acked. For each size, in
one server and one Spark session: the time and the lines per second, the most memory that the store used while
it ran and what it used after, the driver's live heap (after a collection) and the memory of its Python.
100 million words are `--lines 10000000`.
"""

import argparse
import json
import os
import sys
import tempfile
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import redis
from pyspark.sql import SparkSession

from acker import Topology
from acker.embedded import EmbeddedServer
from acker.embedded.java import ensure_java
from acker.spark import bolt, register
from acker.streams import Stream, StreamWriter
from benchmarks.options import Number, Several
from benchmarks.processes import resident_bytes
from benchmarks.spark import drop, lines_table, session, words
from benchmarks.streaming import started

SEGMENT = 50_000
MIB = 1 << 20


class Sampling(threading.Thread):
    """Notes the most memory that the store uses, until it is stopped."""

    def __init__(self, store: redis.Redis) -> None:
        super().__init__(name="memory", daemon=True)
        self._store = store
        self._stopped = threading.Event()
        self.most = 0

    def run(self) -> None:
        """Looks five times a second."""
        while not self._stopped.wait(0.2):
            self.most = max(self.most, used(self._store))

    def stop(self) -> int:
        """Ends it; returns the most bytes."""
        self._stopped.set()
        self.join()
        return self.most


def used(store: redis.Redis) -> int:
    """Bytes that the store uses."""
    return int(store.info("memory")["used_memory"])


def live_heap(spark: SparkSession) -> int:
    """Bytes of the driver's heap that are in use after a collection."""
    assert spark._jvm is not None
    spark._jvm.java.lang.System.gc()
    runtime = spark._jvm.java.lang.Runtime.getRuntime()
    return int(runtime.totalMemory() - runtime.freeMemory())


def spout(topology: Topology, lines: int, pending: int) -> None:
    """Appends so many lines and waits until each is acked."""
    spout = topology.spout("lines", max_spout_pending=pending)
    writer = StreamWriter(topology.ledger, "lines")
    table = lines_table(min(SEGMENT, lines, pending), 1)
    names = [b"%d" % number for number in range(table.num_rows)]
    acked, appended, segment = 0, 0, table.num_rows
    while acked < lines:
        if appended < lines and appended - acked + segment <= pending:
            batch = writer.batch(table.slice(0, min(segment, lines - appended)))
            count = batch.rows.num_rows
            anchors, _ = spout.emit_many(names[:count], values=batch.ids())
            writer.publish(batch, anchors)
            appended += count
        for outcome in spout.outcomes(0.0 if appended < lines else 0.5):
            if outcome.status != "acked":
                raise SystemExit(f"a line was {outcome.status}: {outcome.reason}")
            spout.confirm(outcome)
            acked += 1


def main() -> None:
    """Runs all sizes over the same two queries."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--lines", type=Several(Number()), default=(300_000, 1_000_000, 3_000_000), help="sizes, with commas"
    )
    parser.add_argument("--pending", type=Number(), default=300_000)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    ensure_java()
    table: list[dict[str, Any]] = []
    with ExitStack() as stack:
        url = stack.enter_context(EmbeddedServer(append_only=False)).url
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True)))
        spark = session(True)
        stack.callback(spark.stop)
        register(spark)
        topology = stack.enter_context(Topology(url, "volume", ackers=4, message_timeout=3600.0))
        queries = []
        for stream, schema, name, function in (
            ("lines", "number bigint, line string, _acker bigint", "split", words),
            ("words", "word string, _acker bigint", "read", drop),
        ):
            Stream(topology.ledger, stream).subscribe("default")
            options = {"url": url, "topology": "volume", "stream": stream}
            frame = spark.readStream.format("acker").schema(schema).options(**options).load()
            run = bolt(url=url, topology="volume", name=name)(function)
            place = str(directory / name)
            queries.append(started(frame.writeStream.foreachBatch(run).option("checkpointLocation", place)))
        store = redis.Redis.from_url(url)
        spout(topology, SEGMENT, asked.pending)  # what is compiled and started once
        for lines in asked.lines:
            sampling = Sampling(store)
            sampling.start()
            start = time.perf_counter()
            spout(topology, lines, asked.pending)
            seconds = time.perf_counter() - start
            row = {
                "lines": lines,
                "seconds": seconds,
                "store_most": sampling.stop(),
                "store_after": used(store),
                "driver_heap": live_heap(spark),
                "driver_python": resident_bytes(os.getpid()),
            }
            table.append(row)
            store_use = f"{row['store_most'] / MIB:.0f} MiB at most, {row['store_after'] / MIB:.0f} MiB after"
            driver = f"heap {row['driver_heap'] / MIB:.0f} MiB, Python {row['driver_python'] / MIB:.0f} MiB"
            print(
                f"{lines:>12,} lines: {seconds:7.1f} s, {lines / seconds:,.0f} lines/s; store: {store_use}; "
                f"driver: {driver}; load {os.getloadavg()[0]:.1f}",
                file=sys.stderr if asked.json else sys.stdout,
                flush=True,
            )
        for query in queries:
            query.stop()
    if asked.json:
        print(json.dumps(table, indent=1))


if __name__ == "__main__":
    main()
