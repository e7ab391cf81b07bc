"""The heartbeat of a streaming query: while it beats, what the query has taken from a stream is in hand.

A thread of the process that plans the query's batches beats, so the heartbeat ends with the query, however
that ends. See `acker.streams.downtime`.
"""

import logging
import threading
import weakref

from acker.errors import AckerError
from acker.ledger.client import Ledger
from acker.streams import downtime
from acker.streams.log import heartbeats

_log = logging.getLogger(__name__)


class Heartbeat:
    """Of a reader of a stream: begins with the first batch that is planned.

    It ends when it is stopped, with its last reference, and with the process.
    """

    def __init__(self, ledger: Ledger, stream: str) -> None:
        self._ledger = ledger
        self._stream = stream
        self._whose: tuple[int, str] | None = None
        self._stopped = threading.Event()
        self._trouble = False

    def __reduce__(self) -> tuple[type, tuple[Ledger, str]]:
        return type(self), (self._ledger, self._stream)  # where it goes it has not begun

    def of(self, slot: int, reader: str) -> None:
        """Beats for a reader of a subscription from now on; a source has one at a time."""
        first, self._whose = self._whose is None, (slot, reader)
        if first:
            self._beat(self._whose)
            period = heartbeats.period(self._ledger.core)
            threading.Thread(
                target=_run,
                args=(weakref.ref(self), self._stopped, period),
                name=f"acker beats for {self._stream}",
                daemon=True,
            ).start()

    def stop(self) -> None:
        """Ends it: what the query has taken waits from then on, until it is started again."""
        self._stopped.set()

    def beat(self) -> None:
        """Beats; where the store is away it says so once, and the next beat may reach it."""
        if self._whose is None:
            return
        try:
            self._beat(self._whose)
            self._trouble = False
        except AckerError as error:
            if not self._trouble:
                _log.warning("the heartbeat of stream %s waits: %s", self._stream, error)
            self._trouble = True

    def _beat(self, whose: tuple[int, str]) -> None:
        self._ledger.run(downtime.beat(self._ledger.core, self._stream, *whose))


def _run(whose: "weakref.ref[Heartbeat]", stopped: threading.Event, period: float) -> None:
    while not stopped.wait(period):
        heartbeat = whose()
        if heartbeat is None:
            return
        heartbeat.beat()
        del heartbeat
