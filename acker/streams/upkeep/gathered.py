"""Gathered rows that have to go: their requests fail, or are over, or no subscription wants them.

A call that is cut short is done again: rows stay until nothing of them can be acked, and a group is noted as
closed only when none of its rows are left.

Terms: a segment is some thousand rows of a stream, stored and acked as one piece; a vector has a number for
each tree, the XOR of tuple ids; a slot is the random number of a subscription; a bundle is the rows that have
gathered for one task of a group; a section is the steps of a line between two gathers.
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
"""Segments, or places, that are read together."""

Mark: TypeAlias = tuple[float, bytes]
START: Mark = (-1.0, b"")
"""Before the first place of `places`."""


class Waiting(NamedTuple):
    """A waiting segment: its place ("<group>:<task>"), the id of its entry there, and the segment."""

    place: str
    entry: str
    segment: Segment

    @property
    def since(self) -> float:
        """The time at which the segment came there, in Unix seconds."""
        return int(self.entry.split("-")[0]) / 1000


def places(core: Core, stream: str, after: Mark = START) -> Operation[list[Mark]]:
    """The places at which segments wait, the oldest first, after a known one; none if there are no others."""
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
    """Places, parsed from a reply, with the times (ms) since which something waits there."""
    if reply and not isinstance(reply[0], list | tuple):
        reply = zip(reply[::2], reply[1::2], strict=True)
    return [(float(score), bytes(name)) for name, score in reply]


def at(core: Core, stream: str, place: str, start: str = "-", most: int = FLIGHT) -> Operation[list[Waiting]]:
    """The segments that wait at a place, the oldest first, from the id of an entry on, up to a number."""
    [found] = yield [command("XRANGE", _gathered(core, stream, place), start, "+", "COUNT", most)]
    return [Waiting(place, entry.decode(), segments.readable(fields[1])) for entry, fields in found]


def oldest(core: Core, stream: str) -> Operation[tuple[list[Waiting], float]]:
    """The segments that wait longest, and the time up to which all are among them."""
    first = yield from places(core, stream)
    names = [name.decode("utf-8", "replace") for _, name in first]
    replies = yield [
        command("XRANGE", _gathered(core, stream, name), "-", "+", "COUNT", FLIGHT) for name in names
    ]
    waiting, end = list[Waiting](), first[-1][0] / 1000 if len(first) >= FLIGHT else float("inf")
    for name, reply in zip(names, replies, strict=True):
        here = [Waiting(name, entry.decode(), segments.readable(fields[1])) for entry, fields in reply]
        waiting += here
        if len(here) == FLIGHT:
            end = min(end, here[-1].since)
    return waiting, end


def fail(core: Core, stream: str, members: Sequence[Segment], reason: str) -> Operation[None]:
    """Fails the requests that have rows in segments, in all sections: later acks are late then.

    members: segments that wait, or were released and are not acked by all. Their vectors stay: without them a
    segment would look as acked, and with it all of its bundle.
    """
    stream_keys = keys.Stream(core.config.name, stream)
    cause = Cause(reason)
    for segment in members:
        [states, payload] = yield [
            command("HGETALL", stream_keys.unacked(segment.id)),
            command("GET", stream_keys.payload(segment.id)),
        ]
        unacked = [int(slot) for slot, state in _states(states) if state == b"1"]
        rows = []
        if payload is not None and segment.shards and unacked:
            rows = yield from acks.rows(core, stream, segment, unacked[0], payload)
        if rows and ANCHORS in rows[0].schema.names:
            anchors = np.unique(np.concatenate([segments.edges(one.column(ANCHORS))[0] for one in rows]))
            its = vectors.keys_of(core, segment, unacked[0])
            yield from acks.fail_once(core, its, anchors, [cause.text()] * len(anchors), needed=False)
            yield from _fail_others(core, anchors, cause)


def _states(reply: Reply) -> list[tuple[bytes, bytes]]:
    return list(reply.items()) if isinstance(reply, dict) else list(zip(reply[::2], reply[1::2], strict=True))


def _fail_others(core: Core, anchors: Ids, cause: Cause) -> Operation[None]:
    """Fails requests in the other sections that the ledger still has."""
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
    """Drops waiting segments that can no longer be acked; returns their number.

    why: the exceeded limit; "" if their requests are over. slot: the subscription to drop them for; None:
    all.
    """
    stream_keys, gone = keys.Stream(core.config.name, stream), 0
    for first in range(0, len(members), FLIGHT):
        part = [(_gathered(core, stream, one.place), *one) for one in members[first : first + FLIGHT]]
        [reply] = yield [scripts.drop_gathered(stream_keys, why, slot, part)]
        gone += int(reply)
    return gone


def close(core: Core, stream: str, group: str, tasks: int) -> Operation[None]:
    """Drops the rows that wait for a group without requests. Rows that come for it later are late."""
    stream_keys = keys.Stream(core.config.name, stream)
    while True:  # segments that are published meanwhile are dropped, too; later ones are late
        for task in range(tasks):
            while waiting := (yield from at(core, stream, f"{group}:{task}")):
                spent = [key for one in waiting for key, _ in vectors.keys_of(core, one.segment)]
                yield from acks.unlink(core, spent)
                yield from drop(core, stream, waiting)
        [closed] = yield [scripts.close_group(stream_keys, group, range(tasks), gathers.LATE_TTL)]
        if closed:
            return


def leave(core: Core, stream: str, slot: int, reason: str | None) -> Operation[tuple[int, int]]:
    """Drops a subscription's part of waiting rows; returns the numbers of segments and rows.

    reason: the reason for which requests with rows there fail; None acks the tuples, and the requests go on.
    """
    stream_keys = keys.Stream(core.config.name, stream)
    done = rows = 0
    mark = START
    while some := (yield from places(core, stream, mark)):
        mark = some[-1]
        for _, name in some:
            start = "-"
            while entries := (yield from at(core, stream, name.decode("utf-8", "replace"), start)):
                start = f"({entries[-1].entry}"
                states = yield [
                    command("HGET", stream_keys.unacked(piece.segment.id), slot) for piece in entries
                ]
                waiting = [piece for piece, state in zip(entries, states, strict=True) if state == b"1"]
                members = [piece.segment for piece in waiting]
                acked = [place for piece in members for place in vectors.keys_of(core, piece, slot)]
                if reason is not None:
                    yield from fail(core, stream, members, reason)
                    yield from acks.unlink(core, [key for key, _ in acked])
                else:
                    yield from vectors.apply(core, acked, "2")
                yield from drop(core, stream, waiting, slot=slot)
                done, rows = done + len(waiting), rows + sum(piece.rows for piece in members)
    return done, rows


def _gathered(core: Core, stream: str, place: str) -> bytes:
    group, _, task = place.partition(":")
    stream_keys = keys.Stream(core.config.name, stream)
    return stream_keys.gathered(group, int(task) if task.isdecimal() else 0)
