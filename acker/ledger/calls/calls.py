"""What goes to a ledger and comes back: calls, submissions of them, their writers, and what they achieved.

A writer numbers its calls for a shard 1, 2, 3 ... It has one call under way for a shard; who sends several
side by side takes several writers. A writer is given back when its calls are answered, and discarded when
they are not: nobody knows then what became of them, and the next call must not depend on it.
"""

import os
import secrets
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from acker.errors import UnreadableRecord
from acker.ledger import ids
from acker.store.operation import Word
from acker.store.records import reading
from acker.store.scripts import Script

T = TypeVar("T")

HORIZON = 3600.0
"""Seconds for which the store remembers a silent writer, at least."""
FLIGHT_CALLS = 8
"""Most calls for one shard that are under way at a time for one submission."""
_KEPT = 64


@dataclass(slots=True)
class Call:
    """One script call for one shard, as `acker.ledger.calls.scripts` makes it.

    The keys and arguments of its own.

    `stamp` is its writer's id and its number, once it was sent. turn: it is sent when all calls of lower
    turns are answered. tracks: the spout that it tracks trees for. waits: it counts as answered when the
    files and replicas have it that the topology waits for.
    """

    shard: int
    script: Script
    keys: Sequence[bytes]
    args: Sequence[Word]
    stamp: tuple[bytes, int] | None = None
    reply: bytes | None = None
    sent_at: float = field(default_factory=time.monotonic)
    turn: int = 0
    tracks: str = ""
    waits: bool = False


class Submission(Generic[T]):
    """Calls that take effect once, however often the submission is sent.

    After StoreUnavailable the same submission can be sent again: see `acker.ledger.calls.idempotence.submit`.
    """

    def __init__(self, calls: list[Call], result: Callable[[list[Call]], T]) -> None:
        self.calls = calls
        self._result = result

    @property
    def done(self) -> bool:
        """Whether every call has been answered."""
        return all(call.reply is not None for call in self.calls)

    def result(self) -> T:
        """What the calls answered, put together; only when `done`.

        UnreadableRecord where a reply is of no call: its writer's record is damaged.
        """
        with reading("what a writer has done"):
            return self._result(self.calls)


def flight(calls: Sequence[Call]) -> list[Call]:
    """The calls to send next: of those whose turn it is, the first `FLIGHT_CALLS` for each shard."""
    found = []
    turn = min((call.turn for call in calls if call.reply is None), default=0)
    per_shard: dict[int, int] = {}
    for call in calls:
        if call.reply is None and call.turn == turn:
            per_shard[call.shard] = per_shard.get(call.shard, 0) + 1
            if per_shard[call.shard] <= FLIGHT_CALLS:
                found.append(call)
    return found


class Writer:
    """A writer: 16 random bytes, and the number of its last call for each shard."""

    __slots__ = ("id", "last_used", "process", "sequences")

    def __init__(self) -> None:
        self.id = secrets.token_bytes(16)
        self.sequences: dict[int, int] = {}
        self.process = os.getpid()
        self.last_used = time.monotonic()

    def next(self, shard: int) -> int:
        """The number of the next call for a shard, from 1."""
        number = self.sequences[shard] = self.sequences.get(shard, 0) + 1
        return number


class Writers:
    """The idle writers of this process, for any thread; a forked child and a pickled copy start with none.

    It has no lock, which a thread could hold at the moment of a fork: a deque's own methods are atomic.
    """

    def __init__(self) -> None:
        self._idle: deque[Writer] = deque(maxlen=_KEPT)

    def take(self) -> Writer:
        """An idle writer that the store remembers, or a new one."""
        while True:
            try:
                writer = self._idle.pop()
            except IndexError:
                return Writer()
            if writer.process == os.getpid() and time.monotonic() - writer.last_used < HORIZON / 2:
                return writer

    def give(self, writer: Writer) -> None:
        """Takes a writer back whose calls are all answered."""
        writer.last_used = time.monotonic()
        self._idle.append(writer)

    def __getstate__(self) -> dict[str, object]:
        return {}

    def __setstate__(self, _: dict[str, object]) -> None:
        self.__init__()  # type: ignore[misc]


@dataclass(frozen=True, slots=True)
class Updated:
    """late: deltas for trees that were finished; orphaned: deltas for trees that may not wait for a track."""

    late: int = 0
    orphaned: int = 0


@dataclass(frozen=True, slots=True)
class Failed:
    """failed: trees that failed now; late: that were finished before; orphaned: that may not wait."""

    failed: int = 0
    late: int = 0
    orphaned: int = 0


@dataclass(frozen=True, slots=True)
class Ticked:
    """rotated: shards whose buckets were rotated; expired and orphaned: trees that were drained."""

    rotated: int = 0
    expired: int = 0
    orphaned: int = 0


def sums(calls: list[Call], width: int) -> list[int]:
    """The sums of the numbers that replies begin with; UnreadableRecord where one names slabs after them."""
    totals = [0] * width
    refused: list[int] = []
    for call in calls:
        words = (call.reply or b"").split()
        for place, value in zip(range(width), words[:width], strict=True):
            totals[place] += int(value)
        refused += refusals(words[width:])
    if refused:
        raise UnreadableRecord(unreadable(refused), refused)
    return totals


def refusals(words: Sequence[bytes]) -> list[int]:
    """The slabs that a script refused, each by the anchor of its first tree."""
    return [ids.anchor_at(bytes.fromhex(word.decode()), 0) for word in words]


def unreadable(anchors: Sequence[int]) -> str:
    """The message about slabs that were refused."""
    listed = ", ".join(map(str, anchors[:5])) + (" ..." if len(anchors) > 5 else "")
    return f"the records of {len(anchors)} slabs cannot be read, all else was done; by first anchor: {listed}"
