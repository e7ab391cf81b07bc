"""Catching up: runs a query with `Trigger.AvailableNow` repeatedly, until no rows are left to read.

Before Spark 4.2 a source does not learn the position of its query, so such a run is one batch, and a
scheduled job would fall behind for good.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from acker.errors import AckerError, ValidationError
from acker.ledger.settings.settings import check_number

RUNS = 10_000
_BATCH = "addBatch"
"""The duration that only the progress of a batch has."""
_starting: set[object] = set()


def run_until_caught_up(query: DataStreamWriter, *, most_runs: int = RUNS) -> int:
    """Starts a query with `Trigger.AvailableNow` repeatedly, until a run reads nothing.

        run_until_caught_up(lines.writeStream.foreachBatch(split).option("checkpointLocation", place))

    For scheduled jobs on Spark before 4.2, where a run is one batch of at most `max_rows`. On later versions
    the first run reads all present rows, and the second run the rows that arrived meanwhile.

    Args:
        query: The query, with a checkpoint, not started; its trigger is set.
        most_runs: 1 to 1,000,000. A stream that is written faster than the query reads is never caught up.

    Returns:
        The number of runs that have read something.

    Raises:
        ValidationError: `query` is no DataStreamWriter, or most_runs is out of range.
        AckerError: The last of `most_runs` runs still read something; or the query has no checkpoint, so a
            run does not continue after the one before.
        Exception: The error that ended a run, unchanged.
    """
    check_number(most_runs, "most_runs", 1, 1_000_000, int)
    if not (hasattr(query, "trigger") and hasattr(query, "start")):
        raise ValidationError(
            "run_until_caught_up: expected a DataStreamWriter, which DataFrame.writeStream gives, before its "
            f"start(), got {type(query).__name__}"
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
    """Return True if `run_until_caught_up` is starting a query in this process."""
    return bool(_starting)


@contextmanager
def _known() -> Iterator[None]:
    """Marks that a query is being started to catch up, while the block lasts."""
    marker = object()
    _starting.add(marker)
    try:
        yield
    finally:
        _starting.discard(marker)


def _run(query: StreamingQuery) -> list[int]:
    """Waits for the end of a run; returns the numbers of the batches that it has worked on."""
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
