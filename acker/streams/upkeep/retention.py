"""Retention: a stream keeps segments until each subscription acked them, within limits of size and age.

Above a limit the oldest segments are dropped, even unacked ones, and counted. No loss is silent: their tuples
are never acked, so their trees expire, or fail at once if the stream gathers, and the spout replays them. A
subscription without a reader holds everything back until then; dropping the subscription ends that.

Terms: a tree is all that comes of one record; a vector has a number for each tree, the XOR of tuple ids.
"""

from collections.abc import Sequence
from typing import NamedTuple

from acker.errors import ValidationError, shown
from acker.ledger.calls.core import Core
from acker.ledger.settings.config import STREAM_MAX_AGE, STREAM_MAX_BYTES
from acker.store import keys
from acker.store.operation import Operation, Reply, Request, command
from acker.store.records import passing_over
from acker.store.replies import positive, seconds, whole
from acker.streams.log import fencing, kinds, segments, subscriptions
from acker.streams.log.segments import Segment
from acker.streams.log.subscriptions import GONE, Delivery, Range
from acker.streams.staging import acks, vectors
from acker.streams.upkeep import gathered, open_segments, scripts
from acker.streams.upkeep.gathered import Waiting

LONGEST_AGE = 28 * 86400.0
"""The most seconds that a segment can be kept: its other data is kept for 30 days."""
_FLIGHT = 64
_SPENT_TTL = 86_400
"""Seconds for which the vectors of dropped segments live in a stream that gathers, so that their reader does
not take them for acked.
"""


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


def limit_requests(core: Core, stream: str, entries: int = 1) -> list[Request]:
    """The first requests of `retain`: the limits of a stream, and its oldest segments."""
    stream_keys = keys.Stream(core.config.name, stream)
    return [
        command("HMGET", stream_keys.subscriptions, "max_age", "max_bytes", "bytes", "segments", "gather"),
        command("XRANGE", stream_keys.entries, "-", "+", "COUNT", entries),
        command("ZRANGEBYSCORE", stream_keys.gathering, "-inf", "+inf", "WITHSCORES", "LIMIT", 0, 1),
        Request(stream_keys.entries, ["TIME"]),
    ]


def retain(core: Core, stream: str, replies: Sequence[Reply] = ()) -> Operation[int]:
    """Drops segments above the limits, the oldest first, though never the newest; returns their number.

    A stream that gathers also drops waiting rows, and fails the requests that have rows in dropped segments:
    no step may take the remaining rows of a request for all of them. If the limits, or the size of the
    stream, cannot be read, that is logged and nothing is dropped. replies: of `limit_requests`, if the caller
    has just asked.
    """
    stream_keys = keys.Stream(core.config.name, stream)
    dropped = 0
    while True:
        replies = replies or (yield limit_requests(core, stream, _FLIGHT if dropped else 1))
        [facts, entries, waits, instant], replies = replies, ()
        now = seconds(instant)
        left: int | None = None
        with passing_over("nothing is dropped"):
            max_age = positive(facts[0], f"stream {stream!r}, max_age", STREAM_MAX_AGE)
            most = whole(facts[1], f"stream {stream!r}, max_bytes", STREAM_MAX_BYTES)
            over = whole(facts[2], f"stream {stream!r}, bytes") - most
            left = whole(facts[3], f"stream {stream!r}, segments")
        if left is None:
            return dropped
        every = [_Kept(entry.decode(), segments.readable(fields[1])) for entry, fields in entries]
        gathers = facts[4] is not None
        since = min([mark[0] / 1000 for mark in gathered.marks(waits)], default=now)
        if gathers and (over > 0 or since < now - max_age):
            every = yield from _with_waiting(core, stream)
        why = "over max_bytes" if over > 0 else "older than max_age"
        doomed = list[_Kept]()
        for kept in every:
            if left - len(doomed) < 2 or (kept.since >= now - max_age and over <= 0):
                break
            doomed.append(kept)
            over -= kept.segment.bytes
        if not doomed:
            return dropped
        if gathers:
            limit = f"{most:,} bytes" if why == "over max_bytes" else f"{max_age:,.0f} s"
            reason = f"stream {stream} dropped rows of the request: {why} ({limit})"
            yield from gathered.fail(core, stream, [kept.segment for kept in doomed], reason)
        else:
            # Their vectors go first: a batch must not ack segments that it can no longer read.
            spent = [key for kept in doomed for key, _ in vectors.keys_of(core, kept.segment)]
            yield from acks.unlink(core, spent)
        released = [(kept.entry.encode(), kept.segment) for kept in doomed if not kept.place]
        [reply] = (yield [scripts.drop_segments(stream_keys, why, released)]) if released else [0]
        own_waits = [Waiting(kept.place, kept.entry, kept.segment) for kept in doomed if kept.place]
        gone = int(reply) + (yield from gathered.drop(core, stream, own_waits, why))
        if gathers:
            segments_of = [kept.segment for kept in doomed]
            there = yield [command("EXISTS", stream_keys.payload(segment.id)) for segment in segments_of]
            lost = [segment for segment, exists in zip(segments_of, there, strict=True) if not exists]
            spent = [key for segment in lost for key, _ in vectors.keys_of(core, segment)]
            yield [command("EXPIRE", key, _SPENT_TTL, "LT") for key in spent]
        dropped += gone
        if not gone:  # it was released or dropped meanwhile
            return dropped


