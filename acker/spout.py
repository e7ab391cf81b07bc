"""Spouts: the sources of records. They emit the first tuples of trees and are told each tree's outcome."""

import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from acker import config, ids
from acker.errors import AckerError, SpoutPendingFull, ValidationError
from acker.ids import Ids, IdsLike, as_ids
from acker.ledger import Ledger
from acker.outbox import Part
from acker.outcomes import Entry, OutcomeReader, SlabOutcome, Status
from acker.pending import CONFIRMED, EXPIRED, PENDING, TOLD, Pending, Slab, still_pending
from acker.store import Store
from acker.tuples import Tuple, check_targets

if TYPE_CHECKING:
    from acker.topology import Topology

TOLD_A_CALL = 100_000
"""Outcomes that one call of `Spout.outcomes` gives where fewer are left. While so many wait, emit waits."""
_WAIT = 0.1
_HURRY = 2.0


class Outcome(NamedTuple):
    """What has become of a tree.

    status: acked, failed, expired, or rejected (never tracked: over the high-water mark). reason: of a fail,
    or of what the spout found out by itself. latency: seconds from track to outcome by the store's clock;
    None where the store has not told it. anchor: 0 where there was no tree (`ackers` 0).
    """

    message_id: bytes
    anchor: int
    status: Status
    reason: str
    latency: float | None


class _Receipt:
    """An entry of the store's outcomes, and how many of its trees the caller has not confirmed yet."""

    __slots__ = ("entry", "left", "shard")

    def __init__(self, shard: int, entry: bytes) -> None:
        self.shard, self.entry, self.left = shard, entry, 0


