"""A place, as people and programs see it: whose rows, since when, and who has taken them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated

import pyarrow as pa  # noqa: TID251 - rows travel as Arrow, from and to Spark and plain Python

from acker.errors import UnreadableRecord
from acker.inspect.locate.search import Streams
from acker.inspect.locate.tuples import Found
from acker.ledger.calls.core import Core
from acker.ledger.fields import Seconds, Whole
from acker.ledger.steps.step_registry import Step
from acker.store import keys
from acker.store.operation import Operation, Request, command
from acker.store.replies import seconds
from acker.streams.log import holders, segments
from acker.streams.log.holders import Holder
from acker.streams.log.segments import ANCHORS
from acker.streams.sources.spout_options import replays_stream

MOST_ROWS = 100
"""Places whose rows are counted in one call, and row numbers that are named of each."""
_GATHERS = "waits there until all rows of its request are written"
MOST_BYTES = 64 << 20
"""Bytes of segments, as they are stored, that one call reads to count rows."""


@dataclass(frozen=True, slots=True)
class Place:
    """The place of some tuples of a tree."""

    stream: Annotated[str, "Empty for rows that a commit tracks, and goes on with."]
    subscription: Annotated[str | None, "null for the first one, and for one that was dropped."]
    since: Annotated[Seconds | None, "Since the segment was published; null before that."]
    segment: Annotated[str, "The token of the segment."]
    entry: Annotated[str, "Its id in the stream; empty where it is not published."]
    taken_by: Annotated[Holder | None, "null where nobody has taken it."] = None
    held_by: Annotated[
        str,
        "The bolt that holds the rows, the spout whose replays they are, or that they wait for others of "
        "their request.",
    ] = ""
    commit: Annotated[str, "Whose commit, under way, has them; empty where none has."] = ""
    rows: Annotated[Whole | None, "Rows of the tree, where that was asked for."] = None
    row_numbers: Annotated[tuple[int, ...], "Which rows of the segment, from 0; the first 100."] = ()

    def text(self, *, timed: bool = True) -> Annotated[str, "The place, for people."]:
        """The place, for people. timed: says how long ago it was published."""
        what = "" if self.rows is None else f"{self.rows:,} row{'s' * (self.rows != 1)} "
        whom = f"subscription {self.subscription}" if self.subscription else "its first subscription"
        if not self.stream:
            return f"{what}in a commit that is under way and tracks it: {self.commit}"
        if not self.entry and self.held_by:
            return f"{what}in stream {self.stream} for {whom}, {self.held_by}"
        if not self.entry:
            return (
                f"{what}on the way into stream {self.stream} for {whom}: a commit is under way: {self.commit}"
            )
        since = "" if self.since is None or not timed else f", published {self.since:,.1f} s ago"
        by = f"taken by {self.taken_by.text()}" if self.taken_by else "taken by nobody"
        if self.held_by:
            by = f"{self.held_by}, {by}" if self.taken_by else self.held_by
        return f"{what}in stream {self.stream} for {whom}{since}, {by}"


def shown(
    core: Core, anchor: int, found: Sequence[Found], known: Streams, at_work: Sequence[Step], rows: bool
) -> Operation[tuple[Place, ...]]:
    """The places of what was found: who has taken them, since when, and how many rows they have."""
    takers: dict[tuple[str, int], dict[str, Holder]] = {}
    keepers: dict[tuple[str, int], str] = {}
    for stream, slot in sorted({(one.lying.stream, one.lying.slot) for one in found if one.lying.entry}):
        there = [one.lying.entry for one in found if (one.lying.stream, one.lying.slot) == (stream, slot)]
        takers[stream, slot] = yield from holders.find(core, stream, slot, there, at_work)
        keepers[stream, slot] = yield from _held_by(core, stream, slot, at_work)
    [instant] = yield [Request(keys.config(core.config.name), ["TIME"])]
    now = seconds(instant)
    shown = []
    for one in found:
        lying = one.lying
        published = int(lying.entry.partition("-")[0]) / 1000 if lying.entry else None
        shown.append(
            Place(
                lying.stream,
                known.named.get(lying.stream, {}).get(lying.slot),
                None if published is None else max(0.0, now - published),
                lying.segment.token,
                lying.entry,
                takers.get((lying.stream, lying.slot), {}).get(lying.entry),
                _GATHERS if lying.gathers else keepers.get((lying.stream, lying.slot), ""),
                lying.commit,
            )
        )
    if rows:
        left = MOST_BYTES
        for at, one in enumerate(found[:MOST_ROWS]):
            left -= one.lying.segment.bytes
            if left < 0:
                break
            shown[at] = yield from _with_rows(core, anchor, shown[at])
    return tuple(shown)


def _held_by(core: Core, stream: str, slot: int, at_work: Sequence[Step]) -> Operation[str]:
    """Whose own stream it is: that of rows which a bolt holds, or of a spout's replays; "" for any other."""
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
    try:
        batches = list(segments.decode(payload))
    except UnreadableRecord:
        return place
    if not batches or ANCHORS not in batches[0].schema.names:
        return place
    numbers: list[int] = []
    first = 0
    for batch in batches:
        numbers += [first + row for row in _rows_of(batch.column(ANCHORS), anchor)]
        first += batch.num_rows
    return replace(place, rows=len(numbers), row_numbers=tuple(numbers[:MOST_ROWS]))


def _rows_of(column: pa.Array, anchor: int) -> list[int]:
    import pyarrow.compute as pc  # noqa: TID251 - as in acker/streams/sources/columns.py

    if pa.types.is_int64(column.type):
        return pc.indices_nonzero(pc.equal(column, anchor)).to_pylist()  # type: ignore[no-any-return]
    parents = pc.list_parent_indices(column)
    return sorted(set(pc.filter(parents, pc.equal(pc.list_flatten(column), anchor)).to_pylist()))
