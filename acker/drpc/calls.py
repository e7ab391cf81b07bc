"""Calls as others see them: their states, the steps that they wait for, and the workers of a function.

Terms: a slab is the trees that one call tracked together; a section is the steps of a line between two
gathers.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from acker.drpc import scripts, trees
from acker.drpc.registry import Description
from acker.errors import UnknownStream, UnknownSubscription
from acker.ledger import ids
from acker.ledger.calls.core import Core
from acker.ledger.outcomes import outcomes
from acker.ledger.slabs import masked, sections
from acker.ledger.trees import trees as ledger_trees
from acker.store import function_keys, keys
from acker.store.operation import Operation, Request, abreast, command
from acker.store.replies import milliseconds, pairs
from acker.streams.log import subscriptions
from acker.workers import leases

PAGE = 500
"""Most calls that one read takes."""
_CAUSE = 200


class Status(StrEnum):
    """The state of a call."""

    PENDING = "pending"
    ANSWERED = "answered"
    FAILED = "failed"
    TIMED_OUT = "timed out"


KINDS = {b"r": Status.ANSWERED, b"f": Status.FAILED, b"t": Status.TIMED_OUT}
"""The state of a call by the first byte of its stored answer (lua/drpc/answer_call.lua)."""


@dataclass(frozen=True, slots=True)
class Seen:
    """A call.

    Attributes:
        text: The result as JSON, or the reason of its absence.
        deadline: Unix seconds, of a pending call.
        steps: The steps of the first section that is not over, or was not at the deadline; of a failed call,
            the step that failed it. Empty if that is unknown.
        took: Seconds until the answer.
    """

    status: Status
    text: str = ""
    deadline: float = 0.0
    steps: tuple[str, ...] = ()
    took: float = 0.0


def ended(answer: bytes) -> Seen:
    """Returns a call by its stored answer (lua/drpc/answer_call.lua), or by the beginning of that answer."""
    took, _, rest = answer[1:].decode("utf-8", "replace").partition(" ")
    steps, _, text = rest.partition(" ")
    seconds = int(took) / 1000 if took.isascii() and took.isdigit() else 0.0
    names = tuple(steps.split(",")) if steps else ()
    return Seen(KINDS.get(answer[:1], Status.FAILED), text, steps=names, took=seconds)


def see(core: Core, function: Description, request: str) -> Operation[Seen | None]:
    """Returns a call of a function; None if the store has no such call, or has forgotten it."""
    keys_of_function = function_keys.Function(core.config.name, function.name)
    calls = [
        command("HEXISTS", keys_of_function.calls, request),
        command("ZSCORE", keys_of_function.deadlines, request),
    ]
    [waits, deadline] = yield calls
    # The answer last: it may have come in between.
    [answer] = yield [command("GET", keys_of_function.answer(request))]
    if answer is not None:
        return ended(answer)
    if not waits:
        return None
    tree = yield from trees.tree(core, function, request)
    steps = [] if tree is None else (yield from waits_for(core, function, tree.anchor))
    until = float(deadline) / 1000 if deadline else 0.0
    return Seen(Status.PENDING, deadline=until, steps=tuple(steps))


def waits_for(core: Core, function: Description, anchor: int) -> Operation[list[str]]:
    """Returns the steps of the first section of a request that is not over; none if all are."""
    anchors = np.array([anchor], np.int64)
    for section, steps in enumerate(function.sections(), 1):
        tree = yield from ledger_trees.tree(core, int(sections.within(anchors, section)[0]))
        if tree is not None and tree.state == "pending":
            return steps
    return []


def cancel(core: Core, function: Description, request: str) -> Operation[bool]:
    """Fails a call without answer; returns True if it had none. Workers of the function drop its rows."""
    [begun] = yield from begins(core, function, [request])
    if begun is None:
        return False
    [first] = yield [answer(core, function, request, "f it was cancelled", begun)]
    return bool(first)


def begins(core: Core, function: Description, requests: Sequence[str]) -> Operation[list[bytes | None]]:
    """Reads the records of calls without answer (lua/drpc/begin_call.lua); None for others."""
    if not requests:
        return []
    keys_of_function = function_keys.Function(core.config.name, function.name)
    [records] = yield [command("HMGET", keys_of_function.calls, *requests)]
    return [None if record is None else bytes(record).removeprefix(b"-") for record in records]


def begun_at(record: bytes) -> float:
    """Returns the begin of a call by its record of `begins` (Unix seconds); 0.0 if it has none."""
    when = record.rpartition(b" ")[2]
    return int(when) / 1000 if when.isdigit() else 0.0


def answer(
    core: Core,
    function: Description,
    request: str,
    text: str,
    begun: bytes = b"",
    anchor: str = "0",
    *,
    sure: bool = True,
) -> Request:
    """Returns a script call that answers a request without answer.

    Args:
        core: The ledger.
        function: The function.
        request: The request.
        text: See lua/drpc/answer_call.lua.
        begun: The record of the call, of `begins`: a late copy answers no later call of the request. A kept
            result needs none.
        anchor: The last tree of the request.
        sure: True also answers if the result is missing; otherwise the reply is then 2, and nothing is done.
    """
    names = function_keys.Function(core.config.name, function.name)
    last = function.steps[-1].name
    without = f"f{last} {last} gave no result", f"f{last} {last} gave two results"
    steps, _, reason = text[1:].partition(" ")
    why = f"{steps} {masked.cause(reason)[:_CAUSE]}"
    return scripts.answer_call(
        core.config, names, request, anchor, text, why, round(function.keep), without, sure, begun
    )


def overdue(core: Core, function: Description) -> Operation[int]:
    """Answers requests after their deadline; returns their number."""
    keys_of_function = function_keys.Function(core.config.name, function.name)
    [instant] = yield [Request(keys_of_function.deadlines, ["TIME"])]
    [due] = yield [
        command("ZRANGEBYSCORE", keys_of_function.deadlines, "-inf", milliseconds(instant), "LIMIT", 0, PAGE)
    ]
    if not due:
        return 0
    late = [request.decode("utf-8", "replace") for request in due]
    waiting = yield from _waiting(core, function, set(late))
    alone = yield from idle(core, function)
    answers, records = list[Request](), (yield from begins(core, function, late))
    for request, begun in zip(late, records, strict=True):
        steps = waiting.get(request)
        where = "no worker has begun it" if steps is None else "its steps are done, but it is not settled"
        where = f"it waited for {', '.join(steps)}" if steps else where
        if nobody := [name for name in steps or () if name in alone]:
            where += f"; without a worker: {', '.join(nobody)}"
        if begun is not None:
            text = f"t{','.join(steps or ())} {where}"
            answers.append(answer(core, function, request, text, begun))
    yield answers
    return len(late)


def _waiting(core: Core, function: Description, late: set[str]) -> Operation[dict[str, list[str]]]:
    """Returns the steps of each request's first section that is not over; none if all are over."""
    steps_of: dict[str, list[str]] = {}
    kept = yield from in_flight(core, function)
    for slab, names in kept.items():
        for index, name in enumerate(names):
            if name in late and len(steps_of) < PAGE:
                steps_of[name] = yield from waits_for(core, function, ids.anchor_at(slab, index))
    return steps_of


