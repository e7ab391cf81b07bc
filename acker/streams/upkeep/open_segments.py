"""Open segments of external streams: the clocks of their trees stand still, and what ended leaves its stream.

The trees of an open segment wait until its subscription has received rows that were sent `lost_after` later,
or for the stream's `downtime`. Then the segment counts as lost: its trees expire like trees in work. The pass
goes over all open segments in bounded pieces before a shard rotates, so none expires because it was not
reached. It also ends the work of a program that died: full segments are acked, void ones fail, and waiting
fails are applied. A lost segment leaves its stream when its trees are over and their outcomes confirmed.

Terms: a slab is the trees that one call tracked together; a vector has a number for each tree, the XOR of
tuple ids; a slot is the random number of a subscription; the nursery is the first of three time buckets,
through which a tree goes until it expires.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from acker.errors import StoreError, UnreadableRecord
from acker.ledger.calls.core import Core
from acker.ledger.outcomes import counts
from acker.store import keys
from acker.store.operation import Operation, Reply, Request, command
from acker.store.records import passing_over
from acker.store.replies import milliseconds, pairs, positive
from acker.streams.log import kinds, segments
from acker.streams.log.segments import Segment
from acker.streams.staging import vectors
from acker.streams.staging.external import scripts, voiding
from acker.streams.staging.external.declaring import (
    DOWNTIME,
    LOST_AFTER,
    MARGIN,
    longest_ttl,
    stored_ttl,
)
from acker.streams.staging.external.scripts import Received
from acker.streams.staging.vectors import VectorKey
from acker.streams.upkeep.scripts import mark_unreadable, note_lags

_PAGE, _MOST_PAGES = 500, 20
_FIELDS = ("state", "layout", "slabs", "words", "full", "void", "fails")
_MISSING = [None] * len(_FIELDS)
SendBack = Callable[[dict[int, set[bytes]]], Operation[int]]
"""Sends slabs, by shard, back to the nursery where the next rotation would expire them; returns how many."""


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of the subscriptions of an external stream.

    Attributes:
        received: Slot -> when the newest segment was begun that rows were received of, in Unix seconds.
        lost_after: Seconds.
        downtime: Seconds.
        now: The server's time in Unix seconds.
    """

    received: Mapping[int, int]
    lost_after: float
    downtime: float
    now: float

    @classmethod
    def of(cls, stream: str, fields: Mapping[bytes, bytes], now: float) -> "Progress":
        """The progress of a stream, from the hash of its subscriptions.

        A number that cannot be read counts as missing, and is logged: segments wait then.
        """
        where = f"stream {stream!r}"
        slots = [int(name[5:]) for name in fields if name.startswith(b"slot:") and name[5:].isdigit()]

        def read(name: str, default: float) -> float:
            with passing_over(where):
                return positive(fields.get(name.encode()), name, default)
            return default

        received = {slot: int(read(f"received:{slot}", 0)) for slot in slots}
        return cls(received, read("lost_after", LOST_AFTER), read("downtime", DOWNTIME), now)

    def waits(self, slot: int, sent: int) -> bool:
        """True if the trees of an open segment, begun at that time, wait for a subscription."""
        behind = self.received.get(slot, 0) < sent + self.lost_after
        return behind and self.now < sent + self.downtime

    def until(self, sent: int) -> float:
        """The time until which a segment that waits is open at least: rows that end it are sent later."""
        return min(sent + self.downtime, max(self.now, sent + self.lost_after))


@dataclass(slots=True)
class _Entry:
    """A segment of the stream, and the shards' records of it by slot."""

    id: str
    segment: Segment
    sent: int
    bytes: int
    records: dict[int, list[tuple[VectorKey, Reply]]] = field(default_factory=dict)

    def places(self, progress: Progress, core: Core) -> Iterator[tuple[int, VectorKey]]:
        for slot in self.segment.slots:
            if slot in progress.received:
                for place in vectors.keys_of(core, self.segment, slot):
                    yield slot, place


def is_external(fields: Mapping[bytes, bytes]) -> bool:
    """True if a stream is external, by the hash of its subscriptions."""
    return kinds.FIELD.encode() in fields


def keep(core: Core, stream: str, send_back: SendBack) -> Operation[int]:
    """Goes over all open segments of an external stream; returns how many slabs it has sent back.

    Raises StoreError and UnreadableRecord.
    """
    stream_keys, start, moved = keys.Stream(core.config.name, stream), "-", 0
    lags = _Lags()
    while True:
        # The subscriptions last: each that a segment of the page was announced for is among them.
        [page, reply, instant, stored] = yield [
            command("XRANGE", stream_keys.entries, start, "+", "COUNT", _PAGE),
            command("HGETALL", stream_keys.subscriptions),
            Request(stream_keys.entries, ["TIME"]),
            stored_ttl(core),
        ]
        ttl = longest_ttl(core, stored)
        if not page:
            yield from lags.note(stream_keys, pairs(reply))
            return moved
        start = f"({page[-1][0].decode()}"
        progress = Progress.of(stream, pairs(reply), milliseconds(instant) / 1000)
        entries = list(_entries(page))
        yield from _read(core, entries, progress)
        moved += yield from send_back(_waiting(entries, progress))
        yield from _end(core, entries, ttl)
        lost = yield from _drop_lost(core, entries, progress)
        closed = [words for entry in entries if (words := _closed(entry, progress, lost, ttl)) is not None]
        lags.add(entries, {words[0] for words in closed})
        if closed:
            yield [scripts.close_segments(stream_keys, closed)]


