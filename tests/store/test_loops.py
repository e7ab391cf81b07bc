"""A loop goes on whatever its step raises, and ends whenever it is told to."""

import logging
import threading
from functools import partial

import pytest

from acker.errors import StoreUnavailable
from acker.store import loops
from acker.store.loops import Pace

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
        loops.run(stop, lambda: None, Pace(LOG, "it", 0.001, 0.01), woken=woken)
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

    loops.run(stop, step, Pace(LOG, "outcomes wait", 0.001, 0.01))
    assert [entry.getMessage() for entry in caplog.records] == [
        "outcomes wait: away", "outcomes wait: over after 3 attempts",
        "outcomes wait: 1", "outcomes wait: over after 2 attempts",
    ]  # fmt: skip


def test_all_actions_are_called_before_the_first_error_is_raised() -> None:
    called = list[int]()

    def action(number: int) -> None:
        called.append(number)
        if number:
            raise StoreUnavailable(str(number))

    with pytest.raises(StoreUnavailable, match="1"):
        loops.call_all(*(partial(action, number) for number in (0, 1, 2, 0)))
    assert called == [0, 1, 2, 0]
