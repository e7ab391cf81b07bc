"""Stopping queries: a wait in the function of `foreachBatch` ends when its query is stopped."""

import time
from collections.abc import Callable
from functools import partial
from typing import Any

from pyspark.sql import SparkSession

from acker.errors import AckerError
from acker.spark.queries.microbatches import MicroBatch


def sleep_of(spark: SparkSession, at: MicroBatch, root: SparkSession | None) -> Callable[[float], object]:
    """Returns a function that waits for some seconds in a batch, and raises if its query is stopped.

    The thread of the query waits, which Spark interrupts at a stop: so Spark takes the error for that stop.

    Args:
        spark: The session of the batch.
        at: The batch.
        root: On Spark Connect, the session that started the query.
    """
    if hasattr(spark, "sparkContext"):
        thread: Any = spark.sparkContext._jvm.java.lang.Thread  # type: ignore[union-attr]
        return lambda seconds: thread.sleep(round(1000 * seconds))
    return partial(_sleep, root, at.query)


def _sleep(root: SparkSession | None, query: str, seconds: float) -> None:
    time.sleep(seconds)
    running = root.streams.get(query) if root is not None else None
    if running is None or not running.isActive:
        raise AckerError(f"query {query} was stopped while its commit waited: it commits at its next start")