class Spout:
    """A source of records (Storm's ISpout and SpoutOutputCollector), for any thread.

    Made by `Topology.spout`. A spout is told all outcomes of its name, so one spout of a name is in use at a
    time: the next one is told again what this one was told and has not confirmed.
    """

    def __init__(self, topology: "Topology", name: str, max_spout_pending: int | None = None) -> None:
        self.topology = topology
        self.name = config.check_name(name, "spout")
        if max_spout_pending is not None:
            config.check_number(max_spout_pending, "max_spout_pending", 1, 10**9, int)
        self.max_spout_pending = max_spout_pending
        self._config = topology.config
        self._outbox = topology.outbox
        self._pending = Pending(self._outbox, name, self._reject)
        self._outbox.adopt(self)
        self.forget()
        store = topology.ledger.store
        # A store that is away must not keep the spout from telling in time what its own timer says.
        hurry = max(0.1, min(store.timeout, _HURRY, 0.1 * self._config.message_timeout))
        self._hurried = Ledger(Store(store.url, timeout=hurry, cluster=store.cluster), topology.ledger.core)

    def forget(self) -> None:
        """Drops all that it has in memory: in a forked child all of it is the parent's."""
        self._pending.forget()
        self._ready: deque[Outcome] = deque()
        self._told: dict[int, _Receipt] = {}
        self._entries: deque[Entry] = deque()
        self._reading = threading.Lock()
        self._reader: OutcomeReader | None = None

    def __repr__(self) -> str:
        return f"Spout({self.name!r} of {self.topology.name!r})"

    def __reduce__(self) -> tuple[type, tuple["Topology", str, int | None]]:
        return type(self), (self.topology, self.name, self.max_spout_pending)

    @property
    def pending(self) -> int:
        """How many trees of this spout have no outcome yet."""
        return self._pending.count

    # Emitting

    def emit(
        self,
        message_id: bytes | str | None,
        targets: int = 1,
        *,
        wait: bool = True,
        timeout: float | None = None,
    ) -> list[Tuple]:
        """Emits a record to `targets` targets: one tuple, an edge of its own, for each (0 to 65,536).

        With a message id (at most 1 KiB; the same may be in flight more than once) a tree is tracked, within
        the topology's linger, and its outcome told; without targets it is acked at once. Without message id
        the tuples are untracked. Over `max_spout_pending` it waits until an outcome has come, reading
        outcomes itself if nobody else does, for `timeout` seconds (None: 2 x message timeout). So it does
        while 100,000 outcomes are not taken.

        Raises ValidationError; SpoutPendingFull over `max_spout_pending` where `wait` is False or the timeout
        is over; StoreUnavailable or StoreError where the buffer is full and can not be sent. Nothing is
        emitted then.
        """
        check_targets(targets)
        owner = self.topology.owner
        if message_id is None:
            return [Tuple.of(owner, {}) for _ in range(targets)]
        encoded = config.check_message_id(message_id)
        self._prepare(1, wait, timeout)
        with self._outbox.lock:
            if not self._config.ackers:
                self._ready.append(Outcome(encoded, 0, "acked", "", None))
                self._outbox.lock.notify_all()
                return [Tuple.of(owner, {}) for _ in range(targets)]
            anchor, value, tuples = self._pending.next_anchor(), 0, []
            for _ in range(targets):
                own = ids.new_id()
                value ^= own
                tuples.append(Tuple.of(owner, {anchor: own}))
            self._pending.add(encoded, value)
            self._outbox.count_emitted(targets)
        return tuples

    def emit_many(
        self,
        message_ids: Sequence[bytes | str],
        values: IdsLike | None = None,
        *,
        wait: bool = True,
        timeout: float | None = None,
    ) -> tuple[Ids, Ids]:
        """Emits many records at once, one tuple each: vectors of their anchors and tuple ids, int64.

        `values` are the tuple ids, where they come from a seed; none may be zero. Everything is tracked when
        this returns, but trees over the high-water mark, whose outcome is `rejected`. With `ackers` 0 the
        anchors are 0. Waits and raises as `emit` does; after StoreUnavailable no outcome of these is told.
        """
        encoded = [config.check_message_id(message_id) for message_id in message_ids]
        count = len(encoded)
        own = ids.new_ids(count) if values is None else as_ids(values, "values")
        if len(own) != count or not own.all():
            raise ValidationError(
                f"values: expected a tuple id that is not zero for each of {count} message ids"
            )
        if not count:
            return np.zeros(0, np.int64), own
        self._prepare(count, wait, timeout)
        if not self._config.ackers:
            with self._outbox.lock:
                self._ready += [Outcome(message_id, 0, "acked", "", None) for message_id in encoded]
                self._outbox.lock.notify_all()
            return np.zeros(count, np.int64), own
        try:
            self.register()
        except BaseException:
            with self._outbox.lock:
                self._pending.count -= count
            raise
        with self._outbox.lock:
            slabs = self._pending.add_many(encoded, own)
        new = [slab.new() for slab in slabs]
        part = Part(
            self.topology.ledger.core.track(new, self.name),
            count,
            lambda letters: self._pending.tracked(slabs, letters),
            lambda: any(slab.left for slab in slabs),
        )
        self._outbox.post(part)
        try:
            self._outbox.flush()
        except BaseException as error:
            if self._outbox.withdraw(part):
                with self._outbox.lock:
                    for slab in slabs:
                        self._pending.expire(slab, CONFIRMED)
                raise
            if not isinstance(error, AckerError):
                raise
        self._outbox.count_emitted(count)
        return np.concatenate([slab.anchors for slab in new]), own

    def _prepare(self, count: int, wait: bool, timeout: float | None) -> None:
        """Sends first where the buffer is full; then reserves places."""
        limit = self.max_spout_pending
        if limit is not None and count > limit:
            raise ValidationError(f"expected at most max_spout_pending = {limit:,} at a time, got {count:,}")
        self._outbox.make_room()
        if timeout is None:
            timeout = 2 * self._config.message_timeout
        deadline = time.monotonic() + timeout
        while True:
            with self._outbox.lock:
                full = len(self._ready) >= TOLD_A_CALL
                if not full and (limit is None or self._pending.count + count <= limit):
                    if self._config.ackers:
                        self._pending.count += count
                    return
                pending = self._pending.count
            left = deadline - time.monotonic()
            if not wait or left <= 0:
                raise SpoutPendingFull(
                    f"spout {self.name!r}: {len(self._ready):,} outcomes are not taken"
                    if full
                    else f"spout {self.name!r} has {pending:,} trees pending, max_spout_pending is {limit:,}"
                )
            self._outbox.hurry()
            if not full and self._reading.acquire(blocking=False):
                try:
                    self._read(min(left, _WAIT))
                finally:
                    self._reading.release()
            else:
                with self._outbox.lock:
                    self._outbox.lock.wait(min(left, _WAIT))

    # Outcomes

    def outcomes(self, timeout: float | None = None) -> Iterator[Outcome]:
        """The outcomes that have come: waits up to `timeout` seconds for the first (None or 0: not at all).

        Ends when no further outcome is there, and after 100,000 where fewer than so many are left. An outcome
        is told once by this spout, and again by the next of its name until it is confirmed. Trees that the
        store has lost, or that could not be asked for, are told as `expired` within 2 x message timeout of
        their emit, provided that this is called. Raises StoreUnavailable only where it has nothing to tell
        and no tree is pending.
        """
        deadline = time.monotonic() + (timeout or 0.0)
        self._outbox.hurry()
        told = 0
        # Who emits and takes outcomes in one thread must be able to emit after this: see _prepare.
        while told < TOLD_A_CALL or len(self._ready) >= TOLD_A_CALL:
            with self._outbox.lock:
                outcome = self._ready.popleft() if self._ready else None
                if outcome is not None and len(self._ready) == TOLD_A_CALL - 1:
                    self._outbox.lock.notify_all()
            if outcome is None:
                try:
                    more = self._await(0.0 if told else deadline, hurry=bool(told))
                except AckerError:
                    if not told:
                        raise
                    return  # an error must not take from the caller what this call has told already
                if not more:
                    return
            else:
                told += 1
                yield outcome

    def confirm(self, outcome: Outcome) -> None:
        """Confirms an outcome: it will not be told again, by any spout of this name.

        Buffered; the store keeps an entry until all of its outcomes are confirmed. Again, or for an outcome
        that the store does not have, it changes nothing.
        """
        with self._outbox.lock:
            receipt = self._told.pop(outcome.anchor, None)
            if receipt is not None:
                receipt.left -= 1
                if not receipt.left:
                    self._confirm(receipt)
            elif slab := self._pending.expired.get(ids.slab_of(outcome.anchor)):
                slab.marks[ids.index_of(outcome.anchor)] = CONFIRMED

    def register(self) -> None:
        """Makes the spout known to the store, unless it is."""
        self._register(self.topology.ledger)

    def _register(self, ledger: Ledger) -> OutcomeReader:
        number = ledger.register_spout(self.name)
        if self._reader is None or self._reader.spout != number:
            self._reader = OutcomeReader(ledger.core, number)
        return self._reader

    def _await(self, deadline: float, hurry: bool) -> bool:
        while True:
            left = max(0.0, deadline - time.monotonic())
            if self._reading.acquire(timeout=min(left, 60.0)):
                try:
                    if not self._ready:
                        self._read(min(left, _WAIT), hurry)
                finally:
                    self._reading.release()
            if self._ready or not left:
                return bool(self._ready)

    def _read(self, wait: float, hurry: bool = False) -> None:
        """Makes ready what the ledger and the own timer tell, waiting for the ledger. Takes `_reading`."""
        away: AckerError | None = None
        with self._outbox.lock:
            if not self._config.ackers:
                self._outbox.lock.wait(wait)
                return
            pending, due = self._pending.count, self._pending.next_due()
        if due is not None:
            wait = max(0.0, min(wait, due - time.monotonic()))
        ledger = self._hurried if pending or hurry else self.topology.ledger
        try:
            self._absorb(ledger, wait)
        except AckerError as error:
            away = error
        self._look_after_due(away)
        if away is not None and not pending and not self._ready:
            raise away

    def _absorb(self, ledger: Ledger, wait: float) -> int:
        reader = self._register(ledger)
        if not self._entries:
            self._entries += ledger.outcomes(reader, wait)
        read = len(self._entries)
        named = {told.slab for entry in self._entries for told in entry.slabs}
        with self._outbox.lock:
            unknown = [
                slab
                for slab in named
                if slab not in self._pending.slabs and slab not in self._pending.expired
            ]
        found = ledger.message_ids(unknown) if unknown else {}
        with self._outbox.lock:
            while self._entries:
                self._tell(self._entries.popleft(), found)
            self._outbox.lock.notify_all()
        return read

    def _tell(self, entry: Entry, found: dict[bytes, list[bytes]]) -> None:
        receipt = _Receipt(entry.shard, entry.id)
        for told in entry.slabs:
            if slab := self._pending.slabs.get(told.slab) or self._pending.expired.get(told.slab):
                self._tell_own(entry, told, slab, receipt)
            elif message_ids := found.get(told.slab):
                # Of an earlier spout of this name.
                for index in told.of(len(message_ids)):
                    anchor = ids.anchor_at(told.slab, index)
                    self._ready.append(
                        Outcome(message_ids[index], anchor, entry.status, entry.reason, told.latency)
                    )
                    self._told[anchor] = receipt
                    receipt.left += 1
        if not receipt.left:
            self._confirm(receipt)

    def _tell_own(self, entry: Entry, told: SlabOutcome, slab: Slab, receipt: _Receipt) -> None:
        message_ids = slab.message_ids
        for index in told.of(len(slab.marks)):
            mark, anchor = slab.marks[index], slab.first + index
            if mark == PENDING:
                self._ready.append(
                    Outcome(message_ids[index], anchor, entry.status, entry.reason, told.latency)
                )
                self._pending.settle(slab, index, TOLD)
            # What expired here was told already: it is confirmed when the caller confirms that.
            if mark in (PENDING, EXPIRED):
                self._told[anchor] = receipt
                receipt.left += 1

    def _confirm(self, receipt: _Receipt) -> None:
        assert self._reader is not None
        self._outbox.confirm(self._reader.spout, receipt.shard, receipt.entry)

    def _reject(self, slab: Slab, reason: str) -> None:
        for index in list(slab.indexes(PENDING)):
            self._ready.append(Outcome(slab.message_ids[index], slab.first + index, "rejected", reason, None))
            self._pending.settle(slab, index, TOLD)
        self._outbox.lock.notify_all()

    def _look_after_due(self, away: AckerError | None) -> None:
        """The spout's own timer: asks for trees that it has heard nothing of, and expires what is lost."""
        with self._outbox.lock:
            due = self._pending.take_due(time.monotonic())
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
            except BaseException:
                with self._outbox.lock:
                    self._pending.ask_later(due)
                raise
        now, later = time.monotonic(), []
        # The next look may take as long as two calls to a store that is away.
        last_look = now + 2 * self._hurried.store.timeout
        with self._outbox.lock:
            for slab in due:
                if not slab.left:
                    continue
                if away is None and slab.name in alive:
                    self._pending.ask_again(slab, now)
                elif (away is None and slab.tracked) or last_look >= slab.latest:
                    self._expire(slab, away)
                else:
                    later.append(slab)
            self._pending.ask_later(later)

    def _expire(self, slab: Slab, away: AckerError | None) -> None:
        if away is not None:
            reason = f"the store could not be asked: {away}"
        elif slab.tracked:
            reason = "the store has lost the tree"
        else:
            reason = "the tree could not be tracked in time"
        bounded = config.bounded_reason(reason)
        for message_id, anchor in self._pending.expire(slab):
            self._ready.append(Outcome(message_id, anchor, "expired", bounded, None))
        self._outbox.lock.notify_all()
