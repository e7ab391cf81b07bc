"""The outbox: buffered messages of a topology's collectors, sent together after a short linger or by a flush.

Unsent submissions are kept and sent again unchanged, so they take effect once. A thread per topology sends
messages after their linger; it starts with the first message and ends with the topology. Without linger only
flushes send, and the thread resends after a failed flush.
"""

import logging
import threading
import time
import weakref
from collections.abc import Iterable
from typing import Any

from acker.collectors import process_end
from acker.collectors.buffer import AT_ONCE, BUFFERED, Buffer, OutgoingCall, outgoing_calls
from acker.collectors.sending.alarm import Alarm
from acker.collectors.sending.holding import Holding
from acker.collectors.tuples import Taken, Tuple, is_ending
from acker.errors import AckerError, BufferFull, StoreError, StoreUnavailable, UnreadableRecord
from acker.ledger.calls import idempotence, traces
from acker.ledger.calls.calls import unreadable
from acker.ledger.calls.traces import Event
from acker.ledger.client import Ledger
from acker.ledger.ids import Ids
from acker.ledger.outcomes.outcomes import Confirmation, OutcomeReader, confirm
from acker.ledger.steps.registration import AtWork
from acker.store.operation import Operation, abreast

_PAUSE = 0.25
"""Seconds between two attempts to reach a store that is away."""

log = logging.getLogger("acker")