def in_flight(core: Core, function: Description) -> Operation[dict[bytes, list[str]]]:
    """Returns the slabs of kept requests, and the requests of each."""
    spout_keys, cursor = keys.Spout(core.config.name, function.name), b"0"
    requests: dict[bytes, list[str]] = {}
    while True:
        [(cursor, stored)] = yield [command("HSCAN", spout_keys.slabs, cursor, "COUNT", PAGE)]
        slabs = list(pairs(stored))
        names = yield from outcomes.message_ids(core, slabs)
        requests |= {slab: [one.decode("utf-8", "replace") for one in there] for slab, there in names.items()}
        if cursor == b"0":
            return requests


def workers(core: Core, function: Description) -> Operation[list[int]]:
    """Returns the number of living workers of each step, without steps of Spark jobs."""
    return (yield from abreast([_alive(core, function, place) for place in range(len(function.steps))]))


def _alive(core: Core, function: Description, place: int) -> Operation[int]:
    try:
        slot = yield from subscriptions.find(core, function.stream(place), function.steps[place].name)
    except (UnknownStream, UnknownSubscription):
        return 0
    return (yield from leases.alive(core, function.stream(place), slot))


def idle(core: Core, function: Description) -> Operation[set[str]]:
    """Returns the steps without a worker, except steps of Spark jobs, for which that is unknown."""
    alive = yield from workers(core, function)
    return {step.name for step, count in zip(function.steps, alive, strict=True) if not (step.spark or count)}
