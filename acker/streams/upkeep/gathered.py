"""What waits in streams that gather, where it is to go: its requests fail, or are over, or nobody wants it.

Whoever is cut short in between does the same again: rows stay until nothing of them can be acked any more,
and a group is known to be closed only when nothing of it is left.
"""

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

import numpy as np

from acker.ledger import ids
from acker.ledger.calls import idempotence
from acker.ledger.calls.core import Core
from acker.ledger.ids import Ids
from acker.ledger.slabs import sections
from acker.ledger.slabs.causes import Cause
from acker.store import keys
from acker.store.operation import Operation, Reply, command
from acker.streams.log import gathers, segments
from acker.streams.log.segments import ANCHORS, Segment
from acker.streams.staging import acks, vectors
from acker.streams.upkeep import scripts

FLIGHT = 64
"""Segments, or places, that are looked at together."""

Mark: TypeAlias = tuple[float, bytes]
START: Mark = (-1.0, b"")
"""Before the first place of `places`."""


class Waiting(NamedTuple):
    """A segment that waits: where ("<group>:<task>"), the id of its entry there, and the segment."""

    place: str
    entry: str
    segment: Segment

    @property
    def since(self) -> float:
        """When it came, in Unix seconds."""
        return int(self.entry.split("-")[0]) / 1000


def places(core: Core, stream: str, after: Mark = START) -> Operation[list[Mark]]:
    """Where segments wait, the oldest first, after one that is known; none where there are no others."""
    key, most = keys.Stream(core.config.name, stream).gathering, FLIGHT
    while True:
        [reply] = yield [
            command("ZRANGEBYSCORE", key, repr(after[0]), "+inf", "WITHSCORES", "LIMIT", 0, most)
        ]
        found = marks(reply)
        others = [one for one in found if one > after]
        if others or len(found) < most:
            return others
        most *= 2  # all of one moment


def marks(reply: Reply) -> list[Mark]:
    """Places as they are stored, with since when (ms) something waits there."""
    if reply and not isinstance(reply[0], list | tuple):
        reply = zip(reply[::2], reply[1::2], strict=True)
    return [(float(score), bytes(name)) for name, score in reply]


def at(core: Core, stream: str, place: str, start: str = "-", most: int = FLIGHT) -> Operation[list[Waiting]]:
    """The segments that wait at a place, the oldest first, from the id of an entry on: so many at most."""
    [found] = yield [command("XRANGE", _gathered(core, stream, place), start, "+", "COUNT", most)]
    return [Waiting(place, entry.decode(), segments.readable(fields[1])) for entry, fields in found]


def oldest(core: Core, stream: str) -> Operation[tuple[list[Waiting], float]]:
    """Segments that wait longest, and until when all are among them."""
    first = yield from places(core, stream)
    names = [name.decode("utf-8", "replace") for _, name in first]
    replies = yield [
        command("XRANGE", _gathered(core, stream, name), "-", "+", "COUNT", FLIGHT) for name in names
    ]
    found, end = list[Waiting](), first[-1][0] / 1000 if len(first) >= FLIGHT else float("inf")
    for name, reply in zip(names, replies, strict=True):
        own = [Waiting(name, entry.decode(), segments.readable(fields[1])) for entry, fields in reply]
        found += own
        if len(own) == FLIGHT:
            end = min(end, own[-1].since)
    return found, end


def fail(core: Core, stream: str, members: Sequence[Segment], reason: str) -> Operation[None]:
    """Fails the requests that have rows in segments, in all sections: an ack comes too late then.

    members: that wait, or were released and not acked by all. Their vectors stay: without them a segment
    looks as acked, and with it all of its bundle.
    """
    own = keys.Stream(core.config.name, stream)
    cause = Cause(reason)
    for segment in members:
        [states, payload] = yield [
            command("HGETALL", own.owed(segment.token)),
            command("GET", own.payload(segment.token)),
        ]
        owed = [int(slot) for slot, state in _states(states) if state == b"1"]
        rows = []
        if payload is not None and segment.shards and owed:
            rows = yield from acks.rows(core, stream, segment, owed[0], payload)
        if rows and ANCHORS in rows[0].schema.names:
            anchors = np.unique(np.concatenate([segments.edges(one.column(ANCHORS))[0] for one in rows]))
            its = vectors.keys_of(core, segment, owed[0])
            yield from acks.fail_once(core, its, anchors, [cause.text()] * len(anchors), needed=False)
            yield from _fail_others(core, anchors, cause)


