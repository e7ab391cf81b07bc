"""Subscriptions: each has every segment of a stream, and gives it to exactly one of its readers.

As Storm gives each target task an edge of its own, each subscription has tuple ids of its own: otherwise two
acks would undo each other. A subscription has a number in its stream, its slot. A segment is staged for the
slots of that moment. A store that was emptied, or rolled back, never gives a slot to another subscription
(lua/streams/log/subscribe.lua): a reader that goes on with an old slot finds nothing by it. A new
subscription sees segments staged from then on. Segments that are staged while there is none wait for the
first. A reader's segments are numbered 1, 2, 3 ... as it takes them.
"""

import hashlib
import logging
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple

import redis

from acker.errors import AckerError, FunctionConflict, ReaderFenced, UnknownSubscription, UnreadableRecord
from acker.ledger.calls.core import Core
from acker.ledger.outcomes import counts
from acker.ledger.settings.config import check_name
from acker.store import keys
from acker.store.operation import Operation, Reply, Request, command
from acker.store.records import MOST_COUNT, Count, Name, Record
from acker.store.replies import milliseconds, whole
from acker.streams.log import kinds, known_readers, scripts, segments
from acker.streams.log.segments import UNREAD, Segment

DEFAULT = "default"
"""The subscription of readers that name none."""
MOST = 64
"""Subscriptions of a stream at most."""
HOLD_TTL = 30 * 86400
"""Seconds for which the vectors of a published segment, and the data of an unfinished commit or reader, are
kept. Trees expire long before: the longest message timeout is 7 days.
"""
RERUN_TTL = 86400
"""Seconds for which the rows that a reader acked last are kept, in case its batch runs again."""
MOST_GIVEN = 500
"""Segments that one call gives at most."""
GONE = b"0"
"""The mark of a segment for a slot that was dropped before the segment was published, if others have it."""
_TOLD = 64
"""Most segments that a claim lists of all that it gives."""
_STEP_BITS = 40
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Range(Record, label="a range of a stream"):
    """The segments that a reader of a subscription took, after number `start` up to and including `end`.

    Attributes:
        skipped: Ids of the batch's notes of rows that it leaves out (acker/streams/staging/skipped.py), or
            "".
        planned: A digest of the segments at the time of the plan (`digest`); "" if unknown.
    """

    stream: Name
    slot: Count
    reader: str
    start: Count
    end: Count
    skipped: str = ""
    planned: str = ""

    @property
    def place(self) -> tuple[str, int, str, int, int]:
        """The identity of the range, without its notes."""
        return self.stream, self.slot, self.reader, self.start, self.end


def digest(members: Iterable[Segment]) -> str:
    """A digest that tells the segments of a range from other segments with their numbers.

    A store that was rolled back gives numbers again. So, for a late call, other segments may have the numbers
    that its batch has read.
    """
    segment_ids = "".join(segment.id for segment in members)
    return hashlib.sha1(segment_ids.encode(), usedforsecurity=False).hexdigest()[:16]


class Delivery(NamedTuple):
    """A segment that a reader took, with the reader's number for it and the id of its entry.

    begun: the number of readers that died after they began it (lua/streams/log/return_segments.lua), or "".
    """

    number: int
    entry: str
    segment: Segment
    begun: str = ""


def slots(core: Core, stream: str) -> Operation[tuple[int, ...]]:
    """The slots for which a segment of the stream is staged now. Raises UnreadableRecord."""
    return (yield from staged_for(core, stream)).slots


class StagedFor(NamedTuple):
    """The slots for which a segment is staged, and the declarations of its stream.

    Attributes:
        slots: The slots.
        gathering: The stored record of `acker.streams.log.gathers`, if the stream gathers.
        fair: The column by which the stream is read fairly (`acker.streams.log.fairness`), if it is.
    """

    slots: tuple[int, ...]
    gathering: bytes | None
    fair: bytes | None


