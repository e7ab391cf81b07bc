"""Common parts of the demo's Spark applications: their arguments, their session, and their end."""

import argparse
import os
import signal
import sys
import time
from types import FrameType

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from acker.cli.demo.processes import READY
from acker.spark import tuned

_WAITING = ("Waiting for data to arrive", "Waiting for next trigger")
_PAUSE = 0.25
_STARTS = 4


def arguments(description: str | None) -> argparse.ArgumentParser:
    """The arguments of both applications."""
    parser = argparse.ArgumentParser(description=(description or "").split("\n")[0])
    url = os.environ.get("ACKER_URL")
    parser.add_argument("--url", default=url, required=not url, help="the store (default: ACKER_URL)")
    parser.add_argument("--topology", required=True, help="its topology; must be there for an application")
    parser.add_argument("--checkpoint", help="directory of the query's checkpoint")
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


def run(writer: DataStreamWriter) -> None:
    """Starts a query, says when it is ready, and waits for SIGTERM, which ends it. Raises the query's error.

    Spark gives the Python worker that plans batches 10 seconds to start, which a busy machine may not keep:
    a query that fails before its first look at the stream is started again.
    """
    writer = writer.trigger(processingTime="200 milliseconds")
    query, starts = writer.start(), 1
    while not _looks(query) and starts < _STARTS:
        query, starts = writer.start(), starts + 1
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
    while not query.status["isDataAvailable"] and query.status["message"] not in _WAITING:
        if not query.isActive:
            return False
        time.sleep(_PAUSE)
    return True
