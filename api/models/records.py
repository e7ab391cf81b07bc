"""Records, found by their message ids."""

from typing import Literal

from pydantic import Field

from api.fields import REASON, Answer, Count, Cursor, Id, Instant, MessageIdFields, Name
from api.models.dead_letters import DeadLetterHead


class FoundAttempt(Answer):
    """A tree of a record."""

    anchor: Id | None = Field(description="null where only the row still tells of it.")
    number: int | None = Field(ge=0, description="Of its row, from 1; null where no rows are kept for it.")
    state: Literal["pending", "finished", "acked", "failed", "expired"] = Field(
        description="`finished`: it is over, and how is not kept."
    )
    reason: str = Field(description=REASON)
    step: str = Field(description="The bolt that has failed it; empty where that is not known.")
    batch: int = Field(ge=-1, description="The batch of its query; -1 where that is not known.")
    tracked_at: Instant | None = Field(description="null where it is not kept.")
    at: Instant | None = Field(description="When it ended; null in flight, and where it is not kept.")


class FoundRecord(Answer):
    """What a spout has of a message id."""

    spout: Name
    attempts: list[FoundAttempt] = Field(description="In their order.")
    dead_letters: list[DeadLetterHead] = Field(description="Oldest first.")


class Records(MessageIdFields):
    """Finds of a message id, by spout."""

    records: list[FoundRecord]
    looked: Count = Field(description="How many trees and dead letters were looked at so far.")
    of: Count = Field(description="About how many there are.")
    cursor: Cursor | None = Field(description="Of the next page; null where all was looked at.")
