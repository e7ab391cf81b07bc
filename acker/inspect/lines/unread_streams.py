"""Unread streams with rows of lines: a name is mistyped somewhere, or a step is missing.

The requests of such rows go no further, and end at their deadline.

Terms: a tree is all that comes of one record; a slab is the trees that one call tracked together; a segment
is some thousand rows of a stream, stored and acked as one piece.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from acker.ledger.calls.core import Core
from acker.ledger.fields import Count, Seconds
from acker.ledger.slabs import sections
from acker.lines.definition import Definition
from acker.store import keys
from acker.store.operation import Operation, command
from acker.store.records import passing_over
from acker.store.replies import pairs
from acker.streams.log import segments
from acker.streams.log.stream_totals import StreamTotals, stream_totals
from acker.streams.staging import vectors

_MOST = 100
"""Streams without a reader that are looked at."""
_SEGMENTS = 10
"""Segments of each that are looked at, to tell of which line its rows are."""


@dataclass(frozen=True, slots=True)
class Unread:
    """A stream that nobody reads, and that does not gather."""

    stream: str
    rows: Annotated[Count, "Rows that wait there."]
    oldest: Annotated[Seconds | None, "Since the first of them came; null where that is not known."]


def unread(core: Core, lines: Mapping[int, Definition]) -> Operation[dict[int, list[Unread]]]:
    """Returns the unread streams with rows of lines, by the numbers of the lines, without gathers.

    They are identified by the trees of the first rows that wait there: in the first 100 such streams, by
    name.
    """
    streams: dict[int, list[Unread]] = {}
    for stream in (yield from _alone(core)) if lines else ():
        if (line := (yield from _line(core, stream, lines))) is not None:
            subscription = stream.subscriptions[0]
            streams.setdefault(line, []).append(
                Unread(stream.name, subscription.rows_behind, subscription.unread_age)
            )
    return streams


def _alone(core: Core) -> Operation[list[StreamTotals]]:
    """Streams that have no subscription and do not gather, but rows."""
    [stored] = yield [command("SMEMBERS", keys.streams(core.config.name))]
    names = sorted(name.decode("utf-8", "replace") for name in stored)
    own = [keys.Stream(core.config.name, name).subscriptions for name in names]
    replies = yield [
        command("HMGET", subscriptions_key, "slots", "gather", "segments") for subscriptions_key in own
    ]
    alone = [
        name
        for name, (slots, gather, there) in zip(names, replies, strict=True)
        if not slots and gather is None and there not in (None, b"0")
    ]
    unread = list[StreamTotals]()
    for name in alone[:_MOST]:
        with passing_over(core.config.name):  # the lines matter more than one of these streams
            unread += yield from stream_totals(core, [name])
    return [
        subscriptions_key
        for subscriptions_key in unread
        if subscriptions_key.subscriptions and subscriptions_key.subscriptions[0].rows_behind > 0
    ]


def _line(core: Core, stream: StreamTotals, definitions: Mapping[int, Definition]) -> Operation[int | None]:
    """The line that all rows of a stream are of, as far as they are looked at; None where there is none."""
    entries = keys.Stream(core.config.name, stream.name).entries
    [page] = yield [command("XRANGE", entries, "-", "+", "COUNT", _SEGMENTS)]
    members = [segments.readable(pairs(values).get(b"segment", b"")) for _, values in page]
    slot = stream.subscriptions[0].slot
    places = [key for member in members for key, _ in vectors.keys_of(core, member, slot)]
    replies = yield [vectors.head(key) for key in places]
    lines = set[int]()
    for key, reply in zip(places, replies, strict=True):
        with passing_over(core.config.name):
            lines |= {_of(slab, definitions) for _, slabs in vectors.chunks(key, reply) for slab in slabs}
    return lines.pop() if len(lines) == 1 and lines != {0} else None


def _of(slab: bytes, definitions: Mapping[int, Definition]) -> int:
    """Returns the number of the line of a slab; 0 for none, whatever its name looks like."""
    line, section = sections.place_of(slab)
    return line if line in definitions and section <= len(definitions[line].gathers) + 1 else 0