class _Kept(NamedTuple):
    """A segment of a stream, and its entry. place: the place at which it waits, "" if it was released."""

    entry: str
    segment: Segment
    place: str = ""

    @property
    def since(self) -> float:
        """The time at which the segment was published, or came to its place, in Unix seconds."""
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
    """Drops a subscription with all its unacked segments; returns their number.

    Their trees fail, to be replayed for the other subscriptions. With `ack` they go on without this
    subscription. Its readers get UnknownSubscription. If it is cut short, it can be run again.
    ValidationError for `ack` of an external stream: nothing has changed.
    """
    stream_keys = keys.Stream(core.config.name, stream)
    [external] = yield [command("HEXISTS", stream_keys.subscriptions, kinds.FIELD)]
    if external and ack:
        raise ValidationError(f"ack: stream {stream!r} is external, whose open segments can only be failed")
    slot = yield from subscriptions.find(core, stream, name)
    yield [scripts.remove_subscription(stream_keys, name, slot, forget=False)]
    everything = Range(stream, slot, "", 0, 0)
    failed = None if ack else f"subscription {name} of stream {stream} was dropped"
    # Before its entries: waiting rows may be released meanwhile, and are among them then.
    done, rows = yield from gathered.leave(core, stream, slot, failed)
    start = "0-0"
    while True:
        [entries] = yield [command("XRANGE", stream_keys.entries, f"({start}", "+", "COUNT", _FLIGHT)]
        if not entries:
            break
        start = entries[-1][0].decode()
        if external:
            ended = yield from open_segments.leave(core, slot, entries, str(failed))
            done, rows = done + ended.segments, rows + ended.rows
            continue
        members = [Delivery(0, entry.decode(), segments.readable(fields[1])) for entry, fields in entries]
        states = yield [command("HGET", stream_keys.unacked(member.segment.id), slot) for member in members]
        pieces = [member for member, state in zip(members, states, strict=True) if state == b"1"]
        acked, _ = yield from acks.ack(core, everything, pieces, failed)
        done, rows = done + acked, rows + sum(member.segment.counted for member in pieces)
        # A segment that was published after the drop is not the subscription's: its publisher ends this part.
        had = [member for member, state in zip(members, states, strict=True) if state != GONE]
        yield from subscriptions.note(core, everything, had, forget=True)
    if done:
        note = ("segments", done, "rows", rows, "why", f"subscription {name} was dropped")
        yield [command("XADD", stream_keys.drops, "MAXLEN", scripts.MOST_DROPS, "*", *note)]
    known = yield from fencing.readers(core, stream, slot)
    left = [key for reader in known for key in stream_keys.of_reader(slot, reader)]
    yield from acks.unlink(
        core, [*left, stream_keys.returned(slot), stream_keys.readers(slot), stream_keys.heartbeats(slot)]
    )
    yield [
        scripts.remove_subscription(stream_keys, name, slot, forget=True),
        *kinds.forget_open_rows(core, slot),
    ]
    return done
