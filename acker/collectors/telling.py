"""The outcomes that one call of `Spout.outcomes` tells."""

import time
from collections.abc import Iterator

from acker.collectors.inbox import Inbox
from acker.collectors.outbox import Outbox
from acker.collectors.pending import Outcome
from acker.errors import AckerError

TOLD_A_CALL = 100_000
"""Outcomes that one call of `Spout.outcomes` gives where fewer are left. While so many wait, emit waits."""


class Telling(Iterator[Outcome]):
    """Outcomes as they are taken: an interrupt leaves the one at hand to the next call.

    A generator could not tell whether an interrupt comes before its caller has the outcome, or after.
    """

    def __init__(self, outbox: Outbox, inbox: Inbox, timeout: float | None) -> None:
        self._outbox = outbox
        self._inbox = inbox
        self._timeout = timeout or 0.0
        self._deadline: float | None = None
        self._told = 0

    def __next__(self) -> Outcome:
        """Waits for the first outcome, and for no other."""
        if self._deadline is None:
            self._outbox.hurry()
            self._deadline = time.monotonic() + self._timeout
        ready, lock = self._inbox.pending.ready, self._outbox.lock
        number, outcome = 0, None
        try:
            # Who emits and takes outcomes in one thread must be able to emit after this: see Spout.emit.
            while self._told < TOLD_A_CALL or len(ready) >= TOLD_A_CALL:
                with lock:
                    if ready:
                        number = next(iter(ready))
                        outcome = ready[number]
                        del ready[number]
                        if len(ready) == TOLD_A_CALL - 1:
                            self._outbox.changed.notify_all()
                        self._told += 1
                        return outcome
                try:
                    more = self._inbox.wait(0.0 if self._told else self._deadline, hurry=bool(self._told))
                except AckerError:
                    if not self._told:
                        raise
                    break  # an error must not take from the caller what this call has reported already
                if not more:
                    break
        except BaseException:
            if outcome is not None:
                with lock:
                    ready[number] = outcome
                    ready.move_to_end(number, last=False)
            raise
        raise StopIteration
