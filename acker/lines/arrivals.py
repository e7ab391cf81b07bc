"""Arrivals: completed requests of groups by the outcomes of sections, recorded until a group is complete.

Terms: a tree is all that comes of one record; a slab is the trees that one call tracked together; a section
is the steps of a line between two gathers.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from acker.ledger import ids
from acker.ledger.calls import scripts as ledger_lua
from acker.ledger.calls.core import Core
from acker.ledger.ids import Ids
from acker.ledger.outcomes import unconfirmed
from acker.ledger.outcomes.outcomes import Entry, SlabOutcome
from acker.ledger.slabs import sections, slabs
from acker.ledger.slabs.causes import Cause
from acker.ledger.slabs.sections import SPOUT
from acker.lines import definition, scripts
from acker.lines.definition import Definition
from acker.store import keys
from acker.store.operation import Operation, Reply, Request, abreast, chain, command
from acker.streams.log import scripts as log_scripts
from acker.streams.log.gathers import LATE_TTL

TOGETHER = 64
"""Most groups that one script records, or one commit releases."""
_PROGRESS_TTL = LATE_TTL


@dataclass(frozen=True, slots=True)
class Place:
    """The position of a group: a section of its line. slab: the slab of its trees in that section."""

    line: Definition
    section: int
    slab: bytes

    @property
    def group(self) -> str:
        """The name of the group."""
        return sections.group_of(self.slab)

    @property
    def stream(self) -> str:
        """The stream in which the group gathers at the end of the section."""
        return self.line.gathers[self.section - 1].stream

    @property
    def tasks(self) -> int:
        """The number of tasks of the gathering step."""
        return self.line.gathers[self.section - 1].tasks


@dataclass(frozen=True, slots=True)
class Arrived(Place):
    """Requests of a group that are over in a section, and those among them that were acked.

    count: the number of requests in the group.
    """

    count: int
    over: Ids
    acked: Ids
    causes: tuple[tuple[Ids, Cause], ...]

    @property
    def whole(self) -> bool:
        """Return True if these are all requests of the group; otherwise others were over before."""
        return len(np.unique(self.over)) >= self.count

    def anchors(self, indexes: Ids, section: int) -> Ids:
        """Returns the trees of requests in a section."""
        own = np.int64(ids.anchor_at(self.slab, 0)) + ids.STEP * indexes
        return sections.within(own, section)


def arrived(core: Core, entries: Sequence[Entry], lines: dict[int, Definition]) -> Operation[list[Arrived]]:
    """Returns the arrivals that outcomes report, by slab, without slabs that the ledger has forgotten.

    lines: is filled with the present lines, by number.
    """
    by_slab: dict[bytes, list[tuple[Entry, SlabOutcome]]] = {}
    for entry in entries:
        for outcome in entry.slabs:
            by_slab.setdefault(outcome.slab, []).append((entry, outcome))
    looks: list[Operation[Any]] = [definition.lines(core), _headers(core, list(by_slab))]
    definitions, headers = yield from abreast(looks)
    lines.clear()
    lines.update(definitions)
    arrivals = []
    for (slab, ended), stored in zip(by_slab.items(), headers, strict=True):
        number, section = sections.place_of(slab)
        header, line = slabs.read(stored), definitions.get(number)
        if header is None or not header.count or line is None or section > len(line.gathers):
            continue
        over, acked, causes = [], [], []
        for entry, outcome in ended:
            indexes = np.array(outcome.indexes_in(header.count), dtype=np.int64)
            over.append(indexes)
            if entry.status == "acked":
                acked.append(indexes)
            else:
                why = outcome.cause
                text = f"in section {line.gathers[section - 1].stream}: {why.reason or entry.status}"
                causes.append((indexes, replace(why, reason=text)))
        none = np.zeros(0, dtype=np.int64)
        parts = np.concatenate([none, *over]), np.concatenate([none, *acked])
        arrivals.append(Arrived(line, section, slab, header.count, *parts, tuple(causes)))
    return arrivals


def _headers(core: Core, slabs: Sequence[bytes]) -> Operation[list[Reply]]:
    return (yield [header_of(core, slab) for slab in slabs])


def header_of(core: Core, slab: bytes) -> Request:
    """Reads the header of a slab."""
    return command("HGET", core.shards[ids.shard_of(slab, core.config.ackers)].slabs, slab)


def progress(core: Core, place: Place) -> bytes:
    """Returns the key of a group's progress (lua/lines/note_arrivals.lua)."""
    return keys.Stream(core.config.name, place.stream).progress(place.group)


def noting(core: Core, group: Arrived) -> Request:
    """Returns a request that records arrivals."""
    masks = _mask(group.over, group.count), _mask(group.acked, group.count)
    return scripts.note_arrivals(core.config, progress(core, group), group.count, *masks, _PROGRESS_TTL)


