"""Traced trees in what is staged: which rows of a segment are of them, and what becomes of these."""

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


def look(
    core: Core, kind: str, found: Iterable[tuple[str, Segment, int]], by: Mark | None
) -> Operation[list[Event]]:
    """The events of traced trees that segments of streams, staged for a slot, are about to have.

    To be asked for before: what is acked is gone.
    """
    if not core.config.traces:
        return []
    places = [
        (key, stream, segment, slot)
        for stream, segment, slot in found
        for key, _ in vectors.keys_of(core, segment, slot)
    ]
    events = []
    for first in range(0, len(places), _FLIGHT):
        part = places[first : first + _FLIGHT]
        replies = yield [command("HGET", key, "traced") for key, *_ in part]
        for (_, stream, segment, slot), staged in zip(part, replies, strict=True):
            name = f"{kind} {stream} {segment.token}" + (f" {slot}" if kind == "acked" else "")
            events += [
                Event(anchor, kind, name, by, stream=stream, rows=rows)
                for anchor, rows in traces.unpack(staged)
            ]
    return events


def tracked(core: Core, anchors: Ids, spout: str) -> Operation[None]:
    """Notes that trees were tracked."""
    yield from traces.note(core, traces.of(core, "tracked", "tracked", anchors, spout=spout))
