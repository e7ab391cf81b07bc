"""Stuck rows: what each subscription has not acked, who has taken it, and how much nobody has."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated

from acker.inspect.locate import search
from acker.ledger.calls.core import Core
from acker.ledger.fields import Count, Cursor, Name, Named, Seconds
from acker.ledger.steps import step_registry
from acker.ledger.steps.step_registry import Step
from acker.ledger.trees import cursors
from acker.store import keys
from acker.store.operation import Operation, Reply, Request, command
from acker.store.replies import pairs, seconds
from acker.streams.log import holders, lanes, segments
from acker.streams.log.holders import Holder
from acker.streams.log.subscriptions import Range

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
    shares: Annotated[tuple[Share, ...], "By who has it, the oldest first."]
    partly: Annotated[bool, "It has more than the 10,000 segments that were looked at."] = False

    @property
    def segments(self) -> Count:
        """How many segments, of all."""
        return sum(share.segments for share in self.shares)

    @property
    def rows(self) -> Count:
        """How many rows, of all."""
        return sum(share.rows for share in self.shares)

    @property
    def oldest(self) -> Seconds:
        """Seconds since the oldest of them was published."""
        return max(share.oldest for share in self.shares)


@dataclass(frozen=True, slots=True)
class StuckPage:
    """Subscriptions that have something to ack. A page may be empty and not the last."""

    stuck: tuple[Stuck, ...]
    cursor: Cursor


@dataclass(slots=True)
class _Sum:
    """What one reader has, as far as it was looked at. first: the number of its oldest; since: in ms."""

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
    """How many segments of a subscription are still looked at, and what each reader has; "": nobody."""

    core: Core
    stream: str
    slot: int
    left: int
    sums: dict[str, _Sum] = field(default_factory=dict)

    def pages(self, key: bytes, start: str) -> Operation[list[Reply]]:
        """What a stream of entries holds from an id on, as long as there is something left."""
        found: list[Reply] = []
        while self.left > 0:
            [page] = yield [command("XRANGE", key, start, "+", "COUNT", min(_PAGE, self.left))]
            found += page
            self.left -= len(page)
            if len(page) < _PAGE:
                break
            start = f"({page[-1][0].decode()}"
        return found


def stuck(core: Core, *, cursor: str | None = None) -> Operation[StuckPage]:
    """What the subscriptions of all streams have not acked, by stream. Changes nothing.

    A page looks at 10,000 segments, about. It is a question, not a gauge: `stream_totals` counts what is
    behind at no cost. Raises ValidationError for a cursor that no page gave.
    """
    known = yield from search.streams(core)
    at_work = yield from step_registry.steps(core)
    places = [(stream, slot) for stream, slots in known.named.items() for slot in sorted(slots)]
    found, left = list[Stuck](), MOST_SEGMENTS
    for stream, slot in places[_start(places, cursor) :]:
        if left <= 0:
            return StuckPage(tuple(found), cursors.as_text(f"{stream}/{slot}".encode()))
        look = _Look(core, stream, slot, MOST_SEGMENTS)
        shares = yield from _shares(look, at_work)
        if shares:
            found.append(Stuck(stream, known.named[stream][slot], shares, look.left <= 0))
        left -= MOST_SEGMENTS - look.left
    return StuckPage(tuple(found), None)


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
    own = keys.Stream(core.config.name, stream)
    # Before what is taken: a segment that is taken meanwhile is among those of nobody, or of its reader.
    [(after, laned), instant, members] = yield [
        command("HMGET", own.subscriptions, f"cursor:{slot}", f"lanes:{slot}"),
        Request(own.entries, ["TIME"]),
        command("HGETALL", own.readers(slot)),
    ]
    read_to = lanes.cursors(after, laned)
    for reader in sorted(name.decode("utf-8", "replace") for name in pairs(members)):
        yield from _taken(look, own, reader)
    nobodys = look.sums.setdefault("", _Sum())
    for _, values in (yield from look.pages(own.returned(slot), "-")):
        fields = pairs(values)
        nobodys.add(fields.get(b"entry", b""), fields.get(b"rows"))
    for entry, values in (yield from look.pages(own.entries, f"({(after or b'0-0').decode()}")):
        fields = pairs(values)
        mine = b"%d" % slot in fields.get(b"slots", b"").split(b",")
        if mine and lanes.unread(entry, fields, read_to):
            nobodys.add(entry, fields.get(b"rows"))
    now, shares = seconds(instant), []
    for reader, total in look.sums.items():
        if total.segments:
            holder = None
            if reader:
                who = yield from holders.taker(core, Range(stream, slot, reader, 0, 0), at_work)
                holder = who(total.first)
            oldest = max(0.0, now - total.since / 1000)
            shares.append(Share(holder, total.segments, total.rows, oldest))
    if not shares and look.left <= 0:  # readers keep what they have acked until their next batch
        shares.append(Share(None, 0, 0, 0.0))
    return tuple(sorted(shares, key=lambda share: -share.oldest))


def _taken(look: _Look, own: keys.Stream, reader: str) -> Operation[None]:
    """Adds what a reader has taken and not acked."""
    page = yield from look.pages(own.taken(look.slot, reader), "-")
    read = [(int(number.split(b"-")[0]), pairs(values)) for number, values in page]
    tokens = [segments.readable(fields.get(b"segment", b"")).token for _, fields in read]
    states = yield [command("HGET", own.owed(token), look.slot) for token in tokens]
    for (number, fields), state in zip(read, states, strict=True):
        if state == b"1":
            total = look.sums.setdefault(reader, _Sum())
            total.add(fields.get(b"entry", b""), fields.get(b"rows"), number)
