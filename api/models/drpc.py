"""Functions and their calls."""

from typing import Annotated, Any, Literal

from pydantic import Field

from acker.drpc.linear_drpc import MOST_TIMEOUT
from api.fields import Answer, Count, Id, Instant, Name, Numbers, Seconds
from api.models.lines import Gathered
from api.models.topologies import Latency

LONGEST_WAIT = 300.0
"""Seconds for which a call waits at most for its answer."""
REQUEST_PATTERN = "^[0-9a-f]{32}$"

RequestId = Annotated[str, Field(pattern=REQUEST_PATTERN, examples=["2f0b6f3c0d7e4a518a9c5d2f8f0f9b11"])]

CallStatus = Literal["pending", "answered", "failed", "timed out"]


class FunctionStep(Answer):
    """A step of a function."""

    name: Name
    stream: Name = Field(description="The stream that it reads.")
    gathers: bool = Field(description="Whether it sees a request when all rows of it are there.")
    tasks: Count = Field(description="Into how many a request is divided.")
    spark: bool = Field(description="Whether a Spark job works on it.")
    workers: Count | None = Field(description="Workers that are alive; null where a Spark job works on it.")


class CallCause(Answer):
    """Calls that had no result for one cause."""

    status: Literal["failed", "timed out"]
    steps: list[str] = Field(
        description="Who has failed them, or which they waited for; empty where that is not known."
    )
    cause: str = Field(
        description="The reason without what differs from call to call; empty for all that came when there "
        "were 50 others."
    )
    calls: Count


class CallCounts(Answer):
    """What became of the calls that were answered in a time: each is counted once, none is sampled."""

    seconds: Seconds | None = Field(
        description="How long the time is; null for all since the function was registered."
    )
    answered: Count = Field(description="With a result.")
    failed: Count
    timed_out: Count
    rate: float | None = Field(
        ge=0, description="Answers a second, also those without a result; null where the time is all."
    )
    latency: Latency = Field(description="Of those with a result, from the call to its answer.")
    causes: list[CallCause] = Field(description="The most frequent first.")


class Function(Answer):
    """A function of the store."""

    function: Name
    topology: Name
    idempotent: bool = Field(description="Whether a request may be worked on again.")
    attempts: Count
    timeout: Seconds = Field(description="Seconds that a call has, where it names none.")
    keep: Seconds = Field(description="Seconds for which an answer is kept.")
    max_pending: Count = Field(description="Calls without answer that it may have.")
    pending: Count = Field(description="Calls without answer.")
    late: Count = Field(description="Of these, those whose time is over: nobody has said so yet.")
    recent: CallCounts = Field(description="Of the last ten minutes, and what has passed of this one.")
    total: CallCounts
    minutes: list[Count] = Field(description="Answers in each minute of `recent`, the oldest first.")
    steps: list[FunctionStep]


class Functions(Answer):
    """All functions of the store, by name."""

    functions: list[Function]


class CallHead(Answer):
    """A call, in short."""

    request: RequestId
    status: CallStatus
    at: Instant | None = Field(
        description="When it was begun, of a call that is pending; else when it was answered. null where "
        "that is not known."
    )
    deadline: Instant | None = Field(description="Of a call that is pending.")
    took: Seconds | None = Field(description="From the call to its answer.")
    reason: str = Field(description="Why it had no result, the beginning of it; anybody's text.")
    steps: list[str] = Field(description="Who has failed it, or which it waited for when its time was over.")


class Calls(Answer):
    """Some calls of a function."""

    calls: list[CallHead]


class CallStep(Answer):
    """How far a step is with a call."""

    name: Name
    section: Annotated[int, Field(ge=1, le=8, description="Of the function's line.")]
    state: Literal["finished", "working", "no workers", "waiting", "failed", "dropped"] = Field(
        description="`working`: its section is the first that is not over; `no workers`: the same, but none "
        "of its workers is alive; `waiting`: the group is not done with a section before. "
        "`failed`: it has failed the call, or was not done when its time was over; `dropped`: the call ended "
        "before it was done."
    )
    since: Instant | None = Field(
        description="From when on it had all that it works on; null where that is not known, or not yet."
    )
    gathered: list[Gathered] = Field(
        description="What waits for it until the steps before it are done, of all requests of the group."
    )


class CallProgress(Answer):
    """A call, and its steps in their order."""

    call: CallHead
    anchor: Id | None = Field(description="Of its tree in the first section; null where it is not known.")
    steps: list[CallStep]


class CallBody(Numbers):
    """A call of a function."""

    args: Any = Field(description="What JSON has, 1 MiB at most.", examples=["foo.com"])
    timeout: float | None = Field(
        default=None,
        ge=0.01,
        le=MOST_TIMEOUT,
        description="Seconds that the request has; the function's where it is left out.",
    )
    wait: Annotated[float, Field(ge=0, le=LONGEST_WAIT)] = Field(
        default=30.0, description="Seconds to wait for the answer, before 202 tells where it will be."
    )


class Answered(Answer):
    """The answer of a call."""

    request: RequestId
    result: Any = Field(description="What the last step gave.")


class Pending(Answer):
    """A call that has no answer yet."""

    request: RequestId
    deadline: Instant | None = Field(description="Until when it is answered; null where that is not known.")
    waits_for: list[str] = Field(
        description="The steps that have not done all of it; empty where that is not known (yet)."
    )


class Cancelled(Answer):
    """What became of a call that was to be cancelled."""

    request: RequestId
    cancelled: bool = Field(description="false: it had its answer already.")
