"""Functions and their calls."""

from typing import Annotated, Any

from pydantic import Field

from acker.drpc.linear_drpc import MOST_TIMEOUT
from api.fields import Answer, At, Numbers

LONGEST_WAIT = 300.0
"""Seconds for which a call waits at most for its answer."""
REQUEST_PATTERN = "^[0-9a-f]{32}$"

RequestId = Annotated[str, Field(pattern=REQUEST_PATTERN, examples=["2f0b6f3c0d7e4a518a9c5d2f8f0f9b11"])]


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
    deadline: At | None = Field(description="Until when it is answered; null where that is not known.")
    waits_for: list[str] = Field(
        description="The steps that have not done all of it; empty where that is not known (yet)."
    )


class Cancelled(Answer):
    """The result of cancelling a call."""

    request: RequestId
    cancelled: bool = Field(description="false: it had its answer already.")
