"""Heartbeats of operations: requests that are sent again and again until their operation has ended."""

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable, Sequence

from acker.errors import AckerError
from acker.store.operation import Reply, Request

_log = logging.getLogger(__name__)


class Heartbeats:
    """Heartbeats of one operation. A thread sends them, and begins with the first that the operation yields.

    So they go on while the operation computes, or waits for a reply. They end with it, and with its process.
    """

    __slots__ = ("_ended", "_requests", "_send")

    def __init__(self, send: Callable[[Sequence[Request]], list[Reply]]) -> None:
        self._send = send
        self._requests: list[Request] = []
        self._ended: threading.Event | None = None

    def note(self, requests: Sequence[Request]) -> None:
        """Takes the heartbeats among requests that are about to be sent."""
        for one in requests:
            if one.every and one not in self._requests:
                self._requests.append(one)
                if self._ended is None:
                    self._ended = threading.Event()
                    args = self._send, self._requests, self._ended
                    threading.Thread(target=_beat, args=args, name="acker-heartbeat", daemon=True).start()

    def end(self) -> None:
        """Ends them. One that is on its way may arrive later."""
        if self._ended is not None:
            self._ended.set()


def _beat(
    send: Callable[[Sequence[Request]], list[Reply]], requests: list[Request], ended: threading.Event
) -> None:
    away = False
    while not ended.wait(min(one.every for one in requests)):
        try:
            send(list(requests))
            away = False
        except AckerError as error:  # the next one may reach the store
            away = _tell(error, away)


def _tell(error: AckerError, away: bool) -> bool:
    if not away:
        _log.warning("a heartbeat waits for the store: %s", error)
    return True


class AsyncHeartbeats:
    """`Heartbeats` on an event loop: a task sends them."""

    __slots__ = ("_requests", "_send", "_task")

    def __init__(self, send: Callable[[Sequence[Request]], Awaitable[list[Reply]]]) -> None:
        self._send = send
        self._requests: list[Request] = []
        self._task: asyncio.Task[None] | None = None

    def note(self, requests: Sequence[Request]) -> None:
        """Takes the heartbeats among requests that are about to be sent."""
        for one in requests:
            if one.every and one not in self._requests:
                self._requests.append(one)
                if self._task is None:
                    self._task = asyncio.create_task(self._beat(), name="acker-heartbeat")

    def end(self) -> None:
        """Ends them."""
        if self._task is not None:
            self._task.cancel()

    async def _beat(self) -> None:
        away = False
        while True:
            await asyncio.sleep(min(one.every for one in self._requests))
            try:
                await self._send(list(self._requests))
                away = False
            except AckerError as error:
                away = _tell(error, away)
