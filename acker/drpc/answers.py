"""Answers: the workers of a function settle its requests, and end calls after their deadline.

The store has the truth: a request that is answered, or has no caller, is not answered again. So any number of
processes may do this side by side, and may die at any point.

Terms: a section is the steps of a line between two gathers.
"""

import logging
import threading
import time
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import pyarrow as pa  # noqa: TID251 - rows travel as Arrow, from and to Spark and plain Python

from acker.drpc import calls, keeping
from acker.drpc.registry import Description
from acker.errors import AckerError
from acker.ledger.calls.core import Core
from acker.ledger.client import Ledger
from acker.ledger.loops import Threads
from acker.ledger.outcomes.outcomes import READ_ENTRIES, OutcomeReader
from acker.ledger.trees import trees
from acker.store import loops
from acker.store.loops import Pace
from acker.store.operation import Operation
from acker.streams.spouts import settler
from acker.streams.spouts.backoff import SettleProgress
from acker.workers.wakeups import Bell

_PAUSE = 0.2
_LOOK = 1.0
_log = logging.getLogger(__name__)


class _Answer(NamedTuple):
    """The answer of a request by its outcome. tracked_at: the track of its last tree (Unix seconds)."""

    anchor: int
    request: str
    text: str
    tracked_at: float

    def precedes(self, begun_at: float, function: Description) -> bool:
        """Returns True if the outcome is of an earlier call of the request than the one begun at that time.

        The answer of the earlier call was kept in between. Half of that time allows for the clocks of two
        nodes of a cluster.
        """
        return begun_at - self.tracked_at > function.keep / 2


def run(ledger: Ledger, function: Description, stop: threading.Event) -> None:
    """Answers the requests of a function until `stop` is set. Waits for an unavailable store."""
    ended = threading.Event()
    bell = Bell(ledger.store, ended)
    woken = bell.listen(OutcomeReader(ledger.core, function.name).keys())
    ringing = Threads(ended)
    ringing.start(bell.run)
    readings: dict[str, SettleProgress] = {}
    polled = kept = recovered = 0.0

    def step() -> float:
        nonlocal polled, kept, recovered
        often, now = ledger.config.message_timeout / 4, time.monotonic()
        answered, due = partial(answer_outcomes, ledger, function), now - polled >= min(_LOOK, often)
        done = settler.settle(
            ledger, function.name, answered, steps=1, readings=readings, claimed=not due
        ).all
        # New outcomes ring the bell; outcomes from before, not read yet, do not.
        reading = readings.get(function.name)
        more = done >= READ_ENTRIES or (not done and reading is not None and reading.more)
        if due:
            polled = now
            late = ledger.run(calls.overdue(ledger.core, function))
            if late or now - kept >= often:
                kept = now
                ledger.run(keeping.look_after(ledger.core, function))
        if now - recovered >= 2 * often:
            recovered = now
            settler.recover(ledger, function.name)
        return 0.0 if more else min(_PAUSE, often)

    waits = f"answers of function {function.name} wait"
    pause = min(_PAUSE, ledger.config.message_timeout / 4)
    loops.run(stop, step, Pace(_log, waits, pause, _LOOK), woken=woken)
    bell.end()
    ringing.end()


def answer_outcomes(ledger: Ledger, function: Description, table: pa.Table) -> None:
    """Answers the requests whose outcomes are final.

    Raises AckerError if the store has since lost an outcome, and with it the result: it comes again.
    """
    results: list[_Answer] = []
    columns = ("final", "message_id", "reason", "status", "step", "anchor", "at", "latency")
    rows = zip(*(table.column(name).to_pylist() for name in columns), strict=True)
    for final, name, reason, status, step, anchor, at, latency in rows:
        if final:
            request = name.decode("utf-8", "replace")
            why = _without_section(function, reason or status)
            text = "r" if status == "acked" else f"f{step} {why}"
            results.append(_Answer(anchor, request, text, at.timestamp() - latency))
    ledger.run(_answer(ledger.core, function, results))


def _answer(core: Core, function: Description, outcomes: Sequence[_Answer]) -> Operation[None]:
    if not outcomes:
        return
    acked = [outcome for outcome in outcomes if outcome.text == "r"]
    failed = [outcome for outcome in outcomes if outcome.text != "r"]
    replies = yield [
        calls.answer(core, function, one.request, one.text, anchor=str(one.anchor), sure=False)
        for one in acked
    ]
    without = [outcome for outcome, reply in zip(acked, replies, strict=True) if reply == 2]
    if not without and not failed:
        return
    found_in = yield from trees.trees_at(core, [outcome.anchor for outcome in without])
    if any(tree.state == "pending" for tree in found_in):
        raise AckerError("the store has lost a result: the steps work out the request again")
    left = [*failed, *without]
    records = yield from calls.begins(core, function, [outcome.request for outcome in left])
    yield [
        calls.answer(core, function, outcome.request, outcome.text, begun, str(outcome.anchor))
        for outcome, begun in zip(left, records, strict=True)
        if begun is not None and not outcome.precedes(calls.begun_at(begun), function)
    ]


def _without_section(function: Description, reason: str) -> str:
    """Returns the reason of a failed call for its caller: the step is named, not the section."""
    for place in range(len(function.steps)):
        reason = reason.removeprefix(f"in section {function.stream(place)}: ")
    return reason
