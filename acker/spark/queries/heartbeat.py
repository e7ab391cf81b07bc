"""The heartbeat of a streaming query: while it beats, the rows that the query has taken are in work.

A thread beats in the process that plans the query's batches, so the heartbeat ends with the query, in any
case. See `acker.streams.downtime`.
"""

import logging
import threading
import weakref

from acker.ledger.client import Ledger
from acker.ledger.loops import Threads
from acker.store import loops
from acker.store.loops import Pace
from acker.streams import downtime
from acker.streams.log import heartbeats

_log = logging.getLogger(__name__)


class Heartbeat:
    """The heartbeat of a stream's reader, from the first planned batch on.

    It ends when it is stopped, with its last reference, and with the process.
    """

    def __init__(self, ledger: Ledger, stream: str) -> None:
        self._ledger = ledger
        self._stream = stream
        self._whose: tuple[int, str] | None = None
        self._stopped = threading.Event()
        weakref.finalize(self, self._stopped.set)

    def __reduce__(self) -> tuple[type, tuple[Ledger, str]]:
        return type(self), (self._ledger, self._stream)  # where it goes it has not begun

    def of(self, slot: int, reader: str) -> None:
        """Beats for a reader of a subscription from now on; a source has one reader at a time."""
        first, self._whose = self._whose is None, (slot, reader)
        if first:
            self._beat(self._whose)
            args = weakref.ref(self), self._stopped, self._stream, heartbeats.period(self._ledger.core)
            Threads().start(_run, *args, name=f"acker heartbeats for {self._stream}")

    def stop(self) -> None:
        """Ends the heartbeat: the rows that the query has taken then wait until it is started again."""
        self._stopped.set()

    def beat(self) -> None:
        """Beats, if the heartbeat has begun."""
        if self._whose is not None:
            self._beat(self._whose)

    def _beat(self, whose: tuple[int, str]) -> None:
        self._ledger.run(downtime.beat(self._ledger.core, self._stream, *whose))


def _run(whose: "weakref.ref[Heartbeat]", stopped: threading.Event, stream: str, period: float) -> None:
    def step() -> None:
        heartbeat = whose()
        if heartbeat is not None:
            heartbeat.beat()

    loops.run(stopped, step, Pace(_log, f"the heartbeat of stream {stream} waits", period, period))
