"""Sessions: a ledger, and what the collectors of one topology have buffered for it."""

import logging
import weakref
from collections.abc import Callable
from types import TracebackType
from typing import Self, Unpack

from acker.collectors.buffer import LINGER
from acker.collectors.outbox import Outbox
from acker.collectors.tuples import Owner
from acker.errors import AckerError
from acker.ledger.calls.core import Core
from acker.ledger.client import Ledger, open_ledger
from acker.ledger.settings import config
from acker.ledger.settings.config import Settings
from acker.ledger.settings.settings import check_number
from acker.store.client import Store

LONGEST_LINGER = 60.0
"""Seconds, by default and at most, for which what is sent together gathers."""

log = logging.getLogger("acker")


class Session:
    """What the spouts and bolts of a topology share in a process (`acker.Topology`)."""

    def __init__(
        self,
        url: str,
        name: str,
        *,
        timeout: float = 10.0,
        linger: float | None = LINGER,
        cluster: bool = False,
        **settings: Unpack[Settings],
    ) -> None:
        if linger is not None:
            check_number(linger, "linger", 0.0, LONGEST_LINGER, float)
        ledger = open_ledger(Store(url, timeout=timeout, cluster=cluster), name, **settings)
        self._set_up(ledger, linger)

    def _set_up(self, ledger: Ledger, linger: float | None) -> None:
        self._ledger = ledger
        self._linger = linger
        most = ledger.config.message_timeout / 2
        self._outbox = Outbox(ledger, None if linger is None else min(linger, most))
        # Its thread sends what is left when nobody holds the topology any more.
        weakref.finalize(self, self._outbox.end).atexit = False

    def __repr__(self) -> str:
        return f"Topology({self._ledger.store!r}, {self.name!r})"

    def __reduce__(
        self,
    ) -> tuple[Callable[..., "Session"], tuple[type["Session"], Store, config.TopologyConfig, float | None]]:
        return _reopen, (type(self), self._ledger.store, self.config, self._linger)

    @property
    def name(self) -> str:
        """The topology's name."""
        return self.config.name

    @property
    def config(self) -> config.TopologyConfig:
        """The configuration, as stored."""
        return self._ledger.config

    @property
    def ledger(self) -> Ledger:
        """The ledger: vectors of ids, sent at once."""
        return self._ledger

    @property
    def outbox(self) -> Outbox:
        """What spouts and bolts have buffered."""
        return self._outbox

    @property
    def owner(self) -> Owner:
        """What its tuples are marked with."""
        return self._ledger.store.url, self.config.name

    def flush(self) -> None:
        """Sends all that spouts and bolts have buffered; the store has it when this returns.

        Raises StoreUnavailable or StoreError, and AckerError where a signal handler calls it while its thread
        is in another call of the topology. Nothing is lost then: what was not answered is kept, sent again
        by itself and by the next flush, and takes effect once. UnreadableRecord names slabs that were passed
        over, when all else was sent.
        """
        self._outbox.flush()

    def restore(self) -> None:
        """Stores the configuration and the spouts again, in a store that lost everything."""
        try:
            self._ledger.run(self._ledger.core.restore())
        except AckerError as error:
            log.error("acker: topology %r could not be restored: %s", self.name, error)

    def close(self) -> None:
        """Flushes, and ends the topology's thread. Its spouts and bolts can send nothing after that.

        With `linger=None` it sends again what a flush could not send, and drops the rest with a word in the
        log: who closes may have given up what that would ack. Raises what `flush` does; the topology stays
        open where something could not be sent. A closed one may be closed again.
        """
        if self._outbox.closed:
            return
        try:
            self._outbox.finish()
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
            # The error that ended the block says more; what is unsent goes by itself, or is logged at exit.
            log.warning("acker: topology %r could not be closed: %s", self.name, unsent)


def _reopen(
    kind: type[Session], store: Store, stored: config.TopologyConfig, linger: float | None
) -> Session:
    session = kind.__new__(kind)
    session._set_up(Ledger(store, Core(stored)), linger)
    return session
