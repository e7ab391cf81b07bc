"""Dead letters: which are meant, and what becomes of them."""

from typing import Annotated, Literal

from pydantic import Field

from acker.ledger.settings.config import REASON_BYTES
from api.fields import Answer, Count, Cursor, Id, Instant, Model, Name

DEAD_LETTERS = 100
"""Most dead letters that one call names."""

DeadLetterId = Annotated[
    str,
    Field(pattern=r"^[0-9]{1,18}-[0-9]{1,18}@[A-Za-z0-9._-]{1,64}$", examples=["1795230245678-0@sentences"]),
]
Age = Annotated[float, Field(ge=0, le=1e9)]


class Matching(Model):
    """A filter of dead letters: all conditions that are given must hold."""

    spout: Name | None = None
    status: Literal["failed", "expired"] | None = None
    step: Annotated[str, Field(max_length=64)] | None = Field(
        default=None, description="The step that gave the reason; empty: none is known."
    )
    reason: Annotated[str, Field(max_length=256)] | None = Field(
        default=None, description="A part of it, in capitals or not.", examples=["word"]
    )
    cause: Annotated[str, Field(max_length=REASON_BYTES)] | None = Field(
        default=None,
        description="The whole reason without numbers and quoted text, as groups have it.",
        examples=["no such word: …"],
    )
    stream: Name | None = Field(default=None, description="Where a replay is published.")
    older_than: Age | None = Field(default=None, description="Given up so many seconds ago or more.")
    newer_than: Age | None = Field(default=None, description="Given up so many seconds ago or less.")


class Named(Model):
    """Dead letters by their ids."""

    ids: Annotated[list[DeadLetterId], Field(min_length=1, max_length=DEAD_LETTERS)]


class Those(Model):
    """Dead letters by a filter: the next ones that were there at the first call."""

    matching: Matching
    until: Instant | None = Field(default=None, description="Later ones are left out; of a first call alone.")
    cursor: Cursor | None = Field(default=None, description="Of the call before: go on until it is null.")


class Replayed(Answer):
    """A dead letter that is tried again."""

    id: DeadLetterId
    anchor: Id = Field(description="Of its new tree.")


class Refusal(Answer):
    """A dead letter that cannot be tried again."""

    id: DeadLetterId
    why: str


class ReplayResult(Answer):
    """The result of replaying dead letters. One call takes up to 500 letters of a filter."""

    replayed: list[Replayed]
    unknown: list[DeadLetterId] = Field(description="Are no dead letters, or no more.")
    rejected: list[DeadLetterId] = Field(description="There was no room for a further tree: try again later.")
    refused: list[Refusal] = Field(description="Cannot be replayed at all: discard them.")
    waits: str | None = Field(
        description="Why a filter's were not taken further; null where nothing hinders."
    )
    cursor: Cursor | None = Field(description="Where the next call of the same filter goes on.")


class DiscardResult(Answer):
    """The result of discarding dead letters. One call takes up to 500 letters of a filter."""

    discarded: Count
    unknown: list[DeadLetterId] = Field(description="Are no dead letters, or no more.")
    cursor: Cursor | None = Field(description="Where the next call of the same filter goes on.")