def waiting(core: Core, stream: str) -> Operation[list[tuple[int, int, set[bytes], float, float]]]:
    """The slabs whose trees wait for rows of an external stream. Changes nothing.

    Returns slot, shard, slabs, the time at which their segment was begun, and the time until which it is open
    at least, in Unix seconds. It reads 10,000 segments at most, the oldest ones. Raises StoreError.
    """
    stream_keys, start = keys.Stream(core.config.name, stream), "-"
    waits: list[tuple[int, int, set[bytes], float, float]] = []
    for _ in range(_MOST_PAGES):
        [page, reply, instant] = yield [
            command("XRANGE", stream_keys.entries, start, "+", "COUNT", _PAGE),
            command("HGETALL", stream_keys.subscriptions),
            Request(stream_keys.entries, ["TIME"]),
        ]
        if not page:
            break
        start = f"({page[-1][0].decode()}"
        progress = Progress.of(stream, pairs(reply), milliseconds(instant) / 1000)
        entries = list(_entries(page))
        places = [(entry, slot, place) for entry in entries for slot, place in entry.places(progress, core)]
        heads = yield [command("HMGET", key, *_FIELDS) for _, _, (key, _) in places]
        for (entry, slot, (key, shard)), head in zip(places, heads, strict=True):
            slabs = _names(key, head) if progress.waits(slot, entry.sent) else set()
            if slabs:
                waits.append((slot, shard, slabs, entry.sent, progress.until(entry.sent)))
    return waits


@dataclass(slots=True)
class _Lags:
    """Rows that subscriptions have acked, of segments that stay open because others have not.

    ahead: slot -> rows. passed: slot -> the last entry before the first one that it has not acked.
    """

    ahead: dict[int, int] = field(default_factory=dict)
    passed: dict[int, str] = field(default_factory=dict)
    halted: set[int] = field(default_factory=set)
    last: str = "0-0"

    def add(self, entries: Sequence[_Entry], closed: set[str]) -> None:
        """Adds entries, in their order."""
        for entry in entries:
            for slot, records in () if entry.id in closed else entry.records.items():
                if all(_is_acked(reply) for _, reply in records):
                    self.ahead[slot] = self.ahead.get(slot, 0) + entry.segment.rows
                elif slot not in self.halted:
                    self.halted.add(slot)
                    self.passed[slot] = self.last
            self.last = entry.id

    def note(self, stream_keys: keys.Stream, fields: Mapping[bytes, bytes]) -> Operation[None]:
        """Stores fields for the present subscriptions of the stream."""
        slots = [int(name[5:]) for name in fields if name.startswith(b"slot:") and name[5:].isdigit()]
        lags = [(slot, self.ahead.get(slot, 0), self.passed.get(slot, self.last)) for slot in slots]
        new = [
            (slot, ahead, passed)
            for slot, ahead, passed in lags
            if (fields.get(b"ahead:%d" % slot), fields.get(b"passed:%d" % slot))
            != (b"%d" % ahead, passed.encode())
        ]
        if new:
            yield [note_lags(stream_keys, new)]


def _is_acked(reply: Reply) -> bool:
    """True if a shard's vectors are acked, or were full when the pass began, which acks them."""
    state, full, void = reply[0], reply[4], reply[5]
    return state is not None and void is None and (full is not None or not state.strip(b"2"))


@dataclass(frozen=True, slots=True)
class Ended:
    """Numbers of segments that a dropped subscription had not acked, and of their rows."""

    segments: int = 0
    rows: int = 0


def leave(core: Core, slot: int, page: Reply, reason: str) -> Operation[Ended]:
    """Fails the trees of all that a subscription has not acked of these entries. It can be run again."""
    ended = Ended()
    for entry in _entries(page):
        if slot not in entry.segment.slots:
            continue
        trees = 0
        for place in vectors.keys_of(core, entry.segment, slot):
            with passing_over(core.config.name, refusals=True):
                trees += yield from voiding.fail(core, place, reason)
        if trees:
            ended = Ended(ended.segments + 1, ended.rows + entry.segment.rows)
    return ended


def _entries(page: Reply) -> Iterator[_Entry]:
    for entry, values in page:
        fields = pairs(values)
        segment, sent = segments.readable(fields.get(b"segment", b"")), fields.get(b"sent", b"")
        if segment.slots and sent.isdigit():
            size = fields.get(b"bytes", b"")
            yield _Entry(entry.decode(), segment, int(sent), int(size) if size.isdigit() else 0)


