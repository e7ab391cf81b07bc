"""Dead letters: which, their facts, and what becomes of them."""

from typing import Annotated, Any, Literal

from pydantic import Field

from acker.ledger.settings.config import REASON_BYTES
from api.fields import Answer, Count, Cursor, Id, Instant, MessageIdFields, Model, Name

DEAD_LETTERS = 100
"""Most dead letters that one call names."""

DeadLetterId = Annotated[
    str,
    Field(pattern=r"^[0-9]{1,18}-[0-9]{1,18}@[A-Za-z0-9._-]{1,64}$", examples=["1795230245678-0@sentences"]),
]
Age = Annotated[float, Field(ge=0, le=1e9)]


class Matching(Model):
    """Which dead letters. All that is given must hold."""

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


class Attempt(Answer):
    """A tree of a row that was not acked."""

    number: int = Field(ge=1)
    status: Literal["failed", "expired"]
    reason: str = Field(description="Why; anybody's text.")
    step: str = Field(description="That gave the reason; empty where none is known.")
    batch: int = Field(ge=-1, description="The batch of its query; -1 where that is not known.")
    at: Instant = Field(description="When it ended.")


class DeadLetterHead(MessageIdFields):
    """The facts of a row that was given up after its last attempt."""

    id: DeadLetterId
    spout: Name
    status: Literal["failed", "expired"] = Field(description="Of its last tree.")
    reason: str = Field(
        description="Of its last tree that failed, or of the last, where none failed; anybody's text."
    )
    step: str = Field(description="That gave the reason; empty where none is known.")
    batch: int = Field(ge=-1, description="The batch of its query; -1 where that is not known.")
    anchor: Id = Field(description="Of its last tree.")
    attempts: int = Field(ge=0, description="How many trees it had.")
    at: Instant = Field(description="When its last tree ended.")
    stream: Name = Field(description="Where a replay is published.")


class DeadLetter(DeadLetterHead):
    """A row that was given up after its last attempt."""

    row: dict[str, Any] | None = Field(
        description="Its columns: bytes as base64, what JSON has no word for as text. Large: null in a list."
    )
    history: list[Attempt] = Field(
        description="Its trees: at most 10, the first, the last that failed, and the latest."
    )


class DeadLetters(Answer):
    """A page of dead letters: by spout, and for each the oldest first."""

    dead_letters: list[DeadLetter]
    cursor: Cursor | None = Field(description="Of the next page; null at the end.")


class Group(Answer):
    """Dead letters that have something in common; null for what they were not grouped by."""

    cause: str | None = Field(description="The reason without numbers and quoted text.")
    step: str | None = Field(description="That gave the reason; empty where none is known.")
    status: Literal["failed", "expired"] | None
    count: Count
    oldest: Instant
    newest: Instant
    reason: str = Field(description="In full, of the newest.")


class Groups(Answer):
    """Groups of the dead letters that a page looked at, largest first. The next page is to be added to it."""

    groups: list[Group]
    until: Instant = Field(description="Up to when they are counted: for what is done to a group then.")
    cursor: Cursor | None = Field(description="Of the next page; null at the end.")


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
    """What became of dead letters. Of a filter's one call takes up to 500."""

    replayed: list[Replayed]
    unknown: list[DeadLetterId] = Field(description="Are no dead letters, or no more.")
    rejected: list[DeadLetterId] = Field(description="There was no room for a further tree: try again later.")
    refused: list[Refusal] = Field(description="Cannot be replayed at all: discard them.")
    waits: str | None = Field(
        description="Why a filter's were not taken further; null where nothing hinders."
    )
    cursor: Cursor | None = Field(description="Where the next call of the same filter goes on.")


class DiscardResult(Answer):
    """What became of dead letters. Of a filter's one call takes up to 500."""

    discarded: Count
    unknown: list[DeadLetterId] = Field(description="Are no dead letters, or no more.")
    cursor: Cursor | None = Field(description="Where the next call of the same filter goes on.")
