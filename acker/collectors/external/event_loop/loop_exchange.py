"""The exchange of an `acker.AsyncTopology`: a task of its event loop sends rows that linger."""

import asyncio
import logging
import weakref
from collections.abc import Awaitable, Callable
from types import SimpleNamespace

from acker.collectors.external.exchange import Exchange
from acker.collectors.external.lingering import AGAIN, LONGEST, SHORTEST, Complaints
from acker.collectors.tuples import Owner
from acker.errors import AckerError
from acker.ledger.calls.core import Core

_log = logging.getLogger("acker")


class LoopExchange(Exchange):
    """An exchange whose task sends rows after their linger, for as long as somebody has the exchange.

    A program may drop its topology and its streams while rows wait: the task keeps the exchange until they
    are sent, as the thread of a `BlockingExchange` does (acker/collectors/external/lingering.py).
    """

    task: asyncio.Task[None] | None = None

    def __init__(self, core: Core, owner: Owner, off: bool, send: Callable[[], Awaitable[None]]) -> None:
        """Makes an exchange. send: Sends what waits, when no row is in work."""
        super().__init__(core, owner, off)
        self.send = send
        self._kept = SimpleNamespace(exchange=None)

    def keep(self) -> None:
        """Keeps the exchange until its rows are sent, if they linger."""
        if self.task is not None:
            self._kept.exchange = self

    def linger_for(self, seconds: float) -> None:
        """Has the task send waiting rows after so many seconds, or fewer."""
        super().linger_for(seconds)
        if self.task is None:
            later = _send_later(weakref.ref(self), self._kept, self.owner[1])
            self.task = asyncio.create_task(later, name="acker-linger")
        if self.waits:
            self.keep()

    def end(self) -> None:
        """Ends the task: what waits is the caller's matter."""
        if self.task is not None:
            self.task.cancel()
        self.task, self._kept.exchange = None, None


async def _send_later(
    exchange_of: Callable[[], LoopExchange | None], kept: SimpleNamespace, topology: str
) -> None:
    complaints, wait = Complaints(topology), SHORTEST
    while True:
        await asyncio.sleep(wait)
        exchange = exchange_of()
        if exchange is None:
            return
        try:
            if exchange.waits:
                await exchange.send()
            complaints.take(None)
        except AckerError as error:
            complaints.take(error)
        except Exception:  # noqa: BLE001 - the task must outlive it
            _log.exception("a flush of rows of external streams has failed")
        complaints.look(exchange)
        if exchange.refusal is not None or complaints.named or not exchange.waits:
            kept.exchange = None
        wait = exchange.linger or LONGEST
        if exchange.due:
            wait = min(wait, AGAIN)
        del exchange