def staged_for(core: Core, stream: str) -> Operation[StagedFor]:
    """The slots and declarations that a segment of the stream is staged for now. Raises UnreadableRecord."""
    key = keys.Stream(core.config.name, stream).subscriptions
    asked = command("HMGET", key, "slots", "next", "gather", "fair", "epoch")
    owner = f"stream {stream!r}, the subscriptions it has"
    [(slots, following, *declarations, epoch)] = yield [asked]
    before = known_readers.before(core, stream, epoch)
    if before:
        yield from _restore(core, stream, before)
        [(slots, following, *declarations, epoch)] = yield [asked]
    if not slots and following is None:  # read it anew: there may be a subscription by then
        made = partial(scripts.reserve_slot, keys.Stream(core.config.name, stream), new_slot())
        yield from kinds.make(keys.Stream(core.config.name, stream), made)
        [(slots, following, *declarations, epoch)] = yield [asked]
    yield from known_readers.note(core, stream, key, epoch, slots)
    if not slots:
        return StagedFor((_slot(following or b"", owner),), *declarations)
    if slots.count(b",") >= MOST:
        raise UnreadableRecord(f"{owner}: expected at most {MOST}, got {slots!r:.100}")
    return StagedFor(tuple(_slot(slot, owner) for slot in slots.split(b",")), *declarations)


def _restore(core: Core, stream: str, names: Iterable[str]) -> Operation[None]:
    """Makes lost subscriptions anew, so that no segment is written for only some of them."""
    _log.warning(
        "stream %r: the store has lost its subscriptions %s, which are made anew before anything is written. "
        "To drop one that is no longer read: `acker unsubscribe %s %s SUBSCRIPTION`",
        stream, ", ".join(names), core.config.name, stream,
    )  # fmt: skip
    for name in names:
        yield from subscribe(core, stream, name)


def _slot(value: bytes, owner: str) -> int:
    """The number of a subscription. Raises UnreadableRecord."""
    slot = whole(value, owner)
    if not 0 < slot < MOST_COUNT:
        raise UnreadableRecord(f"{owner}: expected numbers from 1, got {value!r:.100}")
    return slot


def new_slot() -> int:
    """A random number for the first subscription of a stream."""
    return 1 + secrets.randbits(52)


def subscribe(core: Core, stream: str, name: str, kind: str = "managed") -> Operation[int]:
    """The slot of a subscription, which is made if it does not exist. kind: managed, external, "" for any.

    Raises StreamKindError, AckerError over 64 of a stream, and UnreadableRecord.
    """
    check_name(stream, "stream")
    check_name(name, "subscription")
    stream_keys = keys.Stream(core.config.name, stream)
    looks = command("HMGET", stream_keys.subscriptions, f"name:{name}", kinds.FIELD)
    [[slot, external]] = yield from core.name_stream(stream, looks)
    kinds.check(stream, external, kind)
    if slot is not None:
        return _slot(slot, f"stream {stream!r}, subscription {name!r}")
    words = name, MOST, new_slot(), 1 + secrets.randbits(_STEP_BITS)
    reply = yield from kinds.make(stream_keys, partial(scripts.subscribe, core.config, stream_keys, *words))
    if isinstance(reply, redis.ResponseError):
        raise AckerError(f"stream {stream!r}: {str(reply).removeprefix('ACKER ')}")
    return int(reply)


def find(core: Core, stream: str, name: str) -> Operation[int]:
    """The slot of a subscription. Raises UnknownSubscription and UnreadableRecord."""
    [stored] = yield [command("HGET", keys.Stream(core.config.name, stream).subscriptions, f"name:{name}")]
    if stored is None:
        raise UnknownSubscription(f"stream {stream!r} has no subscription {name!r}")
    return _slot(stored, f"stream {stream!r}, subscription {name!r}")


@dataclass(slots=True)
class Claimed:
    """The reply to a claim.

    Attributes:
        taken: The segments that the reader has.
        more: True if the stream may have more segments for it.
        now: The server's time (ms); 0 if it was not read.
        looks: The server's replies about each segment (lua/streams/log/claim_and_read.lua), if they were
            read.
    """

    delivered: list[Delivery] = field(default_factory=list)
    more: bool = True
    now: int = 0
    looks: list[Reply] = field(default_factory=list)


