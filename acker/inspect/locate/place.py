"""A place for people and programs: its rows, their age, and their reader.

Terms: a tree is all that comes of one record; a segment is some thousand rows of a stream, stored and acked
as one piece.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated

import pyarrow as pa  # noqa: TID251 - rows travel as Arrow, from and to Spark and plain Python

from acker.inspect.locate import received
from acker.inspect.locate.search import Streams
from acker.inspect.locate.tuples import Found, Location
from acker.ledger.calls.core import Core
from acker.ledger.fields import Seconds, Whole
from acker.ledger.steps.step_registry import Step
from acker.store import keys
from acker.store.operation import Operation, Request, command
from acker.store.records import passing_over
from acker.store.replies import seconds
from acker.streams.log import holders, kinds, segments
from acker.streams.log.gathers import FINISHED
from acker.streams.log.holders import Holder
from acker.streams.log.segments import ANCHORS
from acker.streams.sources.spout_options import replays_stream

MOST_ROWS = 100
"""Places whose rows are counted in one call, and row numbers that are named of each."""
_GATHERS = "waits there until all rows of its request are written"
_MOST_RECEIVED = 1_000
"""Places of external segments of which the received rows are counted."""
MOST_BYTES = 64 << 20
"""Bytes of segments, as they are stored, that one call reads to count rows."""


@dataclass(frozen=True, slots=True)
class Place:
    """The place of some tuples of a tree."""

    stream: Annotated[str, "Empty for rows that a commit tracks, and goes on with."]
    subscription: Annotated[str | None, "null for the first one, and for one that was dropped."]
    since: Annotated[Seconds | None, "Since the segment was published; null before that."]
    segment: Annotated[str, "The id of the segment."]
    entry: Annotated[str, "Its id in the stream; empty where it is not published."]
    taken_by: Annotated[Holder | None, "null where nobody has taken it."] = None
    held_by: Annotated[
        str,
        "The bolt that holds the rows, the spout whose replays they are, or that they wait for others of "
        "their request.",
    ] = ""
    commit: Annotated[str, "Whose commit, under way, has them; empty where none has."] = ""
    rows: Annotated[
        Whole | None,
        "Rows of the tree, where that was asked for. 0 of what only tells a step that gathers of their end.",
    ] = None
    row_numbers: Annotated[tuple[int, ...], "Which rows of the segment, from 0; the first 100."] = ()

    def text(self, *, timed: bool = True) -> Annotated[str, "The place, for people."]:
        """The place, for people. timed: says how long ago it was published."""
        rows_text = "" if self.rows is None else f"{self.rows:,} row{'s' * (self.rows != 1)} "
        rows_text = "the end of its rows " if self.rows == 0 else rows_text
        whom = f"subscription {self.subscription}" if self.subscription else "its first subscription"
        if not self.stream:
            return f"{rows_text}in a commit that is under way and tracks it: {self.commit}"
        if not self.entry and self.held_by:
            return f"{rows_text}in stream {self.stream} for {whom}, {self.held_by}"
        if not self.entry:
            stream = f"{rows_text}on the way into stream {self.stream} for {whom}"
            return f"{stream}: a commit is under way: {self.commit}"
        since = "" if self.since is None or not timed else f", published {self.since:,.1f} s ago"
        by = f"taken by {self.taken_by.text()}" if self.taken_by else "taken by nobody"
        if self.held_by:
            by = f"{self.held_by}, {by}" if self.taken_by else self.held_by
        return f"{rows_text}in stream {self.stream} for {whom}{since}, {by}"


def shown(
    core: Core, anchor: int, located: Sequence[Found], streams: Streams, at_work: Sequence[Step], rows: bool
) -> Operation[tuple[Place, ...]]:
    """Returns the places of locations: the readers, the ages, and the numbers of rows."""
    takers: dict[tuple[str, int], dict[str, Holder]] = {}
    keepers: dict[tuple[str, int], str] = {}
    for stream, slot in sorted(
        {(entry.location.stream, entry.location.slot) for entry in located if entry.location.entry}
    ):
        there = [
            entry.location.entry
            for entry in located
            if (entry.location.stream, entry.location.slot) == (stream, slot)
        ]
        takers[stream, slot] = yield from holders.find(core, stream, slot, there, at_work)
        keepers[stream, slot] = yield from _held_by(core, stream, slot, at_work)
    progress = yield from _received(core, [entry.location for entry in located[:_MOST_RECEIVED]])
    [instant] = yield [Request(keys.config(core.config.name), ["TIME"])]
    now = seconds(instant)
    shown = []
    for entry in located:
        location = entry.location
        published = int(location.entry.partition("-")[0]) / 1000 if location.entry else None
        shown.append(
            Place(
                location.stream,
                streams.named.get(location.stream, {}).get(location.slot),
                None if published is None else max(0.0, now - published),
                location.segment.id,
                location.entry,
                takers.get((location.stream, location.slot), {}).get(location.entry),
                _GATHERS
                if location.gathers
                else progress.get(location) or keepers.get((location.stream, location.slot), ""),
                location.commit,
            )
        )
    if rows:
        left = MOST_BYTES
        for at, entry in enumerate(located[:MOST_ROWS]):
            left -= entry.location.segment.bytes
            if left < 0:
                break
            shown[at] = yield from _with_rows(core, anchor, shown[at])
    return tuple(shown)


def _received(core: Core, locations: Sequence[Location]) -> Operation[dict[Location, str]]:
    """Returns the number of rows of external segments that subscriptions have worked on, as text."""
    streams = sorted({location.stream for location in locations if location.entry})
    replies = yield [
        command("HEXISTS", keys.Stream(core.config.name, stream).subscriptions, kinds.FIELD)
        for stream in streams
    ]
    external = {stream for stream, kind in zip(streams, replies, strict=True) if kind}
    there = [location for location in dict.fromkeys(locations) if location.stream in external]
    progress = yield from received.received(core, [(location.segment, location.slot) for location in there])
    return dict(zip(there, received.texts((location.segment for location in there), progress), strict=True))


def _held_by(core: Core, stream: str, slot: int, at_work: Sequence[Step]) -> Operation[str]:
    """Returns the owner of a stream: a bolt that holds rows, or a spout with replays; "" for any other."""
    if any(stream == replays_stream(spout) for spout in core.spouts):
        return f"waits to be replayed by spout {stream.rpartition('.')[0]}"
    bolt = stream.rpartition(".")[0]
    if not any(bolt == step.name and step.kind != "spout" for step in at_work):
        return ""
    # Any stream may have such a name. A bolt takes held rows itself, under its own name.
    [takes] = yield [command("HEXISTS", keys.Stream(core.config.name, stream).readers(slot), bolt)]
    return f"held by bolt {bolt} for a later batch" if takes else ""


def _with_rows(core: Core, anchor: int, place: Place) -> Operation[Place]:
    """With the numbers of the tree's rows; without where the segment's rows are gone, or cannot be read."""
    if not place.stream:
        return place
    [payload] = yield [command("GET", keys.Stream(core.config.name, place.stream).payload(place.segment))]
    if payload is None:
        return place
    batches: list[pa.RecordBatch] = []
    with passing_over(core.config.name):
        batches = list(segments.decode(payload))
    if not batches or ANCHORS not in batches[0].schema.names:
        return place
    numbers: list[int] = []
    first = 0
    for batch in batches:
        if FINISHED not in batch.schema.names:  # rows that end a bundle are none of the tree's
            numbers += [first + row for row in _rows_of(batch.column(ANCHORS), anchor)]
        first += batch.num_rows
    return replace(place, rows=len(numbers), row_numbers=tuple(numbers[:MOST_ROWS]))


def _rows_of(column: pa.Array, anchor: int) -> list[int]:
    import pyarrow.compute as pc  # noqa: TID251 - as in acker/streams/sources/columns.py

    if pa.types.is_int64(column.type):
        return pc.indices_nonzero(pc.equal(column, anchor)).to_pylist()  # type: ignore[no-any-return]
    parents = pc.list_parent_indices(column)
    return sorted(set(pc.filter(parents, pc.equal(pc.list_flatten(column), anchor)).to_pylist()))
