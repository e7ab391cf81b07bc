"""Sessions: a ledger, and the buffered messages of one topology's collectors.

Terms: a tree is all that comes of one record; a slab is the trees that one call tracked together; a vector
has a number for each tree, the XOR of tuple ids.
"""

import logging
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from types import TracebackType
from typing import Protocol, Self, TypeVar, Unpack

from acker.collectors.buffer import LINGER
from acker.collectors.modes.observing import ObservedLedger, ObservingOutbox
from acker.collectors.modes.off import NoStore, OffLedger, OffOutbox, is_off, off_ledger
from acker.collectors.outbox import Outbox
from acker.collectors.tuples import Owner, Tuple, ending
from acker.errors import AckerError
from acker.inspect.operate.ticking import Ticking
from acker.ledger.calls.calls import Ticked
from acker.ledger.calls.core import Core
from acker.ledger.client import Ledger, open_ledger
from acker.ledger.settings import config
from acker.ledger.settings.config import Settings
from acker.ledger.settings.settings import check_number
from acker.store.client import Store

LONGEST_LINGER = 60.0
"""Most seconds that messages wait for others before they are sent."""

S = TypeVar("S", bound="Session")
log = logging.getLogger("acker")


class External(Protocol):
    """Rows of external streams that wait for a flush (acker/collectors/external/exchange.py)."""

    lock: "threading.RLock"

    def check_ended(self) -> None:
        """Raises TupleError where rows are neither acked nor failed."""

    def flush(self) -> None:
        """Sends all that waits."""

    def close(self) -> None:
        """Sends what waits, if rows linger."""

    def give_back(self, *tuples: Tuple) -> None:
        """Opens tuples again that the next flush was to ack."""


