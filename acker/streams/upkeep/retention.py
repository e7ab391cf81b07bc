"""What a stream keeps, and how long: until each subscription acked it, but within limits of size and age.

Over a limit the oldest segments are dropped, whoever has not acked them, and counted. Nothing is lost without
a word: their tuples are never acked, so their trees expire, or fail at once where the stream gathers, and the
spout replays them. A subscription whose reader is gone holds everything back until then; dropping the
subscription ends that.
"""

import logging
from typing import NamedTuple

from acker.errors import UnknownSubscription, UnreadableRecord, ValidationError, shown
from acker.ledger.calls.core import Core
from acker.ledger.settings.config import STREAM_MAX_AGE, STREAM_MAX_BYTES
from acker.store import keys
from acker.store.operation import Operation, Request, command
from acker.store.replies import positive, seconds, whole
from acker.streams.log import fencing, segments, subscriptions
from acker.streams.log.segments import Segment
from acker.streams.log.subscriptions import GONE, Range, Taken
from acker.streams.staging import acks, vectors
from acker.streams.upkeep import gathered, scripts
from acker.streams.upkeep.gathered import Waiting

LONGEST_AGE = 28 * 86400.0
"""Seconds that a segment can be kept at most: what belongs to it is kept for 30 days."""
_FLIGHT = 64
_SPENT_TTL = 86_400
"""Seconds for which the vectors of what a stream that gathers has dropped are there: without, that would look
as acked to who has it in hand."""
_log = logging.getLogger(__name__)


def limit(
    core: Core, stream: str, *, max_age: float | None = None, max_bytes: int | None = None
) -> Operation[None]:
    """Sets the limits of a stream: seconds (1 to 28 days) and bytes (from 1); None leaves one as it is."""
    fields: list[str | float] = []
    if max_age is not None:
        if not 1 <= max_age <= LONGEST_AGE:
            raise ValidationError(f"max_age: expected 1 to {LONGEST_AGE:,.0f} seconds, got {shown(max_age)}")
        fields += ["max_age", float(max_age)]
    if max_bytes is not None:
        if max_bytes < 1:
            raise ValidationError(f"max_bytes: expected a whole number from 1, got {shown(max_bytes)}")
        fields += ["max_bytes", max_bytes]
    if fields:
        yield [command("HSET", keys.Stream(core.config.name, stream).subscriptions, *fields)]


def retain(core: Core, stream: str) -> Operation[int]:
    """Drops what is over the limits, the oldest first, though never the newest; returns how many segments.

    A stream that gathers drops what waits, too, and fails the requests that have rows in what it drops: no
    step may take the others of theirs for all. Where the limits, or what the stream holds, cannot be read,
    that is logged and nothing is dropped.
    """
    own = keys.Stream(core.config.name, stream)
    dropped = 0
    while True:
        [facts, found, waits, instant] = yield [
            command("HMGET", own.subscriptions, "max_age", "max_bytes", "bytes", "segments", "gather"),
            command("XRANGE", own.entries, "-", "+", "COUNT", _FLIGHT if dropped else 1),
            command("ZRANGEBYSCORE", own.gathering, "-inf", "+inf", "WITHSCORES", "LIMIT", 0, 1),
            Request(own.entries, ["TIME"]),
        ]
        now = seconds(instant)
        try:
            max_age = positive(facts[0], f"stream {stream!r}, max_age", STREAM_MAX_AGE)
            most = whole(facts[1], f"stream {stream!r}, max_bytes", STREAM_MAX_BYTES)
            over = whole(facts[2], f"stream {stream!r}, bytes") - most
            left = whole(facts[3], f"stream {stream!r}, segments")
        except UnreadableRecord as error:
            _log.error("%s: nothing of it is dropped", error)
            return dropped
        every = [_Kept(entry.decode(), segments.readable(fields[1])) for entry, fields in found]
        gathers = facts[4] is not None
        since = min([mark[0] / 1000 for mark in gathered.marks(waits)], default=now)
        if gathers and (over > 0 or since < now - max_age):
            every = yield from _with_waiting(core, stream)
        why = "over max_bytes" if over > 0 else "older than max_age"
        doomed = list[_Kept]()
        for one in every:
            if left - len(doomed) < 2 or (one.since >= now - max_age and over <= 0):
                break
            doomed.append(one)
            over -= one.segment.bytes
        if not doomed:
            return dropped
        if gathers:
            limit = f"{most:,} bytes" if why == "over max_bytes" else f"{max_age:,.0f} s"
            reason = f"stream {stream} dropped rows of the request: {why} ({limit})"
            yield from gathered.fail(core, stream, [one.segment for one in doomed], reason)
        else:
            # Their vectors go first: what a batch cannot read any more, it must not ack.
            spent = [key for one in doomed for key, _ in vectors.keys_of(core, one.segment)]
            yield from acks.unlink(core, spent)
        released = [(one.entry.encode(), one.segment) for one in doomed if not one.place]
        [reply] = (yield [scripts.drop_segments(own, why, released)]) if released else [0]
        own_waits = [Waiting(one.place, one.entry, one.segment) for one in doomed if one.place]
        gone = int(reply) + (yield from gathered.drop(core, stream, own_waits, why))
        if gathers:
            segments_of = [one.segment for one in doomed]
            there = yield [command("EXISTS", own.payload(segment.token)) for segment in segments_of]
            lost = [segment for segment, exists in zip(segments_of, there, strict=True) if not exists]
            spent = [key for segment in lost for key, _ in vectors.keys_of(core, segment)]
            yield [command("EXPIRE", key, _SPENT_TTL, "LT") for key in spent]
        dropped += gone
        if not gone:  # it was released meanwhile, or somebody else has dropped it
            return dropped


