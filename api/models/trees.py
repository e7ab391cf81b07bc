"""Trees, and what can be done to them by hand."""

from typing import Annotated, Literal

from pydantic import Field

from acker.ledger.trees.buckets import Bucket
from api.fields import (
    REASON,
    Answer,
    Cursor,
    Id,
    Instant,
    MessageIdFields,
    Model,
    Name,
    Reason,
    Retry,
    Seconds,
)

ANCHORS = 1_000
"""Most trees that one call fails or resets."""

State = Literal["pending", "waiting", "finished"]
Status = Literal["acked", "failed", "expired"]


class TreeOutcome(Answer):
    """How a tree ended."""

    status: Status
    reason: str = Field(description=REASON)
    step: str = Field(description="The bolt that has failed it; empty where that is not known.")
    batch: int = Field(ge=-1, description="The batch of its query; -1 where that is not known.")
    at: Instant | None = Field(description="When it ended; null where that is not kept.")
    age: Seconds | None = Field(description="Seconds from its track to its end; null where that is not kept.")


class Tree(MessageIdFields):
    """A tree in flight."""

    anchor: Id
    state: State = Field(
        description="`waiting`: messages came before its track. "
        "`finished`: kept until its outcome is confirmed."
    )
    ack_value: Id = Field(description="XOR of what was emitted and acked; 0: complete.")
    failure: str | None = Field(description="The reason with which a waiting tree will fail.")
    spout: Name | None = Field(description="null while it waits.")
    tracked_at: Instant
    age: Seconds
    time_left_earliest: Seconds | None = Field(description="Until it expires at the earliest.")
    time_left_latest: Seconds | None = Field(
        description="Until it expires at the latest; null where finished, and where no ticker seems to run."
    )
    shard: int = Field(ge=0)
    bucket: Bucket | None
    slab: Id = Field(description="The first anchor of its slab: the trees that are reset together.")
    index: int = Field(ge=0, le=4095)


class TreeState(Answer):
    """A tree, in flight or recently finished."""

    anchor: Id
    tree: Tree | None = Field(description="null once its outcome is confirmed.")
    outcome: TreeOutcome | None = Field(
        description="null while it is in flight, and where its outcome is not kept any more."
    )
    spout: Name | None
    message_id: str | None
    message_id_base64: str | None


class Trees(Answer):
    """A page of trees. It may be empty and not the last: go on until there is no cursor."""

    trees: list[Tree]
    cursor: Cursor | None = Field(description="Of the next page; null at the end.")


class FailBody(Model):
    """Why a tree is failed."""

    reason: Reason = "failed by hand"
    retry: Retry = True


Anchors = Annotated[
    list[Id], Field(min_length=1, max_length=ANCHORS, description="Trees; one named twice counts once.")
]


class FailManyBody(FailBody):
    """Which trees are failed, and why."""

    anchors: Anchors


class ResetManyBody(Model):
    """Which trees get the whole message timeout again."""

    anchors: Anchors


class FailResult(Answer):
    """What became of the trees named."""

    failed: int = Field(ge=0, description="Failed now.")
    late: int = Field(ge=0, description="Were finished before.")
    waiting: int = Field(
        ge=0, description="Known by messages that came before their track: they will fail when it comes."
    )
    unknown: list[Id] = Field(description="Name no tree, or none any more: nothing was done.")


class ResetResult(Answer):
    """How much was reset."""

    slabs: int = Field(ge=0, description="Slabs that went back to the nursery, with all their trees.")