def claim(
    core: Core,
    stream: str,
    slot: int,
    reader: str,
    offset: int,
    *,
    name: str,
    version: str = "",
    rows: int = 10**15,
    bytes: int = 10**15,  # noqa: A002 - of rows, as `Segment.size` says
    segments: int = MOST_GIVEN,
    end: str = "+",
    claimed: Claimed | None = None,
) -> Operation[int]:
    """Takes the next segments for a reader; returns the number of the last one.

    Segments that were taken before, and are in no batch, are given again. One segment is taken in any case,
    even above the limits.

    Args:
        core: The ledger.
        stream: The stream.
        slot: The slot of the subscription.
        reader: The reader.
        offset: The number of the last segment that the reader has.
        name: The subscription's name as the caller knows it.
        version: The version of the function whose step the reader works on, or "".
        rows: The most rows to take.
        bytes: The most bytes to take (`Segment.size`).
        segments: The most segments to take.
        end: The id of the last entry to take.
        claimed: Gets all segments after `offset` if they are few, and the information whether there may be
            more.

    Raises:
        UnknownSubscription: The subscription does not exist.
        ReaderFenced: The reader's segments were given back.
        FunctionConflict: The function was registered with another version since.
    """
    stream_keys = keys.Stream(core.config.name, stream)
    while True:
        shown = 0 if claimed is None else _TOLD
        words = slot, reader, offset, rows, bytes, segments, end, HOLD_TTL, shown, name, version
        reply: Reply = None
        if claimed is not None:
            [reply] = yield [scripts.claim_and_read(core.config, stream_keys, *words)]
            if isinstance(reply, list):
                reply, *looks = reply
                claimed.now, claimed.looks = (milliseconds(looks[0]), looks[1:]) if looks else (0, [])
        if reply is None:
            [reply] = yield [scripts.claim_segments(stream_keys, *words)]
        if isinstance(reply, redis.ResponseError) and str(reply) == "ACKER FENCED":
            raise fenced(stream, reader)
        if isinstance(reply, redis.ResponseError) and str(reply) == "ACKER VERSION":
            raise FunctionConflict(
                f"step {name!r} of stream {stream!r} belongs to another version of its function, which was "
                "removed, or lost with its store, or registered anew. Start the step again"
            )
        if isinstance(reply, redis.ResponseError):
            kinds.check_claimed(stream, reply)
            raise UnknownSubscription(f"stream {stream!r}: {str(reply).removeprefix('ACKER ')}")
        last, more, *found = reply
        if claimed is not None:
            each = zip(found[::4], found[1::4], found[2::4], found[3::4], strict=True)
            claimed.delivered += [_delivery(core, stream, *one) for one in each]
            claimed.more = bool(more)
        if last > offset or not more:
            return int(last)


def fenced(stream: str, reader: str) -> ReaderFenced:
    """The error for a reader whose segments were given back."""
    return ReaderFenced(
        f"reader {reader} of stream {stream!r} is fenced: its segments were given back to the other readers "
        "of its subscription, so nothing of its batch is committed. Start its query with a new checkpoint, "
        "or its job again"
    )


def delivered(core: Core, taken: Range, count: int = MOST_GIVEN) -> Operation[list[Delivery]]:
    """The first segments of a range, `count` of them at most. Forgotten segments are left out.

    A segment whose record cannot be read is logged, and becomes `acker.streams.log.segments.UNREAD`; `forget`
    counts it.
    """
    if taken.end <= taken.start:
        return []
    key = keys.Stream(core.config.name, taken.stream).delivered(taken.slot, taken.reader)
    [entries] = yield [command("XRANGE", key, f"{taken.start + 1}-0", f"{taken.end}-0", "COUNT", count)]
    return [
        _delivery(core, taken.stream, int(number.split(b"-")[0]), fields[1], fields[3], *fields[9:10])
        for number, fields in entries
    ]


