"""The outcomes that one call of `Spout.outcomes` reports."""

import time
from collections.abc import Iterator

from acker.collectors.inbox import Inbox
from acker.collectors.outbox import Outbox
from acker.collectors.outcome import Outcome
from acker.collectors.pending import MOST_READY
from acker.errors import AckerError


class Reports(Iterator[Outcome]):
    """Outcomes as they are taken: an interrupt leaves the one at hand to the next call.

    A generator could not tell whether an interrupt comes before its caller has the outcome, or after.
    """

    def __init__(self, outbox: Outbox, inbox: Inbox, timeout: float | None) -> None:
        self._outbox = outbox
        self._inbox = inbox
        self._timeout = timeout or 0.0
        self._deadline: float | None = None
        self._taken = 0

    def __next__(self) -> Outcome:
        """Waits for the first outcome, and for no other."""
        self._outbox.check_whole()
        if self._deadline is None:
            self._outbox.hurry()
            self._deadline = time.monotonic() + self._timeout
        pending, lock = self._inbox.pending, self._outbox.lock
        number, outcome = 0, None
        try:
            # Who emits and takes outcomes in one thread must be able to emit after this: see Spout.emit.
            while self._taken < MOST_READY or pending.ready >= MOST_READY:
                with lock:
                    if (oldest := pending.oldest()) is not None:
                        number, outcome = oldest
                        pending.take(number)
                        self._taken += 1
                        return outcome
                if self._taken and self._inbox.fresh:
                    break
                try:
                    more = self._inbox.wait(0.0 if self._taken else self._deadline, hurry=bool(self._taken))
                except AckerError:
                    if not self._taken:
                        raise
                    break  # an error must not take from the caller what this call has reported already
                if not more:
                    break
        except BaseException:
            if outcome is not None:
                with lock:
                    pending.put_back(number, outcome)
            raise
        raise StopIteration
