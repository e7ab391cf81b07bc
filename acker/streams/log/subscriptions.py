"""Subscriptions: who reads a stream. Each has every segment, and gives each to exactly one of its readers.

As Storm gives each target task its own edge, each subscription has tuple ids of its own: what two of them ack
would undo itself otherwise. A subscription has a number in its stream, its slot, and a segment is staged for
the slots that there are then. A store that was emptied, or set back, gives a slot to no other subscription
(lua/streams/log/subscribe.lua): whoever goes on with one of before finds nothing by it. One that joins later
sees what is staged from then on; what is staged while there is none waits for the first. A reader's segments
are numbered 1, 2, 3 ... as it takes them.
"""

import hashlib
import logging
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
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
from acker.streams.log import known_readers, scripts, segments
from acker.streams.log.segments import UNREAD, Segment

DEFAULT = "default"
"""The subscription of who names none."""
MOST = 64
"""Subscriptions of a stream at most."""
HOLD_TTL = 30 * 86400
"""Seconds that the vectors of a published segment, and what an unfinished commit or reader needs, are kept.
Trees expire long before: the longest message timeout is 7 days."""
RERUN_TTL = 86400
"""Seconds for which the rows that a reader acked last are kept for a batch that runs again."""
MOST_GIVEN = 500
"""Segments that one call gives at most."""
GONE = b"0"
"""What a segment is noted to owe to a slot that was dropped before it was published, where others have it."""
_TOLD = 64
"""Most segments that a claim lists of all that it gives."""
_STEP_BITS = 40
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Range(Record, what="a range of a stream"):
    """The segments that a reader of a subscription took, after number `start` up to and including `end`.

    skipped: what its batch leaves out of it, as tokens (acker/streams/staging/skipped.py); "": nothing.
    planned: a digest of the segments that it was when its batch was planned (`digest`); "": not known.
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
        """Which segments these are, by their numbers."""
        return self.stream, self.slot, self.reader, self.start, self.end


def digest(members: Iterable[Segment]) -> str:
    """What tells the segments of a range from others that have their numbers.

    A store that was set back numbers anew: by a call that comes late, others may be there under the numbers
    that a batch has read.
    """
    tokens = "".join(segment.token for segment in members)
    return hashlib.sha1(tokens.encode(), usedforsecurity=False).hexdigest()[:16]


class Taken(NamedTuple):
    """A segment that a reader took: its number, the id of its entry, and the segment.

    begun: how often readers began it that have died (lua/streams/log/return_segments.lua); "": none did.
    """

    number: int
    entry: str
    segment: Segment
    begun: str = ""


def slots(core: Core, stream: str) -> Operation[tuple[int, ...]]:
    """The slots that a segment of the stream is staged for now. Raises UnreadableRecord."""
    return (yield from staged_for(core, stream)).slots


class StagedFor(NamedTuple):
    """What a segment of a stream is staged for: slots.

    gathering: how the stream gathers, as `acker.streams.log.gathers` stores it. fair: the column by which it
    is read fairly (`acker.streams.log.fairness`).
    """

    slots: tuple[int, ...]
    gathering: bytes | None
    fair: bytes | None


def staged_for(core: Core, stream: str) -> Operation[StagedFor]:
    """What a segment of the stream is staged for now. Raises UnreadableRecord."""
    key = keys.Stream(core.config.name, stream).subscriptions
    asked = command("HMGET", key, "slots", "next", "gather", "fair", "life")
    what = f"stream {stream!r}, the subscriptions it has"
    [(found, following, *how, life)] = yield [asked]
    before = known_readers.before(core, stream, life)
    if before:
        yield from _restore(core, stream, before)
        [(found, following, *how, life)] = yield [asked]
    if not found and following is None:  # it is read anew: there may be a subscription by then
        number = new_slot()
        made = [command("HSETNX", key, name, number) for name in ("next", "life")]
        *_, (found, following, *how, life) = yield [*made, asked]
    yield from known_readers.note(core, stream, key, life, found)
    if not found:
        return StagedFor((_slot(following or b"", what),), *how)
    if found.count(b",") >= MOST:
        raise UnreadableRecord(f"{what}: expected at most {MOST}, got {found!r:.100}")
    return StagedFor(tuple(_slot(slot, what) for slot in found.split(b",")), *how)


def _restore(core: Core, stream: str, names: Iterable[str]) -> Operation[None]:
    """Makes subscriptions anew that the store has lost: nothing is to be written for one of them alone.

    Their readers find out by themselves, but each in its time.
    """
    _log.warning(
        "stream %r: the store has lost its subscriptions %s, which are made anew before anything is written. "
        "Who reads for one of them no more drops it: `acker unsubscribe %s %s SUBSCRIPTION`",
        stream, ", ".join(names), core.config.name, stream,
    )  # fmt: skip
    for name in names:
        yield from subscribe(core, stream, name)


def _slot(value: bytes, what: str) -> int:
    """The number of a subscription; UnreadableRecord."""
    slot = whole(value, what)
    if not 0 < slot < MOST_COUNT:
        raise UnreadableRecord(f"{what}: expected numbers from 1, got {value!r:.100}")
    return slot


def new_slot() -> int:
    """A random number for the first subscription of a stream."""
    return 1 + secrets.randbits(52)


def subscribe(core: Core, stream: str, name: str) -> Operation[int]:
    """The slot of a subscription, which is made where there is none.

    Raises AckerError over 64 of a stream, and UnreadableRecord.
    """
    check_name(stream, "stream")
    check_name(name, "subscription")
    own = keys.Stream(core.config.name, stream)
    [found, _] = yield [
        command("HGET", own.subscriptions, f"name:{name}"),
        command("SADD", keys.streams(core.config.name), stream),
    ]
    if found is not None:
        return _slot(found, f"stream {stream!r}, subscription {name!r}")
    [reply] = yield [scripts.subscribe(own, name, MOST, new_slot(), 1 + secrets.randbits(_STEP_BITS))]
    if isinstance(reply, redis.ResponseError):
        raise AckerError(f"stream {stream!r}: {str(reply).removeprefix('ACKER ')}")
    return int(reply)


def find(core: Core, stream: str, name: str) -> Operation[int]:
    """The slot of a subscription; UnknownSubscription where there is none, and UnreadableRecord."""
    key = keys.Stream(core.config.name, stream).subscriptions
    [found] = yield [command("HGET", key, f"name:{name}")]
    if found is None:
        raise UnknownSubscription(f"stream {stream!r} has no subscription {name!r}")
    return _slot(found, f"stream {stream!r}, subscription {name!r}")


@dataclass(slots=True)
class Told:
    """What a claim tells: segments that the reader has, and whether the stream may have more for it.

    now: the server's time (ms), and looks: what it read of each of them along with that
    (lua/streams/log/claim_and_look.lua); 0 and none where it did not.
    """

    taken: list[Taken] = field(default_factory=list)
    more: bool = True
    now: int = 0
    looks: list[Reply] = field(default_factory=list)


def claim(
    core: Core,
    stream: str,
    slot: int,
    reader: str,
    at: int,
    *,
    name: str,
    version: str = "",
    rows: int = 10**15,
    bytes: int = 10**15,  # noqa: A002 - of rows, as `Segment.size` says
    segments: int = MOST_GIVEN,
    end: str = "+",
    told: Told | None = None,
) -> Operation[int]:
    """Takes the next segments for a reader that has had those up to number `at`; returns the last number.

    name: of the subscription, as the caller knows it. version: of the function whose step it works on; "":
    of none. rows, bytes, segments: most to take, though one segment
    is always taken. end: id of the last entry to be taken. told: gets all segments after `at`, where they are
    few, and whether there may be more. What was taken before, and is in no batch, is given again. Raises
    UnknownSubscription, ReaderFenced where what the reader had was given back, and FunctionConflict where the
    function was registered otherwise since.
    """
    own = keys.Stream(core.config.name, stream)
    while True:
        shown = 0 if told is None else _TOLD
        words = slot, reader, at, rows, bytes, segments, end, HOLD_TTL, shown, name, version
        reply: Reply = None
        if told is not None:
            [reply] = yield [scripts.claim_and_look(core.config, own, *words)]
            if isinstance(reply, list):
                reply, *looks = reply
                told.now, told.looks = (milliseconds(looks[0]), looks[1:]) if looks else (0, [])
        if reply is None:
            [reply] = yield [scripts.claim_segments(own, *words)]
        if isinstance(reply, redis.ResponseError) and str(reply) == "ACKER FENCED":
            raise fenced(stream, reader)
        if isinstance(reply, redis.ResponseError) and str(reply) == "ACKER VERSION":
            raise FunctionConflict(
                f"step {name!r} of stream {stream!r} is of another version of its function: that was "
                "removed, or lost with its store, or is registered otherwise"
            )
        if isinstance(reply, redis.ResponseError):
            raise UnknownSubscription(f"stream {stream!r}: {str(reply).removeprefix('ACKER ')}")
        last, more, *found = reply
        if told is not None:
            each = zip(found[::4], found[1::4], found[2::4], found[3::4], strict=True)
            told.taken += [_taken(core, stream, *one) for one in each]
            told.more = bool(more)
        if last > at or not more:
            return int(last)


def fenced(stream: str, reader: str) -> ReaderFenced:
    """The message to a reader whose segments were given back."""
    return ReaderFenced(
        f"what reader {reader} of stream {stream!r} had taken was given back to the others of its "
        "subscription, so nothing that it made of that is committed. Start its query with a new checkpoint, "
        "or its job again"
    )


def taken(core: Core, what: Range, count: int = MOST_GIVEN) -> Operation[list[Taken]]:
    """The first segments of a range, `count` of them at most. Segments that were forgotten are left out.

    One whose record cannot be read is logged, and stands there as `acker.streams.log.segments.UNREAD`;
    `forget` counts it.
    """
    if what.end <= what.start:
        return []
    key = keys.Stream(core.config.name, what.stream).taken(what.slot, what.reader)
    [found] = yield [command("XRANGE", key, f"{what.start + 1}-0", f"{what.end}-0", "COUNT", count)]
    return [
        _taken(core, what.stream, int(number.split(b"-")[0]), fields[1], fields[3], *fields[9:10])
        for number, fields in found
    ]


def _taken(core: Core, stream: str, number: int, entry: bytes, record: bytes, begun: bytes = b"") -> Taken:
    segment = segments.readable(record)
    if segment is UNREAD:
        _log.error("%s: segment %r of stream %s cannot be read", core.config.name, entry, stream)
    return Taken(int(number), entry.decode(), segment, begun.decode())


def all_taken(core: Core, what: Range) -> Operation[list[Taken]]:
    """All segments of a range, as `taken` has them."""
    found, start = list[Taken](), what.start
    while part := (yield from taken(core, replace(what, start=start))):
        found, start = found + part, part[-1].number
    return found


def last_taken(core: Core, stream: str, slot: int, reader: str) -> Operation[int]:
    """The number of the last segment that a reader took, or gave back; 0 where nothing is known of any."""
    key = keys.Stream(core.config.name, stream).taken(slot, reader)
    [found] = yield [command("XREVRANGE", key, "+", "-", "COUNT", 1)]
    if found:
        return int(found[0][0].split(b"-")[0])
    return (yield from given_back(core, stream, slot, reader))


def given_back(core: Core, stream: str, slot: int, reader: str) -> Operation[int]:
    """The highest number that was given back of a reader: one of that name goes on after it. 0: none was."""
    [found] = yield [command("HGET", keys.Stream(core.config.name, stream).bound(slot, reader), "given_back")]
    return whole(found, f"stream {stream!r}, what was given back of reader {reader!r}")


def knows(core: Core, stream: str, slot: int, reader: str) -> Operation[bool]:
    """Whether a subscription has a reader of that name."""
    [found] = yield [command("HEXISTS", keys.Stream(core.config.name, stream).readers(slot), reader)]
    return bool(found)


def log(core: Core, stream: str, slot: int, reader: str, anew: bool = False) -> Operation[bool]:
    """Notes that Spark has logged a batch of a reader: it will ask for what it took, however late.

    Returns whether the subscription has such a reader; if not, nothing is noted, unless it is to be (anew).
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


