"""Where trees are, and what is stuck."""

from pydantic import Field

from api.fields import Answer, Count, Cursor, Id, Instant, Name, Seconds
from api.models.trees import Tree, TreeOutcome


class Holder(Answer):
    """Who has taken segments of a subscription and not acked them."""

    reader: str = Field(description="Its name in the subscription.")
    number: int = Field(ge=0, description="Of the segment, or of the oldest, among all that it took.")
    query: str = Field(description="Id of its streaming query, or its batch job; empty until it reads.")
    batch: int | None = Field(description="Number of the batch; null where that is not known.")
    step: str = Field(description="Empty before the first batch of the query is done.")
    application: str
    query_name: str
    alive: bool | None = Field(description="Of a worker of a line; null for any other reader.")
    text: str = Field(description="Who it is, for people.")


class Place(Answer):
    """Where some tuples of a tree are."""

    stream: str = Field(description="Empty for rows that a commit tracks, and goes on with.")
    subscription: str | None = Field(description="null for the first one, and for one that was dropped.")
    since: Seconds | None = Field(description="Since the segment was published; null before that.")
    segment: str = Field(description="The token of the segment.")
    entry: str = Field(description="Its id in the stream; empty where it is not published.")
    taken_by: Holder | None = Field(description="null where nobody has taken it.")
    held_by: str = Field(description="The bolt that holds the rows, or the spout whose replays they are.")
    commit: str = Field(description="Whose commit, under way, has them; empty where none has.")
    rows: int | None = Field(ge=0, description="Rows of the tree, where that was asked for.")
    row_numbers: list[int] = Field(description="Which rows of the segment, from 0; the first 100.")
    text: str = Field(description="The place, for people.")


class Seen(Answer):
    """When a step last acked tuples of the slab of a tree: of the tree, or of another of its slab."""

    step: str
    at: Instant | None = Field(description="null where it has not within two message timeouts.")
    age: Seconds | None = Field(description="Seconds since then, by the store's clock.")
    batch: int = Field(ge=-1, description="Of its query; -1 where there is none.")


class TraceEvent(Answer):
    """What became of a traced tree."""

    at: Instant
    kind: str = Field(examples=["tracked", "emitted", "reset", "acked", "failed", "expired"])
    step: str = Field(description="Whose; empty where that is not known.")
    batch: int = Field(ge=-1, description="Of its query; -1 where there is none.")
    spout: str = Field(description="Of a track.")
    stream: str = Field(description="Where its rows went, or of which they were.")
    rows: Count = Field(description="How many of its rows.")
    reason: str = Field(description="Of a fail or an expiration; anybody's text.")
    text: str = Field(description="The event, for people.")


class Why(Answer):
    """Where a tree is. The answer proves itself: its XOR is the ack value of the tree."""

    anchor: Id
    tree: Tree | None = Field(description="null where the ledger does not know it (any more).")
    outcome: TreeOutcome | None = Field(description="How it has failed or expired, where that is kept.")
    places: list[Place]
    complete: bool | None = Field(
        description="Whether these are all of its tuples, with the places of all pages before; null where "
        "that is not known."
    )
    seen: list[Seen] = Field(
        description="Of a tree that is not over, the latest first; none in slabs of one."
    )
    trace: list[TraceEvent] = Field(description="What became of it so far, where it is traced.")
    rest: str = Field(
        description="Where not complete: what else there may be, for people. Of a section of a line: that "
        "the one before is not over."
    )
    looked_at: Count = Field(description="Segments looked at, on all pages so far.")
    segments: Count = Field(description="Segments that there are, about.")
    cursor: Cursor | None = Field(description="Of the next page; null at the end.")


class Share(Answer):
    """What one reader has taken and not acked, or nobody has taken."""

    taken_by: Holder | None
    segments: Count
    rows: Count
    oldest: Seconds = Field(description="Since the oldest segment was published.")


class Stuck(Answer):
    """What a subscription has not acked."""

    stream: Name
    subscription: str | None = Field(description="null for what waits for the first one.")
    segments: Count
    rows: Count
    oldest: Seconds
    partly: bool = Field(description="It has more than the 10,000 segments that were looked at.")
    shares: list[Share] = Field(description="By who has it, the oldest first.")


class StuckPage(Answer):
    """Subscriptions that have something to ack. A page may be empty and not the last."""

    stuck: list[Stuck]
    cursor: Cursor | None = Field(description="Of the next page; null at the end.")


class Drop(Answer):
    """Segments that a stream has dropped at once."""

    stream: Name
    at: Instant
    segments: Count
    rows: Count = Field(description="Of these segments, whoever had acked them.")
    why: str = Field(description="Over which limit they were, or which subscription was dropped.")
    text: str = Field(description="The drop, for people.")


class Drops(Answer):
    """What streams have dropped."""

    drops: list[Drop] = Field(description="The latest first.")
