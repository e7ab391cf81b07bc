"""How far calls are: calls without answer, the latest answers, and each step of a call."""

from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

from acker.drpc import calls, trees
from acker.drpc.calls import Status
from acker.drpc.registry import Description
from acker.inspect.lines import overview
from acker.inspect.lines.overview import Gathered, RequestSeen
from acker.inspect.trees import failures
from acker.inspect.trees.failure import Failure
from acker.ledger.calls.core import Core
from acker.ledger.fields import HIDDEN, Id, Instant, Name, Named, Seconds
from acker.store import function_keys
from acker.store.operation import Operation, Request, command
from acker.store.records import Bounds
from acker.store.replies import seconds

MOST = 500
"""Calls in a list."""
_HEAD = 2_000
"""Bytes of an answer that are read to tell how it ended."""


class State(StrEnum):
    """How far a step is with a call.

    working: its section is the first that is not over. no workers: as working, but none of its workers is
    alive, so that what there is for it waits; of a Spark job's step that is not known, and it is working.
    waiting: the request's group is not done with a section before. failed: it has failed the call, or was not
    done when its time was over. dropped: the call ended before it was done.
    """

    FINISHED = "finished"
    WORKING = "working"
    NO_WORKERS = "no workers"
    WAITING = "waiting"
    FAILED = "failed"
    DROPPED = "dropped"


@dataclass(frozen=True, slots=True)
class CallHead:
    """A call, in short."""

    request: str
    status: Status
    at: Annotated[
        Instant | None,
        "When it was begun, of a call that is pending; else when it was answered. null where that is not "
        "known.",
    ]
    deadline: Annotated[Instant | None, "Of a call that is pending."] = None
    took: Annotated[Seconds | None, "From the call to its answer."] = None
    reason: Annotated[str, "Why it had no result, the beginning of it; anybody's text."] = ""
    steps: Annotated[
        tuple[str, ...], "Who has failed it, or which it waited for when its time was over."
    ] = ()


@dataclass(frozen=True, slots=True)
class StepSeen:
    """The progress of a step with a call."""

    name: Name
    section: Annotated[int, Bounds(1, 8), "Of the function's line."]
    state: Annotated[
        State,
        "`working`: its section is the first that is not over; `no workers`: the same, but none of its "
        "workers is alive; `waiting`: the group is not done with a section before. `failed`: it has failed "
        "the call, or was not done when its time was over; `dropped`: the call ended before it was done.",
    ]
    since: Annotated[
        Instant | None,
        "From when on it had all that it works on, or the call was begun (in the first section); null where "
        "that is not known, or not yet.",
    ] = None
    gathered: Annotated[
        tuple[Gathered, ...],
        "What waits for it until the steps before it are done, of all requests of the group.",
    ] = ()


@dataclass(frozen=True, slots=True)
class Progress:
    """A call, and its steps in their order. seen: its trees, while the ledger knows them."""

    head: Annotated[CallHead, Named("call")]
    steps: tuple[StepSeen, ...]
    seen: Annotated[RequestSeen | None, HIDDEN] = None

    @property
    def anchor(self) -> Annotated[Id | None, "Of its tree in the first section; null where not known."]:
        """The anchor of its tree in the first section."""
        return None if self.seen is None else self.seen.id


def pending(core: Core, what: Description, most: int = 100) -> Operation[list[CallHead]]:
    """Calls without answer, those first whose time is over first: at most `most` of them, up to 500."""
    own = function_keys.Function(core.config.name, what.name)
    [found] = yield [
        command("ZRANGEBYSCORE", own.deadlines, "-inf", "+inf", "WITHSCORES", "LIMIT", 0, min(most, MOST))
    ]
    if not found:
        return []
    scored = found if isinstance(found[0], list | tuple) else list(zip(found[::2], found[1::2], strict=True))
    [begun] = yield [command("HMGET", own.calls, *(request for request, _ in scored))]
    return [
        CallHead(_text(request), Status.PENDING, _begun(who), float(deadline) / 1000)
        for (request, deadline), who in zip(scored, begun, strict=True)
        if who is not None  # answered in between
    ]