def note(core: Core, what: Range, pieces: Sequence[Taken], forget: bool = False) -> Operation[int]:
    """Notes that a subscription acked segments, or (`forget`) will never read those again that it acked.

    An entry leaves its stream when all subscriptions acked it, its rows the store when all have forgotten it.
    Returns for how many this is new; the same again changes nothing.
    """
    new = 0
    for first in range(0, len(pieces), MOST_GIVEN):
        [reply] = yield [noting(core, what, pieces[first : first + MOST_GIVEN], forget)]
        new += int(reply)
    return new


def noting(core: Core, what: Range, pieces: Sequence[Taken], forget: bool = False) -> Request:
    """The request of `note`, for 500 segments at most."""
    own = keys.Stream(core.config.name, what.stream)
    return scripts.note_segments(core.config, own, what.slot, what.reader, forget, RERUN_TTL, pieces)


def forget(core: Core, what: Range) -> Operation[None]:
    """Lets go of what a reader acked in a range: no batch will ask for it again."""
    start = what.start
    while True:
        found = yield from taken(core, Range(what.stream, what.slot, what.reader, start, what.end))
        if not found:
            return
        yield from note(core, what, [one for one in found if one.segment is not UNREAD], forget=True)
        for one in (one for one in found if one.segment is UNREAD):
            new = yield from note(core, what, [one], forget=True)
            yield from counts.pass_over(core, f"segment {one.entry} of stream {what.stream}", new)
        start = found[-1].number