def _delivery(
    core: Core, stream: str, number: int, entry: bytes, record: bytes, begun: bytes = b""
) -> Delivery:
    segment = segments.readable(record)
    if segment is UNREAD:
        _log.error("%s: segment %r of stream %s cannot be read", core.config.name, entry, stream)
    return Delivery(int(number), entry.decode(), segment, begun.decode())


def all_delivered(core: Core, taken: Range) -> Operation[list[Delivery]]:
    """All segments of a range, in the form of `delivered`."""
    members = part = yield from delivered(core, taken)
    while len(part) == MOST_GIVEN:
        part = yield from delivered(core, replace(taken, start=part[-1].number))
        members = members + part
    return members


def last_delivered(core: Core, stream: str, slot: int, reader: str) -> Operation[int]:
    """The number of the last segment that a reader took, or gave back; 0 if none is known."""
    key = keys.Stream(core.config.name, stream).delivered(slot, reader)
    [found] = yield [command("XREVRANGE", key, "+", "-", "COUNT", 1)]
    if found:
        return int(found[0][0].split(b"-")[0])
    return (yield from given_back(core, stream, slot, reader))


def given_back(core: Core, stream: str, slot: int, reader: str) -> Operation[int]:
    """The highest number of a reader's segments that were given back; 0 if none.

    A reader of its name goes on after it.
    """
    fences = keys.Stream(core.config.name, stream).fences(slot, reader)
    [stored] = yield [command("HGET", fences, "given_back")]
    return whole(stored, f"stream {stream!r}, segments given back by reader {reader!r}")


def knows(core: Core, stream: str, slot: int, reader: str) -> Operation[bool]:
    """Return True if a subscription has a reader of that name."""
    [found] = yield [command("HEXISTS", keys.Stream(core.config.name, stream).readers(slot), reader)]
    return bool(found)


def log(core: Core, stream: str, slot: int, reader: str, anew: bool = False) -> Operation[bool]:
    """Notes that Spark has logged a batch of a reader.

    The reader will ask for its segments again, however late.

    Returns True if the subscription has such a reader. If not, nothing is noted, except with `anew`.
    """
    key = keys.Stream(core.config.name, stream).readers(slot)
    [instant] = yield [Request(key, ["TIME"])]
    [new, _] = yield [
        command("HSET", key, reader, f"1 {milliseconds(instant)}"),
        command("EXPIRE", key, HOLD_TTL),
    ]
    if new and not anew:
        yield [command("HDEL", key, reader)]
    return not new


def note(core: Core, taken: Range, pieces: Sequence[Delivery], forget: bool = False) -> Operation[int]:
    """Notes that a subscription acked segments, or (`forget`) will never read segments again that it acked.

    An entry leaves its stream when all subscriptions acked it, and its rows leave the store when all have
    forgotten it. Returns the number of segments for which this is new. The same call again changes nothing.
    """
    new = 0
    for first in range(0, len(pieces), MOST_GIVEN):
        [reply] = yield [note_request(core, taken, pieces[first : first + MOST_GIVEN], forget)]
        new += int(reply)
    return new


def note_request(core: Core, taken: Range, pieces: Sequence[Delivery], forget: bool = False) -> Request:
    """The request of `note`, for 500 segments at most."""
    stream_keys = keys.Stream(core.config.name, taken.stream)
    return scripts.note_segments(
        core.config, stream_keys, taken.slot, taken.reader, forget, RERUN_TTL, pieces
    )


def forget(core: Core, taken: Range) -> Operation[None]:
    """Forgets the acked segments of a range: no batch will ask for them again."""
    start = taken.start
    while True:
        members = yield from delivered(core, replace(taken, start=start))
        if not members:
            return
        readable = [delivery for delivery in members if delivery.segment is not UNREAD]
        yield from note(core, taken, readable, forget=True)
        for delivery in (delivery for delivery in members if delivery.segment is UNREAD):
            new = yield from note(core, taken, [delivery], forget=True)
            yield from counts.pass_over(core, f"segment {delivery.entry} of stream {taken.stream}", new)
        start = members[-1].number
