"""A loop goes on whatever its step raises, and ends whenever it is told to."""

import logging
import threading

import pytest

from acker.errors import StoreUnavailable
from acker.ledger import loops

LOG = logging.getLogger("loops")


class Stop(threading.Event):
    """An event that is set right after somebody has seen that it was not, `after` looks from the first."""

    def __init__(self, after: int) -> None:
        super().__init__()
        self._left = after

    def is_set(self) -> bool:
        seen = super().is_set()
        self._left -= 1
        if not self._left:
            self.set()
        return seen


@pytest.mark.parametrize("woken", [None, threading.Event()], ids=["by itself", "woken"])
def test_a_stop_is_seen_whenever_it_comes(woken: threading.Event | None) -> None:
    for after in range(1, 6):
        stop = Stop(after)
        loops.run(stop, lambda: None, log=LOG, what="it", pause=0.001, longest=0.01, woken=woken)
        assert stop.is_set()


def test_what_a_step_raises_is_logged_once_until_it_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    stop, left = threading.Event(), [StoreUnavailable("away")] * 3 + [None] + [SystemExit(1)] * 2 + [None]

    def step() -> float:
        error = left.pop(0)
        if not left:
            stop.set()
        if error is not None:
            raise error
        return 0.001

    loops.run(stop, step, log=LOG, what="outcomes wait", pause=0.001, longest=0.01)
    assert [one.getMessage() for one in caplog.records] == ["outcomes wait: away", "outcomes wait: 1"]
