"""Overview of lines: the waiting rows of each gather, and the progress of a request.

Terms: a tree is all that comes of one record; a section is the steps of a line between two gathers; a group
is requests of a line that were tracked together.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from acker.errors import UnknownRequest
from acker.inspect.lines.unread_streams import Unread, unread
from acker.ledger import ids
from acker.ledger.calls.core import Core
from acker.ledger.fields import SPREAD, Count, Id, Instant, Name, Named, Seconds
from acker.ledger.slabs import sections
from acker.ledger.trees import trees
from acker.ledger.trees.trees import Tree
from acker.lines import definition
from acker.lines.definition import Definition
from acker.lines.gather import Gather
from acker.store import keys
from acker.store.operation import Operation, Request, abreast, command
from acker.store.records import Bounds, passing_over, reading
from acker.store.replies import milliseconds, whole
from acker.streams.log.gathers import MOST_SEGMENTS

_LOOK = 1_000
"""Most places of a gather that are looked at, those first that have waited longest."""


@dataclass(frozen=True, slots=True)
class GatherSeen:
    """A stream that gathers."""

    gather: Annotated[Gather, SPREAD]
    read: Annotated[bool, "Whether a step reads it: else nothing comes of what goes on."]
    rows: Annotated[Count, "Rows that wait for others of their requests."]
    groups: Annotated[Count, "Groups of requests whose rows wait, of the 1,000 that wait longest."]
    more: Annotated[bool, "Whether there are others."]
    oldest: Annotated[Seconds | None, "Seconds for which the oldest waits; null where none does."]
    oldest_request: Annotated[
        Id | None,
        "The first request of its group, by its anchor in the first section; null where none waits.",
    ]


@dataclass(frozen=True, slots=True)
class LineSeen:
    """A line, with its gathers in their order."""

    name: Annotated[Name, Named("line")]
    gathers: tuple[GatherSeen, ...]
    unread: Annotated[
        tuple[Unread, ...],
        "Other streams that have rows of the line and that nobody reads: the requests of these rows end when "
        "their time is over. Of the first 100 such streams of the topology.",
    ] = ()


@dataclass(frozen=True, slots=True)
class Gathered:
    """Rows that wait in a gather for a task of a request's group: its requests were tracked together."""

    task: Count
    segments: Count
    rows: Count
    age: Annotated[Seconds | None, "Since the first of it came; null where that is not known."] = None


@dataclass(frozen=True, slots=True)
class Section:
    """A section of a request."""

    number: Annotated[int, Bounds(1, 8), Named("section")]
    stream: Annotated[Name | None, "The stream that gathers at its end; null: it ends the request."]
    read: Annotated[bool, "Whether a step reads that stream; true where there is none."]
    anchor: Annotated[Id, "Of the request's tree there."]
    tree: Annotated[Tree | None, "null where the ledger does not know it (any more)."]
    released_at: Annotated[Instant | None, "Since when; null where they have not."]
    gathered: Annotated[tuple[Gathered, ...], "What waits there, of all requests of the group."]

    @property
    def released(self) -> Annotated[bool, "Whether the group's rows have gone on, or were dropped."]:
        """True if the stream's rows of the group have gone on, or were dropped."""
        return self.released_at is not None

    @property
    def passed(self) -> Annotated[bool, "Whether all of the group are done with it, as far as is known."]:
        """True if the section after it has begun, or would have: all of the group are done with this one."""
        return self.released or self.tree is None

    @property
    def over(
        self,
    ) -> Annotated[bool, "Whether nothing of the request is left there, as far as is known."]:
        """True if nothing of the request is left to be done in the section, as far as the ledger knows."""
        return self.passed or (self.tree is not None and self.tree.state == "finished")


@dataclass(frozen=True, slots=True)
class RequestSeen:
    """The way of a request of a line so far. group: 16 hexadecimal digits."""

    line: Name
    id: Annotated[Id, Named("request")]
    group: Annotated[str, "Requests that were tracked together go on together."]
    sections: tuple[Section, ...]


