"""A spout's trees in memory: those emitted whose outcome it does not have yet, and its own timer for them.

The unit is the slab, as in the store: a few objects for up to 4,096 trees.
"""

import time
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache

import numpy as np

from acker.collectors.outbox import Outbox
from acker.collectors.outcome import Outcome
from acker.ledger import ids
from acker.ledger.calls.core import Core
from acker.ledger.ids import Ids
from acker.ledger.outcomes.outcomes import Status
from acker.ledger.slabs import slabs as headers
from acker.ledger.slabs.slabs import NewSlab
from acker.store.operation import Operation, command

ASK, REPORT_BY = 1.6, 1.85
"""Message timeouts after which a spout asks for a tree that it has heard nothing of, and by which it reports
one when it gets no answer. The ledger expires a tree by 1.5; by 2.0 its outcome is promised, so what is left
is for a process that gets no processor for a while."""
ASK_AGAIN, REPORT_BY_AGAIN = 0.25, 0.5
"""The same after an answer that the tree is still pending, because its timeout was reset."""
MOST_READY = 100_000
"""Outcomes that are ready and not taken: while so many wait, emit waits."""
REMEMBERED = 100_000
"""Most slabs whose trees all have an outcome that are remembered: what the store says of them later is not
reported again. It may where the own timer reported them, or where it has lost its latest moments."""
REMEMBERED_SECONDS, REMEMBERED_TIMEOUTS = 60.0, 4
"""So many seconds, or so many message timeouts, whichever is longer, they are remembered when all is
reported and confirmed."""

PENDING, REPORTED, CONFIRMED = 0, 1, 2


