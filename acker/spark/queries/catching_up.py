"""Catching up: a query runs with `Trigger.AvailableNow` again and again, until nothing is behind.

Before Spark 4.2 a source does not learn where its query is, so such a run is one batch, and a job on a
schedule would fall behind for good.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from acker.errors import AckerError, ValidationError
from acker.ledger.settings.settings import check_number

RUNS = 10_000
_BATCH = "addBatch"
"""The duration that Spark's progress has for each batch, and for nothing else."""
_starting: set[object] = set()


def run_until_caught_up(query: DataStreamWriter, *, most_runs: int = RUNS) -> int:
    """Starts a query with `Trigger.AvailableNow` again and again, until a run of it finds nothing.

        run_until_caught_up(lines.writeStream.foreachBatch(split).option("checkpointLocation", place))

    For jobs on a schedule, on Spark before 4.2: there one run is one batch of at most `max_rows`. On later
    versions the first run takes all that is there, and the second what has come meanwhile.

    Args:
        query: the query, with a checkpoint, not started; its trigger is set.
        most_runs: 1 to 1,000,000. A stream that is written faster than the query reads is never caught up.

    Returns:
        The number of runs that have worked on something.

    Raises:
        ValidationError: `query` is no DataStreamWriter, or most_runs no such number.
        AckerError: the last of `most_runs` runs still found something; or the query has no checkpoint, so
            that a run does not go on where the one before has ended.
        Exception: the error that ended a run, unchanged.
    """
    check_number(most_runs, "most_runs", 1, 1_000_000, int)
    if not (hasattr(query, "trigger") and hasattr(query, "start")):
        raise ValidationError(
            "run_until_caught_up: expected a query that is not started, as of DataFrame.writeStream, got "
            f"{type(query).__name__}"
        )
    query = query.trigger(availableNow=True)
    last = -1
    for done in range(most_runs):
        with _known():
            started = query.start()
        batches = _run(started)
        if not batches:
            return done
        if batches[0] <= last:
            raise AckerError(
                f"run_until_caught_up: run {done + 1} began anew with batch {batches[0]}, though the one "
                f"before ended with batch {last}: give the query a checkpointLocation to go on from"
            )
        last = batches[-1]
    raise AckerError(
        f"run_until_caught_up: the query still found something in run {most_runs:,}, the last of most_runs. "
        "What it has done is committed. Call it again, or raise max_rows"
    )


def under_way() -> bool:
    """True if a query is just now started by `run_until_caught_up`."""
    return bool(_starting)


@contextmanager
def _known() -> Iterator[None]:
    """While the block lasts, a query is started to catch up."""
    own = object()
    _starting.add(own)
    try:
        yield
    finally:
        _starting.discard(own)


def _run(query: StreamingQuery) -> list[int]:
    """Waits for the end of a run; returns the numbers of the last batches that it has worked on."""
    try:
        query.awaitTermination()
        progress = query.recentProgress
    finally:
        query.stop()
    if not progress:
        raise AckerError(
            "run_until_caught_up: Spark has kept no progress of the run, which tells whether it found "
            "something. Set spark.sql.streaming.numRecentProgressUpdates to its default"
        )
    return [int(one["batchId"]) for one in progress if _BATCH in one["durationMs"]]
