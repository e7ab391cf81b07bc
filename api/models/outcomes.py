"""Failures and expirations."""

from typing import Literal

from pydantic import Field

from api.fields import Answer, Cursor, Id, Instant, MessageIdFields, Name, Seconds


class Outcome(MessageIdFields):
    """A tree that failed or expired."""

    id: str = Field(description="Names it among the outcomes of its topology.", examples=["2-1041-0"])
    status: Literal["failed", "expired"]
    reason: str = Field(description="Of a failure; anybody's text.")
    step: str = Field(description="The bolt that has failed it; empty where that is not known.")
    anchor: Id
    spout: Name | None
    at: Instant
    age: Seconds = Field(description="Seconds from its track to its end.")
    shard: int = Field(ge=0)


class Outcomes(Answer):
    """A page of outcomes, latest first."""

    outcomes: list[Outcome]
    cursor: Cursor | None = Field(description="Of the next page; null at the end.")
