"""Downtime: rows that no job works on wait, and the clock of their trees stands still.

The message timeout is for work in hand. While a row lies in a stream and no reader has taken it, or a query
has taken it and ended since, nobody is late with it: to expire its tree would use up an attempt that nobody
made. So before a shard expires its oldest slabs, who ticks sends those of such rows back to the nursery, for
as long as the row's segment is younger than the topology's `downtime`.

Who takes a row that has waited begins with the whole message timeout (`take_up`).

What a query has taken waits only while no query of its subscription runs: where one does, a replay reaches
it. Its heartbeat (`beat`) says that a query runs. A reader that never had one, as a batch job's, is
taken for one at work.

What a worker of a line has taken waits from its third missed sign of life on: another worker takes it over
when its lease ends. A request of a line has a tree for each section, and the clocks of all of them stand
still together. An outcome of a section that no coordinator has confirmed keeps its request, too: the rows
that it releases wait in the store.
"""

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from acker.errors import StoreError, UnreadableRecord
from acker.ledger import ids
from acker.ledger.calls.core import Core
from acker.ledger.outcomes import outcomes
from acker.ledger.slabs import sections
from acker.store import keys
from acker.store.operation import Operation, Reply, Request, command
from acker.store.replies import milliseconds, pairs, whole
from acker.streams.commits import under_way
from acker.streams.log import heartbeats, segments
from acker.streams.log.heartbeats import MISSED, Lease
from acker.streams.log.segments import Segment
from acker.streams.log.subscriptions import HOLD_TTL, Taken
from acker.streams.staging import vectors

MOST_SEGMENTS = 10_000
"""Segments of a subscription that one pass keeps, about from the oldest on."""
_MOST_LOOKS = 200
"""Pages that it reads of them."""
_PAGE = 500
_log = logging.getLogger(__name__)


def beat(core: Core, stream: str, slot: int, reader: str) -> Operation[None]:
    """Notes by the store's clock that the query of a reader runs."""
    key = keys.Stream(core.config.name, stream).beats(slot)
    [instant] = yield [Request(key, ["TIME"])]
    yield [command("HSET", key, reader, milliseconds(instant)), command("EXPIRE", key, HOLD_TTL)]


def keep(core: Core) -> Operation[int]:
    """Sends back to the nursery what the next rotation would expire though nobody works on it.

    So it does with the trees of commits that are under way, whatever the topology's `downtime` is.

    Returns how many slabs were sent back; the same again changes nothing. Streams that cannot be read are
    passed over and logged: their trees expire as if somebody worked on them.
    """
    if not core.shards:
        return 0
    found = _Found(core)
    try:
        found.slabs = yield from under_way.slabs(core)
    except StoreError as error:
        _log.error("%s: trees of commits that are under way expire: %s", core.config.name, error)
    [names] = yield [command("SMEMBERS", keys.streams(core.config.name))]
    for name in sorted(names) if core.config.downtime else ():
        try:
            yield from _look(found, name.decode("utf-8", "replace"))
        except (StoreError, UnreadableRecord, ValueError, IndexError) as error:
            _log.error("%s, stream %.100r: what waits there expires: %s", core.config.name, name, error)
    try:
        if core.config.downtime:
            yield from _uncoordinated(found)
    except StoreError as error:
        _log.error("%s: requests that no coordinator releases expire: %s", core.config.name, error)
    for where in found.full:
        _log.warning(
            "%s, %s: more than %d segments wait: the trees of the newest expire",
            core.config.name,
            where,
            MOST_SEGMENTS,
        )
    return (yield from send_back(core, found.slabs, 2))


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
    return (yield from send_back(core, found.slabs, 1))


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
        gone = yield from _gone(found, own, slot, now)
        for reader in gone:
            yield from _walk(found, own.taken(slot, reader), b"-", slot, oldest)
        yield from _walk(found, own.returned(slot), b"-", slot, oldest)
        yield from _walk(found, own.entries, start, slot, oldest)
        if found.over or found.looks <= 0:
            whose = fields.get(b"slot:%d" % slot, b"").decode("utf-8", "replace")
            found.full.append(f"stream {stream}, subscription {whose or 'to come'}")


