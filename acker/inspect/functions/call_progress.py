"""Progress of calls: calls without answer, the latest answers, and each step of a call.

Terms: a tree is all that comes of one record; a section is the steps of a line between two gathers; a group
is requests of a line that were tracked together.
"""

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
    """The state of a step for a call.

    working: its section is the first that is not over. no workers: like working, but none of its workers is
    alive, so its rows wait; for a Spark job's step that is unknown, and it is working. waiting: the request's
    group is not done with an earlier section. failed: it has failed the call, or was not done at the
    deadline. dropped: the call ended before it was done.
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
    steps: Annotated[tuple[str, ...], "The steps that failed it, or that it waited for at its deadline."] = ()


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


def pending(core: Core, function: Description, most: int = 100) -> Operation[list[CallHead]]:
    """Calls without answer, those first whose time is over first: at most `most` of them, up to 500."""
    keys_of_function = function_keys.Function(core.config.name, function.name)
    [requests] = yield [
        command(
            "ZRANGEBYSCORE",
            keys_of_function.deadlines,
            "-inf",
            "+inf",
            "WITHSCORES",
            "LIMIT",
            0,
            min(most, MOST),
        )
    ]
    if not requests:
        return []
    scored = (
        requests
        if isinstance(requests[0], list | tuple)
        else list(zip(requests[::2], requests[1::2], strict=True))
    )
    [begun] = yield [command("HMGET", keys_of_function.calls, *(request for request, _ in scored))]
    return [
        CallHead(_text(request), Status.PENDING, _begun(who), float(deadline) / 1000)
        for (request, deadline), who in zip(scored, begun, strict=True)
        if who is not None  # answered in between
    ]


def answered(core: Core, function: Description, most: int = 100) -> Operation[list[CallHead]]:
    """The calls that were answered last, the latest first, of those whose answers are kept."""
    keys_of_function = function_keys.Function(core.config.name, function.name)
    [entries] = yield [command("XREVRANGE", keys_of_function.answers, "+", "-", "COUNT", min(most, MOST))]
    named = [(_text(fields[1]), int(entry.split(b"-")[0]) / 1000) for entry, fields in entries]
    heads = yield [command("GETRANGE", keys_of_function.answer(request), 0, _HEAD) for request, _ in named]
    return [_ended(request, head, at) for (request, at), head in zip(named, heads, strict=True) if head]


def _ended(request: str, stored: bytes, at: float | None) -> CallHead:
    found = calls.ended(stored)
    reason = "" if found.status is Status.ANSWERED else found.text
    return CallHead(request, found.status, at, None, found.took, reason, found.steps)


def _begun(who: bytes) -> float | None:
    """Returns the time when a call began (lua/drpc/begin_call.lua)."""
    at = who.rpartition(b" ")[2]
    return int(at) / 1000 if at.isdigit() and b" " in who else None


def _text(name: bytes) -> str:
    return name.decode("utf-8", "replace")


def follow(core: Core, function: Description, request: str) -> Operation[Progress | None]:
    """Returns a call of a function, and its state at each step; None if the call is unknown or forgotten."""
    keys_of_function = function_keys.Function(core.config.name, function.name)
    [who, deadline] = yield [
        command("HGET", keys_of_function.calls, request),
        command("ZSCORE", keys_of_function.deadlines, request),
    ]
    [stored, left, instant] = yield [  # after: it may have been answered in between
        command("GETRANGE", keys_of_function.answer(request), 0, _HEAD),
        command("TTL", keys_of_function.answer(request)),
        Request(keys_of_function.answers, ["TIME"]),
    ]
    if stored:
        at = seconds(instant) - max(0.0, round(function.keep) - left) if left >= 0 else None
        head = _ended(request, stored, at)
        return Progress(head, tuple(_over(function, head)))
    if who is None:
        return None
    head = CallHead(request, Status.PENDING, _begun(who), float(deadline) / 1000 if deadline else None)
    last = yield from trees.tree(core, function, request)
    idle = yield from calls.idle(core, function)
    if last is None:
        return Progress(head, tuple(_before(function, idle)))
    if isinstance((yield from failures.how_ended(core, last)), Failure):
        return Progress(head, tuple(_before(function, idle)))  # its workers try it again, or answer
    seen = yield from overview.request(core, last.anchor)
    return Progress(head, tuple(_steps(function, seen, idle)), seen)


def _over(function: Description, head: CallHead) -> list[StepSeen]:
    """The steps of a call that has its answer."""
    sections = function.sections()
    stopped = [place for place, steps in enumerate(sections) if set(steps) & set(head.steps)]
    over = []
    for place, steps in enumerate(sections):
        for name in steps:
            if head.status is Status.ANSWERED or (stopped and place < min(stopped)):
                state = State.FINISHED
            else:
                state = State.FAILED if name in head.steps else State.DROPPED
            over.append(StepSeen(name, place + 1, state))
    return over


def _before(function: Description, idle: Collection[str]) -> list[StepSeen]:
    """The steps of a call whose trees were not found."""
    return [
        StepSeen(name, place, State.NO_WORKERS if place == 1 and name in idle else State.WAITING)
        for place, steps in enumerate(function.sections(), 1)
        for name in steps
    ]


def _steps(function: Description, seen: RequestSeen, idle: Collection[str]) -> list[StepSeen]:
    """Returns the steps of a call by its trees. idle: steps without a worker."""
    seen_steps, before = list[StepSeen](), True
    sections = list(seen.sections)
    for place, steps in enumerate(function.sections()):
        section = sections[place] if place < len(sections) else None
        over = section is not None and section.over
        state = State.FINISHED if over and before else State.WORKING if before else State.WAITING
        earlier = sections[place - 1] if place else None
        first = sections[0].tree
        since = earlier.released_at if earlier else first.tracked_at if first else None
        for name in steps:
            waits = earlier.gathered if earlier and name == steps[0] else ()
            alone = state is State.WORKING and name in idle
            seen_steps.append(StepSeen(name, place + 1, State.NO_WORKERS if alone else state, since, waits))
        before = before and section is not None and section.passed
    return seen_steps
