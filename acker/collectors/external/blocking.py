"""The exchange of an `acker.Topology`: its calls wait for the store."""

import logging
import threading

from acker.collectors import process_end
from acker.collectors.external.exchange import Exchange
from acker.collectors.external.lingering import Lingering
from acker.collectors.outbox import Outbox
from acker.collectors.tuples import Owner
from acker.ledger.client import Ledger

_log = logging.getLogger("acker")


class BlockingExchange(Exchange):
    """An exchange whose `flush` any thread may call: one sends at a time, and the others wait for it.

    A forked child begins with nothing. Rows that its parent has extracted and stamped stay its parent's.
    """

    _lingering: Lingering | None = None

    def __init__(self, ledger: Ledger, outbox: Outbox, owner: Owner) -> None:
        self.ledger, self.outbox = ledger, outbox
        super().__init__(ledger.core, owner, ledger.off)

    def forget(self) -> None:
        """Drops all rows, in a forked child."""
        super().forget()
        self.acks = self.outbox.taken
        self._flushing = threading.RLock()
        self._linger()

    def linger_for(self, seconds: float) -> None:
        """Has a thread send waiting rows after so many seconds, or fewer."""
        with self.lock:
            super().linger_for(seconds)
            self._linger()

    def _linger(self) -> None:
        """Starts the thread, in place of an earlier one."""
        if self._lingering is not None:
            self._lingering.end()
        name, seconds = self.owner[1], self.linger
        self._lingering = None if seconds is None else Lingering(self, name, seconds)
        if self.waits:
            self.keep()

    def keep(self) -> None:
        """Keeps the exchange until its rows are sent, if they linger."""
        if self._lingering is not None:
            self._lingering.keep()
            process_end.see_to_the_end()

    def finish(self) -> None:
        """Ends the thread, and sends what waits, if rows linger."""
        if self._lingering is not None:
            self._lingering.end()
            if self.waits:
                self.flush(lingered=True)
            self._lingering = None

    def close(self) -> None:
        """Ends the thread, and sends what waits, if rows linger; otherwise what waits is dropped."""
        self.finish()
        if self.waits:
            _log.warning("acker: topology %r is closed before a flush of its external rows", self.owner[1])

    def flush(self, *, lingered: bool = False) -> None:
        """Sends all that waits, as one commit; see `acker.Topology.flush`.

        lingered: What waits is sent when no row is in work.
        """
        self.check_whole(self._flushing._is_owned())  # type: ignore[attr-defined]
        with self._flushing:
            self.ledger.run(self.sending(lingered))
