"""Commands that a signal stops: they run until then, or go on page by page."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from acker.cli.shared.statuses import Status

_LOOK = 1.0


class Stop(threading.Event):
    """An event that signals set. number: the signal that was first, 0 before."""

    number = 0

    @property
    def status(self) -> Status:
        """The status of a command that runs until it is stopped.

        SIGTERM is its orderly end, by which service managers stop it. Ctrl-C interrupts it as any command, so
        a script around it stops, too.
        """
        return Status.INTERRUPTED if self.number == signal.SIGINT else Status.DONE

    def handle(self, number: int, _: FrameType | None) -> None:
        """Handles a signal."""
        self.number = self.number or number
        self.set()


def stop_on_signals() -> Stop:
    """An event that SIGINT and SIGTERM set."""
    stop = Stop()
    signal.signal(signal.SIGINT, stop.handle)
    signal.signal(signal.SIGTERM, stop.handle)
    return stop


def wait_until(stop: threading.Event, ended: threading.Event | None = None) -> None:
    """Waits for an event of `stop_on_signals`, or for another one, in the main thread.

    It looks up now and then: where the system gives a signal to another thread, this one is not woken.
    """
    while not stop.wait(_LOOK) and not (ended is not None and ended.is_set()):
        pass


@contextmanager
def between_pages() -> Iterator[Stop]:
    """An event that the first SIGINT sets, so that a loop ends after its page; a second ends it at once."""
    stop = Stop()

    def handle(number: int, frame: FrameType | None) -> None:
        stop.handle(number, frame)
        signal.signal(signal.SIGINT, before)

    before = signal.getsignal(signal.SIGINT)
    signal.signal(signal.SIGINT, handle)
    try:
        yield stop
    finally:
        signal.signal(signal.SIGINT, before)
