"""Publishes segments whose tuples are in their trees, for the subscriptions that still exist.

A segment is staged for the subscriptions of that moment, and its trees count a tuple for each. A subscription
that is dropped before the segment is published never acks its tuples. So the publisher acks them if the
segment has other subscriptions. If it has none, nobody works on its rows: their trees fail at once, and are
replayed for the next subscription. The store notes these slots with the segment until that is done.

A store that was emptied or rolled back meanwhile has lost subscriptions that nobody dropped. Their tuples are
owed still: the trees expire, and are replayed.

Terms: a tree is all that comes of one record; a slab is the trees that one call tracked together; a vector
has a number for each tree, the XOR of tuple ids; a slot is the random number of a subscription; a bundle is
the rows that have gathered for one task of a group; staged rows are stored, but nobody sees them before a
commit.
"""

import logging
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
from acker.streams.log.subscriptions import HOLD_TTL, Delivery, Range
from acker.streams.staging import acks, vectors
from acker.streams.staging.vectors import CommitProgress
from acker.streams.upkeep import retention

_log = logging.getLogger(__name__)
_PUBLISH, _EXTEND = 128, 500
SEGMENT_WEIGHT = 300
"""The weight of a segment that is published (chunks.py)."""


class RowsLost(Exception):
    """Rows to be published are gone, or their tuples: the store was rolled back."""


Placed: TypeAlias = tuple[str, int, Segment]
"""Group and task that a segment waits for, and the segment."""


@dataclass(frozen=True, slots=True)
class Divided:
    """Segments to be published: they wait for others, end their bundle, or can be read at once."""

    waiting: list[tuple[str, list[Placed]]]
    ending: list[tuple[str, Placed]]
    plain: list[tuple[str, list[Segment]]]


def divide(members: Iterable[tuple[str, Segment]]) -> Divided:
    """Groups segments by the script that publishes them, and cuts the groups into calls."""
    groups = Divided([], [], [])
    for stream, part in _parts(members):
        placed = [(gathers.parse_destination(segment.to), segment) for segment in part if segment.to]
        if wait := [(to.group, to.task, segment) for to, segment in placed if not to.last]:
            groups.waiting.append((stream, wait))
        groups.ending.extend((stream, (to.group, to.task, segment)) for to, segment in placed if to.last)
        if plain := [segment for segment in part if not segment.to]:
            groups.plain.append((stream, plain))
    return groups


Waiting: TypeAlias = Sequence[tuple[str, list[Placed]]]
"""Streams, and segments that are to wait there."""
NOW = "now"


def open_checks(core: Core, waiting: Waiting) -> list[tuple[Request, list[bytes]]]:
    """Requests that say whether the segments' groups are open, each with the slabs of its reply."""
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


def _awaited(placed: Placed) -> bytes:
    """The slab whose trees a segment waits for."""
    group, _, segment = placed
    return sections.slab_of(group, gathers.parse_destination(segment.to).section)


def gather_requests(
    core: Core, waiting: Waiting, open_at: Sequence[Mapping[bytes, Word]] = ()
) -> list[Request]:
    """Returns the requests that note of each segment which trees have to be over before it is read.

    Segments of streams that gather wait for the section before them (`acker.lines`).

    open_at: For each stream, when the slab of each group was last seen with open trees, 0 for a slab whose
        trees are over. If it is empty, the server finds that out in the same call.
    """
    late_ttl = round(2000 * core.config.message_timeout)  # see `acker.lines.coordinator.forget`
    requests = []
    for number, (stream, placed) in enumerate(waiting):
        seen = [open_at[number][_awaited(one)] if open_at else NOW for one in placed]
        stream_keys = keys.Stream(core.config.name, stream)
        requests.append(scripts.gather(core.config, stream_keys, HOLD_TTL, late_ttl, placed, seen))
    return requests


def _read_open(core: Core, waiting: Waiting) -> Operation[list[dict[bytes, Word]]]:
    """The times at which groups were seen to be open, for each stream by its server's clock.

    A group that is over has 0.
    """
    # The time first: a group that is found to be open was so then.
    name = core.config.name
    instants = yield [Request(keys.Stream(name, stream).gathering, ["TIME"]) for stream, _ in waiting]
    looks = open_checks(core, waiting)
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


def release_requests(core: Core, ending: Sequence[tuple[str, Placed]]) -> list[Request]:
    """Requests that release gathered rows, each with the segment that ends its bundle."""
    name, how = core.config.name, (gathers.LATE_TTL, fairness.LIGHT)
    return [
        scripts.release_bundle(core.config, keys.Stream(name, stream), *one, *how) for stream, one in ending
    ]


def _parts(members: Iterable[tuple[str, Segment]], size: int = _PUBLISH) -> list[tuple[str, list[Segment]]]:
    """Streams and their segments, cut into calls of a size."""
    by_stream: dict[str, list[Segment]] = {}
    for stream, segment in members:
        by_stream.setdefault(stream, []).append(segment)
    return [
        (stream, found[first : first + size])
        for stream, found in by_stream.items()
        for first in range(0, len(found), size)
    ]


def extend_requests(
    core: Core, members: Iterable[tuple[str, Segment]], ttl: int
) -> list[tuple[Request, list[Segment]]]:
    """Requests that give the rows of staged segments a time to live in seconds, each with its segments.

    See lua/streams/commits/extend_rows.lua.
    """
    name = core.config.name
    return [
        (scripts.extend_rows(keys.Stream(name, stream), part, ttl), part)
        for stream, part in _parts(members, _EXTEND)
    ]


