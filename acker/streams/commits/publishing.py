"""Publishing segments whose tuples their trees know of: for the subscriptions that there still are.

A segment is staged for the subscriptions of that moment, and its trees know of a tuple for each. One that is
dropped before the segment is published will never ack its own. So who publishes does, where other
subscriptions have the segment; where none is left, nobody works on its rows, and their trees fail at once, to
be replayed for the next one. The store notes which slots these are with the segment, until that is done.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import redis

from acker.ledger import ids
from acker.ledger.calls.core import Core
from acker.ledger.slabs import sections
from acker.store import keys
from acker.store.operation import Operation, Reply, Request, Word
from acker.store.replies import milliseconds
from acker.streams.commits import scripts
from acker.streams.log import fairness, gathers, segments, subscriptions
from acker.streams.log.segments import Segment
from acker.streams.log.subscriptions import HOLD_TTL, Range, Taken
from acker.streams.staging import acks, vectors
from acker.streams.staging.vectors import Made
from acker.streams.upkeep import retention

_PUBLISH = 500


class RowsLost(Exception):
    """Nobody holds rows that are to be published: the store was set back to before that, or their tuples."""


Placed: TypeAlias = tuple[str, int, Segment]
"""Group and task that a segment waits for, and the segment."""


@dataclass(frozen=True, slots=True)
class Divided:
    """Segments to be published: they wait for others, end their bundle, or are for readers at once."""

    waiting: list[tuple[str, list[Placed]]]
    ending: list[tuple[str, Placed]]
    plain: list[tuple[str, list[Segment]]]


def divided(members: Iterable[tuple[str, Segment]]) -> Divided:
    """Divides segments by what publishes them, into as many as a call takes."""
    found = Divided([], [], [])
    for stream, part in _parts(members):
        placed = [(gathers.parse_destination(one.to), one) for one in part if one.to]
        if wait := [(to.group, to.task, one) for to, one in placed if not to.last]:
            found.waiting.append((stream, wait))
        found.ending.extend((stream, (to.group, to.task, one)) for to, one in placed if to.last)
        if plain := [one for one in part if not one.to]:
            found.plain.append((stream, plain))
    return found


Waiting: TypeAlias = Sequence[tuple[str, list[Placed]]]
"""Streams, and segments that are to wait there."""
NOW = "now"


def looking(core: Core, waiting: Waiting) -> list[tuple[Request, list[bytes]]]:
    """Requests that tell of the groups of segments whether they are open, and of which slabs each tells."""
    by_shard: dict[int, set[bytes]] = {}
    for _, placed in waiting:
        for slab in map(_awaited, placed):
            by_shard.setdefault(ids.shard_of(slab, core.config.ackers), set()).add(slab)
    return [
        (scripts.check_open(core.shards[shard], part), part)
        for shard, slabs in by_shard.items()
        for found in [sorted(slabs)]
        for part in [found[first : first + _PUBLISH] for first in range(0, len(found), _PUBLISH)]
    ]


def _awaited(one: Placed) -> bytes:
    """The slab whose trees a segment waits for."""
    group, _, segment = one
    return sections.slab_of(group, gathers.parse_destination(segment.to).section)


def gathering(core: Core, waiting: Waiting, open_at: Sequence[Mapping[bytes, Word]] = ()) -> list[Request]:
    """Requests by which segments wait for others.

    open_at: for each stream, when slabs were seen to be open, and 0 for those that are over; without it, the
    same chain looks.
    """
    known = round(2000 * core.config.message_timeout)  # see `acker.lines.coordinator.forget`
    made = []
    for number, (stream, placed) in enumerate(waiting):
        seen = [open_at[number][_awaited(one)] if open_at else NOW for one in placed]
        own = keys.Stream(core.config.name, stream)
        made.append(scripts.gather(core.config, own, HOLD_TTL, known, placed, seen))
    return made


def _open(core: Core, waiting: Waiting) -> Operation[list[dict[bytes, Word]]]:
    """When groups were seen to be open, for each stream by its server's clock; 0 for those that are over."""
    # The time first: a group that is found to be open was so then.
    name = core.config.name
    instants = yield [Request(keys.Stream(name, stream).gathering, ["TIME"]) for stream, _ in waiting]
    looks = looking(core, waiting)
    replies = yield [request for request, _ in looks]
    is_open = {
        slab: digit == ord("1")
        for (_, slabs), reply in zip(looks, replies, strict=True)
        for slab, digit in zip(slabs, reply, strict=True)
    }
    return [
        {slab: milliseconds(instant) if is_open[slab] else 0 for slab in map(_awaited, placed)}
        for instant, (_, placed) in zip(instants, waiting, strict=True)
    ]


def releasing(core: Core, ending: Sequence[tuple[str, Placed]]) -> list[Request]:
    """Requests that release what has gathered, each with the segment that ends it."""
    name, how = core.config.name, (gathers.LATE_TTL, fairness.LIGHT)
    return [scripts.release(core.config, keys.Stream(name, stream), *one, *how) for stream, one in ending]