class Session:
    """Shared state of a topology's spouts and bolts in a process (`acker.Topology`)."""

    def __init__(
        self,
        url: str,
        name: str,
        *,
        timeout: float = 10.0,
        linger: float | None = LINGER,
        cluster: bool = False,
        enabled: bool = True,
        observe: bool = False,
        **settings: Unpack[Settings],
    ) -> None:
        """Opens the topology.

        Args:
            url: URL of the store: see `acker.store.address`.
            name: Name of the topology.
            timeout: Seconds until StoreUnavailable.
            linger: Seconds for which spouts and bolts gather messages, 0 to 60 and at most half the message
                timeout. With None only `flush` sends, as for an ack after a transaction (docs/collectors.md).
            cluster: True if a plain URL names a node of a Redis Cluster.
            enabled: False turns acker off for this object, as `ACKER_OFF=1` does for a process: no connection
                is made, and nothing is tracked (docs/collectors.md).
            observe: True only records: no call of spouts and bolts waits for the store, or fails because of
                it. Its outcomes are for people, and not for the program (docs/collectors.md).
            **settings: Settings of the topology (ackers, message_timeout ...): see
                `acker.ledger.settings.config.TopologyConfig`. None is the stored value, or the default.

        Raises:
            ValidationError: An argument is not valid.
            TopologyConfigError: The topology is stored with other settings.
            StoreUnavailable: The store did not answer in time.
            StoreMisconfigured: The store cannot keep acker's promises.
        """
        if linger is not None:
            check_number(linger, "linger", 0.0, LONGEST_LINGER, float)
        opened = off_ledger if is_off(enabled) else ObservedLedger if observe else open_ledger
        self._set_up(opened(Store(url, timeout=timeout, cluster=cluster), name, **settings), linger)

    def _set_up(self, ledger: Ledger, linger: float | None) -> None:
        self._ledger = ledger
        self._linger = linger
        most = ledger.config.message_timeout / 2
        kinds: dict[type[Ledger], type[Outbox]] = {OffLedger: OffOutbox, ObservedLedger: ObservingOutbox}
        kind = kinds.get(type(ledger), Outbox)
        self._outbox = kind(ledger, None if linger is None else min(linger, most))
        self._observer: Self | None = None
        self._exchange: External | None = None
        self._ticking = Ticking()
        # Its thread sends the rest when no object holds the topology any more.
        weakref.finalize(self, self._outbox.end).atexit = False

    @contextmanager
    def _failing(self, tuple: Tuple) -> Iterator[None]:  # noqa: A002 - as above
        """Opens a tuple that rows were stamped from, before their flush: to fail it in the block.

        No other thread ends or stamps it in between. An ack would leave its rows out of its tree.
        """
        exchange = self._exchange
        with nullcontext() if exchange is None else exchange.lock, self.outbox.lock, ending:
            if exchange is not None:
                exchange.give_back(tuple)
            yield

    def __repr__(self) -> str:
        return f"Topology({self._ledger.store!r}, {self.name!r})"

    def __reduce__(
        self,
    ) -> tuple[Callable[..., "Session"], tuple[object, ...]]:
        asked = self._ledger.asked if isinstance(self._ledger, ObservedLedger) else None
        return _reopen, (type(self), self._ledger.store, self.config, self._linger, asked)

    @property
    def name(self) -> str:
        """The topology's name."""
        return self.config.name

    @property
    def config(self) -> config.TopologyConfig:
        """The configuration, as stored."""
        return self._ledger.config

    @property
    def off(self) -> bool:
        """True if acker is turned off here: nothing is tracked, and no connection is made."""
        return self._ledger.off

    @property
    def observes(self) -> bool:
        """True if the topology only records."""
        return isinstance(self._outbox, ObservingOutbox)

    @property
    def dropped(self) -> int:
        """Number of messages of observing spouts and bolts that were dropped in this process."""
        outbox = self.observer().outbox if self.observes or self._observer is not None else None
        return outbox.dropped if isinstance(outbox, ObservingOutbox) else 0

    def observer(self) -> Self:
        """This topology if it observes; otherwise the observing topology of its observing spouts."""
        if self.observes:
            return self
        with self._outbox.lock:
            if self._observer is None:
                made = _reopen(type(self), self._ledger.store, self.config, self._linger, {})
                made._ledger.core = Core(self.config)
                self._observer = made
            return self._observer

    @property
    def ledger(self) -> Ledger:
        """The ledger: vectors of ids, sent at once."""
        return self._ledger

    @property
    def outbox(self) -> Outbox:
        """The buffered messages of spouts and bolts."""
        return self._outbox

    @property
    def owner(self) -> Owner:
        """The mark of the topology's tuples."""
        return self._ledger.store.url, self.config.name

    def flush(self) -> None:
        """Sends all messages that spouts and bolts have buffered; the store has them when this returns.

        After an error nothing is lost: unanswered messages are kept, and sent again by the topology's thread
        and by the next flush. They take effect once.

        Then rows of external streams are sent and acked, as one commit, which nothing but a flush does. After
        StoreUnavailable and StreamFull call it again: it goes on where it was. Commit no offsets before it
        has returned. StampsExpired and StreamLost are raised by each further call, too: end the process, and
        start it again from its committed offsets.

        Raises:
            StoreUnavailable: The store did not answer in time.
            StoreError: The store refused a call.
            UnreadableRecord: Slabs were passed over; the rest was sent.
            TupleError: Rows are neither acked nor failed; this call has sent nothing.
            StreamFull: A bound of an external stream is reached. Nothing is dropped; shards and streams with
                room have taken their part. Call it again when consumers have gone on.
            StampsExpired: The stamps of external rows are too old.
            StreamLost: The store has lost an external stream.
            UnknownSubscription: A subscription of an external stream was dropped, or the store has lost it.
                Start the process again from its committed offsets.
            SubscriptionInUse: A live step of another name serves a subscription; no external row was sent.
            AckerError: A signal handler calls it while its thread is in another call of the topology.

        Examples:
            >>> [order] = spout.emit("order-1")
            >>> topology.flush()
            >>> topology.counters()["tracked"]
            1
        """
        if self._exchange is not None:
            self._exchange.check_ended()
        if self._observer is not None:
            self._observer.flush()
        self._outbox.flush()
        if self._exchange is not None:
            self._exchange.flush()

    def pause_spout(self, name: str, *, by: str = "", reason: str = "") -> None:
        """Pauses a spout: its new tracks are rejected until it is resumed. What is in flight goes on.

        Args:
            name: Name of the spout.
            by: The name of the author.
            reason: The reason, for people: the outcomes of rejected tracks have it, too.

        Raises:
            UnknownSpout: The topology has no spout of that name.
            ValidationError: The spout only observes, or the topology tracks nothing.
        """
        from acker.inspect.operate import pauses

        self._ledger.run(pauses.pause(self._ledger.core, name, by=by, reason=reason))

    def resume_spout(self, name: str) -> None:
        """Ends the pause of a spout; it has the errors of `pause_spout`.

        Args:
            name: Name of the spout.
        """
        from acker.inspect.operate import pauses

        self._ledger.run(pauses.resume(self._ledger.core, name))

    def _tick(self, force: bool) -> Ticked:
        if force or self.off:
            return self._ledger.tick(force)
        return self._ledger.run(self._ticking.tick(self._ledger.core))

    def restore(self) -> None:
        """Stores the configuration and the spouts again in a store that lost all data."""
        try:
            self._ledger.run(self._ledger.core.restore())
        except AckerError as error:
            log.error("acker: topology %r could not be restored: %s", self.name, error)

    def close(self) -> None:
        """Flushes spouts and bolts, and ends the topology's thread. Nothing can be sent after that.

        Rows of external streams are sent by `flush` alone, unless a stream has a linger: rows that wait for
        it are dropped with a warning in the log, and their records are replayed.

        With `linger=None` it sends the rest of a failed flush again, and drops later messages with a warning
        in the log: the caller may have given up the work that they would ack. A closed topology may be closed
        again.

        Raises:
            AckerError: The errors of `flush`; the topology stays open if messages could not be sent.
        """
        if self._outbox.closed:
            return
        if self._observer is not None:
            self._observer.close()
        try:
            self._outbox.finish()
            if self._exchange is not None:
                self._exchange.close()
        finally:
            if not self._outbox.unsent:
                self._outbox.closed = True
                self._outbox.end()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.close()
        except AckerError as unsent:
            if error is None:
                raise
            # The block's error says more; unsent messages go later, or are logged at exit.
            log.warning("acker: topology %r could not be closed: %s", self.name, unsent)


def _reopen(
    kind: type[S],
    store: Store,
    stored: config.TopologyConfig,
    linger: float | None,
    asked: Settings | None = None,
) -> S:
    """Opens a session again. asked: the given settings of a topology that observes."""
    session = kind.__new__(kind)
    if isinstance(store, NoStore):
        ledger: Ledger = OffLedger(store, Core(stored))
    elif asked is not None:
        ledger = ObservedLedger(store, stored.name, **asked)
    else:
        ledger = Ledger(store, Core(stored))
    session._set_up(ledger, linger)
    return session