class _Kept(NamedTuple):
    """A segment that a stream holds, and its entry; place: where it waits for others of its requests."""

    entry: str
    segment: Segment
    place: str = ""

    @property
    def since(self) -> float:
        """When it was published, or came there, in Unix seconds."""
        return int(self.entry.split("-")[0]) / 1000


def _with_waiting(core: Core, stream: str) -> Operation[list[_Kept]]:
    """The oldest segments of a stream that gathers, in their order: waiting ones, and released ones."""
    key = keys.Stream(core.config.name, stream).entries
    [found] = yield [command("XRANGE", key, "-", "+", "COUNT", _FLIGHT)]
    every = [_Kept(entry.decode(), segments.readable(fields[1])) for entry, fields in found]
    end = every[-1].since if len(every) == _FLIGHT else float("inf")
    waits, until = yield from gathered.oldest(core, stream)
    every += [_Kept(one.entry, one.segment, one.place) for one in waits]
    every = [one for one in every if one.since <= min(end, until)]
    return sorted(every, key=lambda one: one.since)[:_FLIGHT]


def unsubscribe(core: Core, stream: str, name: str, *, ack: bool = False) -> Operation[int]:
    """Drops a subscription with all that it has not acked; returns of how many segments.

    Their trees are failed, to be replayed for the other subscriptions, or (`ack`) go on without it: nobody
    wants its part any more. Its readers get UnknownSubscription. Can be run again where it was cut short.
    """
    own = keys.Stream(core.config.name, stream)
    slot = int((yield [scripts.retire_subscription(own, name, forget=False)])[0])
    if slot < 0:
        raise UnknownSubscription(f"stream {stream!r} has no subscription {name!r}")
    what = Range(stream, slot, "", 0, 0)
    failed = None if ack else f"subscription {name} of stream {stream} was dropped"
    # Before its entries: what waits may be released meanwhile, and is among them then.
    done, rows = yield from gathered.leave(core, stream, slot, failed)
    start = "0-0"
    while True:
        [found] = yield [command("XRANGE", own.entries, f"({start}", "+", "COUNT", _FLIGHT)]
        if not found:
            break
        start = found[-1][0].decode()
        members = [Taken(0, entry.decode(), segments.readable(fields[1])) for entry, fields in found]
        states = yield [command("HGET", own.owed(one.segment.token), slot) for one in members]
        pieces = [one for one, state in zip(members, states, strict=True) if state == b"1"]
        acked, _ = yield from acks.ack(core, what, pieces, failed)
        done, rows = done + acked, rows + sum(one.segment.rows for one in pieces)
        # A segment that was published after the drop is not the subscription's: who publishes ends its part.
        had = [one for one, state in zip(members, states, strict=True) if state != GONE]
        yield from subscriptions.note(core, what, had, forget=True)
    if done:
        note = ("segments", done, "rows", rows, "why", f"subscription {name} was dropped")
        yield [command("XADD", own.drops, "MAXLEN", scripts.MOST_DROPS, "*", *note)]
    known = yield from fencing.readers(core, stream, slot)
    left = [key for reader in known for key in own.of_reader(slot, reader)]
    yield from acks.unlink(core, [*left, own.returned(slot), own.readers(slot), own.beats(slot)])
    yield [scripts.retire_subscription(own, name, forget=True)]
    return done