def answered(core: Core, what: Description, most: int = 100) -> Operation[list[CallHead]]:
    """The calls that were answered last, the latest first, of those whose answers are kept."""
    own = function_keys.Function(core.config.name, what.name)
    [entries] = yield [command("XREVRANGE", own.answers, "+", "-", "COUNT", min(most, MOST))]
    named = [(_text(fields[1]), int(entry.split(b"-")[0]) / 1000) for entry, fields in entries]
    heads = yield [command("GETRANGE", own.answer(request), 0, _HEAD) for request, _ in named]
    return [_ended(request, head, at) for (request, at), head in zip(named, heads, strict=True) if head]


def _ended(request: str, stored: bytes, at: float | None) -> CallHead:
    found = calls.ended(stored)
    reason = "" if found.status is Status.ANSWERED else found.text
    return CallHead(request, found.status, at, None, found.took, reason, found.steps)


def _begun(who: bytes) -> float | None:
    """When a call was begun (lua/drpc/call.lua)."""
    at = who.rpartition(b" ")[2]
    return int(at) / 1000 if at.isdigit() and b" " in who else None


def _text(name: bytes) -> str:
    return name.decode("utf-8", "replace")


def follow(core: Core, what: Description, request: str) -> Operation[Progress | None]:
    """A call of a function, and how far each step is with it; None where it is not known (any more)."""
    own = function_keys.Function(core.config.name, what.name)
    [who, deadline] = yield [
        command("HGET", own.calls, request),
        command("ZSCORE", own.deadlines, request),
    ]
    [stored, left, instant] = yield [  # after: it may have been answered in between
        command("GETRANGE", own.answer(request), 0, _HEAD),
        command("TTL", own.answer(request)),
        Request(own.answers, ["TIME"]),
    ]
    if stored:
        at = seconds(instant) - max(0.0, round(what.keep) - left) if left >= 0 else None
        head = _ended(request, stored, at)
        return Progress(head, tuple(_over(what, head)))
    if who is None:
        return None
    head = CallHead(request, Status.PENDING, _begun(who), float(deadline) / 1000 if deadline else None)
    last = yield from trees.tree(core, what, request)
    idle = yield from calls.idle(core, what)
    if last is None:
        return Progress(head, tuple(_before(what, idle)))
    if isinstance((yield from failures.how_ended(core, last)), Failure):
        return Progress(head, tuple(_before(what, idle)))  # who works on it tries it again, or answers
    seen = yield from overview.request(core, last.anchor)
    return Progress(head, tuple(_steps(what, seen, idle)), seen)


def _over(what: Description, head: CallHead) -> list[StepSeen]:
    """The steps of a call that has its answer."""
    sections = what.sections()
    stopped = [place for place, steps in enumerate(sections) if set(steps) & set(head.steps)]
    found = []
    for place, steps in enumerate(sections):
        for name in steps:
            if head.status is Status.ANSWERED or (stopped and place < min(stopped)):
                state = State.FINISHED
            else:
                state = State.FAILED if name in head.steps else State.DROPPED
            found.append(StepSeen(name, place + 1, state))
    return found


def _before(what: Description, idle: Collection[str]) -> list[StepSeen]:
    """The steps of a call whose trees were not found."""
    return [
        StepSeen(name, place, State.NO_WORKERS if place == 1 and name in idle else State.WAITING)
        for place, steps in enumerate(what.sections(), 1)
        for name in steps
    ]


def _steps(what: Description, seen: RequestSeen, idle: Collection[str]) -> list[StepSeen]:
    """The steps of a call by its trees. idle: steps that nobody works on."""
    found, before = list[StepSeen](), True
    sections = list(seen.sections)
    for place, steps in enumerate(what.sections()):
        own = sections[place] if place < len(sections) else None
        over = own is not None and own.over
        state = State.FINISHED if over and before else State.WORKING if before else State.WAITING
        earlier = sections[place - 1] if place else None
        first = sections[0].tree
        since = earlier.released_at if earlier else first.tracked_at if first else None
        for name in steps:
            waits = earlier.gathered if earlier and name == steps[0] else ()
            alone = state is State.WORKING and name in idle
            found.append(StepSeen(name, place + 1, State.NO_WORKERS if alone else state, since, waits))
        before = before and own is not None and own.passed
    return found
