"""Answers: whoever works on a function settles its requests, and sees to those whose time is over.

The store has the truth: a request that is answered, or that nobody waits for, is not answered again. So any
number may do this side by side, and may die at any point.
"""

import logging
import threading
import time
from collections.abc import Sequence
from functools import partial

import pyarrow as pa  # noqa: TID251 - rows travel as Arrow, from and to Spark and plain Python

from acker.drpc import calls, keeping
from acker.drpc.registry import Description
from acker.errors import AckerError
from acker.ledger import loops
from acker.ledger.calls.core import Core
from acker.ledger.client import Ledger
from acker.ledger.loops import Threads
from acker.ledger.outcomes.outcomes import READ_ENTRIES, OutcomeReader
from acker.ledger.trees import trees
from acker.store.operation import Operation
from acker.streams.spouts import settler
from acker.streams.spouts.backoff import SettleProgress
from acker.workers.wakeups import Bell

_PAUSE = 0.2
_LOOK = 1.0
_log = logging.getLogger(__name__)


def run(ledger: Ledger, what: Description, stop: threading.Event) -> None:
    """Answers the requests of a function until `stop` is set. A store that is away is waited for."""
    ended = threading.Event()
    bell = Bell(ledger.store, ended)
    woken = bell.listen(OutcomeReader(ledger.core, what.name).keys())
    ringing = Threads(ended)
    ringing.start(bell.run)
    readings: dict[str, SettleProgress] = {}
    looked = kept = recovered = 0.0

    def step() -> float:
        nonlocal looked, kept, recovered
        often, now = ledger.config.message_timeout / 4, time.monotonic()
        answered, due = partial(answer_outcomes, ledger, what), now - looked >= min(_LOOK, often)
        done = settler.settle(ledger, what.name, answered, steps=1, readings=readings, claimed=not due).all
        # What comes from now on rings the bell; what was there and was not read yet does not.
        reading = readings.get(what.name)
        more = done >= READ_ENTRIES or (not done and reading is not None and reading.more)
        if due:
            looked = now
            late = ledger.run(calls.overdue(ledger.core, what))
            if late or now - kept >= often:
                kept = now
                ledger.run(keeping.look_after(ledger.core, what))
        if now - recovered >= 2 * often:
            recovered = now
            settler.recover(ledger, what.name)
        return 0.0 if more else min(_PAUSE, often)

    waits = f"answers of function {what.name} wait"
    pause = min(_PAUSE, ledger.config.message_timeout / 4)
    loops.run(stop, step, log=_log, what=waits, pause=pause, longest=_LOOK, woken=woken)
    bell.end()
    ringing.end()


def answer_outcomes(ledger: Ledger, what: Description, table: pa.Table) -> None:
    """Answers the requests whose outcomes are final.

    Raises AckerError where the store has lost one since it was read, with the result: it comes again.
    """
    found: list[tuple[int, str, str]] = []
    columns = ("final", "message_id", "reason", "status", "step", "anchor")
    rows = zip(*(table.column(name).to_pylist() for name in columns), strict=True)
    for final, name, reason, status, step, anchor in rows:
        if final:
            request = name.decode("utf-8", "replace")
            why = _without_section(what, reason or status)
            text = "r" if status == "acked" else f"f{step} {why}"
            found.append((anchor, request, text))
    ledger.run(_answer(ledger.core, what, found))


def _answer(core: Core, what: Description, found: Sequence[tuple[int, str, str]]) -> Operation[None]:
    if not found:
        return
    replies = yield [
        calls.answer(core, what, request, text, str(anchor), sure=False) for anchor, request, text in found
    ]
    without = [one for one, reply in zip(found, replies, strict=True) if reply == 2]
    if not without:
        return
    found_in = yield from trees.trees_at(core, [anchor for anchor, _, _ in without])
    if any(one.state == "pending" for one in found_in):
        raise AckerError("the store was set back to before a result that it had: it is worked out again")
    yield [calls.answer(core, what, request, text, str(anchor)) for anchor, request, text in without]


def _without_section(what: Description, reason: str) -> str:
    """Why a call failed, for who has asked: the step is named, and sections mean nothing to them."""
    for place in range(len(what.steps)):
        reason = reason.removeprefix(f"in section {what.stream(place)}: ")
    return reason
