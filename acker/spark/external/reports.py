"""Reports of tasks to their driver, by an accumulator: Spark adds reports of successful attempts only.

A stage that Spark runs again reports again. So a driver compares what an own partition has reported: two
different lists of segments mean that rows were made twice, and nobody knows which of them a sink has.
"""

import secrets
import time
from collections.abc import Sequence
from threading import Lock
from typing import Any, NamedTuple

from pyspark import SparkContext, TaskContext
from pyspark.accumulators import Accumulator, AccumulatorParam

_STATUS_SECONDS = 30.0
_PAUSE = 0.01


class Report(NamedTuple):
    """The report of a task that has stamped all rows of a partition.

    Attributes:
        call: The call of `emit` that it works for.
        stage: Spark's stage.
        own: The number of the partition among the stamped rows.
        segments: Each segment's record, and when it was begun.
        rows: All rows.
        unanchored: Rows that have lost their anchors.
        treeless: Rows that have 0 for an anchor.
    """

    call: str
    stage: int
    own: int
    segments: tuple[tuple[str, int], ...]
    rows: int
    unanchored: int
    treeless: int


_waiting: dict[str, list[Report]] = {}
"""The reports of calls that this driver works on."""
_lock = Lock()


class _Reports(AccumulatorParam[list[Report]]):
    """Gathers reports in a task; in a driver gives each to its call, and drops late ones."""

    def zero(self, value: list[Report]) -> list[Report]:
        return []

    def addInPlace(self, value1: list[Report], value2: list[Report]) -> list[Report]:  # noqa: N802 - Spark's
        if TaskContext.get() is not None:
            return [*value1, *value2]
        with _lock:
            for report in value2:
                call = _waiting.get(report[0])
                if call is not None:
                    call.append(Report(*report))
        return []


_accumulator: list[tuple[SparkContext, Accumulator[list[Report]]]] = []


def begin(context: SparkContext) -> tuple[str, "Accumulator[list[Report]]"]:
    """Begins a call; returns its name, and the accumulator for its tasks. One serves all calls."""
    with _lock:
        if not _accumulator or _accumulator[0][0] is not context:
            _accumulator[:] = [(context, context.accumulator(list[Report](), _Reports()))]
        call = secrets.token_hex(8)
        _waiting[call] = []
        return call, _accumulator[0][1]


def end(call: str) -> list[Report]:
    """Ends a call; returns what its tasks have reported so far."""
    with _lock:
        return _waiting.pop(call, [])


def tasks(context: SparkContext, stages: Sequence[int]) -> int | None:
    """The most tasks of stages; None if Spark does not know one any more."""
    tracker: Any = context.statusTracker()
    most, until = 0, time.monotonic() + _STATUS_SECONDS
    for stage in stages:
        while (info := tracker.getStageInfo(stage)) is None:
            if time.monotonic() > until:  # Spark hands its own news on in a queue
                return None
            time.sleep(_PAUSE)
        most = max(most, int(info.numTasks))
    return most
