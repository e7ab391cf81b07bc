"""Downtime: rows that no job works on wait, and the clock of their trees stands still.

The message timeout limits work in hand. While a row lies in a stream untaken, or its query has taken it and
ended, no work is late. To expire its tree would use up an attempt that was never made. So before a shard
expires its oldest slabs, the ticker sends the slabs of such rows back to the nursery, as long as the row's
segment is younger than the topology's `downtime`.

A reader that takes a row after a wait begins with the whole message timeout (`take_up`).

Rows that a query has taken wait only while no query of its subscription runs: if one runs, a replay reaches
it. Its heartbeat (`beat`) says that a query runs. A reader that never had a heartbeat, such as a batch job's,
counts as running.

Rows that a worker of a line has taken wait after its third missed sign of life: another worker takes them
over when its lease ends. A request of a line has a tree for each section, and the clocks of all of them stand
still together. An outcome of a section that no coordinator has confirmed keeps its request, too: the rows
that it releases wait in the store.

Terms: a tree is all that comes of one record; a slab is the trees that one call tracked together; a slot is
the random number of a subscription; the nursery is the first of three time buckets, through which a tree goes
until it expires.
"""

import logging
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from acker.ledger import ids
from acker.ledger.calls.core import Core
from acker.ledger.outcomes import outcomes
from acker.ledger.slabs import sections
from acker.ledger.trees.wait import Wait
from acker.store import keys
from acker.store.operation import Operation, Reply, Request, command
from acker.store.records import passing_over
from acker.store.replies import milliseconds, pairs, whole
from acker.streams.commits import under_way
from acker.streams.log import heartbeats, segments
from acker.streams.log.heartbeats import MISSED, Lease
from acker.streams.log.segments import Segment
from acker.streams.log.subscriptions import HOLD_TTL, Delivery
from acker.streams.staging import vectors
from acker.streams.upkeep import open_segments

MOST_SEGMENTS = 10_000
"""Segments of a subscription that one pass keeps, about from the oldest on."""
_MOST_LOOKS, _PAGE = 200, 500
"""Pages of a subscription that one pass reads, and segments of a page."""
MANY, KNOWN_FOR, _MOST_KNOWN = 500, 5.0, 200_000
"""Segments after which the waits of a read are known to the next ones; seconds for that; most slabs."""
_log = logging.getLogger(__name__)


def beat(core: Core, stream: str, slot: int, reader: str) -> Operation[None]:
    """Notes by the store's clock that the query of a reader runs."""
    key = keys.Stream(core.config.name, stream).heartbeats(slot)
    [instant] = yield [Request(key, ["TIME"])]
    yield [command("HSET", key, reader, milliseconds(instant)), command("EXPIRE", key, HOLD_TTL)]


def keep(core: Core) -> Operation[int]:
    """Sends slabs back to the nursery that the next rotation would expire although no job works on them.

    Also sends back the slabs of commits that are under way, whatever the topology's `downtime` is. Returns
    the number of slabs; the same call again changes nothing. Streams that cannot be read are passed over and
    logged: their trees expire like trees in work.
    """
    if not core.shards:
        return 0
    waiting = _Found(core)
    yield from _look(waiting)
    for where in waiting.full:
        _log.warning(
            "topology %s, %s: more than %d segments wait: the trees of the newest rows will expire",
            core.config.name,
            where,
            MOST_SEGMENTS,
        )
    return waiting.sent_back + (yield from send_back(core, waiting.slabs, 2))


def waits(core: Core, slabs: Mapping[int, Collection[bytes]]) -> Operation[dict[bytes, Wait]]:
    """The waits of slabs, by shard, whose clock stands still: `keep` would keep them. Changes nothing.

    It looks where `keep` looks, within the same bounds. If it has read more than 500 segments (some 20 ms),
    further calls with this core get the same waits for five seconds.
    """
    wanted = yield from _with_sections(core, slabs)
    of_slabs = yield from _known_waits(core, wanted)
    of_requests: dict[str, Wait] = {}
    for slab in (slab for names in wanted.values() for slab in names if sections.of_line(slab)):
        if slab in of_slabs:
            group = sections.group_of(slab)
            of_requests[group] = of_slabs[slab].merged(of_requests.get(group))
    by_slab = {
        slab: of_requests.get(sections.group_of(slab)) if sections.of_line(slab) else of_slabs.get(slab)
        for names in slabs.values()
        for slab in names
    }
    return {slab: wait for slab, wait in by_slab.items() if wait is not None}


