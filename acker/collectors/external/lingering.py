"""Lingering: rows of external streams are sent some seconds later, without a flush of the program.

A program that wants this gives up the order of rows, flush and offsets: the flush may come before its client
has delivered the rows, and after its offsets. That makes no false ack. Rows that a crash loses on their way
expire with their segments, and are replayed.
"""

import logging
import threading
import time
import weakref
from typing import Protocol

from acker.collectors.external.row import Row, named
from acker.errors import AckerError
from acker.ledger.settings.settings import check_number

SHORTEST, LONGEST = 0.01, 60.0
"""Seconds of a linger."""
AGAIN = 0.05
"""Seconds between two looks if rows are in work, at most."""
LONG = 30.0
"""Seconds after which the log names the rows in work that a flush waits for."""
_log = logging.getLogger("acker")


def check(linger: float | None) -> None:
    """Raises ValidationError unless it is a linger, or None."""
    if linger is not None:
        check_number(linger, "linger", SHORTEST, LONGEST, float)


class InWork(Protocol):
    """The rows in work of an exchange.

    Attributes:
        lock: Guards the exchange.
        due: True while a flush waits for the end of the rows in work.
    """

    lock: threading.RLock
    due: bool

    def rows_in_work(self) -> list[Row]:
        """Lists the rows that are neither acked nor failed; with the lock."""


class Lingers(InWork, Protocol):
    """An exchange whose rows linger.

    Attributes:
        refusal: The error that each further flush raises, if there is one.
    """

    refusal: AckerError | None

    @property
    def waits(self) -> bool:
        """True if something waits for a flush."""

    def flush(self, *, lingered: bool) -> None:
        """Sends all that waits, when no row is in work."""


class Complaints:
    """Logs errors of flushes that no caller waits for: each once, until a flush succeeds.

    Attributes:
        named: True while a flush waits long for rows in work, which the log has named.
    """

    def __init__(self, topology: str) -> None:
        self._topology, self._said = topology, ""
        self._due_since, self.named = 0.0, False

    def take(self, error: AckerError | None) -> None:
        """Takes the end of a flush: an error, or None."""
        text = "" if error is None else str(error)
        if text and text != self._said:
            _log.warning(
                "topology %s: rows of external streams wait, their flush is tried again: %s",
                self._topology, text,
            )  # fmt: skip
        self._said = text

    def look(self, exchange: InWork) -> None:
        """Names the rows in work, once, if a flush has waited long for their end: one may be forgotten."""
        if not exchange.due:
            self._due_since, self.named = 0.0, False
            return
        now = time.monotonic()
        self._due_since = self._due_since or now
        if not self.named and now - self._due_since >= LONG:
            self.named = True
            with exchange.lock:
                rows = exchange.rows_in_work()
            _log.warning(
                "topology %s: rows of external streams wait for a flush, because rows are neither acked nor "
                "failed: %s",
                self._topology, named(rows),
            )  # fmt: skip


class Lingering:
    """A thread that flushes an exchange after its linger, for as long as the exchange is there.

    A program may drop its topology and its streams while rows wait: the thread keeps the exchange until they
    are sent. It lets go of rows that no flush can send any more, and of rows that wait long for the end of a
    row in work, if nobody else has them.
    """

    def __init__(self, exchange: Lingers, topology: str, seconds: float) -> None:
        self._exchange = weakref.ref(exchange)
        self._seconds, self._ended = seconds, False
        self._complaints = Complaints(topology)
        self._kept: Lingers | None = None
        threading.Thread(target=self._run, name="acker-linger", daemon=True).start()

    def end(self) -> None:
        """Ends the thread after its linger. A forked child calls it too, where the thread is not."""
        self._ended, self._kept = True, None

    def keep(self) -> None:
        """Keeps the exchange alive: a row of it waits. The caller has its lock."""
        if not self._ended:
            self._kept = self._exchange()

    def _let_go(self, exchange: Lingers) -> None:
        with exchange.lock:
            gone = exchange.refusal is not None or self._complaints.named
            if gone or not exchange.waits:
                self._kept = None

    def _run(self) -> None:
        wait = self._seconds
        while True:
            time.sleep(wait)
            exchange = self._exchange()
            if exchange is None or self._ended:
                return
            try:
                if exchange.waits:
                    exchange.flush(lingered=True)
                self._complaints.take(None)
            except AckerError as error:
                self._complaints.take(error)
            except Exception:  # noqa: BLE001 - the thread must outlive it
                _log.exception("a flush of rows of external streams has failed")
            self._complaints.look(exchange)
            self._let_go(exchange)
            wait = min(self._seconds, AGAIN) if exchange.due else self._seconds
            del exchange