def publish_requests(core: Core, to: Divided) -> list[Request]:
    """Requests that publish segments to be read at once."""
    name = core.config.name
    return [scripts.publish(core.config, keys.Stream(name, stream), part) for stream, part in to.plain]


def weights(to: Divided) -> list[int]:
    """The weights of the requests of `publish_requests`."""
    return [SEGMENT_WEIGHT * len(part) for _, part in to.plain]


def finish_published(core: Core, to: Divided, replies: Sequence[Reply]) -> Operation[None]:
    """Ends tuples for slots that `publish_requests` has found to be gone. Raises RowsLost."""
    for (stream, members), reply in zip(to.plain, replies, strict=True):
        _check(reply)
        for segment, slots in zip(members, reply[1:], strict=True):
            yield from _end(core, stream, segment, slots)


def finish_released(core: Core, to: Divided, replies: Sequence[Reply]) -> Operation[None]:
    """Ends tuples for slots that `release_requests` has found to be gone. Raises RowsLost."""
    for (stream, (_, _, one)), reply in zip(to.ending, replies, strict=True):
        _check(reply)
        yield from _end(core, stream, one, reply[1])


def finish_gathered(core: Core, to: Divided, replies: Sequence[Reply]) -> Operation[None]:
    """Ends tuples that `gather_requests` has found to come too late, or to be for slots that are gone.

    Raises RowsLost.
    """
    for (stream, placed), reply in zip(to.waiting, replies, strict=True):
        _check(reply)
        for (_, _, segment), state in zip(placed, reply, strict=True):
            if state == b"0":  # its trees are over: their request failed before
                yield from acks.unlink(core, [key for key, _ in vectors.keys_of(core, segment)])
            else:
                yield from _end(core, stream, segment, state[1:])


def _check(reply: Reply) -> None:
    if isinstance(reply, redis.ResponseError):
        raise RowsLost(str(reply))


def wait(core: Core, to: Divided, progress: CommitProgress, *, in_cluster: bool) -> Operation[None]:
    """Makes segments wait for others, after a look at their groups; in a cluster, shards note that.

    The tree of a section does not count the tuples of the next section. So it must not be over by a store
    that has lost the waiting segments, and its inputs are acked only where these are noted. One server loses
    neither without the other.
    """
    needed, noting, waiting = list[tuple[int, int]](), list[Request](), to.waiting
    while True:
        if in_cluster:
            groups = {group for _, placed in waiting for group, _, _ in placed}
            of_groups = [sections.shards_of(group, core.config.ackers) for group in groups]
            progress.note_elsewhere(segments.new_hex_id(), frozenset[int]().union(*of_groups))
            noting = progress.noting(core)
            # If all sections of a request are in one shard, the shard itself looks for tuples emitted there.
            if any(len(shards) > 1 for shards in of_groups):
                needed = [entry for entry in progress.needed.items() if entry[1]]
        counting = [progress.counting(core, shard) for shard, _ in needed]
        open_at = yield from _read_open(core, waiting)
        replies = yield [*gather_requests(core, waiting, open_at), *counting, *noting]
        states, counts = replies[: len(waiting)], replies[len(waiting) :]
        for reply in states:
            _check(reply)
        if any(int(count or 0) < number for count, (_, number) in zip(counts, needed, strict=False)):
            raise RowsLost
        if not any(b"2" in reply for reply in states):
            break  # else it took so long that the groups may be forgotten
    yield from finish_gathered(core, to, states)


def publish_once(core: Core, stream: str, segment: Segment, payload: bytes, ttl: int) -> Operation[None]:
    """Publishes a segment of a writer without commits.

    A repeat within `ttl` seconds ends the tuples that are left.
    """
    stream_keys = keys.Stream(core.config.name, stream)
    [(_, gone)] = yield [
        scripts.publish_once(core.config, stream_keys, segment, payload, ttl, subscriptions.new_slot())
    ]
    yield from _end(core, stream, segment, gone)
    yield from retention.retain(core, stream)


def _end(core: Core, stream: str, segment: Segment, gone: bytes) -> Operation[None]:
    """Ends the tuples of a segment for slots that were dropped, and forgets its vectors for lost slots.

    See stream.gone in lua/streams/includes/streams.lua.
    """
    nobody = gone.startswith(b"x")
    slots = [slot for slot in gone.removeprefix(b"x").split(b",") if slot]
    lost = [slot for slot in slots if slot.startswith(b"l")]
    parts = [Range(stream, int(slot.removeprefix(b"l")), "", 0, 0) for slot in slots]
    if nobody:
        reason = f"every subscription of stream {stream} that the row was for was dropped"
        yield from acks.fail_segments(core, parts[0], [segment], reason)
    if lost:
        _log.warning(
            "stream %r of topology %r: the store has lost %d subscriptions that %d rows were for: the "
            "records of these rows expire, and are replayed",
            stream, core.config.name, len(lost), segment.rows,
        )  # fmt: skip
    for slot, part in zip(slots, parts, strict=True):
        places = vectors.keys_of(core, segment, part.slot)
        if nobody or slot in lost:
            yield from acks.unlink(core, [key for key, _ in places])
        else:
            yield from vectors.apply(core, places, "2")
        yield from subscriptions.note(core, part, [Delivery(0, "", segment)], forget=True)
