"""A spout's trees in memory: those emitted whose outcome it does not have yet, and its own timer for them.

The unit is the slab, as in the store: a few objects for up to 4,096 trees.
"""

import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from acker import headers, ids
from acker.ids import Ids
from acker.operations import Core
from acker.outbox import Outbox
from acker.requests import Operation, command
from acker.submissions import NewSlab

ASK, TOLD_BY = 1.6, 1.85
"""Message timeouts after which a spout asks for a tree that it has heard nothing of, and by which it tells of
one when it gets no answer. The ledger expires a tree by 1.5; by 2.0 its outcome is promised, so what is left
is for a process that gets no processor for a while."""
ASK_AGAIN, TOLD_BY_AGAIN = 0.25, 0.5
"""The same after an answer that the tree is still pending, because its timeout was reset."""
REMEMBERED = 100_000
"""Most slabs that expired here and are remembered, lest the store's own outcome is told as well."""

PENDING, TOLD, EXPIRED, CONFIRMED = 0, 1, 2, 3


class Slab:
    """Trees of one slab. `marks` has a byte for each tree, `left` counts those still pending.

    On the monotonic clock: `opened`; `due`, when to ask the ledger; `latest`, by when to have told.
    """

    __slots__ = (
        "due",
        "first",
        "latest",
        "left",
        "marks",
        "message_ids",
        "name",
        "opened",
        "tracked",
        "values",
    )

    def __init__(self, first: int, opened: float, values: list[int] | Ids, message_ids: list[bytes]) -> None:
        self.first = first
        self.name = ids.slab_of(first)
        self.opened = opened
        self.due = self.latest = opened
        self.values: list[int] | Ids = values
        self.message_ids = message_ids
        self.marks = bytearray(len(message_ids))
        self.left = len(message_ids)
        self.tracked = False

    def indexes(self, mark: int) -> Iterator[int]:
        """The trees so marked."""
        return (index for index, own in enumerate(self.marks) if own == mark)

    def new(self) -> NewSlab:
        """The slab as the ledger takes it."""
        anchors = np.arange(self.first, self.first + len(self.message_ids), dtype=np.int64)
        return NewSlab(anchors, np.asarray(self.values, np.int64), self.message_ids)


