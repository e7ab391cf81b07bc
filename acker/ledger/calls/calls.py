"""Calls to a ledger, submissions of them, their writers and their results.

A writer numbers its calls for a shard 1, 2, 3 ... It has one call under way for a shard; a submission with
several calls side by side takes several writers. A writer is given back after its calls are answered. If they
are not answered, it is discarded: their effect is unknown, and the next call must not depend on it.

Terms: a tree is all that comes of one record; a slab is the trees that one call tracked together; a delta is
the XOR of the ids that a call adds to a tree.
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
"""Least seconds for which the store remembers a silent writer."""
FLIGHT_CALLS = 8
"""Most simultaneous calls of one submission for one shard."""
_KEPT = 64


@dataclass(slots=True)
class Call:
    """A script call for one shard, as `acker.ledger.calls.scripts` makes it.

    Its keys and arguments exclude the shard's.

    stamp: its writer's id and its number, after it was sent. turn: it is sent after all calls of lower turns
    were answered. tracks: the spout whose trees it tracks. waits: True if it counts as answered only after
    the topology's files and replicas have it.
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
        """True if every call was answered."""
        return all(call.reply is not None for call in self.calls)

    def result(self) -> T:
        """The combined result of the calls; only after `done`.

        Raises UnreadableRecord if a reply belongs to no call: its writer's record is damaged.
        """
        with reading("the record of a writer"):
            return self._result(self.calls)


def flight(calls: Sequence[Call]) -> list[Call]:
    """The calls to send next: the first `FLIGHT_CALLS` of each shard whose turn has come."""
    waiting = [call for call in calls if call.reply is None]
    if len(waiting) < 2:
        return waiting
    ready = []
    turn = min(call.turn for call in waiting)
    per_shard: dict[int, int] = {}
    for call in waiting:
        if call.turn == turn:
            per_shard[call.shard] = per_shard.get(call.shard, 0) + 1
            if per_shard[call.shard] <= FLIGHT_CALLS:
                ready.append(call)
    return ready


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

    It needs no lock, which a thread could hold at the moment of a fork: a deque's methods are atomic.
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
        """Takes a writer back after all its calls were answered."""
        writer.last_used = time.monotonic()
        self._idle.append(writer)

    def __getstate__(self) -> dict[str, object]:
        return {}

    def __setstate__(self, _: dict[str, object]) -> None:
        self.__init__()  # type: ignore[misc]


@dataclass(frozen=True, slots=True)
class Updated:
    """late: deltas for finished trees; orphaned: deltas for trees without room to wait for a track."""

    late: int = 0
    orphaned: int = 0


@dataclass(frozen=True, slots=True)
class Failed:
    """failed: trees that failed now; late: trees finished before; orphaned: trees without room to wait."""

    failed: int = 0
    late: int = 0
    orphaned: int = 0


@dataclass(frozen=True, slots=True)
class Ticked:
    """rotated: shards whose buckets were rotated; expired, orphaned: drained trees."""

    rotated: int = 0
    expired: int = 0
    orphaned: int = 0


def sums(calls: list[Call], width: int) -> list[int]:
    """Sums the numbers at the begin of replies; raises UnreadableRecord if a reply names slabs after them."""
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
    return f"the records of {len(anchors)} slabs cannot be read, the rest was done; by first anchor: {listed}"
