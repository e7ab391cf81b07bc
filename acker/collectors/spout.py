"""Spouts: the sources of records. They emit the first tuples of trees and learn each tree's outcome."""

import time
from collections.abc import Iterator, Sequence

import numpy as np

from acker.collectors import buffer
from acker.collectors.inbox import WAIT, Inbox
from acker.collectors.outbox import log
from acker.collectors.outcome import Outcome
from acker.collectors.pending import MOST_READY, Slab
from acker.collectors.reports import Reports
from acker.collectors.session import Session
from acker.collectors.tuples import Tuple, check_targets
from acker.errors import AckerError, SpoutPendingFull, UnreadableRecord, ValidationError
from acker.ledger import ids
from acker.ledger.ids import Ids, IdsLike, as_ids
from acker.ledger.settings import config
from acker.ledger.settings.settings import check_number
from acker.ledger.slabs.slabs import NewSlab


class Spout:
    """A source of records (Storm's ISpout and SpoutOutputCollector), for any thread.

    Made by `Topology.spout`. A spout gets all outcomes of its name, so one spout of a name is in use at a
    time: the next one gets again what this one got and has not confirmed.
    """

    def __init__(self, topology: Session, name: str, max_spout_pending: int | None = None) -> None:
        self.topology = topology
        self.name = config.check_name(name, "spout")
        if max_spout_pending is not None:
            check_number(max_spout_pending, "max_spout_pending", 1, 10**9, int)
        self.max_spout_pending = max_spout_pending
        self._config = topology.config
        self._outbox = topology.outbox
        self._inbox = Inbox(topology, name)
        self._pending = self._inbox.pending
        self._outbox.adopt(self)

    def forget(self) -> None:
        """Drops all that it has in memory: in a forked child all of it is the parent's."""
        self._inbox.forget()

    def __repr__(self) -> str:
        return f"Spout({self.name!r} of {self.topology.name!r})"

    def __reduce__(self) -> tuple[type, tuple[Session, str, int | None]]:
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
        the topology's linger, and its outcome reported; without targets it is acked at once. Without message
        id the tuples are untracked. Over `max_spout_pending` it waits until an outcome has come, reading
        outcomes itself if nobody else does, for `timeout` seconds (None: 2 x message timeout). So it does
        while 100,000 outcomes are not taken.

        Raises ValidationError; SpoutPendingFull over `max_spout_pending` where `wait` is False, the timeout
        is over, or all of these trees wait for `Topology.flush`; StoreUnavailable or StoreError where the
        buffer is full and cannot be sent, and BufferFull where it is full and `linger` is None. Nothing is
        emitted then.
        """
        check_targets(targets)
        owner = self.topology.owner
        if message_id is None:
            return [Tuple.of(owner, {}) for _ in range(targets)]
        encoded = config.check_message_id(message_id)
        for _ in self._room(1, wait, timeout):
            with self._outbox.lock:
                if not self._pending.has_room(1, self.max_spout_pending):
                    continue
                if not self._config.ackers:
                    self._pending.report_further([Outcome(encoded, 0, "acked", "", None)])
                    return [Tuple.of(owner, {}) for _ in range(targets)]
                anchor, value, tuples = self._pending.next_anchor(), 0, []
                for _ in range(targets):
                    own = ids.new_id()
                    value ^= own
                    tuples.append(Tuple.of(owner, {anchor: own}))
                self._pending.add(encoded, value)
                self._outbox.count_emitted(targets)
                return tuples
        raise AssertionError("there is room, or an error")

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
        anchors are 0. With the topology's linger None they are tracked by its next flush. Waits and raises
        as `emit` does; after StoreUnavailable no outcome of these is reported.
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
        if not self._config.ackers:
            for _ in self._room(count, wait, timeout):
                with self._outbox.lock:
                    if self._pending.has_room(count, self.max_spout_pending):
                        self._pending.report_further(
                            Outcome(message_id, 0, "acked", "", None) for message_id in encoded
                        )
                        break
            return np.zeros(count, np.int64), own
        slabs: list[Slab] = []
        new: list[NewSlab] = []
        part = None
        try:
            for _ in self._room(count, wait, timeout):
                with self._outbox.lock:
                    if self._pending.has_room(count, self.max_spout_pending):
                        slabs = self._pending.new_slabs(encoded, own)
                        self._pending.add_slabs(slabs)
                        break
            self.register()
            new = [slab.new() for slab in slabs]
            part = buffer.track(self.topology.ledger.core, self._pending, slabs, count)
            self._outbox.post(part)
            if self._outbox.linger is not None:
                self._outbox.flush()
        except BaseException as error:
            if part is None or self._outbox.withdraw(part):
                with self._outbox.lock:
                    for slab in slabs:
                        self._pending.give_up(slab)
                raise
            if not isinstance(error, AckerError):
                raise
            if isinstance(error, UnreadableRecord):  # of other messages; these were tracked
                log.error("acker: %s", error)
        return np.concatenate([slab.anchors for slab in new]), own

    def _room(self, count: int, wait: bool, timeout: float | None) -> Iterator[None]:
        """Comes whenever there may be room for so many trees; sends first where the buffer is full."""
        limit = self.max_spout_pending
        if limit is not None and count > limit:
            raise ValidationError(f"expected at most max_spout_pending = {limit:,} at a time, got {count:,}")
        self._outbox.make_room()
        if timeout is None:
            timeout = 2 * self._config.message_timeout
        deadline = time.monotonic() + timeout
        while True:
            yield
            full, pending = self._pending.ready >= MOST_READY, self._pending.count
            left = deadline - time.monotonic()
            unsent = self._unflushed()
            if not wait or left <= 0 or (unsent and unsent >= pending and not full):
                said = f", {unsent:,} of them wait for topology.flush()" if unsent else ""
                raise SpoutPendingFull(
                    f"spout {self.name!r}: {self._pending.ready:,} outcomes are not taken"
                    if full
                    else f"spout {self.name!r} has {pending:,} trees pending, max_spout_pending is "
                    f"{limit:,}{said}"
                )
            self._outbox.hurry()
            if full or not self._inbox.read_unless_busy(min(left, WAIT)):
                with self._outbox.lock:
                    if not self._pending.has_room(count, limit):
                        self._outbox.changed.wait(min(left, WAIT))

    def _unflushed(self) -> int:
        """How many of its trees wait for a flush, which alone sends them."""
        if self._outbox.linger is not None:
            return 0
        with self._outbox.lock:
            tracks = self._outbox.buffer.tracks.values()
            return sum(slab.left for source, slab in tracks if source is self._pending)

    # Outcomes

    def outcomes(self, timeout: float | None = None) -> Iterator[Outcome]:
        """The outcomes that have come: waits up to `timeout` seconds for the first (None or 0: not at all).

        Ends when no further outcome is there, and after 100,000 where fewer than so many are left. An outcome
        is reported once by this spout, and again by the next of its name until it is confirmed. Trees that
        the store has lost, or that could not be asked for, are reported as `expired` within 2 x message
        timeout of their emit, provided that this is called. Raises StoreUnavailable only where it has nothing
        to report and no tree is pending.
        """
        return Reports(self._outbox, self._inbox, timeout)

    def confirm(self, outcome: Outcome) -> None:
        """Confirms an outcome: this spout does not report it again.

        Buffered. The store keeps outcomes in entries, each of many trees that ended together, and an entry
        until all of it is confirmed: until then the next spout of this name gets all of it, so that a
        confirmed outcome may come again there. What becomes of it where the store loses its latest moments is
        in docs/store.md. Again, or for an outcome that the store does not have, it changes nothing.
        """
        self._outbox.check_whole()
        self._inbox.confirm(outcome)

    def register(self) -> None:
        """Makes the spout known to the store, unless it is."""
        self._inbox.register(self.topology.ledger)
