"""The heartbeat of a streaming query: while it beats, what the query has taken from a stream is in hand.

A thread of the process that plans the query's batches beats, so the heartbeat ends with the query, however
that ends. See `acker.streams.downtime`.
"""

import logging
import threading

from acker.errors import AckerError
from acker.ledger.client import Ledger
from acker.streams import downtime

_log = logging.getLogger(__name__)


class Heartbeat:
    """Of a reader of a stream: begins with the first batch that is planned, and ends with the process."""

    def __init__(self, ledger: Ledger, stream: str) -> None:
        self._ledger = ledger
        self._stream = stream
        self._whose: tuple[int, str] | None = None

    def of(self, slot: int, reader: str) -> None:
        """Beats for a reader of a subscription from now on; a source has one at a time."""
        first, self._whose = self._whose is None, (slot, reader)
        if first:
            self._beat()
            threading.Thread(target=self._run, name=f"acker beats for {self._stream}", daemon=True).start()

    def _run(self) -> None:
        pause, trouble = threading.Event(), False
        while not pause.wait(downtime.beat_period(self._ledger.core)):
            try:
                self._beat()
                trouble = False
            except AckerError as error:
                if not trouble:
                    _log.warning("the heartbeat of stream %s waits: %s", self._stream, error)
                trouble = True

    def _beat(self) -> None:
        if self._whose is not None:
            self._ledger.run(downtime.beat(self._ledger.core, self._stream, *self._whose))