def _states(reply: Reply) -> list[tuple[bytes, bytes]]:
    return list(reply.items()) if isinstance(reply, dict) else list(zip(reply[::2], reply[1::2], strict=True))


def _fail_others(core: Core, anchors: Ids, cause: Cause) -> Operation[None]:
    """Fails requests in the other sections that the ledger has still."""
    others = np.setdiff1d(sections.everywhere(anchors), anchors)
    names = ids.split(others)[0]
    slabs = np.unique(names)
    there = yield [
        command("HEXISTS", core.shards[ids.shard_of(slab, core.config.ackers)].slabs, slab)
        for slab in (int(name).to_bytes(8, "big") for name in slabs)
    ]
    known = slabs[np.array(there, dtype=np.bool_)]
    yield from idempotence.submit(core, core.fail(others[np.isin(names, known)], cause.encode()).calls)


def drop(
    core: Core, stream: str, members: Sequence[Waiting], why: str = "", slot: int | None = None
) -> Operation[int]:
    """Drops segments that wait, of which nothing can be acked any more; returns how many went.

    why: over which limit; "": their requests are over. slot: only for that subscription.
    """
    own, gone = keys.Stream(core.config.name, stream), 0
    for first in range(0, len(members), FLIGHT):
        part = [(_gathered(core, stream, one.place), *one) for one in members[first : first + FLIGHT]]
        [reply] = yield [scripts.drop_gathered(own, why, slot, part)]
        gone += int(reply)
    return gone


def close(core: Core, stream: str, group: str, tasks: int) -> Operation[None]:
    """Drops what waits for a group of which no request is left; what comes for it later is late."""
    own = keys.Stream(core.config.name, stream)
    while True:  # what is published in between is dropped, too: then that is known to be late
        for task in range(tasks):
            while found := (yield from at(core, stream, f"{group}:{task}")):
                spent = [key for one in found for key, _ in vectors.keys_of(core, one.segment)]
                yield from acks.unlink(core, spent)
                yield from drop(core, stream, found)
        [closed] = yield [scripts.close_group(own, group, range(tasks), gathers.LATE_TTL)]
        if closed:
            return


def leave(core: Core, stream: str, slot: int, reason: str | None) -> Operation[tuple[int, int]]:
    """Drops the part of a subscription in what waits; returns of how many segments and rows.

    reason: why requests that have rows there fail; None: its tuples are acked, they go on without it.
    """
    own = keys.Stream(core.config.name, stream)
    done = rows = 0
    mark = START
    while some := (yield from places(core, stream, mark)):
        mark = some[-1]
        for _, name in some:
            start = "-"
            while found := (yield from at(core, stream, name.decode("utf-8", "replace"), start)):
                start = f"({found[-1].entry}"
                states = yield [command("HGET", own.owed(one.segment.token), slot) for one in found]
                its = [one for one, state in zip(found, states, strict=True) if state == b"1"]
                members = [one.segment for one in its]
                acked = [place for one in members for place in vectors.keys_of(core, one, slot)]
                if reason is not None:
                    yield from fail(core, stream, members, reason)
                    yield from acks.unlink(core, [key for key, _ in acked])
                else:
                    yield from vectors.apply(core, acked, "2")
                yield from drop(core, stream, its, slot=slot)
                done, rows = done + len(its), rows + sum(one.rows for one in members)
    return done, rows


def _gathered(core: Core, stream: str, place: str) -> bytes:
    group, _, task = place.partition(":")
    own = keys.Stream(core.config.name, stream)
    return own.gathered(group, int(task) if task.isdecimal() else 0)