def overview(core: Core) -> Operation[list[LineSeen]]:
    """All lines of a topology, by name. One that cannot be read is logged, and left out."""
    definitions = yield from definition.lines(core)
    others = yield from unread(core, definitions)
    lines = []
    for line in sorted(definitions.values(), key=lambda line: line.name):
        members = yield from abreast([_gather(core, member) for member in line.gathers])
        lines.append(LineSeen(line.name, tuple(members), tuple(others.get(line.number, ()))))
    return lines


def _gather(core: Core, gather: Gather) -> Operation[GatherSeen]:
    stream = keys.Stream(core.config.name, gather.stream)
    [places, [rows, slots], instant] = yield [
        command("ZRANGEBYSCORE", stream.gathering, "-inf", "+inf", "WITHSCORES", "LIMIT", 0, _LOOK + 1),
        command("HMGET", stream.subscriptions, "waiting", "slots"),
        Request(stream.gathering, ["TIME"]),
    ]
    scored = list(places) if places and isinstance(places[0], list | tuple) else list(_pairs(places))
    groups = [bytes(name).partition(b":")[0] for name, _ in scored[:_LOOK]]
    oldest = (milliseconds(instant) - float(scored[0][1])) / 1000 if scored else None
    first = None
    for group in groups[:1]:
        with passing_over(f"{core.config.name}, stream {gather.stream}"), reading(f"group {group!r:.100}"):
            first = ids.anchor_at(bytes.fromhex(group.decode())[: ids.SLAB_BYTES], 0)
    waiting = int(rows) if rows and rows.lstrip(b"-").isdigit() else 0
    return GatherSeen(
        gather, bool(slots), max(0, waiting), len(set(groups)), len(scored) > _LOOK, oldest, first
    )


def _pairs(flat: Sequence[bytes]) -> list[tuple[bytes, bytes]]:
    return list(zip(flat[::2], flat[1::2], strict=True))


def request(core: Core, anchor: int) -> Operation[RequestSeen]:
    """Returns a request by the anchor of its tree in any section. Raises UnknownRequest for other trees."""
    asked = np.array([anchor], np.int64)
    known = yield from definition.lines(core)
    line = known.get(int(sections.lines(asked)[0]))
    if line is None:
        name = core.config.name
        raise UnknownRequest(f"anchor: expected one of a tree of a line of topology {name!r}, got {anchor}")
    anchors = [int(sections.within(asked, number)[0]) for number in range(1, len(line.gathers) + 2)]
    group = sections.group_of(ids.slab_of(anchors[0]))
    there = {tree.anchor: tree for tree in (yield from trees.trees_at(core, anchors))}
    seen_sections = []
    for number, its in enumerate(anchors, 1):
        read, released_at, gathered = yield from _waiting(core, line, number, group)
        stream = line.gathers[number - 1].stream if number <= len(line.gathers) else None
        seen_sections.append(Section(number, stream, read, its, there.get(its), released_at, gathered))
    return RequestSeen(line.name, anchors[0], group, tuple(seen_sections))


def _waiting(
    core: Core, line: Definition, section: int, group: str
) -> Operation[tuple[bool, float | None, tuple[Gathered, ...]]]:
    """Returns True if a step reads a section's gather, a group's release time, and its waiting rows."""
    if section > len(line.gathers):
        return True, None, ()
    gather = line.gathers[section - 1]
    stream = keys.Stream(core.config.name, gather.stream)
    tasks = range(gather.tasks)
    [instant, slots, released, *replies] = yield [
        Request(stream.gathering, ["TIME"]),
        command("HGET", stream.subscriptions, "slots"),
        command("HGET", stream.progress(group), "released"),
        *(command("ZSCORE", stream.gathering, f"{group}:{task}") for task in tasks),
        *(
            command("XRANGE", stream.gathered(group, task), "-", "+", "COUNT", MOST_SEGMENTS + 1)
            for task in tasks
        ),
    ]
    now = milliseconds(instant)
    gathered = [
        Gathered(
            task,
            len(entries),
            sum(int(fields[3]) for _, fields in entries if fields[3].isdigit()),
            None if came is None else max(0.0, now - float(came)) / 1000,
        )
        for task, (came, entries) in enumerate(
            zip(replies[: gather.tasks], replies[gather.tasks :], strict=True)
        )
        if entries
    ]
    at = None if released is None else whole(released, f"progress of a group in {gather.stream!r}") / 1000
    return bool(slots), at, tuple(gathered)
