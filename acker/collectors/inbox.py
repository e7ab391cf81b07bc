"""A spout's inbox: outcomes from the ledger and from the spout's own timer.

The counterpart of `acker.collectors.outbox`: the inbox makes outcomes ready, the spout takes them, and the
inbox remembers them until the caller confirms them.

Terms: a tree is all that comes of one record; a slab is the trees that one call tracked together.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial

from acker.collectors.outbox import Outbox
from acker.collectors.outcome import Outcome, OutcomeGroup
from acker.collectors.pending import ASK, CONFIRMED, MOST_READY, PENDING, REPORTED, Pending, Slab
from acker.collectors.session import Session
from acker.errors import AckerError
from acker.ledger import ids
from acker.ledger.client import Ledger
from acker.ledger.outcomes.outcomes import Confirmation, Entry, OutcomeReader, SlabOutcome
from acker.ledger.settings import config
from acker.ledger.trees.tracked_slabs import still_there
from acker.store.client import Store

WAIT = 0.1
"""Most seconds that one read waits for outcomes."""
_FRESH = 0.005
"""Seconds for which a complete reading of the store's outcomes counts as up to date."""
_HURRY, _HURRY_SHARE = 2.0, 0.1
"""Limits of a reading while trees are pending, in seconds and in message timeouts; the smaller one holds. So
a store that is away does not keep the spout from reporting its own timer's outcomes in time."""
_HURRY_ROUND_TRIPS = 8
"""Round trips that a reading may always take: to connect, to log in and to ask for the kind of server."""
_log = logging.getLogger(__name__)


class _Unconfirmed:
    """An entry of the store's outcomes, and its unconfirmed anchors.

    whole: True after all of its trees were reported. groups: slabs and first indexes of unconfirmed groups.
    """

    __slots__ = ("entry", "groups", "left", "whole")

    def __init__(self, entry: Confirmation) -> None:
        self.entry = entry
        self.left: set[int] = set()
        self.groups: set[tuple[bytes, int]] = set()
        self.whole = False


