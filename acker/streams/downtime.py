"""Downtime: rows that no job works on wait, and the clock of their trees stands still.

The message timeout is for work in hand. While a row lies in a stream and no reader has taken it, or a query
has taken it and ended since, nobody is late with it: to expire its tree would use up an attempt that nobody
made. So before a shard expires its oldest slabs, who ticks sends those of such rows back to the nursery, for
as long as the row's segment is younger than the topology's `downtime`.

Who takes a row that has waited begins with the whole message timeout (`take_up`).

What a query has taken waits only while no query of its subscription runs: where one does, a replay reaches
it. Its heartbeat (`beat`) says that a query runs. A reader that never had one, as a batch job's, is
taken for one at work.
"""

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from acker.errors import StoreError, UnreadableRecord
from acker.ledger.core import Core
from acker.store import keys
from acker.store.operation import Operation, Reply, Request, command
from acker.store.replies import milliseconds, pairs, whole
from acker.streams import lua, segments
from acker.streams.commits import vectors
from acker.streams.segments import Segment
from acker.streams.subscriptions import HOLD_TTL, Taken

MOST_SEGMENTS = 10_000
"""Segments of a subscription that one pass keeps, about from the oldest on."""
_MOST_LOOKS = 200
"""Pages that it reads of them."""
MISSED = 3
"""Heartbeats that a query misses until it is taken for one that has ended."""
_PAGE = 500
_SLABS = 500
_log = logging.getLogger(__name__)


def beat_period(core: Core) -> float:
    """Seconds between two heartbeats of a query: a twentieth of the message timeout, but 0.1 to 5."""
    return min(5.0, max(0.1, core.config.message_timeout / 20))


def beat(core: Core, stream: str, slot: int, reader: str) -> Operation[None]:
    """Notes by the store's clock that the query of a reader runs."""
    key = keys.Stream(core.config.name, stream).beats(slot)
    [instant] = yield [Request(key, ["TIME"])]
    yield [command("HSET", key, reader, milliseconds(instant)), command("EXPIRE", key, HOLD_TTL)]


def keep(core: Core) -> Operation[int]:
    """Sends back to the nursery what the next rotation would expire though nobody works on it.

    Returns how many slabs were sent back; the same again changes nothing. Streams that cannot be read are
    passed over and logged: their trees expire as if somebody worked on them.
    """
    if not core.config.downtime or not core.shards:
        return 0
    found = _Found(core)
    [names] = yield [command("SMEMBERS", keys.streams(core.config.name))]
    for name in sorted(names):
        try:
            yield from _look(found, name.decode("utf-8", "replace"))
        except (StoreError, UnreadableRecord, ValueError, IndexError) as error:
            _log.error("%s, stream %.100r: what waits there expires: %s", core.config.name, name, error)
    for where in found.full:
        _log.warning(
            "%s, %s: more than %d segments wait: the trees of the newest expire",
            core.config.name,
            where,
            MOST_SEGMENTS,
        )
    return (yield from _send_back(found, 2))


def take_up(core: Core, stream: str, slot: int, taken: Sequence[Taken], now: int = 0) -> Operation[int]:
    """Starts the clock anew for what a reader begins to work on, where that has waited longer than a tick.

    What waited may stand right before its end, for `keep` moves it no sooner. Returns how many slabs were
    sent back to the nursery. A batch that is planned again sends them back again, but none that is older than
    the topology's `downtime`: a query that ends each time it is started keeps nothing for ever. now: the
    server's time (ms), where it has just said it.
    """
    if not core.config.downtime or not core.shards or not taken:
        return 0
    if not now:
        [instant] = yield [Request(keys.Stream(core.config.name, stream).entries, ["TIME"])]
        now = milliseconds(instant)
    young = (max(0, now - core.config.tick_ms), 0)
    oldest = (max(0, now - core.config.downtime * 1000), 0)
    found = _Found(core)
    yield from found.add(
        (one.segment, slot)
        for one in taken
        if slot in one.segment.slots and oldest <= _order(one.entry.encode()) < young
    )
    return (yield from _send_back(found, 1))


