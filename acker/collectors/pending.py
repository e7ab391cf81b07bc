"""A spout's pending trees in memory, and the spout's own timer for them.

The unit is the slab, as in the store: a few objects for up to 4,096 trees.

Terms: a tree is all that comes of one record; an anchor is the number of a tree; a slab is the trees that one
call tracked together.
"""

import time
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from acker.collectors.outbox import Outbox
from acker.collectors.outcome import Outcome, OutcomeGroup
from acker.ledger import ids
from acker.ledger.ids import Ids
from acker.ledger.outcomes.outcomes import Status
from acker.ledger.slabs.slabs import NewSlab, PackedIds

ASK, REPORT_BY = 1.6, 1.85
"""Message timeouts after which a spout asks for a tree without an outcome, and by which it reports the tree
if it gets no answer. The ledger expires a tree by 1.5; by 2.0 its outcome is promised, so the rest is left to
a process that gets no processor for a while."""
ASK_AGAIN, REPORT_BY_AGAIN = 0.25, 0.5
"""The same after an answer that the tree is still pending, because its timeout was reset."""
MOST_READY = 100_000
"""Number of ready outcomes that nobody takes at which emit waits."""
MOST_KEPT = 1_000_000
"""Number of ready outcomes that nobody takes, at which a topology that is off drops the oldest for a new one:
there an emit never waits."""
REMEMBERED = 100_000
"""Most remembered slabs whose trees all have an outcome: a later outcome from the store is not reported
again. The store may send one after the spout's timer reported the trees, or after a loss of its latest
writes.
"""
REMEMBERED_SECONDS, REMEMBERED_TIMEOUTS = 60.0, 4
"""Seconds, and message timeouts, for which such a slab is remembered after its last confirmation; the longer
time holds."""

PENDING, REPORTED, CONFIRMED = 0, 1, 2


class Slab:
    """Trees of one slab.

    Attributes:
        marks: A byte for each tree: `PENDING`, `REPORTED` or `CONFIRMED`.
        left: Number of trees whose outcome was not reported.
        open: Number of trees whose outcome is not confirmed.
        opened: Time of the first tree, on the monotonic clock like all times here.
        due: Time to ask the ledger.
        latest: Time by which all outcomes must be reported.
        ended: Time of the last outcome.
    """

    __slots__ = (
        "due",
        "ended",
        "first",
        "latest",
        "left",
        "marks",
        "message_ids",
        "name",
        "open",
        "opened",
        "tracked",
        "values",
    )

    def __init__(
        self, first: int, opened: float, values: list[int] | Ids, message_ids: Sequence[bytes]
    ) -> None:
        self.first = first
        self.name = ids.slab_of(first)
        self.opened = opened
        self.due = self.latest = self.ended = opened
        self.values: list[int] | Ids = values
        self.message_ids = message_ids
        self.marks = bytearray(len(message_ids))
        self.left = self.open = len(message_ids)
        self.tracked = False

    def anchor(self, index: int) -> int:
        """The anchor of the tree at an index."""
        return self.first + ids.STEP * index

    def indexes(self, mark: int) -> Iterator[int]:
        """The indexes of the trees with a mark."""
        return (index for index, own in enumerate(self.marks) if own == mark)

    def marked(self, indexes: Sequence[int], mark: int) -> Sequence[int]:
        """The given indexes whose trees have a mark."""
        its = np.frombuffer(bytes(self.marks), np.uint8)[places(indexes)]
        return indexes if (its == mark).all() else np.asarray(indexes)[its == mark].tolist()

    def new(self) -> NewSlab:
        """The slab as the ledger takes it."""
        anchors = ids.anchors_from(self.first, len(self.message_ids))
        return NewSlab(anchors, np.asarray(self.values, np.int64), self.message_ids)


def places(indexes: Sequence[int]) -> Any:
    """Indexes, as numpy takes them."""
    return slice(indexes.start, indexes.stop) if isinstance(indexes, range) else np.asarray(indexes, np.intp)