def _parts(members: Iterable[tuple[str, Segment]]) -> list[tuple[str, list[Segment]]]:
    """Streams and their segments, cut into what a call takes."""
    by_stream: dict[str, list[Segment]] = {}
    for stream, segment in members:
        by_stream.setdefault(stream, []).append(segment)
    return [
        (stream, found[first : first + _PUBLISH])
        for stream, found in by_stream.items()
        for first in range(0, len(found), _PUBLISH)
    ]


def holding(
    core: Core, members: Iterable[tuple[str, Segment]], ttl: int
) -> list[tuple[Request, list[Segment]]]:
    """Requests that let the rows of staged segments live for so many seconds, and whose.

    See lua/streams/commits/hold.lua.
    """
    name = core.config.name
    return [(scripts.hold(keys.Stream(name, stream), part, ttl), part) for stream, part in _parts(members)]


def plainly(core: Core, to: Divided) -> list[Request]:
    """Requests that publish segments for readers at once."""
    name = core.config.name
    return [scripts.publish(core.config, keys.Stream(name, stream), part) for stream, part in to.plain]


def published(core: Core, to: Divided, replies: Sequence[Reply]) -> Operation[None]:
    """Ends what `plainly` has found to be for slots that are gone. Raises RowsLost."""
    for (stream, members), reply in zip(to.plain, replies, strict=True):
        _check(reply)
        for segment, slots in zip(members, reply[1:], strict=True):
            yield from _end(core, stream, segment, slots)


def released(core: Core, to: Divided, replies: Sequence[Reply]) -> Operation[None]:
    """Ends what `releasing` has found to be for slots that are gone. Raises RowsLost."""
    for (stream, (_, _, one)), reply in zip(to.ending, replies, strict=True):
        _check(reply)
        yield from _end(core, stream, one, reply[1])


def gathered(core: Core, to: Divided, replies: Sequence[Reply]) -> Operation[None]:
    """Ends what `gathering` has found to come too late, or to be for slots that are gone. Raises RowsLost."""
    for (stream, placed), reply in zip(to.waiting, replies, strict=True):
        _check(reply)
        for (_, _, one), state in zip(placed, reply, strict=True):
            if state == b"0":  # its trees are over: their request failed before
                yield from acks.unlink(core, [key for key, _ in vectors.keys_of(core, one)])
            else:
                yield from _end(core, stream, one, state[1:])


def _check(reply: Reply) -> None:
    if isinstance(reply, redis.ResponseError):
        raise RowsLost(str(reply))


def wait(core: Core, to: Divided, made: Made, *, in_cluster: bool) -> Operation[None]:
    """Has segments wait for others, after a look at their groups; in a cluster, shards note that.

    The tree of a section does not know of the tuples of the next one, as a tree knows of its own. So it
    must not be over by a store that has lost what waits, and its inputs are acked only where that is
    noted. One server loses neither without the other.
    """
    needed, noting, waiting = list[tuple[int, int]](), list[Request](), to.waiting
    while True:
        if in_cluster:
            groups = {group for _, placed in waiting for group, _, _ in placed}
            of_groups = [sections.shards_of(group, core.config.ackers) for group in groups]
            made.note_elsewhere(segments.new_token(), frozenset[int]().union(*of_groups))
            noting = made.noting(core)
            # Where all sections of a request are in one shard, that looks by itself for what was emitted
            # there.
            if any(len(one) > 1 for one in of_groups):
                needed = [one for one in made.needed.items() if one[1]]
        counting = [made.counting(core, shard) for shard, _ in needed]
        open_at = yield from _open(core, waiting)
        replies = yield [*gathering(core, waiting, open_at), *counting, *noting]
        found, counts = replies[: len(waiting)], replies[len(waiting) :]
        for reply in found:
            _check(reply)
        if any(int(count or 0) < number for count, (_, number) in zip(counts, needed, strict=False)):
            raise RowsLost
        if not any(b"2" in reply for reply in found):
            break  # else it took so long that nobody may know any more
    yield from gathered(core, to, found)


def publish_once(core: Core, stream: str, segment: Segment, payload: bytes, ttl: int) -> Operation[None]:
    """Publishes a segment of a writer without commits; again within `ttl` seconds it ends what is left."""
    own = keys.Stream(core.config.name, stream)
    [(_, gone)] = yield [
        scripts.publish_once(core.config, own, segment, payload, ttl, subscriptions.new_slot())
    ]
    yield from _end(core, stream, segment, gone)
    yield from retention.retain(core, stream)


def _end(core: Core, stream: str, segment: Segment, gone: bytes) -> Operation[None]:
    """Ends the tuples of a segment for slots that are gone.

    Stream.gone, lua/streams/includes/streams.lua.
    """
    nobody = gone.startswith(b"x")
    parts = [Range(stream, int(slot), "", 0, 0) for slot in gone.removeprefix(b"x").split(b",") if slot]
    if nobody:
        reason = f"every subscription of stream {stream} that the row was for was dropped"
        yield from acks.fail_segments(core, parts[0], [segment], reason)
    for one in parts:
        places = vectors.keys_of(core, segment, one.slot)
        if nobody:
            yield from acks.unlink(core, [key for key, _ in places])
        else:
            yield from vectors.apply(core, places, "2")
        yield from subscriptions.note(core, one, [Taken(0, "", segment)], forget=True)