def _read(core: Core, entries: Sequence[_Entry], progress: Progress) -> Operation[None]:
    places = [(entry, slot, place) for entry in entries for slot, place in entry.places(progress, core)]
    heads = [command("HMGET", place[0], *_FIELDS) for _, _, place in places]
    try:
        replies = yield heads
    except StoreError:  # a key is of another type: it costs no other
        replies = []
        for head in heads:
            reply = _MISSING
            with passing_over(core.config.name, refusals=True):
                [reply] = yield [head]
            replies.append(reply)
    for (entry, slot, place), reply in zip(places, replies, strict=True):
        sound = yield from _is_sound(core, place, reply)
        entry.records.setdefault(slot, []).append((place, reply if sound else _MISSING))


def _is_sound(core: Core, place: VectorKey, reply: Reply) -> Operation[bool]:
    """False if staged vectors cannot be read, which is logged and counted: they count as missing."""
    try:
        vectors.chunks(place[0], reply[:4])
    except UnreadableRecord:
        [new] = yield [mark_unreadable(place[0])]
        yield from counts.pass_over(core, f"the staged vectors {place[0]!r}", int(new))
        return False
    return True


def _waiting(entries: Sequence[_Entry], progress: Progress) -> dict[int, set[bytes]]:
    """The slabs, by shard, of open segments whose trees wait."""
    slabs: dict[int, set[bytes]] = {}
    for entry in entries:
        for slot, records in entry.records.items():
            for (key, shard), reply in records if progress.waits(slot, entry.sent) else ():
                if names := _names(key, reply):
                    slabs.setdefault(shard, set()).update(names)
    return slabs


def _names(key: bytes, reply: Reply) -> set[bytes]:
    """The slabs of applied vectors that are not acked."""
    return {slab for state, names in vectors.chunks(key, reply[:4]) if state == "1" for slab in names}


def _end(core: Core, entries: Sequence[_Entry], ttl: int) -> Operation[None]:
    """Does what a program that died has left. ttl: the stored stamp_ttl, in seconds."""
    looks, asked = dict[VectorKey, str](), list[VectorKey]()
    for place, reply in (pair for entry in entries for records in entry.records.values() for pair in records):
        state, *_, full, void, fails = reply
        if state is None or b"0" in state or not state.strip(b"2"):
            continue
        if full is not None or void is not None:
            looks[place] = "f" if full is not None else "v"
        elif fails is not None:
            asked.append(place)
    for key, shard in asked:
        call = scripts.receive(
            core.config, core.shards[shard], [Received(key, b"", b"")],
            applied=core.shards[shard].applied("none"), needed="", ttl=ttl,
            most=core.config.external_waiting_bytes,
        )  # fmt: skip
        with passing_over(core.config.name, refusals=True):
            [reply] = yield from core.ask([call])
            looks[key, shard] = bytes(reply)[:1].decode()
    try:
        yield from voiding.finish(core, looks)
    except StoreError:  # of one of them: it costs no other
        for place, letter in looks.items():
            with passing_over(core.config.name, refusals=True):
                yield from voiding.finish(core, {place: letter})


def _drop_lost(core: Core, entries: Sequence[_Entry], progress: Progress) -> Operation[set[VectorKey]]:
    """Drops the vectors of lost segments where no shard has a tree of theirs any more; returns their keys."""
    asked = list[tuple[VectorKey, list[bytes]]]()
    for entry in entries:
        for slot, records in entry.records.items():
            for place, reply in records if not progress.waits(slot, entry.sent) else ():
                chunks = list(vectors.chunks(place[0], reply[:4]))
                if not any(reply[4:]) and all(state != "0" for state, _ in chunks):
                    names = [slab for state, slabs in chunks if state == "1" for slab in slabs]
                    asked += [(place, names)] if names else []
    replies = yield [command("HMGET", core.shards[place[1]].slabs, *names) for place, names in asked]
    lost = {place for (place, _), headers in zip(asked, replies, strict=True) if not any(headers)}
    yield from voiding.bury(core, lost)
    return lost


def _closed(
    entry: _Entry, progress: Progress, lost: set[VectorKey], ttl: int
) -> tuple[str, int, int, str, str] | None:
    """Returns the closed entry; None while a subscription has rows of it to ack, or may get some."""
    old = progress.now >= entry.sent + ttl + MARGIN
    acked, dropped = list[str](), list[str]()
    for slot, records in entry.records.items():
        states = [(reply[0], reply[5] is None) for place, reply in records if place not in lost]
        if any(state is not None and state.strip(b"2") for state, _ in states):
            return None
        if any(state is None for state, _ in states) and not old:
            return None
        whole = any(state is not None and not_void for state, not_void in states)
        (acked if whole else dropped).append(str(slot))
    return entry.id, entry.segment.rows, entry.bytes, ",".join(acked), ",".join(dropped)