class Outbox:
    """Buffers of one topology.

    `lock` guards the collectors' state in memory. It is reentrant, and never held during a send; `changed` is
    its condition. A KeyboardInterrupt, an error of a signal handler or a MemoryError may come between any two
    lines. So values that belong together change in one statement that calls nothing, after all of them were
    computed. The interpreter takes the lock itself, unlike its condition, in one step.
    """

    def __init__(self, ledger: Ledger, linger: float | None) -> None:
        self.ledger = ledger
        self.linger = linger
        self._spouts: weakref.WeakSet[Any] = weakref.WeakSet()
        self._at_work = AtWork.in_this_process()
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
        self._confirms: dict[tuple[OutcomeReader, Confirmation], None] = {}
        self._parts: list[OutgoingCall] = []
        self._unreadable: list[int] = []
        self._events: list[Event] = []
        self._weight = 0
        self._ending = False
        self.taken = Taken()
        self.holding = Holding(self)
        self.repeated = 0

    def after_fork(self) -> None:
        """Empties the outbox in a forked child: the parent sends the parent's messages."""
        self._start()
        for spout in list(self._spouts):
            spout.forget()

    def register_fork(self, spout: process_end.ForkAware) -> None:
        """Registers a spout, whose `forget` is called in forked children, without keeping it alive."""
        self._spouts.add(spout)

    def check_whole(self, sends: bool = False) -> None:
        """Raises AckerError if the caller's thread is in the middle of another call, or `sends`.

        The caller is a signal handler then: the state may be half changed, and waiting may deadlock.
        """
        if sends or self.lock._is_owned() or is_ending():  # type: ignore[attr-defined]
            raise AckerError(
                "a signal handler has called a topology inside another call of the same thread: only set a "
                "flag in the handler, and call the topology after the interrupted call has returned"
            )

    def make_room(self) -> None:
        """Sends if the buffer is full: before an add, without the lock. Raises AckerError after `close`."""
        self.check_whole()
        if self.closed:
            raise AckerError(f"topology {self.ledger.config.name!r} is closed")
        if self._weight < BUFFERED:
            return
        if self.linger is None:
            raise BufferFull(f"{self._weight:,} messages wait for topology.flush(), which alone sends them")
        self.flush()

    def ack(self, tuple: Tuple, step: str) -> None:  # noqa: A002 - this project's word
        """Buffers a step's ack of an open tuple, and closes the tuple.

        If the tuple came as text and was acked before as another object, only its children are registered.
        """
        with self.lock:
            self.holding.drop(tuple)
            edge, trees, deltas = tuple.first_edge, len(tuple.anchors), tuple.deltas()
            if edge in self.taken:
                trees, deltas = 0, tuple.children
                self.repeated += 1
                edge = None
            elif edge is not None and not tuple.travelled:
                edge = None
            self.adding(len(deltas))
            buffer, number = self.buffer, len(self.buffer.acks)
            if edge is None:
                buffer.acks[number], tuple.ended = (step, trees, deltas), "acked"
                return
            # All at once: an interrupt comes before or after.
            buffer.acks[number], tuple.ended, self.taken.acked[edge] = (step, trees, deltas), "acked", None
            self.taken.note(())

    def ack_vector(self, step: str, anchors: Ids, deltas: Ids) -> None:
        """Buffers a step's acks of tuples with one tree each, which their caller has closed."""
        with self.lock:
            self.adding(len(anchors))
            self.buffer.vectors[len(self.buffer.vectors)] = step, anchors, deltas

    def fail(self, tuple: Tuple, step: str, cause: bytes) -> None:  # noqa: A002 - as above
        """Buffers a step's fail of an open tuple, and closes the tuple."""
        with self.lock:
            self.holding.drop(tuple)
            self.adding(len(tuple.anchors))
            buffer, number, failed = self.buffer, len(self.buffer.fails), (step, cause, tuple.anchors)
            buffer.fails[number], tuple.ended = failed, "failed"

    def reset_timeout(self, anchors: Iterable[int], step: str) -> None:
        """Buffers a step's resets of the timeout."""
        with self.lock:
            named = dict.fromkeys((anchor, step) for anchor in anchors)
            self.adding(len(named))
            self.buffer.resets.update(named)

    def confirm(self, reader: OutcomeReader, entry: Confirmation) -> None:
        """Buffers the confirmation of an entry of a spout's outcomes; its reader is notified of the end."""
        with self.lock:
            self.adding(1)
            self._confirms[reader, entry] = None

    def count_emitted(self, tuples: int) -> None:
        """Adds to the number of tuples emitted into trees, which goes with the next tracks or acks."""
        with self.lock:
            self.buffer.emitted += tuples

    def post(self, part: OutgoingCall) -> None:
        """Adds a submission to the next flush."""
        with self.lock:
            self.adding(part.weight)
            self.buffer.posted.append(part)

    def cancel(self, part: OutgoingCall) -> bool:
        """Takes a submission back; returns False if all of it was answered."""
        with self.lock:
            self._remove(part)
            return not part.submission.done

    def adding(self, count: int) -> None:
        """Makes the thread send, within the linger, so many messages that the caller adds; with the lock.

        If the caller adds nothing after all, a flush finds nothing, and counts anew.
        """
        self._weight += count
        if not count or self.linger is None:
            return
        due = time.monotonic() + (self.linger if self._weight < AT_ONCE else 0.0)
        if self._alarm.due is None or due < self._alarm.due - self.linger / 2:
            self._send_at(due)

    def _send_at(self, due: float) -> None:
        """Makes the thread send at a time, and starts it unless it runs; with the lock."""
        if self._thread is None and not self._ending:
            thread = threading.Thread(target=self._run, name="acker-outbox", daemon=True)
            thread.start()
            self._thread = thread
            process_end.see_to_the_end()
        self._alarm.set(due)

    def wake_at(self, due: float) -> None:
        """Makes the thread look for messages and reports at a time, or before; with the lock."""
        if self._alarm.due is None or due < self._alarm.due:
            self._send_at(due)

    def send_now(self) -> None:
        """Makes the thread send the buffer now."""
        with self.lock:
            if self._alarm.due is not None and self.linger is not None:
                self._send_at(0.0)

    @property
    def unsent(self) -> int:
        """Number of messages that the store has not answered."""
        with self.lock:
            return self._count(self.buffer, *self._flushed)

    def _count(self, *buffers: Buffer) -> int:
        """Number of messages in buffers, in submissions and in confirmations; with the lock."""
        weight = sum(part.weight for part in self._parts) + len(self._confirms)
        return weight + sum(one.messages for one in buffers)

    def flush(self) -> None:
        """Sends the messages that were buffered before the call, and earlier unsent messages.

        Raises the errors of `Session.flush`. A thread that waits for another thread's flush shares that
        flush's StoreUnavailable, if that flush began after the call: otherwise it would wait longer than that
        thread.
        """
        self._flush()

    def finish(self) -> None:
        """Sends the rest; without linger only the rest of a failed flush. Raises the errors of `flush`."""
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
        """Sends; `new`: including messages since the last flush."""
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
                    parts = [part for part in self._parts if part.sendable(self.ledger.core)]
                    for part in [part for part in self._parts if part not in parts]:
                        self._remove(part)
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
        """Moves the buffer to the flushed messages, sent now or when the store is back; with the lock."""
        flushed, fresh = self._flushed, self.buffer
        if fresh.messages:
            flushed, fresh = [*flushed, fresh], Buffer()
        self._flushed, self.buffer, self._alarm.due = flushed, fresh, None
        self.holding.wake()

    def _gather(self) -> None:
        """Makes submissions of the flushed messages; with the lock."""
        parts, emitted = self._parts, self.buffer.emitted
        for one in self._flushed:
            made, left = outgoing_calls(self.ledger.core, one, self._at_work.mark)
            parts, emitted = [*parts, *made], emitted + left
        weight = self.buffer.messages + sum(part.weight for part in parts) + len(self._confirms)
        self._parts, self._flushed, self._weight, self.buffer.emitted = parts, [], weight, emitted

    def _send(self, parts: list[OutgoingCall], confirms: bool) -> StoreError | None:
        """Sends parts; returns the store's refusal of one, which must not keep the others back.

        confirms: True to send the confirmations along. Refused ones are still to be sent.
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

    def _exchange(self, parts: list[OutgoingCall], *others: Operation[None]) -> None:
        calls = [call for part in parts for call in part.submission.calls]
        try:
            self.ledger.run(abreast([*others, idempotence.submit(self.ledger.core, calls)]))
        finally:
            for part in parts:
                if part.submission.done:
                    self._answered(part)

    def _answered(self, part: OutgoingCall) -> None:
        """Settles a part with its answer; a second call changes nothing.

        Slabs that the store passed over are noted, because the other parts go on.
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

    def _remove(self, part: OutgoingCall) -> None:
        with self.lock:
            if part in self._parts:
                left = [other for other in self._parts if other is not part]
                self._parts, self._weight = left, self._weight - part.weight
            for buffer in (self.buffer, *self._flushed):
                if part in buffer.posted:
                    left = [other for other in buffer.posted if other is not part]
                    buffer.posted, self._weight = left, self._weight - part.weight

    def _confirming(self) -> Operation[None]:
        """Confirms entries, and then notifies their readers."""
        with self.lock:
            entries: dict[OutcomeReader, list[Confirmation]] = {}
            for reader, entry in self._confirms:
                entries.setdefault(reader, []).append(entry)
        for reader, confirmations in entries.items():
            yield from confirm(self.ledger.core, reader.spout, confirmations)
            with self.lock:
                reader.confirmed(confirmations)
                done = {(reader, entry) for entry in confirmations}
                left = {key: None for key in self._confirms if key not in done}
                self._confirms, self._weight = left, self._weight - len(done)

    def _wait_to_send(self) -> bool:
        """Waits until the thread has to send, or to end: then it returns True."""
        with self.lock:
            while not self._ending and not self._alarm.rings:
                self._alarm.wait()
            self._alarm.due = None if self.linger is None else self._alarm.due
            return self._ending

    def _run(self) -> None:
        away = False
        while True:
            ending = False
            try:
                ending = self._wait_to_send()
                self._flush(new=self.linger is not None)
                self.holding.report(ending=ending)
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
        """Makes the thread send the rest and end: its topology is closed, or no object holds it any more."""
        with self.lock:
            self._ending = True
            self._alarm.wake()
