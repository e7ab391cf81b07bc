"""Traces: the history of one tree in N, event by event. The anchors alone select the trees.

So every process selects the same trees, and nothing travels with them. Events are kept beside the ledger and
are no part of it: an event that cannot be written is left out, and a trace may lack the last events of a dead
process.

Terms: a tree is all that comes of one record; an anchor is the number of a tree.
"""

import logging
import struct
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from acker.errors import AckerError
from acker.ledger import ids
from acker.ledger.calls import scripts
from acker.ledger.calls.core import Core
from acker.ledger.calls.marks import Mark
from acker.ledger.ids import Ids
from acker.ledger.slabs.causes import Cause
from acker.store.operation import Operation, command
from acker.store.records import Codec, Count

MOST_EVENTS = 64
"""Most events of a trace."""
MOST_TRACES = 10_000
"""Most traces of a shard at a time: beyond that no further tree is traced."""
SECONDS = 86_400
"""Seconds for which a trace is kept from its first event on."""
EXPORTED = "exported"
"""An event that is no tree's: a process has exported the trace."""
STORED: Codec[tuple[str, Mark | None, str, str, int, str]] = Codec(
    tuple[str, Mark | None, str, str, Count, str], "an event of a trace", 1 << 16
)
"""The kind of an event, and its `by`, `spout`, `stream`, `rows` and `reason`."""
_STAGED = struct.Struct("<qI")
_SHIFT, _FACTOR = np.uint64(29), np.uint64(0xBF58476D1CE4E5B9)
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Event:
    """An event of a tree. kind: tracked, emitted, reset (its timeout), acked or failed.

    key: distinguishes it from other events of the tree; the same key again changes nothing. by: the step, if
    it is known. spout: the tree's spout. stream, rows: the stream that its rows went into or came from, and
    their number. reason: the reason of a fail.
    """

    anchor: int
    kind: str
    key: str
    by: Mark | None = None
    spout: str = ""
    stream: str = ""
    rows: int = 0
    reason: str = ""

    def text(self) -> str:
        """The event as it is stored, without its time, which the store adds."""
        return STORED.dump((self.kind, self.by, self.spout, self.stream, self.rows, self.reason[:200]))


def select(core: Core, anchors: Ids) -> Ids:
    """The anchors of traced trees among some anchors, each once, ascending."""
    every = core.config.traces
    if not every or not len(anchors):
        return anchors[:0]
    distinct = np.unique(anchors)
    words = distinct.view(np.uint64)
    mixed = (words ^ (words >> _SHIFT)) * _FACTOR
    chosen: Ids = distinct[(mixed >> _SHIFT) % np.uint64(every) == 0]
    return chosen


def make_events(
    core: Core, kind: str, key: str, anchors: Ids, by: Mark | None = None, spout: str = "", reason: str = ""
) -> list[Event]:
    """The same event for each traced tree of some trees."""
    found = select(core, anchors).tolist()
    return [Event(anchor, kind, key, by, spout=spout, reason=reason) for anchor in found]


def failed(core: Core, anchors: Ids, causes: Sequence[bytes], by: Mark | None = None) -> list[Event]:
    """The events of failed traced trees, each with its cause (`acker.ledger.slabs.causes`)."""
    chosen = set(select(core, anchors).tolist())
    if not chosen:
        return []
    of_each = zip(anchors.tolist(), causes, strict=True)
    first = {anchor: cause for anchor, cause in reversed(list(of_each)) if anchor in chosen}
    return [
        Event(anchor, "failed", "failed", by, reason=Cause.decode(first[anchor]).reason)
        for anchor in sorted(first)
    ]


def resets(core: Core, anchors: Ids, by: Mark | None = None) -> list[Event]:
    """The events of traced trees with a reset timeout: the first event of a step and batch is kept."""
    who = f" {by.step} {by.batch}" if by is not None else ""
    return make_events(core, "reset", f"reset{who}", anchors, by)


def note(core: Core, events: Sequence[Event]) -> Operation[None]:
    """Adds events to traces. An event that cannot be written is logged, and left out."""
    if not events:
        return
    by_shard: dict[int, dict[int, list[Event]]] = {}
    for event in events:
        shard = ids.shard_of(ids.slab_of(event.anchor), core.config.ackers)
        by_shard.setdefault(shard, {}).setdefault(event.anchor, []).append(event)
    requests = []
    for number, of_trees in by_shard.items():
        shard_keys = core.shards[number]
        for anchor, own_events in of_trees.items():
            entries = [(event.key, event.text()) for event in own_events[:MOST_EVENTS]]
            requests.append(
                scripts.note_trace(shard_keys, anchor, entries, MOST_EVENTS, MOST_TRACES, SECONDS)
            )
    try:
        yield requests
    except AckerError as error:
        _log.error("events of traces of topology %r are left out: %s", core.config.name, error)


def claim(core: Core, anchor: int) -> Operation[bool]:
    """Claims the export of a tree's trace; returns True once, to one of all callers."""
    shard = core.shards[ids.shard_of(ids.slab_of(anchor), core.config.ackers)]
    what = [(EXPORTED, STORED.dump((EXPORTED, None, "", "", 0, "")))]
    [new] = yield [scripts.note_trace(shard, anchor, what, MOST_EVENTS + 1, MOST_TRACES, SECONDS)]
    return bool(new)


def unclaim(core: Core, anchor: int) -> Operation[None]:
    """Gives back the claim to export a trace."""
    shard = core.shards[ids.shard_of(ids.slab_of(anchor), core.config.ackers)]
    yield [command("HDEL", shard.trace(anchor), EXPORTED)]


def pack(anchors: Ids, counts: npt.NDArray[np.int64]) -> bytes:
    """Packs traced trees of staged rows, and the number of tuples of each: 12 bytes each."""
    return b"".join(_STAGED.pack(*pair) for pair in zip(anchors.tolist(), counts.tolist(), strict=True))


def unpack(staged: bytes | None) -> list[tuple[int, int]]:
    """The inverse of `pack`; empty if it cannot be read."""
    whole = staged is not None and len(staged) % _STAGED.size == 0
    return list(_STAGED.iter_unpack(staged)) if whole and staged else []
