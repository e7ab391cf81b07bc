"""Observing: acker records trees, outcomes and metrics, and a program never waits for it or fails by it.

All requests are sent by the topology's thread. While the store is away, up to 65,536 messages are kept and
the rest is dropped and counted, so trees expire or are missing in the record. Errors are logged, each kind
once a minute.

Terms: a tree is all that comes of one record.
"""

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Unpack

from acker.collectors.buffer import BUFFERED, Buffer, OutgoingCall
from acker.collectors.outbox import Outbox
from acker.collectors.pending import Pending, Slab
from acker.collectors.tuples import Tuple
from acker.errors import AckerError, class_name
from acker.ledger.calls import core as operations
from acker.ledger.calls.calls import Ticked
from acker.ledger.calls.core import Core
from acker.ledger.client import Ledger
from acker.ledger.ids import Ids
from acker.ledger.settings.config import Settings, TopologyConfig, check_settings
from acker.store.client import Store

QUIET = 60.0
"""Seconds for which a kind of error is not logged again."""
PATIENCE = 1.0
"""Most seconds that the end of a topology, or of the process, waits until messages are sent."""
_KINDS = 32
_log = logging.getLogger("acker")


class ObservedLedger(Ledger):
    """A ledger that is opened by the first use of its core: until then its configuration is provisional."""

    def __init__(self, store: Store, name: str, **settings: Unpack[Settings]) -> None:
        given: dict[str, Any] = check_settings(settings)
        self.store, self.asked = store, settings
        self._core: Core | None = None
        self._provisional = TopologyConfig(name, **given)

    @property
    def core(self) -> Core:
        """The core of the topology, as stored. Raises the errors of `open_ledger` where it is not open."""
        if self._core is None:
            self._core = self.store.run(operations.open_topology(self._provisional.name, self.asked, True))
        return self._core

    @core.setter
    def core(self, opened: Core) -> None:
        self._core = opened

    @property
    def config(self) -> TopologyConfig:
        """The stored configuration; the given one until the topology is open."""
        return self._provisional if self._core is None else self._core.config


class ObservingOutbox(Outbox):
    """An outbox whose own thread alone sends the messages. What it has no room for is dropped and counted.

    dropped: number of messages that were dropped, or whose trees the store rejected.
    """

    def _start(self) -> None:
        super()._start()
        self.dropped = 0
        self._failing = False
        self._said: dict[str, float] = {}

    def complain(self, kind: str, message: str, *args: object) -> None:
        """Logs an error, unless one of its kind was logged within the last minute."""
        now = time.monotonic()
        with self.lock:
            if now - self._said.get(kind, -QUIET) < QUIET:
                return
            if len(self._said) >= _KINDS:
                self._said.clear()
            self._said[kind] = now
        _log.warning("acker observes topology %r: " + message, self.ledger.config.name, *args)

    @property
    def tracks(self) -> bool:
        """False if the topology is known to track nothing (`ackers` 0)."""
        return self.ledger.config.ackers > 0

    def has_room(self, count: int) -> bool:
        """Returns False, and counts messages as dropped, if there is no room for them; with the lock."""
        if self._weight + count <= BUFFERED:
            return True
        self.drop(count, "the buffer is full")
        return False

    def drop(self, count: int, cause: str) -> None:
        """Counts messages as dropped."""
        with self.lock:
            self.dropped += count
            total = self.dropped
        self.complain(cause, "%d messages are dropped in all: %s", total, cause)

    def make_room(self) -> None:
        """Raises AckerError after `close`. It never sends."""
        self.check_whole()
        if self.closed:
            raise AckerError(f"topology {self.ledger.config.name!r} is closed")

    def ack(self, tuple: Tuple, step: str) -> None:  # noqa: A002 - as the outbox has it
        """Buffers an ack, or drops it."""
        if self.has_room(len(tuple.anchors)):
            super().ack(tuple, step)
        tuple.ended = "acked"

    def ack_vector(self, step: str, anchors: Ids, deltas: Ids) -> None:
        """Buffers acks, or drops them."""
        with self.lock:
            if self.has_room(len(anchors)):
                super().ack_vector(step, anchors, deltas)

    def fail(self, tuple: Tuple, step: str, cause: bytes) -> None:  # noqa: A002 - as above
        """Buffers a fail, or drops it."""
        if self.has_room(len(tuple.anchors)):
            super().fail(tuple, step, cause)
        tuple.ended = "failed"

    def reset_timeout(self, anchors: Iterable[int], step: str) -> None:
        """Buffers resets of the timeout, or drops them."""
        named = list(anchors)
        with self.lock:
            if self.has_room(len(named)):
                super().reset_timeout(named, step)

    def post(self, part: OutgoingCall) -> None:
        """Adds a submission, or drops it."""
        with self.lock:
            if self.has_room(part.weight):
                super().post(part)

    def flush(self) -> None:
        """Has the thread send what is buffered, and does not wait for it."""
        self.check_whole()
        with self.lock:
            self._take_buffer()
            if self._flushed or self._parts:
                self._send_at(0.0)

    def finish(self) -> None:
        """Has the thread send the rest, for a second at most, and drops what is left then."""
        with self.lock:
            if self.linger is not None:
                self._take_buffer()
            if self._flushed or self._parts:
                self._send_at(0.0)
            deadline = time.monotonic() + PATIENCE
            while self._flushed or self._parts:
                left = deadline - time.monotonic()
                if left <= 0 or self._failing or not self.changed.wait(left):
                    break
            count = self._count(self.buffer, *self._flushed)
            self.buffer, self._flushed, self._parts, self._confirms, self._weight = Buffer(), [], [], {}, 0
        if count:
            self.drop(count, "the topology was closed before they were sent")

    def tick(self, tick: Callable[[], Ticked]) -> Ticked:
        """Ticks the topology; an error is logged, and counts nothing."""
        try:
            return tick()
        except AckerError as error:
            self.complain(class_name(error), "it is not ticked: %s", error)
            return Ticked()

    def _flush(self, *, new: bool = True) -> None:
        try:
            super()._flush(new=new)
            self._failing = False
        except Exception:
            self._failing = True
            raise
        finally:
            with self.lock:
                self.changed.notify_all()

    def _run(self) -> None:
        ending = False
        while not ending:
            try:
                ending = self._wait_to_send()
                if self._flushed or self._parts or self.linger is not None:
                    self._flush(new=self.linger is not None)
                self.holding.report(ending=ending)
            except Exception as error:  # noqa: BLE001 - the thread must outlive it
                self.complain(class_name(error), "%d messages wait: %s", self.unsent, error)


class Recorder(Pending):
    """The trees of an observing spout. It keeps none: nobody waits for their outcomes."""

    def __init__(self, outbox: ObservingOutbox, spout: str) -> None:
        super().__init__(outbox, spout)
        self._observer = outbox

    def add(self, message_id: bytes, value: int) -> None:
        """Adds the tree of `next_anchor` to what is sent next."""
        super().add(message_id, value)
        self.slabs.clear()
        self._timers.clear()
        self.count = 0

    def tracked(self, slabs: Sequence[Slab], letters: Sequence[str]) -> None:
        """Counts the trees that the ledger has not tracked."""
        rejected = sum(slab.left for slab, letter in zip(slabs, letters, strict=True) if letter not in "AD")
        if rejected:
            self._observer.drop(rejected, "the store has no room for their trees")
