"""Stopping queries: a commit that waits, as for the end of a pause, ends when its query is stopped.

Spark commits a query that writes by itself in a process that cannot ask for the query. The listener's process
can: it deletes the verdict on the query's run, which the commit looks for while it waits.
"""

import time
from collections.abc import Callable
from functools import partial
from typing import Any

from pyspark.sql import SparkSession

from acker.errors import AckerError
from acker.ledger.client import Ledger
from acker.spark.queries import plan_check
from acker.spark.queries.microbatches import MicroBatch
from acker.spark.queries.plan_check import Verdict

_LOOK, _STOPS = 1.0, 3
"""Seconds between two looks for a stop, and the looks that find it before it counts as one that waits."""


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


def sleep_of_writer(ledger: Ledger, at: MicroBatch, verdict: Verdict | None) -> Callable[[float], object]:
    """Returns a function that waits for some seconds in a commit, and raises if its query is stopped.

    Args:
        ledger: The ledger.
        at: The batch.
        verdict: The verdict on the query's run; without one, as on Spark Connect, the wait goes on.
    """

    def sleep(seconds: float) -> None:
        time.sleep(seconds)
        if ledger.run(plan_check.read(ledger.core, at)) is None:  # it also keeps the verdict
            raise AckerError(
                f"query {at.query} was stopped while its commit waited, or the store has lost its notes: it "
                "commits at its next start"
            )

    return time.sleep if verdict is None else sleep


def watch(is_active: Callable[[], bool], is_over: Callable[[], bool], forget: Callable[[], bool]) -> None:
    """Waits for the end of a query; forgets its verdict if a stop of it waits for its commit.

    Args:
        is_active: Returns False from the stop of the query on.
        is_over: Returns True after the end of the query.
        forget: Deletes the verdict; returns False if that is to be done again.
    """
    stops = 0
    while True:
        time.sleep(_LOOK)
        if is_over():
            return
        stops += not is_active()
        if stops >= _STOPS and forget():
            return
