"""Spouts: the sources of records. They emit the first tuples of trees and learn each tree's outcome.

Terms: a tree is all that comes of one record; an anchor is the number of a tree.
"""

import time
from collections.abc import Iterator, Sequence
from typing import cast

import numpy as np

from acker.collectors import buffer
from acker.collectors.inbox import WAIT, Inbox, OutcomeIterator
from acker.collectors.outbox import log
from acker.collectors.outcome import Outcome, OutcomeGroup
from acker.collectors.pending import MOST_READY, Slab
from acker.collectors.session import Session
from acker.collectors.tuples import Tuple, check_targets
from acker.errors import AckerError, SpoutPendingFull, UnreadableRecord, ValidationError
from acker.ledger import ids
from acker.ledger.ids import Ids, IdsLike, as_ids
from acker.ledger.settings import config
from acker.ledger.settings.settings import check_number
from acker.ledger.slabs.slabs import NewSlab, PackedIds


class Spout:
    """A source of records (Storm's ISpout and SpoutOutputCollector), for any thread.

    Made by `Topology.spout`. A spout gets all outcomes of its name, so only one spout of a name may be in use
    at a time: the next spout gets the unconfirmed outcomes again.
    """

    observes = False
    """True if the spout only observes: it records trees and outcomes, and replays nothing."""

    def __init__(
        self,
        topology: Session,
        name: str,
        max_spout_pending: int | None = None,
        *,
        grouped: bool = False,
        place: int = 1,
    ) -> None:
        self.topology = topology
        self.name = config.check_spout(name)
        if max_spout_pending is not None:
            check_number(max_spout_pending, "max_spout_pending", 1, 10**9, int)
        self.max_spout_pending = max_spout_pending
        self._config = topology.config
        self._outbox = topology.outbox
        self._inbox = Inbox(topology, config.member_name(name, place), grouped=grouped)
        self._pending = self._inbox.pending
        self._outbox.register_fork(self)

    def forget(self) -> None:
        """Drops its state in memory, which belongs to the parent in a forked child."""
        self._inbox.forget()

    def __repr__(self) -> str:
        return f"Spout({self.name!r} of {self.topology.name!r})"

    def __reduce__(self) -> tuple[type, tuple[Session, str, int | None]]:
        return type(self), (self.topology, self.name, self.max_spout_pending)

    @property
    def pending(self) -> int:
        """Number of this spout's trees without an outcome."""
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
        """Emits a record: one tuple, with its own edge, for each target.

        A record with a message id gets a tree, which is tracked within the topology's linger and has its
        outcome reported. Above `max_spout_pending`, or while 100,000 outcomes are not taken, it waits for an
        outcome, and reads outcomes itself if no other thread does. After an error nothing was emitted.

        Args:
            message_id: The spout's name of the record, at most 1 KiB; the same may be in flight more than
                once. None emits untracked tuples.
            targets: Number of targets, 0 to 65,536. A tree without targets is acked at once.
            wait: False to raise SpoutPendingFull instead of waiting.
            timeout: Most seconds to wait; None is 2 x message timeout.

        Returns:
            One tuple for each target.

        Raises:
            ValidationError: An argument is not valid.
            SpoutPendingFull: `max_spout_pending` trees are pending, and `wait` is False, the timeout is over,
                or all of them wait for `Topology.flush`.
            StoreUnavailable: The buffer is full and cannot be sent.
            StoreError: The same.
            BufferFull: The buffer is full and `linger` is None.

        Examples:
            >>> price, stock = spout.emit("order-1", targets=2)  # a tuple for each of two bolts
            >>> price.anchors == stock.anchors  # both belong to one tree
            True
        """
        check_targets(targets)
        owner = self.topology.owner
        if message_id is None:
            return [Tuple.from_edges(owner, {}) for _ in range(targets)]
        encoded = config.check_message_id(message_id)
        for _ in self._room(1, wait, timeout):
            with self._outbox.lock:
                if not self._pending.has_room(1, self.max_spout_pending):
                    continue
                if not self._config.ackers:
                    self._pending.report_further([Outcome(encoded, 0, "acked", "", None)])
                    return [Tuple.from_edges(owner, {}) for _ in range(targets)]
                anchor, value, tuples = self._pending.next_anchor(), 0, []
                for _ in range(targets):
                    own = ids.new_id()
                    value ^= own
                    tuples.append(Tuple.from_edges(owner, {anchor: own}))
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
        """Emits many records at once, one tuple each.

        On return all trees are tracked, except trees above the high-water mark, whose outcome is `rejected`.
        If the topology's linger is None, its next flush tracks them. The call waits and raises as `emit`
        does; after StoreUnavailable no outcome of these records is reported.

        Args:
            message_ids: A message id for each record. A spout with grouped outcomes also takes PackedIds.
            values: Tuple ids that are not zero, such as ids of a seed; None makes random ids.
            wait: See `emit`.
            timeout: See `emit`.

        Returns:
            The anchors and the tuple ids, int64 each. The anchors are 0 if `ackers` is 0.
        """
        encoded, tuple_ids = checked_records(message_ids, values)
        count = len(encoded)
        if not count:
            return np.zeros(0, np.int64), tuple_ids
        if not self._config.ackers:
            for _ in self._room(count, wait, timeout):
                with self._outbox.lock:
                    if self._pending.has_room(count, self.max_spout_pending):
                        self._pending.report_further(
                            Outcome(message_id, 0, "acked", "", None) for message_id in encoded
                        )
                        break
            return np.zeros(count, np.int64), tuple_ids
        slabs: list[Slab] = []
        new: list[NewSlab] = []
        part = None
        try:
            for _ in self._room(count, wait, timeout):
                with self._outbox.lock:
                    if self._pending.has_room(count, self.max_spout_pending):
                        slabs = self._pending.new_slabs(encoded, tuple_ids)
                        self._pending.add_slabs(slabs)
                        break
            self.register()
            new = [slab.new() for slab in slabs]
            part = buffer.track(self.topology.ledger.core, self._pending, slabs, count)
            self._outbox.post(part)
            if self._outbox.linger is not None:
                self._outbox.flush()
        except BaseException as error:
            if part is None or self._outbox.cancel(part):
                with self._outbox.lock:
                    for slab in slabs:
                        self._pending.give_up(slab)
                raise
            if not isinstance(error, AckerError):
                raise
            if isinstance(error, UnreadableRecord):  # of other messages; these trees were tracked
                log.error("acker: %s", error)
        return np.concatenate([slab.anchors for slab in new]), tuple_ids

    def _room(self, count: int, wait: bool, timeout: float | None) -> Iterator[None]:
        """Yields whenever there may be room for so many trees; sends first if the buffer is full."""
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
                unflushed = f", {unsent:,} of them wait for topology.flush()" if unsent else ""
                raise SpoutPendingFull(
                    f"spout {self.name!r}: {self._pending.ready:,} outcomes are not taken"
                    if full
                    else f"spout {self.name!r} has {pending:,} trees pending, max_spout_pending is "
                    f"{limit:,}{unflushed}"
                )
            self._outbox.send_now()
            if full or not self._inbox.read_unless_busy(min(left, WAIT)):
                with self._outbox.lock:
                    if not self._pending.has_room(count, limit):
                        self._outbox.changed.wait(min(left, WAIT))

    def _unflushed(self) -> int:
        """Number of this spout's trees that wait for a flush, which alone sends them."""
        if self._outbox.linger is not None:
            return 0
        with self._outbox.lock:
            tracks = self._outbox.buffer.tracks.values()
            return sum(slab.left for source, slab in tracks if source is self._pending)

    # Outcomes

    def outcomes(self, timeout: float | None = None) -> Iterator[Outcome]:
        """Reports outcomes.

        This spout reports an outcome once; the next spout of its name reports it again until it is confirmed.
        If this method is called often enough, trees that the store lost or cannot be asked for are reported
        as `expired` within 2 x message timeout of their emit. The iterator ends when there is no further
        outcome, and after 100,000 outcomes if fewer than that are left.

        Args:
            timeout: Seconds to wait for the first outcome; None or 0 does not wait.

        Returns:
            An iterator of outcomes.

        Raises:
            StoreUnavailable: The store did not answer, there is nothing to report and no tree is pending.

        Examples:
            >>> [order] = spout.emit("order-1")
            >>> bolt.fail(order, "no such sku")
            >>> for outcome in spout.outcomes(timeout=5.0):
            ...     print(outcome.message_id, outcome.status, outcome.reason)
            b'order-1' failed no such sku
        """
        return OutcomeIterator(self._outbox, self._inbox, timeout)

    def outcome_groups(self, timeout: float | None = None) -> Iterator[OutcomeGroup]:
        """Reports outcomes like `outcomes`, of many trees at once, by a spout with grouped outcomes."""
        return cast(Iterator[OutcomeGroup], OutcomeIterator(self._outbox, self._inbox, timeout))

    def confirm_group(self, group: OutcomeGroup) -> None:
        """Confirms outcomes that came as a group, like `confirm`."""
        self._outbox.check_whole()
        self._inbox.confirm_group(group)

    def confirm(self, outcome: Outcome) -> None:
        """Confirms an outcome: this spout does not report it again.

        The confirmation is buffered. The store keeps the outcomes of trees that ended together in an entry,
        until all of them are confirmed. Until then the next spout of this name gets the whole entry, so it
        may report a confirmed outcome again. A second confirmation changes nothing. docs/store.md tells the
        effect of a store that loses its latest writes.

        Args:
            outcome: The outcome, as `outcomes` reported it.

        Examples:
            >>> [order] = spout.emit("order-1")
            >>> bolt.ack(order)
            >>> for outcome in spout.outcomes(timeout=5.0):
            ...     spout.confirm(outcome)
            >>> topology.flush()
            >>> list(topology.spout("orders").outcomes())  # the next spout of this name
            []
        """
        self._outbox.check_whole()
        self._inbox.confirm(outcome)

    def register(self) -> None:
        """Registers the spout in the store, unless it is registered."""
        self._inbox.register(self.topology.ledger)


def checked_records(
    message_ids: Sequence[bytes | str], values: IdsLike | None
) -> tuple[Sequence[bytes], Ids]:
    """The message ids and tuple ids of `Spout.emit_many`. Raises ValidationError."""
    encoded: Sequence[bytes] = (
        message_ids
        if isinstance(message_ids, PackedIds)
        else [config.check_message_id(message_id) for message_id in message_ids]
    )
    count = len(encoded)
    tuple_ids = ids.new_ids(count) if values is None else as_ids(values, "values")
    if len(tuple_ids) != count or not tuple_ids.all():
        raise ValidationError(f"values: expected a tuple id that is not zero for each of {count} message ids")
    return encoded, tuple_ids