def _mask(indexes: Ids, count: int) -> bytes:
    bits = np.zeros(count, dtype=np.bool_)
    bits[indexes] = True
    return np.packbits(bits, bitorder="little").tobytes()


def indexes_of(mask: bytes) -> Ids:
    """Returns the indexes of requests in a bitmap."""
    bits = np.unpackbits(np.frombuffer(mask, dtype=np.uint8), bitorder="little")
    return np.flatnonzero(bits).astype(np.int64)


def there(core: Core, entries: Sequence[Entry]) -> Operation[bool]:
    """Return True if the store still has the outcomes; a store that was rolled back may have lost them."""
    return all((yield unconfirmed.checks(core, SPOUT, entries)))


def looks_of(core: Core, entries: Sequence[Entry], groups: Sequence[Arrived]) -> list[Request]:
    """Returns requests whose reply is 1 if the store still has outcomes of some groups, otherwise 0."""
    shards = {ids.shard_of(one.slab, core.config.ackers) for one in groups}
    own = [entry for entry in entries if entry.confirmation.shard in shards]
    return unconfirmed.checks(core, SPOUT, own)


def noted(core: Core, entries: Sequence[Entry], groups: Sequence[Arrived]) -> Operation[list[Reply] | None]:
    """Records arrivals. Returns for each complete group the requests that were acked.

    On one server, a single script checks that the outcomes are still there, and records them: so every
    recorded outcome existed. Returns None if the store has lost some.
    """
    notes, checks = list[Reply](), list[list[Request]]()
    parts = [groups[first : first + TOGETHER] for first in range(0, len(groups), TOGETHER)]
    for part in parts:  # its outcomes stand in no more shards than it has groups: 128 scripts at most
        checks.append(looks_of(core, entries, part))
    both = list(zip(checks, parts, strict=True))
    chained = yield [
        chain([*looks_of_shard, *(noting(core, group) for group in part)]) for looks_of_shard, part in both
    ]
    for (looks_of_shard, part), replies in zip(both, chained, strict=True):
        if replies is None:  # a cluster
            notes += yield [noting(core, group) for group in part]
        elif len(replies) < len(looks_of_shard) + len(part):
            return None
        else:
            notes += replies[len(looks_of_shard) :]
    return notes


def are_over(core: Core, groups: Sequence[Arrived]) -> Operation[list[bool]]:
    """Returns for each group True if the ledger has all its requests over in a section."""
    asked = [group for group in groups if not group.whole]  # for the others, the arriving outcomes suffice
    replies = yield [_ended(core, group) for group in asked]
    pending = {group.slab for group, reply in zip(asked, replies, strict=True) if reply != 1}
    return [group.slab not in pending for group in groups]


def still(core: Core, going: Sequence[tuple[Arrived, Ids]]) -> list[Request]:
    """Returns requests whose reply is 1 if groups are still over, as recorded; otherwise 0."""
    checks = list[Request]()
    for group, acked in going:
        if not group.whole:
            everything = np.arange(group.count, dtype=np.int64)
            masks = _mask(everything, group.count), _mask(acked, group.count)
            checks += [_ended(core, group), scripts.check_noted(progress(core, group), *masks)]
    return checks


def known(core: Core, places: Sequence[Place]) -> Operation[list[bool]]:
    """Returns for each group True if the store has its progress in the stream where it gathers."""
    return [bool(reply) for reply in (yield [command("EXISTS", progress(core, one)) for one in places])]


def unknown(core: Core, going: Sequence[tuple[Arrived, Ids]]) -> list[Request]:
    """Returns requests whose reply is 1 if the store has no progress of groups: none was released."""
    by_stream: dict[str, list[str]] = {}
    for one, _ in going:
        by_stream.setdefault(one.stream, []).append(one.group)
    return [
        log_scripts.check_groups(keys.Stream(core.config.name, stream), groups)
        for stream, groups in by_stream.items()
    ]


def wholes(entries: Sequence[Entry], lines: Mapping[int, Definition]) -> list[Place]:
    """Returns the groups that outcomes report as a whole, if their lines are known."""
    slabs_of = {one.slab for entry in entries for one in entry.slabs if one.indexes is None}
    places = ((lines.get(sections.place_of(slab)[0]), slab) for slab in slabs_of)
    found = ((line, sections.place_of(slab)[1], slab) for line, slab in places if line is not None)
    return [Place(line, section, slab) for line, section, slab in found if section <= len(line.gathers)]


def _ended(core: Core, group: Arrived) -> Request:
    shard = core.shards[ids.shard_of(group.slab, core.config.ackers)]
    return ledger_lua.check_over(shard.slabs, shard.vector(group.slab), group.slab)
