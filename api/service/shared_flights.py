"""Flights of a store that operations of one event loop share."""

import asyncio
from collections.abc import Sequence
from typing import TypeAlias
from weakref import WeakKeyDictionary

from acker.errors import AckerError, StoreUnavailable
from acker.store.async_client import AsyncStore
from acker.store.operation import FLIGHT, NOTHING, Reply, Request

Waiting: TypeAlias = tuple[Sequence[Request], asyncio.Future[list[Reply]]]
"""Requests of an operation, and the future of their replies."""


class SharedFlights(AsyncStore):
    """A store whose operations share flights: what runs side by side on a loop is sent as one.

    For many small operations of one process, because an exchange costs more than its requests. On a cluster
    each operation has flights of its own, so that a server that is away holds up no other.
    """

    def _start(self) -> None:
        super()._start()
        self._waiting: WeakKeyDictionary[asyncio.AbstractEventLoop, list[Waiting]] = WeakKeyDictionary()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def shares(self) -> bool:
        """False on a cluster."""
        return self._settings.address.kind != "cluster"

    async def send(self, requests: Sequence[Request]) -> list[Reply]:
        """Sends a flight, together with the flights of other tasks in the same turn of the loop."""
        alone = any(one.wait != NOTHING or (one.script is None and one.blocks) for one in requests)
        if alone or not self.shares:
            return await super().send(requests)
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[list[Reply]] = loop.create_future()
        waiting = self._waiting.setdefault(loop, [])
        if not waiting:
            loop.call_soon(self._begin, loop)
        waiting.append((requests, answer))
        return await answer

    def _begin(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begins to send what waits, in flights of bounded size."""
        part, size = list[Waiting](), 0
        for requests, answer in self._waiting.pop(loop):
            if part and size + len(requests) > FLIGHT:
                self._send_soon(loop, part)
                part, size = [], 0
            part.append((requests, answer))
            size += len(requests)
        self._send_soon(loop, part)

    def _send_soon(self, loop: asyncio.AbstractEventLoop, part: list[Waiting]) -> None:
        task = loop.create_task(self._send_together(part))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _send_together(self, part: list[Waiting]) -> None:
        """Sends a part. After a refusal each flight is sent by itself, to be refused or answered."""
        try:
            replies = await super().send([request for requests, _ in part for request in requests])
        except (AckerError, asyncio.CancelledError) as error:
            if len(part) > 1 and isinstance(error, AckerError) and not isinstance(error, StoreUnavailable):
                for one in part:
                    await self._send_together([one])
                return
            for _, answer in part:
                if isinstance(error, asyncio.CancelledError):
                    answer.cancel()
                elif not answer.done():
                    answer.set_exception(error)
            return
        first = 0
        for requests, answer in part:
            if not answer.done():
                answer.set_result(replies[first : first + len(requests)])
            first += len(requests)