class Slab:
    """Trees of one slab. `marks` has a byte for each tree, `left` counts trees of which nothing was reported.

    `open` counts those whose outcome is not confirmed; `ended`: when the last of them had one.
    On the monotonic clock: `opened`; `due`, when to ask the ledger; `latest`, by when to have reported.
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

    def __init__(self, first: int, opened: float, values: list[int] | Ids, message_ids: list[bytes]) -> None:
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
        """That of a tree."""
        return self.first + ids.STEP * index

    def indexes(self, mark: int) -> Iterator[int]:
        """The trees so marked."""
        return (index for index, own in enumerate(self.marks) if own == mark)

    def new(self) -> NewSlab:
        """The slab as the ledger takes it."""
        anchors = ids.anchors_from(self.first, len(self.message_ids))
        return NewSlab(anchors, np.asarray(self.values, np.int64), self.message_ids)


@lru_cache(maxsize=256)
def _all_confirmed(count: int) -> bytearray:
    """The marks of a slab that is done with: all such slabs share them."""
    return bytearray([CONFIRMED]) * count


class Pending:
    """The trees of one spout, and the outcomes that have come and are not taken yet, oldest first.

    Every method is called with the outbox's lock held. What belongs together changes in one statement that
    calls nothing: an interrupt comes before it or after it (see `acker.collectors.outbox`).
    """

    def __init__(self, outbox: Outbox, spout: str) -> None:
        self._outbox = outbox
        self.spout = spout
        self._timeout = outbox.ledger.config.message_timeout
        self._most = outbox.ledger.config.slab_trees
        self.forget()

    def forget(self) -> None:
        """Drops everything."""
        self.count = 0
        self.slabs: dict[bytes, Slab] = {}
        self.ended: OrderedDict[bytes, Slab] = OrderedDict()
        self._ready: OrderedDict[int, Outcome] = OrderedDict()
        self._made_ready = 0
        self._open: Slab | None = None
        self._timers: OrderedDict[bytes, Slab] = OrderedDict()
        self._rearmed: OrderedDict[bytes, Slab] = OrderedDict()

    # Emitting

    def add(self, message_id: bytes, value: int) -> None:
        """Gives the next tree, the one of `next_anchor`, its ack value and message id."""
        slab, buffer = self._open, self._outbox.buffer
        assert slab is not None
        self._outbox.adding(1)
        if slab.marks:
            n, left, not_confirmed, count = len(slab.marks), slab.left + 1, slab.open + 1, self.count + 1
            values: list[int] = slab.values  # type: ignore[assignment]
            values[n:], slab.message_ids[n:], slab.marks[n:], slab.left, slab.open, self.count = (
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

    def new_slabs(self, message_ids: list[bytes], values: Ids) -> list[Slab]:
        """Trees in slabs of their own, which are not for the outbox to take, for `add_slabs`."""
        now = time.monotonic()
        slabs = []
        for at in range(0, len(message_ids), self._most):
            own = message_ids[at : at + self._most]
            slab = self._new(now, int(ids.new_anchors(len(own))[0]))
            self._fill(slab, values[at : at + self._most], own)
            slabs.append(slab)
        return slabs

    def add_slabs(self, slabs: Sequence[Slab]) -> None:
        """Adds slabs of trees. Where it is interrupted `expire` takes back what was added."""
        for slab in slabs:
            name, count = slab.name, self.count + slab.left
            self.slabs[name], self._timers[name], self.count = slab, slab, count

    def _new(self, now: float, first: int) -> Slab:
        slab = Slab(first, now, [], [])
        slab.due, slab.latest = now + ASK * self._timeout, now + REPORT_BY * self._timeout
        return slab

    @staticmethod
    def _fill(slab: Slab, values: list[int] | Ids, message_ids: list[bytes]) -> None:
        slab.values, slab.message_ids = values, message_ids
        slab.marks, slab.left = bytearray(len(message_ids)), len(message_ids)
        slab.open = slab.left

    def tracked(self, slabs: Sequence[Slab], letters: Sequence[str]) -> None:
        """Takes the ledger's answer to a track."""
        with self._outbox.lock:
            for slab, letter in zip(slabs, letters, strict=True):
                slab.tracked, slab.values = True, []
                if letter in "RWCU" and slab.left:
                    reasons = {
                        "R": self._outbox.ledger.config.rejection("R"),
                        "W": self._outbox.ledger.config.rejection("W"),
                        "C": f"slab {slab.first} is tracked with other content",
                        "U": f"what the store holds of slab {slab.first} cannot be read",
                    }
                    self.report_all(slab, "rejected", reasons[letter])

    # Outcomes

    @property
    def ready(self) -> int:
        """How many outcomes have come and are not taken."""
        return len(self._ready)

    def has_room(self, count: int, limit: int | None) -> bool:
        """Whether so many trees may be emitted, where at most `limit` may be pending."""
        return len(self._ready) < MOST_READY and (limit is None or self.count + count <= limit)

    def oldest(self) -> tuple[int, Outcome] | None:
        """The outcome that is to be taken next, and its number."""
        return next(iter(self._ready.items()), None)

    def take(self, number: int) -> None:
        """Takes the oldest outcome."""
        del self._ready[number]
        if len(self._ready) == MOST_READY - 1:
            self._outbox.changed.notify_all()

    def put_back(self, number: int, outcome: Outcome) -> None:
        """Makes an outcome the oldest again, taken or not."""
        self._ready[number] = outcome
        self._ready.move_to_end(number, last=False)

    def known(self, name: bytes) -> Slab | None:
        """A slab that has trees without outcome, or is remembered."""
        return self.slabs.get(name) or self.ended.get(name)

    def adopt(self, name: bytes, message_ids: list[bytes]) -> Slab:
        """A slab of an earlier spout of this name: none of its trees counts as pending here."""
        slab = Slab(ids.anchor_at(name, 0), time.monotonic(), [], message_ids)
        self._remember(slab)
        return slab

    def report(self, slab: Slab, index: int, outcome: Outcome) -> None:
        """Makes the outcome of a tree ready and marks the tree, which frees its place."""
        number, left = self._made_ready + 1, slab.left - 1
        count = self.count - 1 if slab.name in self.slabs else self.count
        self._ready[number], self._made_ready, slab.marks[index], slab.left, self.count = (
            outcome, number, REPORTED, left, count
        )  # fmt: skip
        self._drop_if_done(slab)

    def confirm(self, slab: Slab, index: int) -> None:
        """Notes that the caller is done with a tree that was reported."""
        if index < len(slab.marks) and slab.marks[index] == REPORTED:
            left = slab.open - 1
            slab.marks[index], slab.open = CONFIRMED, left
        if not slab.open:
            slab.marks = _all_confirmed(len(slab.marks))

    def report_further(self, outcomes: Iterable[Outcome]) -> None:
        """Makes outcomes ready that are of no tree here."""
        for outcome in outcomes:
            number = self._made_ready + 1
            self._ready[number], self._made_ready = outcome, number
        self._outbox.changed.notify_all()

    def report_all(self, slab: Slab, status: Status, reason: str) -> None:
        """Makes an outcome ready for each pending tree of a slab, by decision of this side."""
        for index in list(slab.indexes(PENDING)):
            outcome = Outcome(slab.message_ids[index], slab.anchor(index), status, reason, None)
            self.report(slab, index, outcome)
        self._outbox.changed.notify_all()

    def give_up(self, slab: Slab) -> None:
        """Ends the pending trees of a slab, of which nothing is to be reported."""
        if slab.name not in self.slabs:
            return
        confirmed, count = _all_confirmed(len(slab.marks)), self.count - slab.left
        slab.marks, slab.left, slab.open, self.count = confirmed, 0, 0, count
        self._drop_if_done(slab)

    def _remember(self, slab: Slab) -> None:
        """Remembers a slab, and forgets the oldest where they are too many, or old and confirmed."""
        slab.ended = now = time.monotonic()
        self.ended[slab.name] = slab
        horizon = now - max(REMEMBERED_SECONDS, REMEMBERED_TIMEOUTS * self._timeout)
        for _ in range(
            2
        ):  # more than come: what is not confirmed goes to the end, and does not hold up others
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
        """When to ask for the next slab, on the monotonic clock."""
        dues = []
        for queue in (self._timers, self._rearmed):
            while queue:
                slab = next(iter(queue.values()))
                if slab.left:
                    dues.append(slab.due)
                    break
                self._drop_if_done(slab)  # where an interrupt kept it from being dropped
                queue.pop(slab.name, None)
        return min(dues, default=None)

    def due(self, now: float) -> list[Slab]:
        """The slabs to ask for now. Each is to be expired, or asked for again; until then it stays due."""
        found = []
        for queue in (self._timers, self._rearmed):
            for slab in queue.values():
                if slab.left and slab.due > now:
                    break
                if slab.left:
                    found.append(slab)
        return found

    def ask_again(self, slab: Slab, now: float) -> None:
        """Arms the timer anew for a slab that the ledger says is pending."""
        self._rearmed[slab.name] = slab
        self._rearmed.move_to_end(slab.name)
        slab.due, slab.latest = now + ASK_AGAIN * self._timeout, now + REPORT_BY_AGAIN * self._timeout
        self._timers.pop(slab.name, None)


