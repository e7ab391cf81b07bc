"""A spout that is a client of the service, and its receipts for outcomes."""

from typing import Annotated

from pydantic import Field

from acker.inspect.trees.outcome_pages import RECEIPT_PATTERN, RECEIPTS
from api.fields import Answer, Count, Model, Name

Receipt = Annotated[str, Field(pattern=RECEIPT_PATTERN, examples=["2-1795230245678-0-0123456789abcdef"])]


class Spout(Answer):
    """A spout of a topology."""

    topology: Name
    spout: Name


class ConfirmBody(Model):
    """Outcomes that the client is done with."""

    receipts: Annotated[list[Receipt], Field(min_length=1, max_length=RECEIPTS)]


class Confirmed(Answer):
    """How much was confirmed."""

    trees: Count = Field(
        description="How many trees were confirmed by this; those confirmed before are none."
    )
