"""What a spout is told: the outcomes that the ledger has for it, and those that its own timer finds.

The counterpart of `acker.outbox`: outcomes are made ready here, taken by the spout, and remembered until the
caller has confirmed them.
"""

import threading
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from acker import config, ids
from acker.errors import AckerError
from acker.ledger import Ledger
from acker.outcomes import Entry, OutcomeReader, SlabOutcome
from acker.pending import CONFIRMED, EXPIRED, PENDING, TOLD, Outcome, Pending, Slab, still_pending
from acker.store import Store

if TYPE_CHECKING:
    from acker.topology import Topology

WAIT = 0.1
"""Seconds for which one read waits for outcomes at most."""
_HURRY = 2.0


class _Receipt:
    """An entry of the store's outcomes, and the anchors of its trees that the caller has not confirmed yet.

    slabs: how many of its slabs were gone through, and `trees` of the next one; `whole` when that is all.
    """

    __slots__ = ("entry", "left", "shard", "slabs", "trees", "whole")

    def __init__(self, shard: int, entry: bytes) -> None:
        self.shard, self.entry = shard, entry
        self.left: set[int] = set()
        self.slabs = self.trees = 0
        self.whole = False


class Inbox:
    """The outcomes of one spout. What it knows is guarded by the outbox's lock; one thread reads at a time.

    pending: the trees that have none yet, and the outcomes that are not taken yet.
    """

    def __init__(self, topology: "Topology", spout: str) -> None:
        self.topology = topology
        self.spout = spout
        self._config = topology.config
        self._outbox = topology.outbox
        self.pending = Pending(self._outbox, spout)
        self.forget()
        store = topology.ledger.store
        # A store that is away must not keep the spout from telling in time what its own timer says.
        hurry = max(0.1, min(store.timeout, _HURRY, 0.1 * self._config.message_timeout))
        self._hurried = Ledger(Store(store.url, timeout=hurry, cluster=store.cluster), topology.ledger.core)

    def forget(self) -> None:
        """Drops all that it has in memory: in a forked child all of it is the parent's."""
        self.pending.forget()
        self._told: dict[int, _Receipt] = {}
        self._entries: list[tuple[Entry, _Receipt]] = []
        self._reading = threading.Lock()
        self._reader: OutcomeReader | None = None

    def confirm(self, outcome: Outcome) -> None:
        """Notes that the caller is done with an outcome; confirms its entry with the last one of it."""
        with self._outbox.lock:
            receipt = self._told.get(outcome.anchor)
            if receipt is not None:
                receipt.left.discard(outcome.anchor)
                self._confirm_if_done(receipt)
                self._told.pop(outcome.anchor, None)
            elif slab := self.pending.expired.get(ids.slab_of(outcome.anchor)):
                slab.marks[ids.index_of(outcome.anchor)] = CONFIRMED

    # Reading

    def register(self, ledger: Ledger) -> OutcomeReader:
        """Makes the spout known to the store, unless it is; returns what reads its outcomes."""
        number = ledger.register_spout(self.spout)
        if self._reader is None or self._reader.spout != number:
            self._reader = OutcomeReader(ledger.core, number)
        return self._reader

    def read_unless_busy(self, wait: float) -> bool:
        """Waits for outcomes for so many seconds, unless another thread does: False then, and at once."""
        return self._in_turn(0.0, partial(self._read, wait))

    def wait(self, deadline: float, hurry: bool) -> bool:
        """Waits until outcomes are ready or the deadline (monotonic clock) is over; whether some are.

        hurry: gives up early on a store that is away.
        """
        while True:
            left = max(0.0, deadline - time.monotonic())
            self._in_turn(min(left, 60.0), partial(self._read_unless_ready, left, hurry))
            if self.pending.ready or not left:
                return bool(self.pending.ready)

    def _read_unless_ready(self, left: float, hurry: bool) -> None:
        if not self.pending.ready:
            self._read(min(left, WAIT), hurry)

    def _in_turn(self, seconds: float, read: Callable[[], None]) -> bool:
        """Calls `read` as the only thread that reads; False where others did for so many seconds."""
        turn: list[bool] = []
        try:
            # The lock is taken and that is noted in one step of the interpreter: no interrupt comes between.
            turn.extend(map(self._reading.acquire, (seconds > 0,), (seconds or -1,)))
            if turn == [True]:
                read()
        finally:
            if turn == [True]:
                self._reading.release()
        return turn == [True]

    def _read(self, wait: float, hurry: bool = False) -> None:
        """Makes ready what the ledger and the own timer tell, waiting for the ledger. Takes `_reading`."""
        away: AckerError | None = None
        with self._outbox.lock:
            if not self._config.ackers:
                self._outbox.changed.wait(wait)
                return
            pending, due = self.pending.count, self.pending.next_due()
        if due is not None:
            wait = max(0.0, min(wait, due - time.monotonic()))
        ledger = self._hurried if pending or hurry else self.topology.ledger
        try:
            self._absorb(ledger, wait)
        except AckerError as error:
            away = error
        self._look_after_due(away)
        if away is not None and not pending and not self.pending.ready:
            raise away

    def _absorb(self, ledger: Ledger, wait: float) -> int:
        reader = self.register(ledger)
        if not self._entries:
            self._entries = [
                (entry, _Receipt(entry.shard, entry.id)) for entry in ledger.outcomes(reader, wait)
            ]
        read = len(self._entries)
        named = {told.slab for entry, _ in self._entries for told in entry.slabs}
        with self._outbox.lock:
            unknown = [
                slab for slab in named if slab not in self.pending.slabs and slab not in self.pending.expired
            ]
        found = ledger.message_ids(unknown) if unknown else {}
        with self._outbox.lock:
            for entry, receipt in self._entries:
                self._tell(entry, receipt, found)
            self._entries = []
            self._outbox.changed.notify_all()
        return read

    def _tell(self, entry: Entry, receipt: _Receipt, found: dict[bytes, list[bytes]]) -> None:
        """Tells of the trees of an entry, but those that were told before an interrupt."""
        for told in entry.slabs[receipt.slabs :]:
            if slab := self.pending.slabs.get(told.slab) or self.pending.expired.get(told.slab):
                self._tell_own(entry, told, slab, receipt)
            elif message_ids := found.get(told.slab):
                # Of an earlier spout of this name.
                for index in told.of(len(message_ids))[receipt.trees :]:
                    anchor = ids.anchor_at(told.slab, index)
                    outcome = Outcome(message_ids[index], anchor, entry.status, entry.reason, told.latency)
                    self._told[anchor] = receipt
                    receipt.left.add(anchor)
                    self.pending.tell_earlier(outcome, receipt)
            receipt.slabs, receipt.trees = receipt.slabs + 1, 0
        receipt.whole = True
        self._confirm_if_done(receipt)

    def _tell_own(self, entry: Entry, told: SlabOutcome, slab: Slab, receipt: _Receipt) -> None:
        message_ids = slab.message_ids
        for index in told.of(len(slab.marks)):
            mark, anchor = slab.marks[index], slab.first + index
            # What expired here was told already: it is confirmed when the caller confirms that.
            if mark in (PENDING, EXPIRED):
                self._told[anchor] = receipt
                receipt.left.add(anchor)
            if mark == PENDING:
                outcome = Outcome(message_ids[index], anchor, entry.status, entry.reason, told.latency)
                self.pending.tell(slab, index, TOLD, outcome)

    def _confirm_if_done(self, receipt: _Receipt) -> None:
        assert self._reader is not None
        if receipt.whole and not receipt.left:
            self._outbox.confirm(self._reader.spout, receipt.shard, receipt.entry)

    def _look_after_due(self, away: AckerError | None) -> None:
        """The spout's own timer: asks for trees that it has heard nothing of, and expires what is lost."""
        with self._outbox.lock:
            due = self.pending.due(time.monotonic())
        if not due:
            return
        alive: set[bytes] = set()
        if away is None:
            try:
                alive = self._hurried.run(
                    still_pending(self.topology.ledger.core, [slab.name for slab in due])
                )
                # An outcome may have come since: the streams know, once they are read to their end.
                while self._absorb(self._hurried, 0.0):
                    pass
                if any(slab.left and slab.tracked and slab.name not in alive for slab in due):
                    self.topology.restore()
            except AckerError as error:
                away = error
        now = time.monotonic()
        # The next look may take as long as two calls to a store that is away.
        last_look = now + 2 * self._hurried.store.timeout
        with self._outbox.lock:
            for slab in due:
                if not slab.left:
                    continue
                if away is None and slab.name in alive:
                    self.pending.ask_again(slab, now)
                elif (away is None and slab.tracked) or last_look >= slab.latest:
                    self._expire(slab, away)

    def _expire(self, slab: Slab, away: AckerError | None) -> None:
        if away is not None:
            reason = f"the store could not be asked: {away}"
        elif slab.tracked:
            reason = "the store has lost the tree"
        else:
            reason = "the tree could not be tracked in time"
        self.pending.expire(slab, config.bounded_reason(reason))