@dataclass(frozen=True, slots=True)
class _Known:
    """The waits of all slabs, and the time of the monotonic clock until which they are taken for true."""

    waits: dict[bytes, Wait]
    until: float


def _known_waits(core: Core, wanted: Mapping[int, Collection[bytes]]) -> Operation[dict[bytes, Wait]]:
    """The waits of all slabs, at least of wanted ones: as they are, or as they were seconds ago."""
    if isinstance(core.waits, _Known) and time.monotonic() < core.waits.until:
        return core.waits.waits
    waiting = _Found(core, wanted=wanted)
    yield from _look(waiting)
    if waiting.taken > MANY and not waiting.partly:
        core.waits = _Known(waiting.waits, time.monotonic() + KNOWN_FOR)
    return waiting.waits


def take_up(
    core: Core, stream: str, slot: int, delivered: Sequence[Delivery], now: int = 0
) -> Operation[int]:
    """Starts the clock anew for segments that a reader begins to work on after a wait longer than a tick.

    Their trees may stand right before their end, because `keep` moves them no sooner. A batch that is planned
    again sends them back again, but none older than the topology's `downtime`: a query that ends each time it
    is started keeps nothing for ever.

    Args:
        core: The ledger.
        stream: The stream.
        slot: The slot of the subscription.
        delivered: The segments.
        now: The server's time (ms), if it was read just now.

    Returns:
        The number of slabs that were sent back.
    """
    if not core.config.downtime or not core.shards or not delivered:
        return 0
    if not now:
        [instant] = yield [Request(keys.Stream(core.config.name, stream).entries, ["TIME"])]
        now = milliseconds(instant)
    young = (max(0, now - core.config.tick_ms), 0)
    oldest = (max(0, now - core.config.downtime * 1000), 0)
    waiting = _Found(core)
    yield from waiting.add(
        (one.segment, slot, 0)
        for one in delivered
        if slot in one.segment.slots and oldest <= _order(one.entry.encode()) < young
    )
    return (yield from send_back(core, waiting.slabs, 1))


@dataclass(slots=True)
class _Found:
    """Slabs by shard of waiting rows.

    Attributes:
        left, looks: Segments, and pages, of the subscription at hand that can still be taken.
        over: True if there were more.
        full: Subscriptions that have more.
        whose: The stream at hand, and its subscription.
        wanted: Slabs by shard whose waits are asked for. Nothing is sent back then.
        waits: The waits of wanted slabs, and of others as long as there are not too many.
        partly: True if there were too many.
        taken: How often slabs were taken, about once for each segment.
    """

    core: Core
    left: int = 0
    looks: int = 0
    over: bool = False
    slabs: dict[int, set[bytes]] = field(default_factory=dict)
    sent_back: int = 0
    full: list[str] = field(default_factory=list)
    whose: tuple[str, str | None] = "", None
    wanted: Mapping[int, Collection[bytes]] | None = None
    waits: dict[bytes, Wait] = field(default_factory=dict)
    partly: bool = False
    taken: int = 0

    def add(self, segments: Iterable[tuple[Segment, int, int]]) -> Operation[None]:
        """Adds the slabs of segments, as far as they are not acked.

        Each segment comes with a slot, and with the time of its publication in ms.
        """
        places = [
            (*place, published)
            for segment, slot, published in segments
            for place in vectors.keys_of(self.core, segment, slot)
        ]
        replies = yield [vectors.head(key) for key, _, _ in places]
        for (key, shard, published), reply in zip(places, replies, strict=True):
            wait = self.rows(published / 1000, published / 1000 + self.core.config.downtime)
            for state, slabs in vectors.chunks(key, reply):
                if state != "2":
                    self.take(shard, slabs, wait)

    def rows(self, since: float, until: float) -> Wait:
        """The wait of rows of the subscription at hand."""
        stream, subscription = self.whose
        whom = "the first subscription" if subscription is None else subscription
        return Wait(f"{whom} of stream {stream}", since, until, stream, subscription)

    def take(self, shard: int, slabs: Iterable[bytes], wait: Wait) -> None:
        """Takes slabs of a shard, which wait."""
        if self.wanted is None:
            self.slabs.setdefault(shard, set()).update(slabs)
            return
        wanted, self.taken = self.wanted.get(shard, ()), self.taken + 1
        for slab in slabs:
            if len(self.waits) < _MOST_KNOWN or slab in wanted:
                self.waits[slab] = wait.merged(self.waits.get(slab))
            else:
                self.partly = True


