"""Programs that kill themselves at one of their calls."""

import os
import signal
from collections.abc import Callable
from typing import Any


class Count:
    """Counts calls, before and after each. kill_at: the number of the call that is never reached; 0: none."""

    def __init__(self, kill_at: int) -> None:
        self._left = kill_at

    def add(self) -> None:
        """Counts one; kills the process at the last."""
        self._left -= 1
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def counted(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """A call that is counted before and after it."""

        def wrapped(*given: Any, **named: Any) -> Any:
            self.add()
            result = call(*given, **named)
            self.add()
            return result

        return wrapped