def still_there(core: Core, slabs: Sequence[bytes]) -> Operation[tuple[set[bytes], set[bytes]]]:
    """Which of these slabs the ledger holds as tracked: with trees that may have no outcome yet, and without.

    A slab that was passed over when its bucket was drained expires no more: nothing is to come of it.
    """
    pending: set[bytes] = set()
    finished: set[bytes] = set()
    shards = [core.shards[shard] for shard in {ids.shard_of(slab, core.config.ackers) for slab in slabs}]
    # Read before the headers: a slab that goes back to the nursery meanwhile was not passed over.
    clocks = yield [command("HMGET", shard.clock, "drained", "rotations") for shard in shards]
    drained = {shard.number: _drained(*clock) for shard, clock in zip(shards, clocks, strict=True)}
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
            known, shard = headers.read(header), ids.shard_of(slab, core.config.ackers)
            if known is not None and known.kind == headers.TRACKED:
                (pending if vector and known.entered + 2 >= drained[shard] else finished).add(slab)
    return pending, finished


def _drained(drained: bytes | None, rotations: bytes | None) -> int:
    """The rotation up to which a shard is drained; 0 where that cannot be."""
    if not all(value is not None and value.isdigit() and len(value) < 16 for value in (drained, rotations)):
        return 0
    return int(drained) if int(drained) <= int(rotations) else 0  # type: ignore[arg-type]
