"""A spout that is a client of the service: its outcomes, and its receipts for them."""

from typing import Annotated, Literal

from pydantic import Field

from acker.inspect.trees.outcome_pages import RECEIPT_PATTERN, RECEIPTS
from api.fields import REASON, Answer, Count, Cursor, Id, Instant, MessageIdFields, Model, Name, Seconds

Receipt = Annotated[str, Field(pattern=RECEIPT_PATTERN, examples=["2-1795230245678-0-0123456789abcdef"])]


class Spout(Answer):
    """A spout of a topology."""

    topology: Name
    spout: Name


class EndedTree(MessageIdFields):
    """A tree that has its outcome."""

    anchor: Id
    latency: Seconds = Field(description="Seconds from its track to its end.")


class SpoutOutcomes(Answer):
    """Trees that ended together, with one outcome."""

    receipt: Receipt | None = Field(
        description="Confirms them, and those before them that came with null: they ended together."
    )
    status: Literal["acked", "failed", "expired"]
    reason: str = Field(description=REASON)
    step: str = Field(description="The bolt that has failed them; empty where that is not known.")
    batch: int = Field(ge=-1, description="The batch of its query; -1 where that is not known.")
    retry: bool = Field(description="false: failed for good, so another attempt is of no use.")
    at: Instant
    trees: list[EndedTree]


class SpoutOutcomesPage(Answer):
    """Outcomes that are not confirmed, from the oldest of some shard on."""

    outcomes: list[SpoutOutcomes]
    cursor: Cursor | None = Field(description="Of the next page; null at the end.")


class ConfirmBody(Model):
    """Outcomes that the client is done with."""

    receipts: Annotated[list[Receipt], Field(min_length=1, max_length=RECEIPTS)]


class Confirmed(Answer):
    """How much was confirmed."""

    trees: Count = Field(
        description="How many trees were confirmed by this; those confirmed before are none."
    )
