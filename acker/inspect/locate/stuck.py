"""Stuck rows: the unacked segments of each subscription, by reader, and those without a reader.

Tuples of bolts in plain Python lie in no stream: of these it tells what their processes have reported.

Terms: a segment is some thousand rows of a stream, stored and acked as one piece.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated

from acker.inspect.locate import in_python, search
from acker.inspect.locate.in_python import HeldTrees
from acker.inspect.locate.received import received
from acker.ledger.calls.core import Core
from acker.ledger.fields import Count, Cursor, Name, Named, Seconds
from acker.ledger.steps import step_registry
from acker.ledger.steps.step_registry import Step
from acker.ledger.trees import cursors
from acker.store import keys
from acker.store.operation import Operation, Reply, Request, command
from acker.store.replies import pairs, seconds
from acker.streams.log import holders, kinds, lanes, segments
from acker.streams.log.holders import Holder
from acker.streams.log.segments import LAST
from acker.streams.log.subscriptions import Range, find

MOST_SEGMENTS = 10_000
"""Segments of one subscription that a call looks at."""
_PAGE = 500


@dataclass(frozen=True, slots=True)
class Share:
    """Segments that one reader has taken and not acked, or nobody has taken."""

    holder: Annotated[Holder | None, Named("taken_by")]
    segments: Count
    rows: Count
    oldest: Annotated[Seconds, "Since the oldest segment was published."]


@dataclass(frozen=True, slots=True)
class Stuck:
    """Segments that a subscription has not acked.

    Where all that were looked at were acked, `shares` is one of no segments, which nobody has.
    """

    stream: Name
    subscription: Annotated[str | None, "null for what waits for the first one."]
    shares: Annotated[tuple[Share, ...], "By reader, the oldest first."]
    partly: Annotated[bool, "It has more than the 10,000 segments that were looked at."] = False

    @property
    def segments(self) -> Count:
        """The number of all segments."""
        return sum(share.segments for share in self.shares)

    @property
    def rows(self) -> Count:
        """The number of all rows."""
        return sum(share.rows for share in self.shares)

    @property
    def oldest(self) -> Seconds:
        """Seconds since the oldest of these segments was published."""
        return max(share.oldest for share in self.shares)


@dataclass(frozen=True, slots=True)
class StuckPage:
    """Subscriptions that have something to ack. A page may be empty and not the last."""

    stuck: tuple[Stuck, ...]
    cursor: Cursor
    held: Annotated[
        tuple[HeldTrees, ...], "On the first page: what bolts in plain Python said to have, the oldest first."
    ] = ()


@dataclass(slots=True)
class _Sum:
    """The segments of one reader that were read. first: the number of its oldest; since: in ms."""

    segments: int = 0
    rows: int = 0
    since: int = 2**62
    first: int = 0

    def add(self, entry: bytes, rows: bytes | None, number: int = 0) -> None:
        """Adds a segment; one whose rows or time cannot be read has none."""
        self.segments += 1
        self.rows += int(rows) if rows and rows.isdigit() else 0
        millis = entry.split(b"-")[0]
        since = int(millis) if millis.isdigit() else self.since
        if since < self.since:
            self.since, self.first = since, number


@dataclass(slots=True)
class _Look:
    """The segments of a subscription that are still to be read, and each reader's segments; "": none."""

    core: Core
    stream: str
    slot: int
    left: int
    sums: dict[str, _Sum] = field(default_factory=dict)

    def pages(self, key: bytes, start: str) -> Operation[list[Reply]]:
        """Yields the entries of a stream from an id on, page by page."""
        entries: list[Reply] = []
        while self.left > 0:
            [page] = yield [command("XRANGE", key, start, "+", "COUNT", min(_PAGE, self.left))]
            entries += page
            self.left -= len(page)
            if len(page) < _PAGE:
                break
            start = f"({page[-1][0].decode()}"
        return entries


def stuck(core: Core, *, cursor: str | None = None) -> Operation[StuckPage]:
    """Returns the unacked segments of all streams' subscriptions, by stream, and tuples in plain Python.

    Changes nothing. A page reads about 10,000 segments. For questions, not for gauges: `stream_totals` counts
    the lag at no cost. Raises ValidationError for a cursor of another call.
    """
    streams = yield from search.streams(core)
    at_work = yield from step_registry.steps(core)
    places = [(stream, slot) for stream, slots in streams.named.items() for slot in sorted(slots)]
    subscriptions, left = list[Stuck](), MOST_SEGMENTS
    held = (yield from in_python.in_flight(core)) if cursor is None else ()
    for stream, slot in places[_start(places, cursor) :]:
        if left <= 0:
            return StuckPage(tuple(subscriptions), cursors.as_text(f"{stream}/{slot}".encode()), held)
        look = _Look(core, stream, slot, MOST_SEGMENTS)
        shares = yield from _shares(look, at_work)
        if shares:
            subscriptions.append(Stuck(stream, streams.named[stream][slot], shares, look.left <= 0))
        left -= MOST_SEGMENTS - look.left
    return StuckPage(tuple(subscriptions), None, held)


