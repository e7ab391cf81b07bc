"""What the collectors of a topology have buffered: sent together, by a short linger or a flush.

What could not be sent is kept and sent again as the very same submissions, so it takes effect once. A thread
per topology sends what has lingered; it starts with the first message and ends with the topology. Without
linger flushes alone send, and the thread what a flush could not.
"""

import logging
import threading
import time
import weakref
from collections import OrderedDict
from collections.abc import Iterable
from typing import Any

from acker.collectors import process_end
from acker.collectors.alarm import Alarm
from acker.collectors.buffer import Buffer, Sending, sendings
from acker.collectors.tuples import Tuple
from acker.errors import AckerError, BufferFull, StoreError, StoreUnavailable, UnreadableRecord
from acker.ledger.calls import idempotence, traces
from acker.ledger.calls.calls import unreadable
from acker.ledger.calls.traces import Event
from acker.ledger.client import Ledger
from acker.ledger.outcomes.outcomes import OutcomeReader, Receipt, confirm
from acker.ledger.steps.registration import AtWork
from acker.store.operation import Operation, abreast

BUFFERED = 65_536
"""Most messages that wait to be sent. Who adds more sends them first, and gets the error if that fails.
Without linger that is refused: BufferFull."""
AT_ONCE = 8_192
"""So many messages do not linger any longer."""
TAKEN = 100_000
"""Tuples that came as text and were acked last: a topology's collectors know so many, and take none twice."""
_PAUSE = 0.25
"""Seconds between two attempts to reach a store that is away."""

log = logging.getLogger("acker")


