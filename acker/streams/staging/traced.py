"""Traces of staged rows: the events of traced trees in segments.

Terms: a tree is all that comes of one record; a segment is some thousand rows of a stream, stored and acked
as one piece; a vector has a number for each tree, the XOR of tuple ids; a slot is the random number of a
subscription; staged rows are stored, but nobody sees them before a commit.
"""

from collections.abc import Iterable

from acker.ledger.calls import traces
from acker.ledger.calls.core import Core
from acker.ledger.calls.marks import Mark
from acker.ledger.calls.traces import Event
from acker.ledger.ids import Ids
from acker.store.operation import Operation, command
from acker.streams.log.segments import Segment
from acker.streams.staging import vectors

_FLIGHT = 256


def read_events(
    core: Core, kind: str, staged_segments: Iterable[tuple[str, Segment, int]], by: Mark | None
) -> Operation[list[Event]]:
    """The events that traced trees in segments of streams, staged for a slot, are about to have.

    To be read before the segments are acked: acked vectors are gone.
    """
    if not core.config.traces:
        return []
    places = [
        (key, stream, segment, slot)
        for stream, segment, slot in staged_segments
        for key, _ in vectors.keys_of(core, segment, slot)
    ]
    events = []
    for first in range(0, len(places), _FLIGHT):
        part = places[first : first + _FLIGHT]
        replies = yield [command("HGET", key, "traced") for key, *_ in part]
        for (_, stream, segment, slot), staged in zip(part, replies, strict=True):
            name = f"{kind} {stream} {segment.id}" + (f" {slot}" if kind == "acked" else "")
            events += [
                Event(anchor, kind, name, by, stream=stream, rows=rows)
                for anchor, rows in traces.unpack(staged)
            ]
    return events


def tracked(core: Core, anchors: Ids, spout: str) -> Operation[None]:
    """Notes that trees were tracked."""
    yield from traces.note(core, traces.make_events(core, "tracked", "tracked", anchors, spout=spout))
