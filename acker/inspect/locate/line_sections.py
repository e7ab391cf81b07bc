"""Trees of a line's later sections: the earlier sections that they wait for.

Such a tree is kept open by its gate, which is no tuple and is in no stream (`acker.ledger.slabs.sections`).
The tree of an earlier section has the present place of its request.

Terms: a slab is the trees that one call tracked together; a segment is some thousand rows of a stream, stored
and acked as one piece; a gate is an id that keeps a tree open until rows may come into it; a section is the
steps of a line between two gathers; a group is requests of a line that were tracked together.
"""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from acker.inspect.locate.tuples import Location
from acker.ledger import ids
from acker.ledger.calls.core import Core
from acker.ledger.slabs import sections, slabs
from acker.store import keys
from acker.store.operation import Operation, Request, command
from acker.store.replies import pairs
from acker.streams.log import gathers, segments
from acker.streams.log.gathers import Gathering

_PAGE = 100
Slabs: TypeAlias = Mapping[int, frozenset[bytes]]
"""Names of slabs, by shard."""


@dataclass(frozen=True, slots=True)
class Before:
    """The first section that a group is not done with. stream: that gathers at its end.

    slab: of the group's trees there. done: all of these are complete, and no coordinator has seen it yet.
    """

    stream: str
    slab: bytes
    done: bool

    def at(self, place: str) -> str:
        """The words for a tree whose request has a tuple at a place in that section."""
        return f"waits for section {self.stream}: {place}"

    def otherwise(self, lost: str) -> str:
        """The words for one whose request has none that was found. lost: and no other of its group has."""
        if self.done:
            return (
                f"waits for section {self.stream}, which is over: no coordinator of lines has seen that yet"
            )
        if lost:
            return self.at(lost)
        return f"waits until all requests of its group are done with section {self.stream}"


@dataclass(slots=True)
class Gated:
    """The earlier sections that slabs wait for, by slab, and the streams that gather before them."""

    core: Core
    before: dict[bytes, Before] = field(default_factory=dict)
    _streams: dict[tuple[int, int], tuple[str, Gathering]] = field(default_factory=dict)

    def find(self, wanted: Slabs, streams: Iterable[str], end: float) -> Operation[None]:
        """Finds the slabs (sets of trees) of lines that wait for an earlier section of their requests.

        The random name of a slab that belongs to no line may look like a name in a line. Such a slab is not
        taken: the store has no slab under the name that its request would have in another section.

        Args:
            wanted: The slabs, by shard.
            streams: The names of all streams of the topology.
            end: The monotonic time at which the search stops; slabs found by then are kept.
        """
        tagged = [slab for own in wanted.values() for slab in own if sections.place_of(slab)[0]]
        if not tagged:
            return
        names = list(streams)
        subscriptions = [keys.Stream(self.core.config.name, name).subscriptions for name in names]
        stored = yield [command("HGET", key, "gather") for key in subscriptions]
        for name, record in zip(names, stored, strict=True):
            if record is not None:
                how = Gathering.load(record)
                self._streams[how.line, how.section] = name, how
        later = [slab for slab in tagged if self._sections_before(slab)]
        for first in range(0, len(later), _PAGE):
            if time.monotonic() > end:
                return
            yield from self._look(later[first : first + _PAGE])

    def _sections_before(self, slab: bytes) -> list[tuple[str, bytes]]:
        """For each section before a slab's the stream at its end, and the slab of the group there."""
        line, section = sections.place_of(slab)
        own = np.array([ids.anchor_at(slab, 0)], np.int64)
        return [
            (self._streams[line, number][0], ids.slab_of(int(sections.within(own, number)[0])))
            for number in range(1, section)
            if (line, number) in self._streams
        ]

    def _look(self, members: Sequence[bytes]) -> Operation[None]:
        core = self.core
        befores = [(slab, *one) for slab in members for one in self._sections_before(slab)]
        asked: list[Request] = []
        for slab, stream, other in befores:
            shard = core.shards[ids.shard_of(other, core.config.ackers)]
            progress = keys.Stream(core.config.name, stream).progress(sections.group_of(slab))
            asked += [
                command("HEXISTS", progress, "released"),
                command("HGET", shard.slabs, other),
                command("BITCOUNT", shard.vector(other)),
            ]
        replies = iter((yield asked))
        for slab, stream, other in befores:
            released, header, bits = next(replies), next(replies), next(replies)
            if not released and slabs.is_tracked(header) and slab not in self.before:
                self.before[slab] = Before(stream, other, not bits)

    def slabs(self) -> dict[int, frozenset[bytes]]:
        """The slabs of the sections that are waited for, by shard."""
        by_shard: dict[int, set[bytes]] = {}
        for section in self.before.values():
            by_shard.setdefault(ids.shard_of(section.slab, self.core.config.ackers), set()).add(section.slab)
        return {shard: frozenset(own) for shard, own in by_shard.items()}

    def locations(self) -> Iterator[Operation[list[Location]]]:
        """Finds the gathered segments of these slabs' groups, some groups at a time."""
        groups: dict[tuple[int, int], list[str]] = {}
        for slab in self.before:
            line, section = sections.place_of(slab)
            groups.setdefault((line, section - 1), []).append(sections.group_of(slab))
        for place, names in groups.items():
            if place in self._streams:
                stream, how = self._streams[place]
                for first in range(0, len(names), _PAGE):
                    yield gathering(self.core, stream, how, names[first : first + _PAGE])


def gathering(core: Core, stream: str, gather: Gathering, groups: Sequence[str]) -> Operation[list[Location]]:
    """Returns the waiting segments of groups in a stream that gathers."""
    stream_keys = keys.Stream(core.config.name, stream)
    pages = yield [
        command("XRANGE", stream_keys.gathered(group, task), "-", "+", "COUNT", gathers.MOST_SEGMENTS)
        for group in groups
        for task in range(gather.tasks)
    ]
    return [
        Location(stream, slot, segment, "", gathers=True)
        for page in pages
        for _, values in page
        for segment in (segments.readable(pairs(values).get(b"segment", b"")),)
        for slot in segment.slots
    ]