class Outbox:
    """Buffers of one topology.

    All that collectors know in memory is guarded by `lock`, reentrant and never held while something is sent;
    `changed` is its condition. A KeyboardInterrupt, an error of a signal handler or a MemoryError may come
    between any two lines: what belongs together changes in one statement that calls nothing, when all that it
    needs is made. The lock itself is taken, as its condition would not be, in one step of the interpreter.
    """

    def __init__(self, ledger: Ledger, linger: float | None) -> None:
        self.ledger = ledger
        self.linger = linger
        self._spouts: weakref.WeakSet[Any] = weakref.WeakSet()
        self._at_work = AtWork.here()
        self._start()
        process_end.add(self)

    def _start(self) -> None:
        self.lock = threading.RLock()
        self.changed = threading.Condition(self.lock)
        self._alarm = Alarm(self.lock, self.linger or 0.0)
        self._sending = threading.RLock()  # reentrant only so that it knows its owner
        self._away: tuple[float, StoreUnavailable] | None = None
        self.closed = False
        self._thread: threading.Thread | None = None
        self.buffer = Buffer()
        self._flushed: list[Buffer] = []
        self._confirms: dict[tuple[OutcomeReader, Receipt], None] = {}
        self._parts: list[Sending] = []
        self._unreadable: list[int] = []
        self._events: list[Event] = []
        self._weight = 0
        self._ending = False
        self._taken: OrderedDict[tuple[int, int], None] = OrderedDict()
        self.repeated = 0

    def after_fork(self) -> None:
        """Makes the outbox of a forked child empty: what its parent has buffered, its parent sends."""
        self._start()
        for spout in list(self._spouts):
            spout.forget()

    def adopt(self, spout: process_end.Forgetful) -> None:
        """Has a spout forget when this process forks, without keeping it alive."""
        self._spouts.add(spout)

    def check_whole(self, sends: bool = False) -> None:
        """Raises AckerError where the caller's thread is in the middle of another call, or `sends`.

        A signal handler came then: what it finds is half changed, and what it waits for may wait for it.
        """
        if sends or self.lock._is_owned():  # type: ignore[attr-defined]
            raise AckerError(
                "a signal handler has called the topology while its thread is in another call of it: let the "
                "handler note that, and make its call when the other has returned"
            )

    def make_room(self) -> None:
        """Before adding, without the lock: sends if the buffer is full. Raises AckerError after `close`."""
        self.check_whole()
        if self.closed:
            raise AckerError(f"topology {self.ledger.config.name!r} is closed")
        if self._weight < BUFFERED:
            return
        if self.linger is None:
            raise BufferFull(f"{self._weight:,} messages wait for topology.flush(), which alone sends them")
        self.flush()

    def ack(self, tuple: Tuple, step: str) -> None:  # noqa: A002 - this project's word
        """Buffers the ack of a tuple that is open by a step; it is closed by that.

        Of one that came as text, and was acked before as another object, the children alone are registered.
        """
        with self.lock:
            own, trees, deltas = tuple.first_edge, len(tuple.anchors), tuple.deltas()
            if own in self._taken:
                trees, deltas = 0, tuple.children
                self.repeated += 1
            elif own is not None and not tuple.travelled:
                own = None
            self.adding(len(deltas))
            buffer, number = self.buffer, len(self.buffer.acks)
            if own is None:
                buffer.acks[number], tuple.ended = (step, trees, deltas), "acked"
                return
            buffer.acks[number], tuple.ended, self._taken[own] = (step, trees, deltas), "acked", None
            while len(self._taken) > TAKEN:
                self._taken.popitem(last=False)

    def fail(self, tuple: Tuple, step: str, cause: bytes) -> None:  # noqa: A002 - as above
        """Buffers the fail of a tuple that is open by a step; it is closed by that."""
        with self.lock:
            self.adding(len(tuple.anchors))
            buffer, number, failed = self.buffer, len(self.buffer.fails), (step, cause, tuple.anchors)
            buffer.fails[number], tuple.ended = failed, "failed"

    def reset_timeout(self, anchors: Iterable[int], step: str) -> None:
        """Buffers resets of the timeout by a step."""
        with self.lock:
            named = dict.fromkeys((anchor, step) for anchor in anchors)
            self.adding(len(named))
            self.buffer.resets.update(named)

    def confirm(self, reader: OutcomeReader, entry: Receipt) -> None:
        """Buffers the confirmation of an entry of a spout's outcomes; its reader learns when it is done."""
        with self.lock:
            self.adding(1)
            self._confirms[reader, entry] = None

    def count_emitted(self, tuples: int) -> None:
        """Notes how many tuples were emitted into trees: the next tracks or acks that are sent say so."""
        with self.lock:
            self.buffer.emitted += tuples

    def post(self, part: Sending) -> None:
        """Adds a submission, to go with the next flush."""
        with self.lock:
            self.adding(part.weight)
            self.buffer.posted.append(part)

    def withdraw(self, part: Sending) -> bool:
        """Takes a submission back; False where all of it has been answered."""
        with self.lock:
            self._remove(part)
            return not part.submission.done

    def adding(self, count: int) -> None:
        """Has the thread send, within the linger, so many messages that the caller adds next; with the lock.

        Where nothing is added after all, a flush finds nothing, and counts anew.
        """
        self._weight += count
        if not count or self.linger is None:
            return
        due = time.monotonic() + (self.linger if self._weight < AT_ONCE else 0.0)
        if self._alarm.due is None or due < self._alarm.due - self.linger / 2:
            self._send_at(due)

    def _send_at(self, due: float) -> None:
        """Has the thread send at a time, which it starts unless it is there; with the lock."""
        self._alarm.set(due)
        if self._thread is None and not self._ending:
            thread = threading.Thread(target=self._run, name="acker-outbox", daemon=True)
            thread.start()
            self._thread = thread
            process_end.see_to_the_end()

    def hurry(self) -> None:
        """Has what is buffered sent now, by the thread."""
        with self.lock:
            if self._alarm.due is not None and self.linger is not None:
                self._send_at(0.0)

    @property
    def unsent(self) -> int:
        """How many messages the store has not answered for."""
        with self.lock:
            return self._count(self.buffer, *self._flushed)

    def _count(self, *buffers: Buffer) -> int:
        """How many messages are in buffers, in submissions and in confirmations; with the lock."""
        weight = sum(part.weight for part in self._parts) + len(self._confirms)
        return weight + sum(one.messages for one in buffers)

    def flush(self) -> None:
        """Sends what was buffered before the call, and what could not be sent earlier.

        Raises StoreUnavailable or StoreError; all that was not answered is kept for the next flush then. Who
        waits for another's flush gets its StoreUnavailable, if that one began after the call: one after the
        other they would wait ever longer. UnreadableRecord names slabs that were passed over; all else was
        sent. AckerError where this thread is at work on the buffer: a signal handler calls it then.
        """
        self._flush()

    def finish(self) -> None:
        """Sends what is left; without linger only what a flush could not send. Raises what `flush` does."""
        if self.linger is not None:
            self.flush()
            return
        if self._parts or self._flushed:
            self._flush(new=False)
        with self.lock:
            left, self.buffer, self._confirms = self.buffer.messages, Buffer(), {}
            self._weight = self._count()
        if left:
            log.warning("acker: %d messages that were not flushed are dropped: their trees expire", left)

    def _flush(self, *, new: bool = True) -> None:
        """Sends; new: also what no flush was called for yet."""
        self.check_whole(self._sending._is_owned())  # type: ignore[attr-defined]
        asked = time.monotonic()
        with self._sending:
            began = time.monotonic()
            if self._away is not None and self._away[0] > asked:
                raise StoreUnavailable(str(self._away[1])) from self._away[1]
            try:
                with self.lock:
                    if new:
                        self._take_buffer()
                    spouts = {source.spout for one in self._flushed for source, _ in one.tracks.values()}
                    steps = {step for one in self._flushed for step in one.steps(self.ledger.core)}
                for spout in spouts - self.ledger.core.spouts:
                    self.ledger.register_spout(spout)
                if steps:
                    self.ledger.run(self._at_work.note(self.ledger.core, steps))
                with self.lock:
                    self._gather()
                    parts = [part for part in self._parts if self._sendable(part)]
                refused = self._send(parts, new and bool(self._confirms))
                with self.lock:
                    events, self._events = self._events, []
                if events:
                    self.ledger.run(traces.note(self.ledger.core, events))
                if new and self._confirms:
                    self.ledger.run(self._confirming())
                if refused is not None:
                    raise refused
                found, self._unreadable = self._unreadable, []
                if found:
                    raise UnreadableRecord(unreadable(found), found)
            except BaseException as error:
                with self.lock:
                    self._send_at(time.monotonic() + _PAUSE)
                if isinstance(error, StoreUnavailable):
                    self._away = began, error
                raise

    def _take_buffer(self) -> None:
        """Puts what is buffered among what is sent, now or when the store is back; with the lock."""
        flushed, fresh = self._flushed, self.buffer
        if fresh.messages:
            flushed, fresh = [*flushed, fresh], Buffer()
        self._flushed, self.buffer, self._alarm.due = flushed, fresh, None

    def _gather(self) -> None:
        """Makes submissions of what a flush was called for; with the lock."""
        parts, emitted = self._parts, self.buffer.emitted
        for one in self._flushed:
            made, left = sendings(self.ledger.core, one, self._at_work.mark)
            parts, emitted = [*parts, *made], emitted + left
        weight = self.buffer.messages + sum(part.weight for part in parts) + len(self._confirms)
        self._parts, self._flushed, self._weight, self.buffer.emitted = parts, [], weight, emitted

    def _sendable(self, part: Sending) -> bool:
        """Drops what matters no longer, and what was sent so long ago that its writer may be forgotten.

        Sending that again could apply it twice, which undoes it. Its trees have expired by then.
        """
        if not part.wanted():
            self._remove(part)
            return False
        if part.sent_at is not None and idempotence.expired(self.ledger.core, part.sent_at):
            waited = time.monotonic() - part.sent_at
            log.error("acker: %d messages were not answered for %.0f s and are given up", part.weight, waited)
            self._remove(part)
            return False
        return True

    def _send(self, parts: list[Sending], confirms: bool) -> StoreError | None:
        """Sends parts; returns why the store refuses one, which must not keep the others back.

        confirms: sends along what is to be confirmed. What is refused then is still to be sent.
        """
        if not parts:
            return None
        for part in parts:
            part.sent_at = part.sent_at or time.monotonic()
        try:
            self._exchange(parts, *([self._confirming()] if confirms else ()))
        except StoreError:
            refused = None
            for part in parts:
                try:
                    self._exchange([part])
                except StoreError as error:
                    refused = error
            return refused
        return None

    def _exchange(self, parts: list[Sending], *others: Operation[None]) -> None:
        calls = [call for part in parts for call in part.submission.calls]
        try:
            self.ledger.run(abreast([*others, idempotence.submit(self.ledger.core, calls)]))
        finally:
            for part in parts:
                if part.submission.done:
                    self._answered(part)

    def _answered(self, part: Sending) -> None:
        """Settles a part after its answer was taken, which can be done again.

        Slabs that the store passed over are noted, for the other parts go on.
        """
        with self.lock:
            if part not in self._parts:
                return
            try:
                part.answered(part.submission.result())
                self._events += part.events
            except UnreadableRecord as error:
                self._unreadable += error.anchors
                if not error.anchors:
                    log.error("acker: %d messages are given up: %s", part.weight, error)
            self._remove(part)

    def _remove(self, part: Sending) -> None:
        with self.lock:
            if part in self._parts:
                left = [other for other in self._parts if other is not part]
                self._parts, self._weight = left, self._weight - part.weight
            for buffer in (self.buffer, *self._flushed):
                if part in buffer.posted:
                    left = [other for other in buffer.posted if other is not part]
                    buffer.posted, self._weight = left, self._weight - part.weight

    def _confirming(self) -> Operation[None]:
        """Confirms entries; their readers learn when it is done."""
        with self.lock:
            entries: dict[OutcomeReader, list[Receipt]] = {}
            for reader, entry in self._confirms:
                entries.setdefault(reader, []).append(entry)
        for reader, own in entries.items():
            yield from confirm(self.ledger.core, reader.spout, own)
            with self.lock:
                reader.confirmed(own)
                done = {(reader, entry) for entry in own}
                left = {key: None for key in self._confirms if key not in done}
                self._confirms, self._weight = left, self._weight - len(done)

    def _run(self) -> None:
        away = False
        while True:
            ending = False
            try:
                with self.lock:
                    while not self._ending and not self._alarm.rings:
                        self._alarm.wait()
                    ending = self._ending
                    if self.linger is None:
                        self._alarm.due = None
                self._flush(new=self.linger is not None)
                away = False
            except Exception as error:  # noqa: BLE001 - the thread must outlive it; a flush raises it
                sent = isinstance(error, UnreadableRecord) and bool(error.anchors)
                if sent:
                    log.error("acker: %s", error)
                elif ending:
                    log.error("acker: %d messages are lost: %s", self.unsent, error)
                elif not away:
                    log.warning("acker: %d messages wait for the store: %s", self.unsent, error)
                away = not sent
            if ending:
                return

    def end(self) -> None:
        """Has the thread send what is left and end: its topology is closed, or nobody holds it any more."""
        with self.lock:
            self._ending = True
            self._alarm.wake()
