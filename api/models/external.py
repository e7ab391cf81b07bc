"""Rows of external streams, for steps in any language."""

from typing import Annotated

from pydantic import BeforeValidator, Field

from acker.collectors.external.outgoing import SEGMENT_ROWS
from acker.collectors.external.remote.commits import MOST_SENT
from acker.collectors.external.remote.rows import State
from acker.collectors.external.remote.sealed import SEGMENT_PATTERN
from acker.streams.staging.external.bits import MOST_POSITIONS
from acker.streams.staging.external.rows.stamps import MOST_ANCHORS
from api.fields import Answer, Count, Id, Model, Name, Reason, Retry

ROWS = MOST_SENT
"""Most rows that a call reads or stamps."""
PARTS = 64
"""Most subscriptions, and most streams, of a commit."""

Stamp = Annotated[str, Field(description="What a row carries in the header `acker-stamp`, or in a column.")]
Segment = Annotated[
    str,
    Field(
        pattern=SEGMENT_PATTERN,
        description="Names the segment of rows, sealed: hand it back as it came.",
        examples=["sa1-AQABAgMEBQYHCAkKCwwNDmkn0YAAAAABnYgQZwB_______8"],
    ),
]


def _check_number(value: object) -> object:
    """Refuses what Python takes for a number, and JSON does not; 17.0 is a whole number of JSON."""
    if isinstance(value, bool | str):
        raise ValueError(f"expected a number, got {value!r:.100}")
    return value


Position = Annotated[int, Field(ge=0, lt=MOST_POSITIONS, examples=[17]), BeforeValidator(_check_number)]
CommitKey = Annotated[
    str,
    Field(
        pattern=r"^[!-~]{1,128}$",
        description="The `Idempotency-Key` of the commit that is to send these rows. No other commit can.",
        examples=["7f1c4a52-6b0e-4a53-9a7c-5d2f8f0f9b11"],
    ),
]
Step = Annotated[Name | None, Field(description="The name of the step, where it is not the subscription's.")]
Shared = Annotated[
    bool,
    Field(strict=True, description="true: steps of other names may serve the subscription that say so, too."),
]


class SubscriptionBody(Model):
    """The new name of a subscription."""

    subscription: Name


class SubscriptionRemoval(Model):
    """Options of a removal."""

    ack: bool = Field(
        default=False,
        description="The trees go on without it, in place of failing; not of an external stream.",
    )


class SubscriptionRemoved(Answer):
    """A subscription that is gone."""

    stream: Name
    subscription: Name
    segments: Count = Field(description="Its segments that were not acked.")


class Subscription(Answer):
    """A subscription of an external stream."""

    topology: Name
    stream: Name
    subscription: Name


class NumberedSubscription(Model):
    """A subscription of a stream, with its number there."""

    number: Annotated[str, Field(pattern=r"^[1-9][0-9]{0,15}$", examples=["4503599627370495"])]
    name: Name


Subscriptions = Annotated[
    list[NumberedSubscription],
    Field(max_length=1_000, description="The subscriptions of the stream: hand them back by the commit."),
]


class RowsBody(Model):
    """The stamps of rows, in the order in which the transport gave the rows."""

    stamps: Annotated[list[Stamp | None], Field(min_length=1, max_length=ROWS)] = Field(
        description="null for a row that carries none."
    )
    step: Step = None
    shared: Shared = False


class ReadRow(Answer):
    """A row that was read."""

    state: State = Field(
        description="`tracked`, or the reason for which the row belongs to no tree: work on it all the same, "
        "and do not ack it. `over`: its trees have ended. `unstamped`, `damaged`, `foreign`, `newer`: of its "
        "stamp. `untracked`: the topology has no ackers."
    )
    anchors: list[Id] = Field(description="The trees that the row belongs to; none if it is not tracked.")
    segment: Segment | None = Field(description="The segment of a tracked row.")
    position: Position | None = Field(description="Its position in the segment.")


class Rows(Answer):
    """Rows that were read."""

    rows: list[ReadRow] = Field(description="In the order of the stamps.")


class StampsBody(Model):
    """Rows that a client is about to write."""

    commit: CommitKey
    rows: Annotated[
        list[Annotated[list[Id], Field(max_length=MOST_ANCHORS)]], Field(min_length=1, max_length=ROWS)
    ] = Field(description="The anchors of each row: of the row that it was made of, or of several.")
    segment_rows: Annotated[int, Field(ge=1, le=MOST_POSITIONS), BeforeValidator(_check_number)] = Field(
        default=SEGMENT_ROWS, description="Rows of a segment at most: a lost row costs its segment."
    )


class Stamps(Answer):
    """Stamps of rows."""

    stamps: list[Stamp | None] = Field(description="In the order of the rows; null for one without anchors.")
    subscriptions: Subscriptions


class AckedRows(Model):
    """Rows of a segment that were worked on."""

    segment: Segment
    positions: Annotated[
        list[Annotated[list[Position], Field(min_length=2, max_length=2)]],
        Field(min_length=1, max_length=MOST_POSITIONS),
    ] = Field(description="Ranges: the first and the last position of each.", examples=[[[0, 16], [18, 99]]])


class FailedRow(Model):
    """A row that has failed: its trees fail, finally."""

    segment: Segment
    stamp: Stamp
    reason: Reason = ""
    retry: Retry = True


class ReceivedRows(Model):
    """Rows of a subscription that were worked on."""

    stream: Name
    subscription: Name
    acked: Annotated[list[AckedRows], Field(max_length=ROWS)] = Field(default=[])
    failed: Annotated[list[FailedRow], Field(max_length=ROWS)] = Field(default=[])
    step: Step = None
    shared: Shared = False


class SentRows(Model):
    """Rows that were written to a stream: the transport has them."""

    stream: Name
    stamps: Annotated[list[Stamp | None], Field(max_length=ROWS)]
    subscriptions: Subscriptions


class AckedTuples(Model):
    """Tuples of a tree, which a spout or a bolt has tracked by messages, and of which rows were made."""

    anchor: Id
    value: Id = Field(description="XOR of the ids of the tuples.")


class CommitBody(Model):
    """The work of a step since its last commit."""

    received: Annotated[list[ReceivedRows], Field(max_length=PARTS)] = Field(default=[])
    sent: Annotated[list[SentRows], Field(max_length=PARTS)] = Field(default=[])
    acks: Annotated[list[AckedTuples], Field(max_length=ROWS)] = Field(
        default=[], description="Tuples that were made into the sent rows: acked once these are emitted."
    )


class Committed(Answer):
    """The rows of a commit that took effect."""

    acked: int = Field(ge=0)
    failed: int = Field(ge=0)
    sent: int = Field(ge=0)