@lru_cache(maxsize=256)
def _all_confirmed(count: int) -> bytearray:
    """The marks of a confirmed slab, which all such slabs share."""
    return bytearray([CONFIRMED]) * count


class Pending:
    """The trees of one spout, and its outcomes that are not taken yet, oldest first.

    The caller of each method holds the outbox's lock. Values that belong together change in one statement
    that calls nothing: an interrupt comes before it or after it (see `acker.collectors.outbox`).
    """

    def __init__(self, outbox: Outbox, spout: str, *, grouped: bool = False) -> None:
        self._outbox = outbox
        self.spout = spout
        self.grouped = grouped
        self._timeout = outbox.ledger.config.message_timeout
        self._most = outbox.ledger.config.slab_trees
        self.forget()

    def forget(self) -> None:
        """Drops everything."""
        self.count = 0
        self.slabs: dict[bytes, Slab] = {}
        self.ended: OrderedDict[bytes, Slab] = OrderedDict()
        self._ready: OrderedDict[int, Outcome | OutcomeGroup] = OrderedDict()
        self._made_ready = 0
        self._open: Slab | None = None
        self._timers: OrderedDict[bytes, Slab] = OrderedDict()
        self._rearmed: OrderedDict[bytes, Slab] = OrderedDict()

    # Emitting

    def add(self, message_id: bytes, value: int) -> None:
        """Adds the tree of `next_anchor`, with its ack value and message id."""
        slab, buffer = self._open, self._outbox.buffer
        assert slab is not None
        self._outbox.adding(1)
        if slab.marks:
            n, left, not_confirmed, count = len(slab.marks), slab.left + 1, slab.open + 1, self.count + 1
            values: list[int] = slab.values  # type: ignore[assignment]
            message_ids: list[bytes] = slab.message_ids  # type: ignore[assignment]
            values[n:], message_ids[n:], slab.marks[n:], slab.left, slab.open, self.count = (
                [value], [message_id], b"\0", left, not_confirmed, count
            )  # fmt: skip
        else:
            self._fill(slab, [value], [message_id])
            name, count, own = slab.name, self.count + 1, (self, slab)
            self.slabs[name], self._timers[name], buffer.tracks[name], self.count = slab, slab, own, count

    def next_anchor(self) -> int:
        """The anchor of the tree that `add` adds next: in the open slab, if it is not full, old or sent."""
        slab, now = self._open, time.monotonic()
        if (
            slab is None
            or (slab.marks and slab.name not in self._outbox.buffer.tracks)
            or len(slab.marks) >= self._most
            or now - slab.opened > self._timeout / 10
        ):
            slab = self._open = self._new(now, ids.new_slab())
        return slab.anchor(len(slab.marks))

    def new_slabs(self, message_ids: Sequence[bytes], values: Ids) -> list[Slab]:
        """Trees in new slabs for `add_slabs`, which the outbox does not take."""
        now = time.monotonic()
        slabs = []
        for at in range(0, len(message_ids), self._most):
            end = at + self._most
            own = message_ids.part(at, end) if isinstance(message_ids, PackedIds) else message_ids[at:end]
            slab = self._new(now, int(ids.new_anchors(len(own))[0]))
            self._fill(slab, values[at : at + self._most], own)
            slabs.append(slab)
        return slabs

    def add_slabs(self, slabs: Sequence[Slab]) -> None:
        """Adds slabs of trees. After an interrupt `give_up` takes the added slabs back."""
        for slab in slabs:
            name, count = slab.name, self.count + slab.left
            self.slabs[name], self._timers[name], self.count = slab, slab, count

    def _new(self, now: float, first: int) -> Slab:
        slab = Slab(first, now, [], [])
        slab.due, slab.latest = now + ASK * self._timeout, now + REPORT_BY * self._timeout
        return slab

    @staticmethod
    def _fill(slab: Slab, values: list[int] | Ids, message_ids: Sequence[bytes]) -> None:
        slab.values, slab.message_ids = values, message_ids
        slab.marks, slab.left = bytearray(len(message_ids)), len(message_ids)
        slab.open = slab.left

    def tracked(self, slabs: Sequence[Slab], letters: Sequence[str]) -> None:
        """Takes the ledger's answer to a track."""
        with self._outbox.lock:
            for slab, letter in zip(slabs, letters, strict=True):
                slab.tracked, slab.values = True, []
                if letter not in "AD" and slab.left:
                    reasons = {
                        "C": f"slab {slab.first} is tracked with other content",
                        "U": f"the store's record of slab {slab.first} cannot be read",
                    }
                    core = self._outbox.ledger.core
                    reason = reasons.get(letter) or core.rejection(letter, self.spout)
                    self.report_all(slab, "rejected", reason)

    # Outcomes

    @property
    def ready(self) -> int:
        """Number of outcomes that are not taken yet."""
        return len(self._ready)

    def has_room(self, count: int, limit: int | None) -> bool:
        """True if so many trees may be emitted, with at most `limit` trees pending."""
        full = len(self._ready) >= MOST_READY and not self._outbox.ledger.off
        return not full and (limit is None or self.count + count <= limit)

    def oldest(self) -> tuple[int, Any] | None:
        """The oldest outcome, or group of outcomes, and its number."""
        return next(iter(self._ready.items()), None)

    def take(self, number: int) -> None:
        """Takes the oldest outcome."""
        del self._ready[number]
        if len(self._ready) == MOST_READY - 1:
            self._outbox.changed.notify_all()

    def put_back(self, number: int, outcome: Outcome | OutcomeGroup) -> None:
        """Makes an outcome the oldest again, whether taken or not."""
        self._ready[number] = outcome
        self._ready.move_to_end(number, last=False)

    def find(self, name: bytes) -> Slab | None:
        """A slab with pending trees, or a remembered slab."""
        return self.slabs.get(name) or self.ended.get(name)

    def add_earlier(self, name: bytes, message_ids: list[bytes]) -> Slab:
        """A slab of an earlier spout of this name: none of its trees counts as pending here."""
        slab = Slab(ids.anchor_at(name, 0), time.monotonic(), [], message_ids)
        self._remember(slab)
        return slab

    def report(self, slab: Slab, index: int, outcome: Outcome) -> None:
        """Makes the outcome of a tree ready and marks the tree, which frees its room."""
        number, left = self._made_ready + 1, slab.left - 1
        count = self.count - 1 if slab.name in self.slabs else self.count
        self._ready[number], self._made_ready, slab.marks[index], slab.left, self.count = (
            outcome, number, REPORTED, left, count
        )  # fmt: skip
        self._drop_if_done(slab)

    def report_group(self, slab: Slab, group: OutcomeGroup) -> None:
        """Makes the outcome of pending trees ready, as one, and marks the trees."""
        marks, gone = bytearray(slab.marks), len(group.indexes)
        np.frombuffer(marks, np.uint8)[places(group.indexes)] = REPORTED
        number, left = self._made_ready + 1, slab.left - gone
        count = self.count - gone if slab.name in self.slabs else self.count
        self._ready[number], self._made_ready, slab.marks, slab.left, self.count = (
            group, number, marks, left, count
        )  # fmt: skip
        self._drop_if_done(slab)

    def confirm_group(self, slab: Slab, group: OutcomeGroup) -> None:
        """Notes that the outcome of a group is confirmed. Again, it changes nothing."""
        at = places(group.indexes)
        if len(slab.marks) <= group.indexes[-1]:
            return
        marks = bytearray(slab.marks)
        view = np.frombuffer(marks, np.uint8)
        reported = int(np.count_nonzero(view[at] == REPORTED))
        view[at] = CONFIRMED
        slab.marks, slab.open = marks, slab.open - reported
        if not slab.open:
            slab.marks = _all_confirmed(len(slab.marks))

    def confirm(self, slab: Slab, index: int) -> None:
        """Notes that the outcome of a reported tree is confirmed."""
        if index < len(slab.marks) and slab.marks[index] == REPORTED:
            left = slab.open - 1
            slab.marks[index], slab.open = CONFIRMED, left
        if not slab.open:
            slab.marks = _all_confirmed(len(slab.marks))

    def report_further(self, outcomes: Iterable[Outcome]) -> None:
        """Makes outcomes ready that belong to no tree in memory."""
        for outcome in outcomes:
            number = self._made_ready + 1
            self._ready[number], self._made_ready = outcome, number
            if len(self._ready) > MOST_KEPT:
                self._ready.popitem(last=False)
        self._outbox.changed.notify_all()

    def report_all(self, slab: Slab, status: Status, reason: str) -> None:
        """Makes an outcome ready for each pending tree of a slab, by the spout's own decision."""
        if self.grouped and slab.left:
            said = Outcome(b"", 0, status, reason, None)
            indexes = tuple(slab.indexes(PENDING))
            self.report_group(slab, OutcomeGroup(slab.name, indexes, slab.message_ids, said))
            self._outbox.changed.notify_all()
            return
        for index in list(slab.indexes(PENDING)):
            outcome = Outcome(slab.message_ids[index], slab.anchor(index), status, reason, None)
            self.report(slab, index, outcome)
        self._outbox.changed.notify_all()

    def give_up(self, slab: Slab) -> None:
        """Ends the pending trees of a slab without a report."""
        if slab.name not in self.slabs:
            return
        confirmed, count = _all_confirmed(len(slab.marks)), self.count - slab.left
        slab.marks, slab.left, slab.open, self.count = confirmed, 0, 0, count
        self._drop_if_done(slab)

    def _remember(self, slab: Slab) -> None:
        """Remembers a slab, and forgets the oldest slab beyond the limit, or if it is old and confirmed."""
        slab.ended = now = time.monotonic()
        self.ended[slab.name] = slab
        horizon = now - max(REMEMBERED_SECONDS, REMEMBERED_TIMEOUTS * self._timeout)
        # Two for each new slab: unconfirmed slabs move to the end, and do not hold up the others.
        for _ in range(2):
            oldest = next(iter(self.ended.values()))
            if len(self.ended) > REMEMBERED or (oldest.ended < horizon and not oldest.open):
                self.ended.pop(oldest.name)
            elif oldest.ended < horizon:
                oldest.ended = now
                self.ended.move_to_end(oldest.name)

    def _drop_if_done(self, slab: Slab) -> None:
        if not slab.left:
            self._remember(slab)
            self.slabs.pop(slab.name, None)
            slab.values, slab.message_ids = [], []
            self._outbox.changed.notify_all()

    # The timer. All trees share one timeout, so both queues are in order by themselves.

    def next_due(self) -> float | None:
        """The time to ask for the next slab, on the monotonic clock."""
        dues = []
        for queue in (self._timers, self._rearmed):
            while queue:
                slab = next(iter(queue.values()))
                if slab.left:
                    dues.append(slab.due)
                    break
                self._drop_if_done(slab)  # an interrupt kept it from being dropped
                queue.pop(slab.name, None)
        return min(dues, default=None)

    def due(self, now: float) -> list[Slab]:
        """The slabs to ask for now. Each stays due until the caller expires it, or calls `ask_again`."""
        slabs = []
        for queue in (self._timers, self._rearmed):
            for slab in queue.values():
                if slab.left and slab.due > now:
                    break
                if slab.left:
                    slabs.append(slab)
        return slabs

    def ask_again(self, slab: Slab, now: float) -> None:
        """Arms the timer anew for a slab that the ledger says is pending."""
        self._rearmed[slab.name] = slab
        self._rearmed.move_to_end(slab.name)
        slab.due, slab.latest = now + ASK_AGAIN * self._timeout, now + REPORT_BY_AGAIN * self._timeout
        self._timers.pop(slab.name, None)