def _gone(found: _Found, own: keys.Stream, slot: int, now: int) -> Operation[list[str]]:
    """The readers that have ended: workers, and queries where no query of the subscription runs."""
    [beats, leases] = yield [
        command("HGETALL", own.beats(slot)),
        command("HGETALL", own.workers(slot)),
    ]
    silent = MISSED * 1000 * heartbeats.period(found.core)
    gone = [
        reader.decode("utf-8", "replace")
        for reader, stored in pairs(leases).items()
        # Notes of workers, which stand there, too, are no leases (acker/workers/leases.py).
        if (lease := Lease.parse(stored)) is not None and now - lease.begun >= silent
    ]
    queries, forgotten, runs = [], [], False
    for reader, seen in pairs(beats).items():
        age = now - whole(seen, f"the heartbeat of reader {reader!r:.100}")
        runs = runs or age < silent
        if age > HOLD_TTL * 1000:
            forgotten.append(reader)
        else:
            queries.append(reader.decode("utf-8", "replace"))
    if runs:
        return gone
    if forgotten:
        yield [command("HDEL", own.beats(slot), *forgotten)]
    return gone + queries


def _uncoordinated(found: _Found) -> Operation[None]:
    """Adds the requests of lines whose section is over, and no coordinator has seen to that."""
    core = found.core
    [instant, *replies] = yield [
        Request(core.shards[0].clock, ["TIME"]),
        *(
            command("XRANGE", shard.outcomes(sections.SPOUT), "-", "+", "COUNT", outcomes.READ_ENTRIES)
            for shard in core.shards
        ),
    ]
    oldest = milliseconds(instant) - core.config.downtime * 1000
    for shard, reply in enumerate(replies):
        looks, page = _MOST_LOOKS, reply
        while page:
            entries, _ = outcomes.parse_all(shard, page)
            for entry in entries:
                if entry.status == "acked" and entry.at * 1000 >= oldest:
                    found.slabs.setdefault(shard, set()).update(one.slab for one in entry.slabs)
            looks -= 1
            if len(page) < outcomes.READ_ENTRIES:
                break
            if not looks:
                found.full.append(f"outcomes of sections, shard {shard}")
                break
            after = b"(" + page[-1][0]
            key = core.shards[shard].outcomes(sections.SPOUT)
            [page] = yield [command("XRANGE", key, after, "+", "COUNT", outcomes.READ_ENTRIES)]


def _with_sections(core: Core, slabs: Mapping[int, Collection[bytes]]) -> Operation[dict[int, set[bytes]]]:
    """Slabs by shard, and with those of lines the slabs of the same requests in all sections."""
    found = {shard: set(names) for shard, names in slabs.items()}
    of_lines = [slab for names in slabs.values() for slab in names if sections.of_line(slab)]
    if of_lines:
        [stored] = yield [command("HVALS", keys.lines(core.config.name))]
        firsts = np.array([ids.anchor_at(slab, 0) for slab in of_lines], np.int64)
        for anchor in sections.everywhere(firsts, sections.counted(stored)).tolist():
            slab = ids.slab_of(anchor)
            found.setdefault(ids.shard_of(slab, core.config.ackers), set()).add(slab)
    return found


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


def send_back(core: Core, slabs: Mapping[int, Collection[bytes]], rotations: int) -> Operation[int]:
    """Sends back slabs, by shard, that were put into the nursery so many rotations ago, or more.

    A slab of a line stands for its requests: those of all sections go back. Returns how many were sent back.
    """
    return (yield from under_way.send_back(core, (yield from _with_sections(core, slabs)), rotations))


def _order(entry: bytes) -> tuple[int, int]:
    """What an entry's id is ordered by. Raises ValueError."""
    ms, _, number = entry.partition(b"-")
    return int(ms), int(number)
