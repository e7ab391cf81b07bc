"""The exchange of an `acker.Topology`: its calls wait for the store."""

import threading

from acker.collectors.external.exchange import Exchange
from acker.collectors.outbox import Outbox
from acker.collectors.tuples import Owner
from acker.ledger.client import Ledger


class BlockingExchange(Exchange):
    """An exchange whose `flush` any thread may call: one sends at a time, and the others wait for it.

    A forked child begins with nothing. Rows that its parent has extracted and stamped stay its parent's.
    """

    def __init__(self, ledger: Ledger, outbox: Outbox, owner: Owner) -> None:
        self.ledger, self.outbox = ledger, outbox
        super().__init__(ledger.core, owner, ledger.off)

    def forget(self) -> None:
        """Drops all rows, in a forked child."""
        super().forget()
        self.acks = self.outbox.taken
        self._flushing = threading.RLock()

    def flush(self) -> None:
        """Sends all that waits, as one commit; see `acker.Topology.flush`."""
        self.check_whole(self._flushing._is_owned())  # type: ignore[attr-defined]
        with self._flushing:
            self.ledger.run(self.sending())
