"""Notes for people why rows, or dead letters, of a spout wait: among the facts of its topology's health.

`acker.inspect.topology.health` shows a note for some minutes, so a note that still holds is written again.
"""

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from acker.errors import AckerError
from acker.ledger.client import Ledger
from acker.ledger.loops import PATIENCE
from acker.ledger.settings.config import bounded_reason
from acker.store import keys, loops
from acker.store.loops import Pace
from acker.store.operation import Request
from acker.store.replies import seconds
from acker.streams.sources import scripts

SLOW = 60.0
"""Seconds after which a call of a user's function is shown that has not returned, and between two notes."""
_REASON = 300
_log = logging.getLogger(__name__)


class WaitNote:
    """The note of one process for a spout.

    Args:
        kind: "unread" or "unsent" (`acker.streams.sources.scripts.note_wait`).
        spout: The spout.
        subject: Words of the log for what waits: "rows of spout 's'".
    """

    def __init__(self, kind: str, spout: str, subject: str) -> None:
        self._kind, self._spout, self._subject = kind, spout, subject
        self._noted = True
        self._writing = threading.Lock()

    def write(self, ledger: Ledger, reason: str) -> None:
        """Notes a reason, or, for "", that nothing waits any more. A store that is away is passed over."""
        if not reason and not self._noted:
            return
        topology, text = ledger.config.name, bounded_reason(" ".join(reason.split()), _REASON)
        with suppress(AckerError):  # a note is worth less than what waits
            [instant] = ledger.store.send([Request(keys.health(topology), ["TIME"])])
            noted = f"{round(seconds(instant) * 1000)} {text}" if text else ""
            ledger.store.send([scripts.note_wait(topology, self._kind, self._spout, noted)])
            self._noted = bool(text)

    @contextmanager
    def calling(self, ledger: Ledger, callee: str) -> Iterator[None]:
        """Notes, while the block lasts, that a call does not return: after `SLOW` seconds, again and again.

        The caller then writes what holds. callee: the user's function, for the text: "`reread`".
        """
        began, ended = time.monotonic(), threading.Event()

        def say() -> None:
            text = f"{callee} has not returned for {time.monotonic() - began:.0f} s"
            with self._writing:
                if not ended.is_set():
                    _log.warning("%s wait: %s", self._subject, text)
                    self.write(ledger, text)

        pace = Pace(_log, f"a note that {self._subject} wait", SLOW, SLOW)
        threading.Thread(
            target=loops.run, args=(ended, say, pace), name="acker notes a slow call", daemon=True
        ).start()
        try:
            yield
        finally:
            ended.set()
            # The caller writes later than a note that is under way, unless the store is silent.
            if self._writing.acquire(timeout=PATIENCE):
                self._writing.release()