@dataclass(slots=True)
class _Found:
    """Slabs by shard of what waits.

    left, looks: how many segments, and pages, of the subscription at hand are still taken. over: there were
    more. full: subscriptions that have more.
    """

    core: Core
    left: int = 0
    looks: int = 0
    over: bool = False
    slabs: dict[int, set[bytes]] = field(default_factory=dict)
    full: list[str] = field(default_factory=list)

    def add(self, segments: Iterable[tuple[Segment, int]]) -> Operation[None]:
        """Adds what segments have staged for slots, where that is not acked."""
        places = [place for segment, slot in segments for place in vectors.keys_of(self.core, segment, slot)]
        replies = yield [vectors.head(key) for key, _ in places]
        for (key, shard), reply in zip(places, replies, strict=True):
            for state, slabs in vectors.chunks(key, reply):
                if state != "2":
                    self.slabs.setdefault(shard, set()).update(slabs)


def _look(found: _Found, stream: str) -> Operation[None]:
    """Looks for what waits in a stream."""
    name = found.core.config.name
    own = keys.Stream(name, stream)
    [reply, instant] = yield [command("HGETALL", own.subscriptions), Request(own.entries, ["TIME"])]
    fields = pairs(reply)
    slots = sorted(
        whole(one[5:], f"stream {stream!r}, {one!r}") for one in fields if one.startswith(b"slot:")
    )
    if not slots:  # the first subscription finds what was published before it
        slots = [whole(fields.get(b"next"), f"stream {stream!r}, next")]
    now = milliseconds(instant)
    oldest = b"%d-0" % max(0, now - found.core.config.downtime * 1000)
    for slot in slots:
        cursor = bytes(fields.get(b"cursor:%d" % slot, b"0-0"))
        start = oldest if _order(cursor) < _order(oldest) else b"(" + cursor
        found.left, found.looks, found.over = MOST_SEGMENTS, _MOST_LOOKS, False
        # Read before the returned: what is given back in between stands among those.
        for reader in (yield from _gone(found.core, own, slot, now)):
            yield from _walk(found, own.taken(slot, reader), b"-", slot, oldest)
        yield from _walk(found, own.returned(slot), b"-", slot, oldest)
        yield from _walk(found, own.entries, start, slot, oldest)
        if found.over or found.looks <= 0:
            found.full.append(f"stream {stream}, subscription number {slot}")


def _gone(core: Core, own: keys.Stream, slot: int, now: int) -> Operation[list[str]]:
    """The readers whose queries have ended; none while any query of the subscription runs."""
    [reply] = yield [command("HGETALL", own.beats(slot))]
    names, forgotten = [], []
    for reader, seen in pairs(reply).items():
        age = now - whole(seen, f"the heartbeat of reader {reader!r:.100}")
        if age < MISSED * 1000 * beat_period(core):
            return []
        if age > HOLD_TTL * 1000:
            forgotten.append(reader)
        else:
            names.append(reader.decode("utf-8", "replace"))
    if forgotten:
        yield [command("HDEL", own.beats(slot), *forgotten)]
    return names


def _walk(found: _Found, key: bytes, start: bytes, slot: int, oldest: bytes) -> Operation[None]:
    """Adds the segments for a slot that stand in a stream of entries, or of taken segments."""
    while found.looks > 0 and not found.over:
        [page] = yield [command("XRANGE", key, start, "+", "COUNT", _PAGE)]
        if not page:
            return
        found.looks -= 1
        there = [one for one in _segments(page, slot, oldest) if one.shards]
        found.over = len(there) > found.left
        yield from found.add((one, slot) for one in there[: found.left])
        found.left -= min(found.left, len(there))
        start = b"(" + page[-1][0]


def _segments(page: Reply, slot: int, oldest: bytes) -> Iterator[Segment]:
    for entry, values in page:
        fields = pairs(values)
        segment = segments.readable(fields.get(b"segment", b""))
        if slot in segment.slots and _order(fields.get(b"entry", entry)) >= _order(oldest):
            yield segment


def _send_back(found: _Found, rotations: int) -> Operation[int]:
    """Sends back the slabs that were put into the nursery so many rotations ago, or more."""
    core, moved = found.core, 0
    for shard, names in sorted(found.slabs.items()):
        slabs, at = sorted(names), 0
        while at < len(slabs):
            call = lua.keep_waiting(core.shards[shard], slabs[at : at + _SLABS], rotations)
            [reply] = yield from core.ask([call])
            looked, sent = map(int, reply)
            at, moved = at + max(1, looked), moved + sent
    return moved


def _order(entry: bytes) -> tuple[int, int]:
    """What an entry's id is ordered by. Raises ValueError."""
    ms, _, number = entry.partition(b"-")
    return int(ms), int(number)
