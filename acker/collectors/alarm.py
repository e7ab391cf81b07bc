"""The time at which the thread of an outbox is to send next."""

import threading
import time


class Alarm:
    """A time that is set by any thread and waited for by one. All of it is guarded by the lock.

    linger: seconds for which the waiting thread wakes by itself while times are set and taken back, as by
    flushes: to be woken for each costs more than what they do.
    """

    def __init__(self, lock: threading.RLock, linger: float) -> None:
        self._come = threading.Condition(lock)
        self._linger = linger
        self.due: float | None = None
        self._wakes: float | None = None
        self._set = False

    @property
    def rings(self) -> bool:
        """True when the time has come."""
        return self.due is not None and self.due <= time.monotonic()

    def set(self, due: float) -> None:
        """Sets the time.

        The thread is woken where it would wake too late by itself, and before: an interrupt in between leaves
        the alarm as it was.
        """
        if self._wakes is None or due < self._wakes:
            self.wake()
        self.due, self._set = due, True

    def wake(self) -> None:
        """Has the thread look again."""
        self._come.notify_all()

    def wait(self) -> None:
        """Waits until the time may have come."""
        now, self._wakes = time.monotonic(), self.due
        if self.due is None and self._set and self._linger:
            self._wakes, self._set = now + self._linger, False
        self._come.wait(None if self._wakes is None else self._wakes - now)
