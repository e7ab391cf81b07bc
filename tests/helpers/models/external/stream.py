"""An external stream in the model: what its own keys in the store say, and its rows in a transport."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from tests.helpers.models.external.rules import Rules, Times


class Row(NamedTuple):
    """A copy of a row in a transport. content, same: the checker's; life: of the store that stamped it."""

    token: str
    position: int
    anchors: tuple[int, ...]
    sent: int
    key: int
    content: str
    life: int = 0

    @property
    def same(self) -> tuple[str, int]:
        """Names the row of which this is a copy."""
        return self.token, self.position


class Announced(NamedTuple):
    """A segment that is announced: token, when it was begun, and its shards."""

    token: str
    sent: int
    shards: tuple[int, ...]


@dataclass
class Entry:
    """A segment that some subscription has to ack."""

    segment: Announced
    slots: tuple[int, ...]


class Refused(Exception):
    """An error that ends a process: it starts again from its committed offsets."""


@dataclass
class Stream:
    """The keys of a stream (acker/streams/staging/external/scripts.py).

    markers: by token, the slots that a segment was announced for, and the end of that note. received: by
    slot, when the newest segment was begun that rows were received of. noted: flushes that noted it. now:
    the time of its clock, which the caller sets before each call.
    """

    rules: Rules
    times: Times
    slots: tuple[int, ...]
    key: int = 0
    markers: dict[str, tuple[tuple[int, ...], int]] = field(default_factory=dict)
    entries: dict[str, Entry] = field(default_factory=dict)
    received: Counter[int] = field(default_factory=Counter)
    noted: dict[tuple[str, int], int] = field(default_factory=dict)
    now: int = 0

    def check(self, key: int) -> None:
        """Raises Refused where a process holds the key of another stream."""
        if self.rules.key_checked and key != self.key:
            raise Refused("LOST")

    def announce(self, key: int, segments: Sequence[Announced]) -> list[tuple[int, ...]]:
        """Announces segments; returns the slots that each is for (announce.lua). Raises Refused."""
        self.check(key)
        for segment in segments:
            late = self.now > segment.sent + self.times.ttl and self.rules.late_refused
            if segment.token not in self.markers and late:
                raise Refused("LATE")
        for segment in segments:
            if segment.token not in self.markers:
                until = self.now + self.times.ttl + self.times.margin
                self.markers[segment.token] = self.slots, until
                self.entries[segment.token] = Entry(segment, self.slots)
        return [self.markers[segment.token][0] for segment in segments]

    def note_received(self, flush: str, slot: int, newest: int) -> None:
        """Notes how far a subscription has come, once for each flush (note_received.lua)."""
        if (flush, slot) in self.noted:
            return
        self.noted[flush, slot] = self.now + self.times.ttl
        newest = min(newest, self.now)
        self.received[slot] = max(self.received[slot], newest) if self.rules.received_raised else newest

    def expire(self) -> None:
        """Drops the notes whose time is over."""
        self.markers = {token: note for token, note in self.markers.items() if note[1] > self.now}
        self.noted = {flush: until for flush, until in self.noted.items() if until > self.now}

    def waits(self, entry: Entry, slot: int) -> bool:
        """True if the trees of an open segment wait for a subscription."""
        sent = entry.segment.sent
        behind = self.received[slot] < sent + self.times.lost_after and self.now < sent + self.times.downtime
        return behind or not self.rules.lost_runs


@dataclass
class Transport:
    """The rows of a stream outside of the store. lost: places of rows that it has lost."""

    rows: list[Row] = field(default_factory=list)
    lost: set[int] = field(default_factory=set)