class Inbox:
    """The outcomes of one spout. The outbox's lock guards its state; one thread reads at a time.

    pending: The trees without an outcome, and the outcomes that are not taken yet.
    """

    def __init__(self, topology: Session, spout: str, *, grouped: bool = False) -> None:
        self.topology = topology
        self.spout = spout
        self._config = topology.config
        self._outbox = topology.outbox
        self.pending = Pending(self._outbox, spout, grouped=grouped)
        self.forget()
        self._asked_in_hurry: Ledger | None = None
        self._slowness_said = False

    def forget(self) -> None:
        """Drops its state in memory, which belongs to the parent in a forked child."""
        self.pending.forget()
        self._unconfirmed: dict[int, _Unconfirmed] = {}
        self._entries: list[tuple[Entry, _Unconfirmed]] = []
        self._reading = threading.Lock()
        self._reader: OutcomeReader | None = None
        self._asked_at = 0.0
        self._read_at = 0.0

    def confirm(self, outcome: Outcome) -> None:
        """Notes that an outcome is confirmed; the last outcome of an entry confirms the entry."""
        with self._outbox.lock:
            if slab := self.pending.find(ids.slab_of(outcome.anchor)):
                self.pending.confirm(slab, ids.index_of(outcome.anchor))
            unconfirmed = self._unconfirmed.get(outcome.anchor)
            if unconfirmed is not None:
                unconfirmed.left.discard(outcome.anchor)
                self._confirm_if_done(unconfirmed)
                self._unconfirmed.pop(outcome.anchor, None)

    def confirm_group(self, group: OutcomeGroup) -> None:
        """Like `confirm`, for a group of outcomes."""
        with self._outbox.lock:
            if slab := self.pending.find(group.slab):
                self.pending.confirm_group(slab, group)
            if isinstance(group.entry, _Unconfirmed):
                group.entry.groups.discard((group.slab, group.indexes[0]))
                self._confirm_if_done(group.entry)
            if self._unconfirmed:  # reported by the timer, or read again after a loss of the store's writes
                for anchor in (ids.anchor_at(group.slab, index) for index in group.indexes):
                    if unconfirmed := self._unconfirmed.get(anchor):
                        unconfirmed.left.discard(anchor)
                        self._confirm_if_done(unconfirmed)
                        self._unconfirmed.pop(anchor, None)

    # Reading

    @property
    def fresh(self) -> bool:
        """True right after a reading that took all outcomes of the store."""
        reader = self._reader
        return reader is not None and not reader.behind and time.monotonic() - self._read_at < _FRESH

    @property
    def _hurried(self) -> Ledger:
        """The ledger with a time limit that follows the store's round trips: a slow store is not away."""
        store, last = self.topology.ledger.store, self._asked_in_hurry
        trip = max(store.round_trip, last.store.round_trip if last else 0.0)
        limit = max(0.1, min(_HURRY, _HURRY_SHARE * self._config.message_timeout))
        while limit < min(store.timeout, _HURRY_ROUND_TRIPS * trip):
            limit *= 2  # in steps, because each limit has its own connections
        limit = min(limit, store.timeout)
        least = 2 * _HURRY_ROUND_TRIPS * trip / (2.0 - ASK)
        if least > self._config.message_timeout and not self._slowness_said:
            self._slowness_said = True
            _log.warning(
                "spout %s: the store takes %.2f s to answer, too long for a message timeout of %g s: trees "
                "that the store has lost may be reported later than after twice that. A message timeout of "
                "%.1f s or more is long enough",
                self.spout, trip, self._config.message_timeout, least,
            )  # fmt: skip
        if last is None or last.store.timeout != limit:
            own = Store(store.url, timeout=limit, cluster=store.cluster)
            last = self._asked_in_hurry = Ledger(own, self.topology.ledger.core)
        return last

    def register(self, ledger: Ledger) -> OutcomeReader:
        """Registers the spout in the store, unless it is registered; returns the reader of its outcomes.

        Once in a message timeout it checks the registration, because the store may lose the topology's list
        of spouts without its shards.
        """
        now = time.monotonic()
        ask = now - self._asked_at >= self._config.message_timeout
        ledger.register_spout(self.spout, ask)
        if ask:
            self._asked_at = now
        if self._reader is None:
            self._reader = OutcomeReader(ledger.core, self.spout)
        return self._reader

    def read_unless_busy(self, wait: float) -> bool:
        """Waits for outcomes for so many seconds; returns False at once if another thread waits."""
        return self._in_turn(0.0, partial(self._read, wait))

    def wait(self, deadline: float, hurry: bool) -> bool:
        """Waits until outcomes are ready or the deadline is over; returns True if some are ready.

        Args:
            deadline: Time on the monotonic clock.
            hurry: True to give up early on a store that is away.
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
        """Calls `read` as the only reading thread; returns False if others read for so many seconds."""
        turn: list[bool] = []
        try:
            # The interpreter takes the lock and notes that in one step: no interrupt comes between.
            turn.extend(map(self._reading.acquire, (seconds > 0,), (seconds or -1,)))
            if turn == [True]:
                read()
        finally:
            if turn == [True]:
                self._reading.release()
        return turn == [True]

    def _read(self, wait: float, hurry: bool = False) -> None:
        """Makes outcomes of the ledger and of the timer ready, waiting for the ledger. Takes `_reading`."""
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
            before, self._read_at = reader.offset, time.monotonic()
            try:
                found_now = ledger.outcomes(reader, wait)
                self._entries = [(entry, _Unconfirmed(entry.confirmation)) for entry in found_now]
            except BaseException:
                reader.offset = before  # outcomes that an interrupt took from here are read again
                raise
        read = len(self._entries)
        named = {outcome.slab for entry, _ in self._entries for outcome in entry.slabs}
        with self._outbox.lock:
            unknown = [name for name in named if self.pending.find(name) is None]
        message_ids = ledger.message_ids(unknown) if unknown else {}
        with self._outbox.lock:
            for entry, unconfirmed in self._entries:
                self._report(entry, unconfirmed, message_ids)
            self._entries = []
            self._outbox.changed.notify_all()
        return read

    def _report(
        self, entry: Entry, unconfirmed: _Unconfirmed, message_ids_by_slab: dict[bytes, list[bytes]]
    ) -> None:
        """Reports the trees of an entry, except trees that were reported before.

        They were reported by the timer, before an interrupt, or before the store lost its latest writes.
        """
        for outcome in entry.slabs:
            slab = self.pending.find(outcome.slab)
            if slab is None and (message_ids := message_ids_by_slab.get(outcome.slab)):
                slab = self.pending.add_earlier(outcome.slab, message_ids)
            if slab is not None and self.pending.grouped:
                self._report_group(entry, outcome, slab, unconfirmed)
            elif slab is not None:
                self._report_slab(entry, outcome, slab, unconfirmed)
        unconfirmed.whole = True
        # If the caller has confirmed all of it, the store lacks or has lost the confirmation.
        self._confirm_if_done(unconfirmed)

    def _report_slab(self, entry: Entry, outcome: SlabOutcome, slab: Slab, unconfirmed: _Unconfirmed) -> None:
        message_ids = slab.message_ids
        for index in outcome.indexes_in(len(slab.marks)):
            mark, anchor = slab.marks[index], slab.anchor(index)
            # An outcome that was reported before is confirmed with the caller's confirmation of it.
            if mark != CONFIRMED:
                self._unconfirmed[anchor] = unconfirmed
                unconfirmed.left.add(anchor)
            if mark == PENDING:
                why, taken = outcome.cause, outcome.latency
                reported = Outcome(
                    message_ids[index],
                    anchor,
                    entry.status,
                    why.reason,
                    taken,
                    why.step,
                    why.retry,
                    why.batch,
                )
                self.pending.report(slab, index, reported)

    def _report_group(
        self, entry: Entry, outcome: SlabOutcome, slab: Slab, unconfirmed: _Unconfirmed
    ) -> None:
        """Like `_report_slab`, with one outcome for all its pending trees."""
        indexes, why = outcome.indexes_in(len(slab.marks)), outcome.cause
        if slab.left < len(slab.marks):
            reported, indexes = slab.marked(indexes, REPORTED), slab.marked(indexes, PENDING)
            for anchor in map(slab.anchor, reported):
                self._unconfirmed[anchor] = unconfirmed
                unconfirmed.left.add(anchor)
        if not indexes:
            return
        said = Outcome(b"", 0, entry.status, why.reason, outcome.latency, why.step, why.retry, why.batch)
        unconfirmed.groups.add((slab.name, indexes[0]))
        self.pending.report_group(slab, OutcomeGroup(slab.name, indexes, slab.message_ids, said, unconfirmed))

    def _confirm_if_done(self, unconfirmed: _Unconfirmed) -> None:
        assert self._reader is not None
        if unconfirmed.whole and not unconfirmed.left and not unconfirmed.groups:
            self._outbox.confirm(self._reader, unconfirmed.entry)

    def _look_after_due(self, away: AckerError | None) -> None:
        """The spout's own timer: asks for overdue trees, and expires the lost ones."""
        with self._outbox.lock:
            due = self.pending.due(time.monotonic())
        if not due:
            return
        alive: set[bytes] = set()
        hurried = self._hurried
        if away is None:
            try:
                core = self.topology.ledger.core
                alive, finished = hurried.run(still_there(core, [slab.name for slab in due]))
                # An outcome may have come since: the streams show it, once they are read to their end.
                while self._absorb(hurried, 0.0):
                    pass
                if missed := {slab.name for slab in due if slab.left} & finished:
                    # An entry is unread: after a loss of the latest writes it may stand before the others.
                    reader = self.register(hurried)
                    reader.begin_again({ids.shard_of(name, self._config.ackers) for name in missed})
                    while self._absorb(hurried, 0.0):
                        pass
                if any(slab.left and slab.tracked and slab.name not in alive for slab in due):
                    self.topology.restore()
            except AckerError as error:
                away = error
        now = time.monotonic()
        # The next check may take as long as two calls to a store that is away.
        last_look = now + 2 * hurried.store.timeout
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
        self.pending.report_all(slab, "expired", config.bounded_reason(reason))


