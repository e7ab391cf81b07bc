"""SIGINT in the source: an exception at any line of acker, as of Ctrl-C in a notebook."""

import signal
from types import FrameType, TracebackType


class Interrupted(Exception):
    """A signal came in the middle of a call."""


class Interrupts:
    """A signal handler that raises within its `with` blocks, once each, and does nothing outside of them.

    What the source notes for itself is not what is tested.
    """

    def __init__(self) -> None:
        self.count = 0
        self._open = False
        signal.signal(signal.SIGINT, self._handle)

    def _handle(self, _: int, __: FrameType | None) -> None:
        if self._open:
            self._open = False
            self.count += 1
            raise Interrupted

    def __enter__(self) -> None:
        self._open = True

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open = False
