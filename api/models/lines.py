"""Lines and their requests."""

from typing import Annotated

from pydantic import Field

from api.fields import Answer, Count, Id, Instant, Name, Seconds
from api.models.trees import Tree


class GatherState(Answer):
    """A stream that gathers."""

    stream: Name
    tasks: Count
    by: list[str] = Field(description="Columns whose values say for which task a row is.")
    read: bool = Field(description="Whether a step reads it: else nothing comes of what goes on.")
    rows: Count = Field(description="Rows that wait for others of their requests.")
    groups: Count = Field(description="Groups of requests whose rows wait, of the 1,000 that wait longest.")
    more: bool = Field(description="Whether there are others.")
    oldest: Seconds | None = Field(description="Seconds for which the oldest waits; null where none does.")
    oldest_request: Id | None = Field(description="The first request of its group; null where none waits.")


class UnreadStream(Answer):
    """A stream that nobody reads, and that does not gather."""

    stream: str
    rows: Count = Field(description="Rows that wait there.")
    oldest: Seconds | None = Field(description="Since the first of them came; null where that is not known.")


class LineState(Answer):
    """A line, with its gathers in their order."""

    line: Name
    gathers: list[GatherState]
    unread: list[UnreadStream] = Field(
        description="Other streams that have rows of the line and that nobody reads: the requests of these "
        "rows end when their time is over. Of the first 100 such streams of the topology."
    )


class Lines(Answer):
    """All lines of a topology, by name."""

    lines: list[LineState]


class Gathered(Answer):
    """What waits for a task of a group."""

    task: Count
    segments: Count
    rows: Count
    age: Seconds | None = Field(description="Since the first of it came; null where that is not known.")


class SectionState(Answer):
    """A section of a request."""

    section: Annotated[int, Field(ge=1, le=8)]
    stream: Name | None = Field(description="The stream that gathers at its end; null: it ends the request.")
    read: bool = Field(description="Whether a step reads that stream; true where there is none.")
    anchor: Id = Field(description="Of the request's tree there.")
    tree: Tree | None = Field(description="null where the ledger does not know it (any more).")
    over: bool = Field(description="Whether nothing of the request is left there, as far as is known.")
    passed: bool = Field(description="Whether all of the group are done with it, as far as is known.")
    released: bool = Field(description="Whether the group's rows have gone on, or were dropped.")
    released_at: Instant | None = Field(description="Since when; null where they have not.")
    gathered: list[Gathered] = Field(description="What waits there, of all requests of the group.")


class LineRequest(Answer):
    """How far a request of a line has come."""

    line: Name
    request: Id
    group: str = Field(description="Requests that were tracked together go on together.")
    sections: list[SectionState]
