"""Calls as others see them: what became of one, what it waits for, and who works on a function."""

from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from acker.drpc import scripts, trees
from acker.drpc.registry import Description
from acker.errors import UnknownStream, UnknownSubscription
from acker.ledger import ids
from acker.ledger.calls.core import Core
from acker.ledger.outcomes import outcomes
from acker.ledger.slabs import sections
from acker.ledger.trees import trees as ledger_trees
from acker.store import function_keys, keys
from acker.store.operation import Operation, Request, abreast, command
from acker.store.replies import milliseconds, pairs
from acker.streams.dead_letters import filters
from acker.streams.log import subscriptions
from acker.workers import leases

PAGE = 500
"""Calls that one look takes, at most."""
_CAUSE = 200


class Status(StrEnum):
    """What becomes of a call."""

    PENDING = "pending"
    ANSWERED = "answered"
    FAILED = "failed"
    TIMED_OUT = "timed out"


KINDS = {b"r": Status.ANSWERED, b"f": Status.FAILED, b"t": Status.TIMED_OUT}
"""How an answer that is stored begins, and what it says (lua/drpc/answer.lua)."""


@dataclass(frozen=True, slots=True)
class Seen:
    """A call. text: the result as JSON, or why it has none.

    deadline: Unix seconds, of one that is pending. steps: those of the first section that is not over, or was
    not when its time was over; of one that has failed, who has failed it. Empty where that is not known.
    took: seconds until it had its answer.
    """

    status: Status
    text: str = ""
    deadline: float = 0.0
    steps: tuple[str, ...] = ()
    took: float = 0.0


def ended(answer: bytes) -> Seen:
    """An answer as it is stored (lua/drpc/answer.lua), or the beginning of one."""
    took, _, rest = answer[1:].decode("utf-8", "replace").partition(" ")
    steps, _, text = rest.partition(" ")
    seconds = int(took) / 1000 if took.isascii() and took.isdigit() else 0.0
    names = tuple(steps.split(",")) if steps else ()
    return Seen(KINDS.get(answer[:1], Status.FAILED), text, steps=names, took=seconds)


def see(core: Core, what: Description, request: str) -> Operation[Seen | None]:
    """A call of a function; None where it is not known (any more)."""
    own = function_keys.Function(core.config.name, what.name)
    calls = [command("HEXISTS", own.calls, request), command("ZSCORE", own.deadlines, request)]
    [waits, deadline] = yield calls
    [answer] = yield [command("GET", own.answer(request))]  # after: it may have been answered in between
    if answer is not None:
        return ended(answer)
    if not waits:
        return None
    tree = yield from trees.tree(core, what, request)
    steps = [] if tree is None else (yield from waits_for(core, what, tree.anchor))
    until = float(deadline) / 1000 if deadline else 0.0
    return Seen(Status.PENDING, deadline=until, steps=tuple(steps))


def waits_for(core: Core, what: Description, anchor: int) -> Operation[list[str]]:
    """The steps of the first section of a request that is not over; none where all are."""
    own = np.array([anchor], np.int64)
    for section, steps in enumerate(what.sections(), 1):
        tree = yield from ledger_trees.tree(core, int(sections.within(own, section)[0]))
        if tree is not None and tree.state == "pending":
            return steps
    return []


def cancel(core: Core, what: Description, request: str) -> Operation[bool]:
    """Fails a call that has no answer yet; returns whether it had none. Who works on it drops its rows."""
    [first] = yield [answer(core, what, request, "f it was cancelled")]
    return bool(first)


def answer(
    core: Core, what: Description, request: str, text: str, anchor: str = "0", *, sure: bool = True
) -> Request:
    """Answers a request, where it has no answer. text: the answer, as lua/drpc/answer.lua takes it.

    sure: also where a result is asked for that is not there; else the reply is 2 then, and nothing is done.
    """
    own = function_keys.Function(core.config.name, what.name)
    last = what.steps[-1].name
    without = f"f{last} {last} gave no result", f"f{last} {last} gave two results"
    steps, _, reason = text[1:].partition(" ")
    why = f"{steps} {filters.cause(reason)[:_CAUSE]}"
    return scripts.answer(core.config, own, request, anchor, text, why, round(what.keep), without, sure)


def overdue(core: Core, what: Description) -> Operation[int]:
    """Answers requests whose time is over; returns how many there were."""
    own = function_keys.Function(core.config.name, what.name)
    [instant] = yield [Request(own.deadlines, ["TIME"])]
    [found] = yield [command("ZRANGEBYSCORE", own.deadlines, "-inf", milliseconds(instant), "LIMIT", 0, PAGE)]
    if not found:
        return 0
    late = [request.decode("utf-8", "replace") for request in found]
    waiting = yield from _waiting(core, what, set(late))
    alone = yield from idle(core, what)
    answers = []
    for request in late:
        steps = waiting.get(request)
        where = "nobody has begun it" if steps is None else "its steps are done, and nobody has settled it"
        where = f"it waited for {', '.join(steps)}" if steps else where
        if nobody := [name for name in steps or () if name in alone]:
            where += f", and nobody works on {', '.join(nobody)}"
        answers.append(answer(core, what, request, f"t{','.join(steps or ())} {where}"))
    yield answers
    return len(late)


def _waiting(core: Core, what: Description, late: set[str]) -> Operation[dict[str, list[str]]]:
    """What requests wait for: the steps of the first section that is not over; none where all are."""
    found: dict[str, list[str]] = {}
    kept = yield from in_flight(core, what)
    for slab, names in kept.items():
        for index, name in enumerate(names):
            if name in late and len(found) < PAGE:
                found[name] = yield from waits_for(core, what, ids.anchor_at(slab, index))
    return found


def in_flight(core: Core, what: Description) -> Operation[dict[bytes, list[str]]]:
    """The slabs of requests that are kept, and the requests of each."""
    own, cursor = keys.Spout(core.config.name, what.name), b"0"
    found: dict[bytes, list[str]] = {}
    while True:
        [(cursor, stored)] = yield [command("HSCAN", own.slabs, cursor, "COUNT", PAGE)]
        slabs = list(pairs(stored))
        names = yield from outcomes.message_ids(core, slabs)
        found |= {slab: [one.decode("utf-8", "replace") for one in there] for slab, there in names.items()}
        if cursor == b"0":
            return found


def workers(core: Core, what: Description) -> Operation[list[int]]:
    """How many workers of each step count as alive. Of a Spark job's step there are none."""
    return (yield from abreast([_alive(core, what, place) for place in range(len(what.steps))]))


def _alive(core: Core, what: Description, place: int) -> Operation[int]:
    try:
        slot = yield from subscriptions.find(core, what.stream(place), what.steps[place].name)
    except (UnknownStream, UnknownSubscription):
        return 0
    return (yield from leases.alive(core, what.stream(place), slot))


def idle(core: Core, what: Description) -> Operation[set[str]]:
    """The steps that nobody works on. Of a Spark job's step it is not known: it is not among them."""
    alive = yield from workers(core, what)
    return {one.name for one, count in zip(what.steps, alive, strict=True) if not (one.spark or count)}
