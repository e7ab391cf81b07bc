"""What the collectors of a topology have buffered: sent together, by a short linger or a flush.

What could not be sent is kept and sent again as the very same submissions, so it takes effect once. A thread
per topology sends what has lingered; it starts with the first message and ends with the topology.
"""

import atexit
import logging
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from acker.errors import AckerError, StoreError, StoreUnavailable, UnreadableRecord
from acker.ledger import Ledger
from acker.submissions import NewSlab, Submission, unreadable
from acker.writers import HORIZON

BUFFERED = 65_536
"""Most messages that wait to be sent. Who adds more sends them first, and gets the error if that fails."""
AT_ONCE = 8_192
"""So many messages do not linger any longer."""
_PAUSE = 0.25
"""Seconds between two attempts to reach a store that is away."""

log = logging.getLogger("acker")


class Source(Protocol):
    """A spout's trees, as the outbox sees them."""

    spout: str

    def take(self) -> tuple[int, list[NewSlab], Callable[[list[str]], None], Callable[[], bool]]:
        """What is to be tracked now.

        How many trees matter no longer; slabs to track, what to do with the letters of the reply, and whether
        they still matter.
        """


class Forgetful(Protocol):
    """What has state that a forked child must not share with its parent."""

    def forget(self) -> None:
        """Drops everything: it is the parent's."""


@dataclass(slots=True, eq=False)
class Part:
    """One submission on its way. `wanted` says whether it still matters, `sent_at` when it was first sent."""

    submission: Submission[Any]
    weight: int
    settled: Callable[[Any], None] = lambda _: None
    wanted: Callable[[], bool] = lambda: True
    sent_at: float | None = None


