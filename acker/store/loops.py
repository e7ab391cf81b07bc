"""Loops that repeat a step until they are stopped, in a thread or on an event loop, and heartbeats."""

import asyncio
import logging
import random
import threading
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any

from acker.errors import AckerError, is_interrupt
from acker.store.operation import Request

_DOUBLINGS = 10
_RANDOM = random.SystemRandom()
_WAITS = "a heartbeat waits for the store"
_log = logging.getLogger(__name__)


class Pace:
    """The pauses of a loop. An error is logged once, and its end, too; pauses after errors grow.

    Args:
        log: The log of the loop.
        label: The first words of its entries: "outcomes wait" gives "outcomes wait: ...".
        pause: Seconds after a step that returns None.
        longest: Most seconds after an error.
    """

    def __init__(self, log: logging.Logger, label: str, pause: float, longest: float) -> None:
        self._log, self._label = log, label
        self.pause, self.longest = pause, longest
        self._failures = 0

    def succeeded(self, asked: float | None) -> float:
        """Returns the pause after a step that returned `asked`."""
        if self._failures:
            self._log.warning("%s: over after %d attempts", self._label, self._failures)
        self._failures = 0
        return self.pause if asked is None else asked

    def failed(self, error: BaseException) -> float:
        """Returns the pause after a step that raised an error. Raises an interrupt again."""
        if is_interrupt(error):
            raise error
        if not self._failures:
            cause = None if isinstance(error, AckerError) else error
            self._log.warning("%s: %s", self._label, error, exc_info=cause)
        self._failures += 1
        pause = min(self.longest, self.pause * 2.0 ** min(self._failures, _DOUBLINGS))
        return _RANDOM.uniform(0.5, 1.0) * pause  # so that many processes do not come back at once


def run(
    stop: threading.Event,
    step: Callable[[], float | None],
    pace: Pace,
    *,
    first: float | None = None,
    woken: threading.Event | None = None,
) -> None:
    """Calls a step until `stop` is set, with pauses of as many seconds as it returns.

    first: seconds before the first call, if they differ from the usual pause. woken: ends a pause; it is set
    with `stop`.
    """
    wait = pace.pause if first is None else first
    while True:
        (woken or stop).wait(wait)
        if stop.is_set():
            return
        if woken is not None:  # never `stop`, which may be set just now
            woken.clear()
        try:
            wait = pace.succeeded(step())
        except BaseException as error:  # noqa: BLE001 - user code may raise anything, even SystemExit
            wait = pace.failed(error)


async def run_async(
    stop: asyncio.Event | None, step: Callable[[], Awaitable[float | None]], pace: Pace, *, first: float = 0
) -> None:
    """`run` on an event loop, until `stop` is set or the task is cancelled."""
    wait = first
    while True:
        if stop is None:
            await asyncio.sleep(wait)
        else:
            with suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), wait)
            if stop.is_set():
                return
        try:
            wait = pace.succeeded(await step())
        except Exception as error:  # noqa: BLE001 - the loop goes on, whatever its step meets
            wait = pace.failed(error)


def call_all(*actions: Callable[[], object]) -> None:
    """Calls all actions, whatever some of them raise; raises the first error after that."""
    errors = list[Exception]()
    for action in actions:
        try:
            action()
        except Exception as error:  # noqa: BLE001 - it is raised below
            errors.append(error)
    if errors:
        raise errors[0]


class _Beats:
    """Requests of an operation that are sent again and again, until it has ended."""

    __slots__ = ("_end", "_requests", "_send")

    def __init__(self, send: Callable[[Sequence[Request]], Any]) -> None:
        self._send = send
        self._requests: list[Request] = []
        self._end: Callable[[], object] | None = None

    def note(self, requests: Sequence[Request]) -> None:
        """Takes the heartbeats among requests before these are sent."""
        for request in requests:
            if request.every and request not in self._requests:
                self._requests.append(request)
                if self._end is None:
                    self._end = self._start()

    def end(self) -> None:
        """Ends the heartbeats. A heartbeat that was just sent may arrive later."""
        if self._end is not None:
            self._end()

    def _start(self) -> Callable[[], object]:
        """Starts to send; returns the function that ends it."""
        raise NotImplementedError

    def _period(self) -> float:
        return min(request.every for request in self._requests)


class Heartbeats(_Beats):
    """Heartbeats of one operation. A thread sends them, and begins with the first that the operation yields.

    So they continue while the operation computes or waits for a reply. They end with it, and with its
    process.
    """

    def _start(self) -> Callable[[], object]:
        ended, period = threading.Event(), self._period()
        args = ended, self._beat, Pace(_log, _WAITS, period, period)
        threading.Thread(target=run, args=args, name="acker-heartbeat", daemon=True).start()
        return ended.set

    def _beat(self) -> float:
        self._send(list(self._requests))
        return self._period()


class AsyncHeartbeats(_Beats):
    """`Heartbeats` on an event loop, sent by a task."""

    def _start(self) -> Callable[[], object]:
        period = self._period()
        beating = run_async(None, self._beat, Pace(_log, _WAITS, period, period), first=period)
        return asyncio.create_task(beating, name="acker-heartbeat").cancel

    async def _beat(self) -> float:
        await self._send(list(self._requests))
        return self._period()
