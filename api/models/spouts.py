"""A spout that is a client of the service, and its confirmations for outcomes."""

from typing import Annotated

from pydantic import Field

from acker.inspect.trees.outcome_pages import CONFIRMATION_PATTERN, CONFIRMATIONS
from api.fields import Answer, Count, Model, Name, Reason

Confirmation = Annotated[
    str, Field(pattern=CONFIRMATION_PATTERN, examples=["2-1795230245678-0-0123456789abcdef"])
]


class Spout(Answer):
    """A spout of a topology."""

    topology: Name
    spout: Name


class PauseBody(Model):
    """The pause of a spout."""

    reason: Reason = Field(
        default="", description="Why, for others to read; outcomes of rejected tracks have it, too."
    )


class ConfirmBody(Model):
    """Outcomes that the client is done with."""

    confirmations: Annotated[list[Confirmation], Field(min_length=1, max_length=CONFIRMATIONS)]


class Confirmed(Answer):
    """The number of confirmed outcomes."""

    trees: Count = Field(
        description="How many trees were confirmed by this; those confirmed before are none."
    )