class OutcomeIterator(Iterator[Outcome]):
    """The outcomes that one call of `Spout.outcomes` reports.

    An interrupt leaves the current outcome to the next call.
    A generator could not tell if an interrupt comes before its caller has the outcome, or after.
    """

    def __init__(self, outbox: Outbox, inbox: Inbox, timeout: float | None) -> None:
        self._outbox = outbox
        self._inbox = inbox
        self._timeout = timeout or 0.0
        self._deadline: float | None = None
        self._taken = 0

    def __next__(self) -> Outcome:
        """Waits for the first outcome, and for no other."""
        self._outbox.check_whole()
        if self._deadline is None:
            self._outbox.send_now()
            self._deadline = time.monotonic() + self._timeout
        pending, lock = self._inbox.pending, self._outbox.lock
        number, outcome = 0, None
        try:
            # A thread that emits and takes outcomes must be able to emit after this: see Spout.emit.
            while self._taken < MOST_READY or pending.ready >= MOST_READY:
                with lock:
                    if (oldest := pending.oldest()) is not None:
                        number, outcome = oldest
                        pending.take(number)
                        self._taken += 1
                        return outcome  # type: ignore[no-any-return]
                if self._taken and self._inbox.fresh:
                    break
                try:
                    more = self._inbox.wait(0.0 if self._taken else self._deadline, hurry=bool(self._taken))
                except AckerError:
                    if not self._taken:
                        raise
                    break  # an error must not hide outcomes that this call has reported
                if not more:
                    break
        except BaseException:
            if outcome is not None:
                with lock:
                    pending.put_back(number, outcome)
            raise
        raise StopIteration
