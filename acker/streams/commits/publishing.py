"""Publishing segments whose tuples their trees know of: for the subscriptions that there still are.

A segment is staged for the subscriptions of that moment, and its trees know of a tuple for each. One that is
dropped before the segment is published will never ack its own. So who publishes does, where other
subscriptions have the segment; where none is left, nobody works on its rows, and their trees fail at once, to
be replayed for the next one. The store notes which slots these are with the segment, until that is done.
"""

from collections.abc import Iterable, Sequence

from acker.ledger.core import Core
from acker.store import keys
from acker.store.operation import Operation, Request
from acker.streams import fairness, gathers, lua, retention, subscriptions
from acker.streams.commits import inputs, vectors
from acker.streams.segments import Segment
from acker.streams.subscriptions import HOLD_TTL, Range, Taken

_PUBLISH = 500


def publish(core: Core, members: Iterable[tuple[str, Segment]]) -> Operation[int]:
    """Publishes staged segments, each in its stream; returns how many were not published before.

    Their vectors are applied. The same again changes nothing, and goes on where it was cut. Segments over the
    limits of the streams then are the caller's to drop.
    """
    by_stream: dict[str, list[Segment]] = {}
    for stream, segment in members:
        by_stream.setdefault(stream, []).append(segment)
    published = 0
    for stream, found in by_stream.items():
        for first in range(0, len(found), _PUBLISH):
            published += yield from _publish(core, stream, found[first : first + _PUBLISH])
    return published


def holding(
    core: Core, members: Iterable[tuple[str, Segment]], ttl: int
) -> list[tuple[Request, list[Segment]]]:
    """Requests that let the rows of staged segments live for so many seconds (lua/hold.lua), and whose."""
    by_stream: dict[str, list[Segment]] = {}
    for stream, segment in members:
        by_stream.setdefault(stream, []).append(segment)
    made = []
    for stream, found in by_stream.items():
        own = keys.Stream(core.config.name, stream)
        for first in range(0, len(found), _PUBLISH):
            part = found[first : first + _PUBLISH]
            made.append((lua.hold(own, part, ttl), part))
    return made


def _publish(core: Core, stream: str, members: Sequence[Segment]) -> Operation[int]:
    own = keys.Stream(core.config.name, stream)
    if any(segment.to for segment in members):
        yield from _gather(core, stream, [one for one in members if one.to])
        members = [one for one in members if not one.to]
    if not members:
        return 0
    [(published, *gone)] = yield [lua.publish(core.config, own, members)]
    for segment, slots in zip(members, gone, strict=True):
        yield from _end(core, stream, segment, slots)
    return int(published)


def _gather(core: Core, stream: str, members: Sequence[Segment]) -> Operation[None]:
    """Has segments wait in a stream that gathers, or releases waiting ones with the one that ends them."""
    own = keys.Stream(core.config.name, stream)
    placed = [(*gathers.parse_destination(one.to), one) for one in members]
    waiting = [(group, task, one) for group, task, last, one in placed if not last]
    if waiting:
        [replies] = yield [lua.gather(core.config, own, HOLD_TTL, waiting)]
        for (_, _, one), reply in zip(waiting, replies, strict=True):
            if reply == b"0":  # its trees are over: their request failed before
                yield from inputs.unlink(core, [key for key, _ in vectors.keys_of(core, one)])
            else:
                yield from _end(core, stream, one, reply[1:])
    # All at once: a reader that is woken by the first takes the others with it.
    how = gathers.LATE_TTL, fairness.LIGHT
    ending = [(group, task, one) for group, task, last, one in placed if last]
    released = yield [lua.release(core.config, own, *one, *how) for one in ending]
    for (_, _, one), (_, gone) in zip(ending, released, strict=True):
        yield from _end(core, stream, one, gone)


def publish_once(core: Core, stream: str, segment: Segment, payload: bytes, ttl: int) -> Operation[None]:
    """Publishes a segment of a writer without commits; again within `ttl` seconds it ends what is left."""
    own = keys.Stream(core.config.name, stream)
    [(_, gone)] = yield [lua.publish_once(core.config, own, segment, payload, ttl)]
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
