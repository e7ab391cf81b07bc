"""Publishing segments whose tuples their trees know of: for the subscriptions that there still are.

A segment is staged for the subscriptions of that moment, and its trees know of a tuple for each. One that is
dropped before the segment is published will never ack its own. So who publishes does, where other
subscriptions have the segment; where none is left, nobody works on its rows, and their trees fail at once, to
be replayed for the next one. The store notes which slots these are with the segment, until that is done.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import redis

from acker.ledger import sections
from acker.ledger.core import Core
from acker.store import keys
from acker.store.operation import Operation, Request, abreast
from acker.streams import fairness, gathers, lua, retention, segments, subscriptions
from acker.streams.commits import inputs, vectors
from acker.streams.commits.vectors import Made
from acker.streams.segments import Segment
from acker.streams.subscriptions import HOLD_TTL, Range, Taken

_PUBLISH = 500


def publish(core: Core, members: Iterable[tuple[str, Segment]], made: Made) -> Operation[Made | None]:
    """Publishes staged segments, each in its stream; returns what the commit has made by then.

    None where the store was set back to before the commit held their rows (`holding`), or emitted their
    tuples. Their vectors are applied. The same again changes nothing, and goes on where it was cut. Segments
    over the limits of the streams then are the caller's to drop.
    """
    to = divided(members)
    gathered = yield from _gather(core, to, made)
    if gathered is None:
        return None
    plain = [_publish(core, *part) for part in to.plain]
    return gathered if all((yield from abreast(plain))) else None


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
        placed = [(*gathers.parse_destination(one.to), one) for one in part if one.to]
        if wait := [(group, task, one) for group, task, last, one in placed if not last]:
            found.waiting.append((stream, wait))
        found.ending.extend((stream, (group, task, one)) for group, task, last, one in placed if last)
        if plain := [one for one in part if not one.to]:
            found.plain.append((stream, plain))
    return found


def gathering(core: Core, waiting: Sequence[tuple[str, list[Placed]]]) -> list[Request]:
    """Requests by which segments wait for others."""
    name = core.config.name
    return [
        lua.gather(core.config, keys.Stream(name, stream), HOLD_TTL, placed) for stream, placed in waiting
    ]


def releasing(core: Core, ending: Sequence[tuple[str, Placed]]) -> list[Request]:
    """Requests that release what has gathered, each with the segment that ends it."""
    name, how = core.config.name, (gathers.LATE_TTL, fairness.LIGHT)
    return [lua.release(core.config, keys.Stream(name, stream), *one, *how) for stream, one in ending]


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
    """Requests that let the rows of staged segments live for so many seconds (lua/hold.lua), and whose."""
    name = core.config.name
    return [(lua.hold(keys.Stream(name, stream), part, ttl), part) for stream, part in _parts(members)]


def _publish(core: Core, stream: str, members: Sequence[Segment]) -> Operation[bool]:
    [reply] = yield [lua.publish(core.config, keys.Stream(core.config.name, stream), members)]
    if isinstance(reply, redis.ResponseError):
        return False
    for segment, slots in zip(members, reply[1:], strict=True):
        yield from _end(core, stream, segment, slots)
    return True


def _gather(core: Core, to: Divided, made: Made) -> Operation[Made | None]:
    """Has segments wait in streams that gather, or releases waiting ones with the one that ends them.

    The tree of a section does not know of the tuples of the next one, as a tree knows of its own. So it must
    not be over by a store that has lost what waits, and its inputs are acked only where that is noted.
    """
    if to.waiting:
        noted = yield from _wait(core, to.waiting, made)
        if noted is None:
            return None
        made = noted
    # All at once: a reader that is woken by the first takes the others with it.
    released = yield releasing(core, to.ending)
    for (stream, (_, _, one)), reply in zip(to.ending, released, strict=True):
        if isinstance(reply, redis.ResponseError):
            return None
        yield from _end(core, stream, one, reply[1])
    return made


def _wait(core: Core, waiting: Sequence[tuple[str, list[Placed]]], made: Made) -> Operation[Made | None]:
    """Has segments wait for others, and shards note that; returns what the commit has made by then."""
    groups = {group for _, placed in waiting for group, _, _ in placed}
    of_groups = [sections.shards_of(group, core.config.ackers) for group in groups]
    noted_in = frozenset[int]().union(*of_groups)
    made = replace(made, elsewhere=segments.new_token(), noted_in=noted_in)
    for shard in noted_in:  # so it is dropped there when the commit is done
        made.needed[shard] += 0
    # Where all sections of a request are in one shard, that looks by itself for what was emitted there.
    needed = [one for one in made.needed.items() if one[1]] if any(len(one) > 1 for one in of_groups) else []
    counting = [made.counting(core, shard) for shard, _ in needed]
    replies = yield [*gathering(core, waiting), *counting, *made.noting(core)]
    found, counts = replies[: len(waiting)], replies[len(waiting) :]
    if any(isinstance(reply, redis.ResponseError) for reply in found):
        return None
    if any(int(count or 0) < number for count, (_, number) in zip(counts, needed, strict=False)):
        return None
    for (stream, placed), reply in zip(waiting, found, strict=True):
        for (_, _, one), state in zip(placed, reply, strict=True):
            if state == b"0":  # its trees are over: their request failed before
                yield from inputs.unlink(core, [key for key, _ in vectors.keys_of(core, one)])
            else:
                yield from _end(core, stream, one, state[1:])
    return made


def publish_once(core: Core, stream: str, segment: Segment, payload: bytes, ttl: int) -> Operation[None]:
    """Publishes a segment of a writer without commits; again within `ttl` seconds it ends what is left."""
    own = keys.Stream(core.config.name, stream)
    [(_, gone)] = yield [lua.publish_once(core.config, own, segment, payload, ttl, subscriptions.new_slot())]
    yield from _end(core, stream, segment, gone)
    yield from retention.retain(core, stream)


def _end(core: Core, stream: str, segment: Segment, gone: bytes) -> Operation[None]:
    """Ends the tuples of a segment for slots that are gone (stream.gone, lua/includes/streams.lua)."""
    nobody = gone.startswith(b"x")
    parts = [Range(stream, int(slot), "", 0, 0) for slot in gone.removeprefix(b"x").split(b",") if slot]
    if nobody:
        reason = f"every subscription of stream {stream} that the row was for was dropped"
        yield from inputs.fail_segments(core, parts[0], [segment], reason)
    for one in parts:
        places = vectors.keys_of(core, segment, one.slot)
        if nobody:
            yield from inputs.unlink(core, [key for key, _ in places])
        else:
            yield from vectors.apply(core, places, "2")
        yield from subscriptions.note(core, one, [Taken(0, "", segment)], forget=True)
