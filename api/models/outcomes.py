"""Failures and expirations."""

from typing import Literal

from pydantic import Field

from acker.inspect.as_json.values import message_id_fields
from acker.inspect.trees.failure import Failure
from api.fields import REASON, Answer, Cursor, Id, Instant, MessageIdFields, Name, Seconds, instant


class Outcome(MessageIdFields):
    """A tree that failed or expired."""

    id: str = Field(description="Names it among the outcomes of its topology.", examples=["2-1041-0"])
    status: Literal["failed", "expired"]
    reason: str = Field(description=REASON)
    step: str = Field(description="The bolt that has failed it; empty where that is not known.")
    batch: int = Field(ge=-1, description="The batch of its query; -1 where that is not known.")
    anchor: Id
    spout: Name | None
    at: Instant
    age: Seconds = Field(description="Seconds from its track to its end.")
    shard: int = Field(ge=0)


class Outcomes(Answer):
    """A page of outcomes, latest first."""

    outcomes: list[Outcome]
    cursor: Cursor | None = Field(description="Of the next page; null at the end.")


def outcome(tree: Failure) -> Outcome:
    """An outcome as clients get it."""
    return Outcome(
        id=tree.id,
        status=tree.status,
        reason=tree.cause.reason,
        step=tree.cause.step,
        batch=tree.cause.batch,
        anchor=str(tree.anchor),
        spout=tree.spout,
        at=instant(tree.at),
        age=tree.age,
        shard=tree.shard,
        **message_id_fields(tree.message_id),
    )
