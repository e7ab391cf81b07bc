"""What goes to a ledger and comes back: slabs to be tracked, calls, submissions, and what they achieved."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import numpy as np

from acker.errors import UnreadableRecord, ValidationError
from acker.ledger import ids
from acker.ledger.ids import Ids

T = TypeVar("T")

FLIGHT_CALLS = 8
"""Most calls for one shard that are under way at a time for one submission."""


@dataclass(slots=True)
class Call:
    """One script call for one shard. `stamp` is its writer's id and its number, once it was sent.

    turn: it is sent when all calls of lower turns are answered.
    """

    shard: int
    script: str
    keys: list[bytes]
    args: list[bytes | str | int]
    stamp: tuple[bytes, int] | None = None
    reply: bytes | None = None
    sent_at: float = field(default_factory=time.monotonic)
    turn: int = 0


class Submission(Generic[T]):
    """Calls that take effect once, however often the submission is sent.

    After StoreUnavailable the same submission can be sent again, for nearly `acker.ledger.writers.HORIZON`
    seconds: calls that were answered are left out, the others carry the same stamp.
    """

    def __init__(self, calls: list[Call], result: Callable[[list[Call]], T]) -> None:
        self.calls = calls
        self._result = result

    @property
    def done(self) -> bool:
        """Whether every call has been answered."""
        return all(call.reply is not None for call in self.calls)

    def flight(self) -> list[Call]:
        """The calls to send next: of those whose turn it is, the first `FLIGHT_CALLS` for each shard."""
        found = []
        turn = min((call.turn for call in self.calls if call.reply is None), default=0)
        per_shard: dict[int, int] = {}
        for call in self.calls:
            if call.reply is None and call.turn == turn:
                per_shard[call.shard] = per_shard.get(call.shard, 0) + 1
                if per_shard[call.shard] <= FLIGHT_CALLS:
                    found.append(call)
        return found

    def result(self) -> T:
        """What the calls answered, put together; only when `done`."""
        return self._result(self.calls)


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


@dataclass(frozen=True, slots=True)
class NewSlab:
    """Trees to be tracked: anchors of one slab, index 0 first, one ack value and one message id for each."""

    anchors: Ids
    values: Ids
    message_ids: Sequence[bytes]

    def check(self) -> None:
        """Raises ValidationError where that is not so."""
        count = len(self.anchors)
        if not 1 <= count <= ids.SLAB_TREES:
            raise ValidationError(f"anchors: expected 1 to {ids.SLAB_TREES} trees, got {count}")
        if len(self.values) != count or len(self.message_ids) != count:
            raise ValidationError(
                f"expected one value and one message id for each of {count} anchors, "
                f"got {len(self.values)} and {len(self.message_ids)}"
            )
        ids.check_anchors(self.anchors)
        first = int(self.anchors[0])
        if count > 1 and first < 0:
            raise ValidationError(
                f"anchors: a negative one is of a tree that is tracked alone, got {count} trees from {first} "
                "on; take those of acker.ledger.ids.new_anchors, or track each by itself"
            )
        in_order = count == 1 or bool((np.diff(self.anchors) == ids.STEP).all())
        if ids.index_of(first) != 0 or not in_order:
            raise ValidationError(
                "anchors: expected those of one slab in order from index 0 (acker.ledger.ids.new_anchors), "
                f"got {first}..."
            )


def sums(calls: list[Call], width: int) -> list[int]:
    """The sums of the numbers that replies begin with; UnreadableRecord where one names slabs after them."""
    totals = [0] * width
    refused: list[int] = []
    for call in calls:
        words = (call.reply or b"").split()
        for place, value in enumerate(words[:width]):
            totals[place] += int(value)
        refused += refusals(words[width:])
    if refused:
        raise UnreadableRecord(unreadable(refused), refused)
    return totals


def refusals(words: Sequence[bytes]) -> list[int]:
    """The slabs that a script refused, each by the anchor of its first tree."""
    return [ids.anchor_at(bytes.fromhex(word.decode()), 0) for word in words]


def unreadable(anchors: Sequence[int]) -> str:
    """What is said of slabs that were refused."""
    listed = ", ".join(map(str, anchors[:5])) + (" ..." if len(anchors) > 5 else "")
    return f"the records of {len(anchors)} slabs cannot be read, all else was done; by first anchor: {listed}"
