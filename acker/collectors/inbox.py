"""What a spout learns: the outcomes that the ledger has for it, and outcomes that its own timer finds.

The counterpart of `acker.collectors.outbox`: outcomes are made ready here, taken by the spout, and remembered
until the caller has confirmed them.
"""

import logging
import threading
import time
from collections.abc import Callable
from functools import partial

from acker.collectors.outcome import Outcome
from acker.collectors.pending import ASK, CONFIRMED, PENDING, Pending, Slab, still_there
from acker.collectors.session import Session
from acker.errors import AckerError
from acker.ledger import ids
from acker.ledger.client import Ledger
from acker.ledger.outcomes.outcomes import Entry, OutcomeReader, Receipt, SlabOutcome
from acker.ledger.settings import config
from acker.store.client import Store

WAIT = 0.1
"""Seconds for which one read waits for outcomes at most."""
_FRESH = 0.005
"""Seconds after a reading of all that the store has when it is taken for all that there is."""
_HURRY, _HURRY_SHARE = 2.0, 0.1
"""Seconds, and message timeouts, that a reading may take while trees are pending, the less of both: a store
that is away must not keep the spout from reporting in time what its own timer says."""
_HURRY_ROUND_TRIPS = 8
"""Round trips that it may always take: it may have to connect, sign in and ask what server that is."""
_log = logging.getLogger(__name__)


class _Unconfirmed:
    """An entry of the store's outcomes, and the anchors of its trees that the caller has not confirmed yet.

    whole: all of its trees were gone through.
    """

    __slots__ = ("entry", "left", "whole")

    def __init__(self, entry: Receipt) -> None:
        self.entry = entry
        self.left: set[int] = set()
        self.whole = False


class Inbox:
    """The outcomes of one spout. Its knowledge is guarded by the outbox's lock; one thread reads at a time.

    pending: the trees that have none yet, and the outcomes that are not taken yet.
    """

    def __init__(self, topology: Session, spout: str) -> None:
        self.topology = topology
        self.spout = spout
        self._config = topology.config
        self._outbox = topology.outbox
        self.pending = Pending(self._outbox, spout)
        self.forget()
        self._asked_in_hurry: Ledger | None = None
        self._slowness_said = False

    def forget(self) -> None:
        """Drops all that it has in memory: in a forked child all of it is the parent's."""
        self.pending.forget()
        self._unconfirmed: dict[int, _Unconfirmed] = {}
        self._entries: list[tuple[Entry, _Unconfirmed]] = []
        self._reading = threading.Lock()
        self._reader: OutcomeReader | None = None
        self._asked_at = 0.0
        self._read_at = 0.0

    def confirm(self, outcome: Outcome) -> None:
        """Notes that the caller is done with an outcome; confirms its entry with the last one of it."""
        with self._outbox.lock:
            if slab := self.pending.known(ids.slab_of(outcome.anchor)):
                self.pending.confirm(slab, ids.index_of(outcome.anchor))
            unconfirmed = self._unconfirmed.get(outcome.anchor)
            if unconfirmed is not None:
                unconfirmed.left.discard(outcome.anchor)
                self._confirm_if_done(unconfirmed)
                self._unconfirmed.pop(outcome.anchor, None)

    # Reading

    @property
    def fresh(self) -> bool:
        """True just after a reading that has left nothing in the store."""
        reader = self._reader
        return reader is not None and not reader.behind and time.monotonic() - self._read_at < _FRESH

    @property
    def _hurried(self) -> Ledger:
        """The ledger with a time limit that follows what the store takes to answer: slow is not away."""
        store, last = self.topology.ledger.store, self._asked_in_hurry
        trip = max(store.round_trip, last.store.round_trip if last else 0.0)
        limit = max(0.1, min(_HURRY, _HURRY_SHARE * self._config.message_timeout))
        while limit < min(store.timeout, _HURRY_ROUND_TRIPS * trip):
            limit *= 2  # in steps, for each has connections of its own
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
        """Makes the spout known to the store, unless it is; returns what reads its outcomes.

        Once in a message timeout it asks whether the store still knows it: what tells who the spouts of a
        topology are lies beside the shards, and may be lost alone.
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
        """Makes ready what the ledger and the own timer have, waiting for the ledger. Takes `_reading`."""
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
            before, self._read_at = reader.position, time.monotonic()
            try:
                found_now = ledger.outcomes(reader, wait)
                self._entries = [(entry, _Unconfirmed(entry.receipt)) for entry in found_now]
            except BaseException:
                reader.position = before  # what an interrupt has taken from here is read again
                raise
        read = len(self._entries)
        named = {outcome.slab for entry, _ in self._entries for outcome in entry.slabs}
        with self._outbox.lock:
            unknown = [name for name in named if self.pending.known(name) is None]
        found = ledger.message_ids(unknown) if unknown else {}
        with self._outbox.lock:
            for entry, unconfirmed in self._entries:
                self._report(entry, unconfirmed, found)
            self._entries = []
            self._outbox.changed.notify_all()
        return read

    def _report(self, entry: Entry, unconfirmed: _Unconfirmed, found: dict[bytes, list[bytes]]) -> None:
        """Reports the trees of an entry, but trees that were reported before.

        That was by the own timer, before an interrupt, or before the store lost its latest moments.
        """
        for outcome in entry.slabs:
            slab = self.pending.known(outcome.slab)
            if slab is None and (message_ids := found.get(outcome.slab)):
                slab = self.pending.adopt(outcome.slab, message_ids)
            if slab is not None:
                self._report_slab(entry, outcome, slab, unconfirmed)
        unconfirmed.whole = True
        # Where the caller is done with all of it, the store has not got that, or has lost it.
        self._confirm_if_done(unconfirmed)

    def _report_slab(self, entry: Entry, outcome: SlabOutcome, slab: Slab, unconfirmed: _Unconfirmed) -> None:
        message_ids = slab.message_ids
        for index in outcome.of(len(slab.marks)):
            mark, anchor = slab.marks[index], slab.anchor(index)
            # An outcome that was reported already is confirmed when the caller confirms that.
            if mark != CONFIRMED:
                self._unconfirmed[anchor] = unconfirmed
                unconfirmed.left.add(anchor)
            if mark == PENDING:
                why, taken = outcome.cause, outcome.latency
                found = Outcome(
                    message_ids[index],
                    anchor,
                    entry.status,
                    why.reason,
                    taken,
                    why.step,
                    why.retry,
                    why.batch,
                )
                self.pending.report(slab, index, found)

    def _confirm_if_done(self, unconfirmed: _Unconfirmed) -> None:
        assert self._reader is not None
        if unconfirmed.whole and not unconfirmed.left:
            self._outbox.confirm(self._reader, unconfirmed.entry)

    def _look_after_due(self, away: AckerError | None) -> None:
        """The spout's own timer: asks for trees that it has heard nothing of, and expires what is lost."""
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
                # An outcome may have come since: the streams know, once they are read to their end.
                while self._absorb(hurried, 0.0):
                    pass
                if missed := {slab.name for slab in due if slab.left} & finished:
                    # One was not read: where the store has lost its latest moments, before the others.
                    reader = self.register(hurried)
                    reader.begin_again({ids.shard_of(name, self._config.ackers) for name in missed})
                    while self._absorb(hurried, 0.0):
                        pass
                if any(slab.left and slab.tracked and slab.name not in alive for slab in due):
                    self.topology.restore()
            except AckerError as error:
                away = error
        now = time.monotonic()
        # The next look may take as long as two calls to a store that is away.
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