class Pending:
    """The trees of one spout. Every method is called with the outbox's lock held."""

    def __init__(self, outbox: Outbox, spout: str, rejected: Callable[[Slab, str], None]) -> None:
        self._outbox = outbox
        self.spout = spout
        self._rejected = rejected
        self._timeout = outbox.ledger.config.message_timeout
        self._most = outbox.ledger.config.slab_trees
        self.forget()

    def forget(self) -> None:
        """Drops everything."""
        self.count = 0
        self.slabs: dict[bytes, Slab] = {}
        self.expired: OrderedDict[bytes, Slab] = OrderedDict()
        self._open: Slab | None = None
        self._unsent: list[Slab] = []
        self._timers: deque[Slab] = deque()
        self._rearmed: deque[Slab] = deque()

    # Emitting. `count` is raised by whoever reserves places.

    def add(self, message_id: bytes, value: int) -> None:
        """Gives the next tree, the one of `next_anchor`, its ack value and message id."""
        slab = self._open
        assert slab is not None
        slab.values.append(value)  # type: ignore[union-attr]
        slab.message_ids.append(message_id)
        slab.marks.append(PENDING)
        slab.left += 1
        self._outbox.emitted(self, 1)

    def next_anchor(self) -> int:
        """The anchor of the tree that `add` adds next: in the open slab, unless that is full or old."""
        slab, now = self._open, time.monotonic()
        if slab is None or len(slab.values) >= self._most or now - slab.opened > self._timeout / 10:
            slab = self._open = self._new(now, ids.new_slab(), [], [])
            self._unsent.append(slab)
        return slab.first + len(slab.values)

    def add_many(self, message_ids: list[bytes], values: Ids) -> list[Slab]:
        """Adds trees in slabs of their own, which are not for the outbox to take."""
        now = time.monotonic()
        slabs = []
        for at in range(0, len(message_ids), self._most):
            own = message_ids[at : at + self._most]
            slabs.append(self._new(now, int(ids.new_anchors(len(own))[0]), values[at : at + self._most], own))
        return slabs

    def _new(self, now: float, first: int, values: list[int] | Ids, message_ids: list[bytes]) -> Slab:
        slab = Slab(first, now, values, message_ids)
        slab.due, slab.latest = now + ASK * self._timeout, now + TOLD_BY * self._timeout
        self.slabs[slab.name] = slab
        self._timers.append(slab)
        return slab

    def take(self) -> tuple[int, list[NewSlab], Callable[[list[str]], None], Callable[[], bool]]:
        """The slabs that are to be tracked, for the outbox; those that have expired by now are left out."""
        taken, self._unsent, self._open = self._unsent, [], None
        slabs = [slab for slab in taken if slab.left]
        return (
            sum(len(slab.marks) for slab in taken if not slab.left),
            [slab.new() for slab in slabs],
            lambda letters: self.tracked(slabs, letters),
            lambda: any(slab.left for slab in slabs),
        )

    def tracked(self, slabs: Sequence[Slab], letters: Sequence[str]) -> None:
        """Takes the ledger's answer to a track."""
        with self._outbox.lock:
            for slab, letter in zip(slabs, letters, strict=True):
                slab.tracked, slab.values = True, []
                if letter in "RCU" and slab.left:
                    reasons = {
                        "R": self._outbox.ledger.rejection(),
                        "C": f"slab {slab.first} is tracked with other content",
                        "U": f"what the store holds of slab {slab.first} can not be read",
                    }
                    self._rejected(slab, reasons[letter])

    # Outcomes

    def settle(self, slab: Slab, index: int, mark: int) -> None:
        """Marks a pending tree, which frees its place."""
        slab.marks[index] = mark
        slab.left -= 1
        self.count -= 1
        if not slab.left:
            del self.slabs[slab.name]
            slab.values, slab.message_ids = [], []
            self._outbox.lock.notify_all()

    def expire(self, slab: Slab, mark: int = EXPIRED) -> list[tuple[bytes, int]]:
        """Ends the pending trees of a slab by decision of this side; remembers it.

        Returns message id and anchor of each.
        """
        indexes = list(slab.indexes(PENDING))
        trees = [(slab.message_ids[index], slab.first + index) for index in indexes]
        self.expired[slab.name] = slab
        for index in indexes:
            self.settle(slab, index, mark)
        while len(self.expired) > REMEMBERED:
            self.expired.popitem(last=False)
        return trees

    # The timer. All trees share one timeout, so both queues are in order by themselves.

    def next_due(self) -> float | None:
        """When to ask for the next slab, on the monotonic clock."""
        dues = []
        for queue in (self._timers, self._rearmed):
            while queue and not queue[0].left:
                queue.popleft()
            if queue:
                dues.append(queue[0].due)
        return min(dues, default=None)

    def take_due(self, now: float) -> list[Slab]:
        """The slabs to ask for now. Each is to be expired, or put back by `ask_again` or `ask_later`."""
        found = []
        for queue in (self._timers, self._rearmed):
            while queue and (not queue[0].left or queue[0].due <= now):
                slab = queue.popleft()
                if slab.left:
                    found.append(slab)
        return found

    def ask_again(self, slab: Slab, now: float) -> None:
        """Arms the timer anew for a slab that the ledger says is pending."""
        slab.due, slab.latest = now + ASK_AGAIN * self._timeout, now + TOLD_BY_AGAIN * self._timeout
        self._rearmed.append(slab)

    def ask_later(self, slabs: Sequence[Slab]) -> None:
        """Puts slabs back that could not be asked for; they stay due."""
        self._timers.extendleft(reversed(slabs))


def still_pending(core: Core, slabs: Sequence[bytes]) -> Operation[set[bytes]]:
    """Which of these slabs the ledger holds as tracked, with trees that have no outcome yet."""
    found = set()
    for first in range(0, len(slabs), 256):
        part = slabs[first : first + 256]
        shards = [core.shards[ids.shard_of(slab, core.config.ackers)] for slab in part]
        requests = [command("HGET", shard.slabs, slab) for shard, slab in zip(shards, part, strict=True)]
        requests += [
            command("HEXISTS", shard.ones, slab)
            if ids.is_one(slab)
            else command("EXISTS", shard.vector(slab))
            for shard, slab in zip(shards, part, strict=True)
        ]
        replies = yield requests
        for slab, header, vector in zip(part, replies[: len(part)], replies[len(part) :], strict=True):
            if headers.is_tracked(header) and vector:
                found.add(slab)
    return found
