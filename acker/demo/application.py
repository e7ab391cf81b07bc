"""What the demo's two Spark applications have in common: their arguments, their session, and how they end."""

import argparse
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from types import FrameType

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from acker.demo.children import READY
from acker.spark import tuned

TRIGGER = "200 milliseconds"
_WAITING = ("Waiting for data to arrive", "Waiting for next trigger")
_PAUSE = 0.25
_STARTS = 4


def arguments(description: str | None) -> argparse.ArgumentParser:
    """The arguments of both applications."""
    parser = argparse.ArgumentParser(description=(description or "").split("\n")[0])
    url = os.environ.get("ACKER_URL")
    parser.add_argument("--url", default=url, required=not url, help="the store (default: ACKER_URL)")
    parser.add_argument("--topology", required=True, help="its topology; must be there")
    parser.add_argument("--checkpoint", required=True, help="directory of the query's checkpoint")
    parser.add_argument("--master", default="local[2]", help="Spark's master (default: %(default)s)")
    return parser


def session(name: str, master: str) -> SparkSession:
    """A Spark session for a small streaming job: no web interface, quiet, nothing shuffled."""
    return (
        tuned(SparkSession.builder, local_checkpoints=True, pip_workers=master.startswith("local["))
        .appName(f"acker demo: {name}")
        .master(master)
        .config("spark.ui.enabled", False)
        .config("spark.log.level", "ERROR")
        .config("spark.sql.shuffle.partitions", 2)
        .config("spark.sql.streaming.metricsEnabled", False)
        .getOrCreate()
    )


def run(spark: SparkSession, start: Callable[[], StreamingQuery]) -> None:
    """Starts a query, says when it is ready, and waits for SIGTERM, which ends it. Raises the query's error.

    start: `DataStreamWriter.start`. Spark gives the Python worker that plans batches 10 seconds to start,
    which a busy machine may not keep: one that fails before its first look at the stream is started again.
    """
    query, starts = start(), 1
    while not _looks(query) and starts < _STARTS:
        query, starts = start(), starts + 1
    _warm_up(spark)
    asked: list[int] = []

    def stop(number: int, frame: FrameType | None) -> None:
        asked.append(number)

    signal.signal(signal.SIGTERM, stop)
    sys.stdout.write(f"{READY}\n")
    sys.stdout.flush()
    while not asked and not query.awaitTermination(_PAUSE):  # type: ignore[arg-type] # takes fractions, too
        pass
    query.stop()


def _looks(query: StreamingQuery) -> bool:
    """Waits until a query has looked at its stream; False where it has failed."""
    while query.status["message"] not in _WAITING:
        if not query.isActive:
            return False
        time.sleep(_PAUSE)
    return True


def _warm_up(spark: SparkSession) -> None:
    """Starts Spark's Python workers, which the first batch would have to wait for."""
    spark.range(0, 1000, 1, spark.sparkContext.defaultParallelism).mapInArrow(_same, "id long").toArrow()


def _same(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    from acker.spark import bolts, source  # noqa: F401 - what the workers will need

    yield from batches