class Outbox:
    """Buffers of one topology.

    All that collectors know in memory is guarded by `lock`, reentrant and never held while something is sent.
    """

    def __init__(self, ledger: Ledger, linger: float) -> None:
        self.ledger = ledger
        self.linger = linger
        self._spouts: weakref.WeakSet[Any] = weakref.WeakSet()
        self._start()
        _outboxes.add(self)

    def _start(self) -> None:
        mutex = threading.RLock()
        self.lock = threading.Condition(mutex)
        self._wake = threading.Condition(mutex)
        self._sending = threading.Lock()
        self._away: tuple[float, StoreUnavailable] | None = None
        self.closed = False
        self._thread: threading.Thread | None = None
        self._dirty: dict[Source, None] = {}
        self._anchors: list[int] = []
        self._deltas: list[int] = []
        self._fails: dict[bytes, list[int]] = {}
        self._resets: dict[int, None] = {}
        self._confirms: dict[int, list[tuple[int, bytes]]] = {}
        self._emitted = 0
        self._parts: list[Part] = []
        self._unreadable: list[int] = []
        self._weight = 0
        self._due: float | None = None
        self._ending = False

    def after_fork(self) -> None:
        """Makes the outbox of a forked child empty: what its parent has buffered, its parent sends."""
        self._start()
        for spout in list(self._spouts):
            spout.forget()

    def adopt(self, spout: Forgetful) -> None:
        """Has a spout forget when this process forks, without keeping it alive."""
        self._spouts.add(spout)

    # Adding

    def make_room(self) -> None:
        """For callers that will add, without the lock: sends first where the buffer is full.

        Raises what `flush` does, and AckerError after `close`.
        """
        if self.closed:
            raise AckerError(f"topology {self.ledger.config.name!r} is closed")
        if self._weight >= BUFFERED:
            self.flush()

    def update(self, deltas: dict[int, int]) -> None:
        """Buffers deltas: anchor -> delta."""
        with self.lock:
            self._anchors += deltas
            self._deltas += deltas.values()
            self._added(len(deltas))

    def fail(self, anchors: Iterable[int], reason: bytes) -> None:
        """Buffers fails."""
        with self.lock:
            failed = self._fails.setdefault(reason, [])
            before = len(failed)
            failed += anchors
            self._added(len(failed) - before)

    def reset_timeout(self, anchors: Iterable[int]) -> None:
        """Buffers resets of the timeout."""
        with self.lock:
            before = len(self._resets)
            self._resets.update(dict.fromkeys(anchors))
            self._added(len(self._resets) - before)

    def confirm(self, spout: int, shard: int, entry: bytes) -> None:
        """Buffers the confirmation of an entry of a spout's outcomes."""
        with self.lock:
            self._confirms.setdefault(spout, []).append((shard, entry))
            self._added(1)

    def emitted(self, source: Source, trees: int) -> None:
        """Notes that a spout has trees to be tracked."""
        with self.lock:
            self._dirty[source] = None
            self._added(trees)

    def count_emitted(self, tuples: int) -> None:
        """Notes how many tuples were emitted into trees, to be counted with what is sent next."""
        with self.lock:
            self._emitted += tuples

    def post(self, part: Part) -> None:
        """Adds a submission, to go with the next flush."""
        with self.lock:
            self._parts.append(part)
            self._added(part.weight)

    def withdraw(self, part: Part) -> bool:
        """Takes a submission back; False where all of it has been answered."""
        with self.lock:
            self._settle(part)
            return not part.submission.done

    def _added(self, count: int) -> None:
        if not count:
            return
        self._weight += count
        due = time.monotonic() + (self.linger if self._weight < AT_ONCE else 0.0)
        if self._due is None or due < self._due - self.linger / 2:
            self._due = due
            self._wake.notify_all()
        if self._thread is None and not self._ending:
            self._thread = threading.Thread(target=self._run, name="acker-outbox", daemon=True)
            self._thread.start()

    def hurry(self) -> None:
        """Has what is buffered sent now, by the thread."""
        with self.lock:
            if self._due is not None:
                self._due = 0.0
                self._wake.notify_all()

    @property
    def unsent(self) -> int:
        """How many messages the store has not answered for."""
        return self._weight

    # Sending

    def flush(self) -> None:
        """Sends all that was buffered before the call, and what could not be sent earlier.

        Raises StoreUnavailable or StoreError; all that was not answered is kept for the next flush then. Who
        waits for another's flush gets its StoreUnavailable, if that one began after the call: one after the
        other they would wait ever longer. UnreadableRecord names slabs that were passed over; all else was
        sent.
        """
        asked = time.monotonic()
        with self._sending:
            began = time.monotonic()
            if self._away is not None and self._away[0] > asked:
                raise StoreUnavailable(str(self._away[1])) from self._away[1]
            try:
                with self.lock:
                    dirty = list(self._dirty)
                for source in dirty:
                    self.ledger.register_spout(source.spout)
                with self.lock:
                    self._gather(dirty)
                    parts = [part for part in self._parts if self._sendable(part)]
                self._send(parts)
                self._send_confirms()
                self._check_unreadable()
            except BaseException as error:
                with self.lock:
                    self._due = time.monotonic() + _PAUSE
                if isinstance(error, StoreUnavailable):
                    self._away = began, error
                raise

    def _gather(self, sources: Iterable[Source]) -> None:
        """Makes submissions of the buffers, the tracks first."""
        core, self._due = self.ledger.core, None
        for source in sources:
            del self._dirty[source]
            dropped, slabs, settled, wanted = source.take()
            self._weight -= dropped
            if slabs:
                trees = sum(len(slab.anchors) for slab in slabs)
                self._parts.append(Part(core.track(slabs, source.spout), trees, settled, wanted))
        if self._dirty:
            self._due = time.monotonic() + self.linger
        if self._anchors:
            anchors, deltas = np.array(self._anchors, np.int64), np.array(self._deltas, np.int64)
            self._parts.append(Part(core.update(anchors, deltas), len(anchors)))
            self._anchors, self._deltas = [], []
        for reason, failed in self._fails.items():
            self._parts.append(Part(core.fail(np.array(failed, np.int64), reason), len(failed)))
        self._fails = {}
        if self._resets:
            anchors = np.array(list(self._resets), np.int64)
            self._parts.append(Part(core.reset_timeout(anchors), len(anchors)))
            self._resets = {}

        if self._emitted:
            self._parts.append(Part(core.count_emitted(self._emitted), 0))
            self._emitted = 0

    def _sendable(self, part: Part) -> bool:
        """Drops what matters no longer, and what was sent so long ago that its writer may be forgotten.

        Sending that again could apply it twice, which undoes it. Its trees have expired by then.
        """
        if not part.wanted():
            self._settle(part)
            return False
        horizon = 0.9 * max(HORIZON, self.ledger.config.message_timeout)
        if part.sent_at is not None and time.monotonic() - part.sent_at > horizon:
            log.error(
                "acker: %d messages were not answered for %.0f s and are given up", part.weight, horizon
            )
            self._settle(part)
            return False
        return True

    def _send(self, parts: list[Part]) -> None:
        if not parts:
            return
        for part in parts:
            part.sent_at = part.sent_at or time.monotonic()
        try:
            self._exchange(parts)
        except StoreError:
            # One call was refused: it must not keep the others back.
            refused = None
            for part in parts:
                try:
                    self._exchange([part])
                except StoreError as error:
                    refused = error
            if refused is not None:
                raise refused from None

    def _exchange(self, parts: list[Part]) -> None:
        calls = [call for part in parts for call in part.submission.calls]
        try:
            self.ledger.send(Submission(calls, lambda _: None))
        finally:
            for part in parts:
                if part.submission.done and self._settle(part):
                    self._answer(part)

    def _answer(self, part: Part) -> None:
        """Tells what the store answered. Slabs that it passed over are noted, for the other parts go on."""
        try:
            part.settled(part.submission.result())
        except UnreadableRecord as error:
            self._unreadable += error.anchors

    def _check_unreadable(self) -> None:
        """Raises UnreadableRecord where slabs were passed over, once."""
        found, self._unreadable = self._unreadable, []
        if found:
            raise UnreadableRecord(unreadable(found), found)

    def _settle(self, part: Part) -> bool:
        with self.lock:
            if part not in self._parts:
                return False
            self._parts.remove(part)
            self._weight -= part.weight
            return True

    def _send_confirms(self) -> None:
        with self.lock:
            taken, self._confirms = self._confirms, {}
        try:
            for spout, entries in list(taken.items()):
                self.ledger.confirm(spout, entries)
                with self.lock:
                    self._weight -= len(entries)
                del taken[spout]
        finally:
            with self.lock:
                for spout, entries in taken.items():
                    self._confirms.setdefault(spout, []).extend(entries)

    # The thread

    def _run(self) -> None:
        away = False
        while True:
            with self.lock:
                while not self._ending and (self._due is None or self._due > time.monotonic()):
                    self._wake.wait(None if self._due is None else self._due - time.monotonic())
                ending = self._ending
            try:
                self.flush()
                away = False
            except Exception as error:  # noqa: BLE001 - the thread must outlive it; who flushes is told
                sent = isinstance(error, UnreadableRecord) and bool(error.anchors)
                if sent:
                    log.error("acker: %s", error)
                elif ending:
                    log.error("acker: %d messages are lost: %s", self._weight, error)
                elif not away:
                    log.warning("acker: %d messages wait for the store: %s", self._weight, error)
                away = not sent
            if ending:
                return

    def end(self) -> None:
        """Has the thread send what is left and end: its topology is closed, or nobody holds it any more."""
        with self.lock:
            self._ending = True
            self._wake.notify_all()


_outboxes: "weakref.WeakSet[Outbox]" = weakref.WeakSet()


def _after_fork() -> None:
    for outbox in list(_outboxes):
        outbox.after_fork()


@atexit.register
def _at_exit() -> None:
    for outbox in list(_outboxes):
        if outbox.unsent:
            try:
                outbox.flush()
            except AckerError as error:
                log.error("acker: %d messages are lost at exit: %s", outbox.unsent, error)


os.register_at_fork(after_in_child=_after_fork)