def _look(waiting: _Found) -> Operation[None]:
    """Takes all slabs whose clock stands still. `acker.drpc.keeping` has the slabs of calls."""
    core = waiting.core
    name = f"topology {core.config.name}"
    with passing_over(f"{name}: trees of commits that are under way will expire", refusals=True):
        for shard, slabs in (yield from under_way.slabs(core)).items():
            waiting.take(shard, slabs, Wait("a commit that is under way"))
    [names] = yield [command("SMEMBERS", keys.streams(core.config.name))]
    for stream in sorted(names):
        with passing_over(f"{name}: waiting rows will expire", f"stream {stream!r:.100}", refusals=True):
            yield from _add_stream(waiting, stream.decode("utf-8", "replace"))
    if core.config.downtime:
        with passing_over(f"{name}: requests that no coordinator releases expire", refusals=True):
            yield from _uncoordinated(waiting)


def _add_stream(waiting: _Found, stream: str) -> Operation[None]:
    """Adds the waiting rows of a stream."""
    name = waiting.core.config.name
    stream_keys = keys.Stream(name, stream)
    [reply, instant] = yield [
        command("HGETALL", stream_keys.subscriptions),
        Request(stream_keys.entries, ["TIME"]),
    ]
    fields = pairs(reply)
    if open_segments.is_external(fields):
        if waiting.wanted is not None:
            yield from _add_open(waiting, stream, fields)
            return
        back = partial(send_back, waiting.core, rotations=2)
        waiting.sent_back += yield from open_segments.keep(waiting.core, stream, back)
        return
    if not waiting.core.config.downtime:
        return
    slots = sorted(
        whole(one[5:], f"stream {stream!r}, {one!r}") for one in fields if one.startswith(b"slot:")
    )
    if not slots:  # the first subscription gets the rows that were published before it
        slots = [whole(fields.get(b"next"), f"stream {stream!r}, next")]
    now = milliseconds(instant)
    oldest = b"%d-0" % max(0, now - waiting.core.config.downtime * 1000)
    for slot in slots:
        cursor = bytes(fields.get(b"cursor:%d" % slot, b"0-0"))
        start = oldest if _order(cursor) < _order(oldest) else b"(" + cursor
        waiting.left, waiting.looks, waiting.over = MOST_SEGMENTS, _MOST_LOOKS, False
        waiting.whose = stream, _name(fields, slot)
        # Read before the returned segments: segments given back in between are among these.
        gone = yield from _gone(waiting, stream_keys, slot, now)
        for reader in gone:
            yield from _add_segments(waiting, stream_keys.delivered(slot, reader), b"-", slot, oldest)
        yield from _add_segments(waiting, stream_keys.returned(slot), b"-", slot, oldest)
        yield from _add_segments(waiting, stream_keys.entries, start, slot, oldest)
        if waiting.over or waiting.looks <= 0:
            waiting.full.append(f"stream {stream}, subscription {_name(fields, slot) or 'to come'}")


def _name(fields: Mapping[bytes, bytes], slot: int) -> str | None:
    """The subscription of a slot; None for rows that wait for the first one."""
    return fields.get(b"slot:%d" % slot, b"").decode("utf-8", "replace") or None


def _add_open(waiting: _Found, stream: str, fields: Mapping[bytes, bytes]) -> Operation[None]:
    """Adds the trees of the open segments of an external stream, which wait."""
    for slot, shard, slabs, since, until in (yield from open_segments.waiting(waiting.core, stream)):
        waiting.whose = stream, _name(fields, slot)
        waiting.take(shard, slabs, waiting.rows(since, until))


