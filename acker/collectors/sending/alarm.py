"""Alarm: the time of the next send by an outbox's thread."""

import threading
import time


class Alarm:
    """A time that any thread sets and one thread waits for. The lock guards all of it.

    Args:
        lock: The outbox's lock.
        linger: Seconds for which the waiting thread wakes by itself while times are set and taken back, as by
            flushes: a wake-up for each would cost more than the flush.
    """

    def __init__(self, lock: threading.RLock, linger: float) -> None:
        self._come = threading.Condition(lock)
        self._linger = linger
        self.due: float | None = None
        self._wakes: float | None = None
        self._set = False

    @property
    def rings(self) -> bool:
        """True if the time has come."""
        return self.due is not None and self.due <= time.monotonic()

    def set(self, due: float) -> None:
        """Sets the time.

        If the thread would wake too late by itself, it is woken first: an interrupt after that leaves the
        alarm unchanged.
        """
        if self._wakes is None or due < self._wakes:
            self.wake()
        self.due, self._set = due, True

    def wake(self) -> None:
        """Makes the thread look again."""
        self._come.notify_all()

    def wait(self) -> None:
        """Waits until the time may have come."""
        now, self._wakes = time.monotonic(), self.due
        if self.due is None and self._set and self._linger:
            self._wakes, self._set = now + self._linger, False
        self._come.wait(None if self._wakes is None else self._wakes - now)
