"""Failures, expirations, and dead letters."""

from typing import Annotated, Any, Literal

from pydantic import Field

from api.fields import Answer, Cursor, Id, Instant, MessageIdFields, Model, Name, Seconds

DEAD_LETTERS = 100
"""Most dead letters that one call replays."""


class Outcome(MessageIdFields):
    """A tree that failed or expired."""

    id: str = Field(description="Names it among the outcomes of its topology.", examples=["2-1041-0"])
    status: Literal["failed", "expired"]
    reason: str = Field(description="Of a failure; anybody's text.")
    anchor: Id
    spout: Name | None
    at: Instant
    age: Seconds = Field(description="Seconds from its track to its end.")
    shard: int = Field(ge=0)


class Outcomes(Answer):
    """A page of outcomes, latest first."""

    outcomes: list[Outcome]
    cursor: Cursor | None = Field(description="Of the next page; null at the end.")


DeadLetterId = Annotated[
    str,
    Field(pattern=r"^[0-9]{1,18}-[0-9]{1,18}@[A-Za-z0-9._-]{1,64}$", examples=["1795230245678-0@sentences"]),
]


class DeadLetter(MessageIdFields):
    """A row that was given up after its last attempt."""

    id: DeadLetterId
    spout: Name
    status: Literal["failed", "expired"] = Field(description="Of its last tree.")
    reason: str = Field(description="Of its last tree; anybody's text.")
    anchor: Id = Field(description="Of its last tree.")
    attempts: int = Field(ge=0, description="How many trees it had.")
    at: Instant = Field(description="When its last tree ended.")
    stream: Name = Field(description="Where a replay is published.")
    row: dict[str, Any] | None = Field(
        description="Its columns: bytes as base64, what JSON has no word for as text. null where it is large."
    )


class DeadLetters(Answer):
    """A page of dead letters: by spout, and for each the oldest first."""

    dead_letters: list[DeadLetter]
    cursor: DeadLetterId | None = Field(description="Of the next page; null at the end.")


class ReplayBody(Model):
    """Which dead letters are tried again."""

    ids: Annotated[list[DeadLetterId], Field(min_length=1, max_length=DEAD_LETTERS)]


class Replayed(Answer):
    """A dead letter that is tried again."""

    id: DeadLetterId
    anchor: Id = Field(description="Of its new tree.")


class ReplayResult(Answer):
    """What became of the dead letters named."""

    replayed: list[Replayed]
    unknown: list[DeadLetterId] = Field(description="Are no dead letters, or no more.")
    rejected: list[DeadLetterId] = Field(description="There was no room for a further tree: try again later.")