def unacked(core: Core, stream: str, subscription: str) -> Operation[Stuck | None]:
    """Returns the segments that one subscription has not acked, of at most 10,000; None where it has all.

    Raises UnknownSubscription.
    """
    slot = yield from find(core, stream, subscription)
    look = _Look(core, stream, slot, MOST_SEGMENTS)
    shares = yield from _shares(look, ())
    waiting = any(share.segments for share in shares) or look.left <= 0
    return Stuck(stream, subscription, shares, look.left <= 0) if waiting else None


def _start(places: Sequence[tuple[str, int]], cursor: str | None) -> int:
    """The place that a cursor names, or the next one where that is gone."""
    if cursor is None:
        return 0
    stream, _, slot = cursors.from_text(cursor, search.MOST_CURSOR).decode("utf-8", "replace").rpartition("/")
    if not stream or not slot.isascii() or not slot.isdigit() or len(slot) > 16:
        raise cursors.malformed()
    return sum(one < (stream, int(slot)) for one in places)


def _shares(look: _Look, at_work: Sequence[Step]) -> Operation[tuple[Share, ...]]:
    core, stream, slot = look.core, look.stream, look.slot
    keys_of_stream = keys.Stream(core.config.name, stream)
    # Before the readers: a segment that is taken meanwhile belongs to no reader, or to its reader.
    fields = f"cursor:{slot}", f"lanes:{slot}", kinds.FIELD, f"passed:{slot}"
    [(after, laned, external, passed), instant, members] = yield [
        command("HMGET", keys_of_stream.subscriptions, *fields),
        Request(keys_of_stream.entries, ["TIME"]),
        command("HGETALL", keys_of_stream.readers(slot)),
    ]
    read_to = lanes.cursors(after, laned)
    for reader in sorted(name.decode("utf-8", "replace") for name in pairs(members)):
        yield from _delivered(look, keys_of_stream, reader)
    nobodys = look.sums.setdefault("", _Sum())
    for _, values in (yield from look.pages(keys_of_stream.returned(slot), "-")):
        back = pairs(values)
        nobodys.add(back.get(b"entry", b""), _rows(back))
    start = (passed if external else after) or b"0-0"
    entries = yield from look.pages(keys_of_stream.entries, f"({start.decode()}")
    if external:
        yield from _unreceived(look, entries)
        entries = []
    for entry, values in entries:
        its = pairs(values)
        mine = b"%d" % slot in its.get(b"slots", b"").split(b",")
        if mine and lanes.unread(entry, its, read_to):
            nobodys.add(entry, _rows(its))
    now, shares = seconds(instant), []
    for reader, total in look.sums.items():
        if total.segments:
            holder = None
            if reader:
                who = yield from holders.taker(core, Range(stream, slot, reader, 0, 0), at_work)
                holder = who(total.first)
            oldest = max(0.0, now - total.since / 1000)
            shares.append(Share(holder, total.segments, total.rows, oldest))
    if not shares and look.left <= 0:  # readers keep acked segments until their next batch
        shares.append(Share(None, 0, 0, 0.0))
    return tuple(sorted(shares, key=lambda share: -share.oldest))


def _rows(fields: dict[bytes, bytes]) -> bytes | None:
    """Returns the number of a segment's rows; 0 of one that only tells a step that gathers of their end."""
    record = fields.get(b"segment", b"")
    if LAST.encode() in record and not segments.readable(record).counted:
        return b"0"
    return fields.get(b"rows")


def _unreceived(look: _Look, entries: Sequence[Reply]) -> Operation[None]:
    """Adds the segments of an external stream that are not acked, each with its missing rows."""
    for first in range(0, len(entries), _PAGE):
        page = [(entry, pairs(values)) for entry, values in entries[first : first + _PAGE]]
        read = [(entry, segments.readable(fields.get(b"segment", b""))) for entry, fields in page]
        mine = [(entry, segment) for entry, segment in read if look.slot in segment.slots]
        found = yield from received(look.core, [(segment, look.slot) for _, segment in mine])
        for (entry, _), one in zip(mine, found, strict=True):
            if not one.acked:
                look.sums.setdefault("", _Sum()).add(entry, b"%d" % one.missing)


def _delivered(look: _Look, keys_of_stream: keys.Stream, reader: str) -> Operation[None]:
    """Adds the unacked segments of a reader."""
    page = yield from look.pages(keys_of_stream.delivered(look.slot, reader), "-")
    read = [(int(number.split(b"-")[0]), pairs(values)) for number, values in page]
    segment_ids = [segments.readable(fields.get(b"segment", b"")).id for _, fields in read]
    states = yield [
        command("HGET", keys_of_stream.unacked(segment_id), look.slot) for segment_id in segment_ids
    ]
    for (number, fields), state in zip(read, states, strict=True):
        if state == b"1":
            total = look.sums.setdefault(reader, _Sum())
            total.add(fields.get(b"entry", b""), _rows(fields), number)