def _gone(waiting: _Found, stream_keys: keys.Stream, slot: int, now: int) -> Operation[list[str]]:
    """The readers that have ended: workers, and queries if no query of the subscription runs."""
    [seen_by_reader, leases] = yield [
        command("HGETALL", stream_keys.heartbeats(slot)),
        command("HGETALL", stream_keys.workers(slot)),
    ]
    silent = MISSED * 1000 * heartbeats.period(waiting.core)
    gone = [
        reader.decode("utf-8", "replace")
        for reader, stored in pairs(leases).items()
        # Notes of workers, which stand there, too, are no leases (acker/workers/leases.py).
        if (lease := Lease.parse(stored)) is not None and now - lease.begun >= silent
    ]
    queries, forgotten, runs = [], [], False
    for reader, seen in pairs(seen_by_reader).items():
        age = now - whole(seen, f"the heartbeat of reader {reader!r:.100}")
        runs = runs or age < silent
        if age > HOLD_TTL * 1000:
            forgotten.append(reader)
        else:
            queries.append(reader.decode("utf-8", "replace"))
    if runs:
        return gone
    if forgotten and waiting.wanted is None:
        yield [command("HDEL", stream_keys.heartbeats(slot), *forgotten)]
    return gone + queries


def _uncoordinated(waiting: _Found) -> Operation[None]:
    """Adds the requests of lines whose section is over, if no coordinator has handled that."""
    core = waiting.core
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
                    wait = Wait("a coordinator of its line", entry.at, entry.at + core.config.downtime)
                    waiting.take(shard, [one.slab for one in entry.slabs], wait)
            looks -= 1
            if len(page) < outcomes.READ_ENTRIES:
                break
            if not looks:
                waiting.full.append(f"outcomes of sections, shard {shard}")
                break
            after = b"(" + page[-1][0]
            key = core.shards[shard].outcomes(sections.SPOUT)
            [page] = yield [command("XRANGE", key, after, "+", "COUNT", outcomes.READ_ENTRIES)]


def _with_sections(core: Core, slabs: Mapping[int, Collection[bytes]]) -> Operation[dict[int, set[bytes]]]:
    """Slabs by shard. A slab of a line also brings the slabs of its requests in all sections."""
    by_shard = {shard: set(names) for shard, names in slabs.items()}
    of_lines = [slab for names in slabs.values() for slab in names if sections.of_line(slab)]
    if of_lines:
        [stored] = yield [command("HVALS", keys.lines(core.config.name))]
        firsts = np.array([ids.anchor_at(slab, 0) for slab in of_lines], np.int64)
        for anchor in sections.everywhere(firsts, sections.counted(stored)).tolist():
            slab = ids.slab_of(anchor)
            by_shard.setdefault(ids.shard_of(slab, core.config.ackers), set()).add(slab)
    return by_shard


def _add_segments(waiting: _Found, key: bytes, start: bytes, slot: int, oldest: bytes) -> Operation[None]:
    """Adds the segments for a slot in a stream of entries, or of taken segments."""
    while waiting.looks > 0 and not waiting.over:
        [page] = yield [command("XRANGE", key, start, "+", "COUNT", _PAGE)]
        if not page:
            return
        waiting.looks -= 1
        segments_here = [(one, slot, at) for one, at in _segments(page, slot, oldest) if one.shards]
        waiting.over = len(segments_here) > waiting.left
        yield from waiting.add(segments_here[: waiting.left])
        waiting.left -= min(waiting.left, len(segments_here))
        start = b"(" + page[-1][0]


def _segments(page: Reply, slot: int, oldest: bytes) -> Iterator[tuple[Segment, int]]:
    """The segments for a slot, each with the time of its publication in ms."""
    for entry, values in page:
        fields = pairs(values)
        segment = segments.readable(fields.get(b"segment", b""))
        published = _order(fields.get(b"entry", entry))
        if slot in segment.slots and published >= _order(oldest):
            yield segment, published[0]


def send_back(core: Core, slabs: Mapping[int, Collection[bytes]], rotations: int) -> Operation[int]:
    """Sends back slabs, by shard, that were put into the nursery so many rotations ago, or more.

    A slab of a line stands for its requests: their slabs of all sections go back. Returns the number of
    slabs.
    """
    return (yield from under_way.send_back(core, (yield from _with_sections(core, slabs)), rotations))


def _order(entry: bytes) -> tuple[int, int]:
    """The order of an entry's id. Raises ValueError."""
    ms, _, number = entry.partition(b"-")
    return int(ms), int(number)
