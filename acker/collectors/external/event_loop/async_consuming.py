"""The usual loop over a client of Kafka on an event loop: rows, then one flush, then the offsets.

It needs no client at import. A consumer is any object with the methods of aiokafka's AIOKafkaConsumer, and a
producer is any object with a coroutine `flush`.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, Protocol

from acker.collectors.external.consuming import ConsumerLoop, goes_on
from acker.collectors.external.exchange import Exchange
from acker.collectors.external.row import Row
from acker.errors import AckerError

_POLL, _TURN = 0.1, 0.005
_log = logging.getLogger("acker")


class Extracting(Protocol):
    """The part of an `AsyncIncoming` that the loop uses."""

    stream: str

    async def extract(self, headers: Any, where: str = "") -> Row:
        """Reads what a message carries."""


class AsyncConsuming(ConsumerLoop):
    """Reads a consumer's messages as rows, and commits them, in the order of `acker.Topology.flush`.

    A rebalance comes as a task of its own. It waits for the row in work, commits what was worked on, and
    drops messages that were read ahead: the next owner of their partitions has them.
    """

    def __init__(
        self,
        incoming: Extracting,
        exchange: Exchange,
        flush: Callable[[], Awaitable[None]],
        consumer: Any,
        producers: Sequence[Any],
        rows: int,
        seconds: float,
    ) -> None:
        super().__init__(incoming.stream, consumer, exchange)
        self._incoming, self._flush, self._producers = incoming, flush, producers
        self._rows, self._seconds = rows, seconds
        self._since, self._due = 0, time.monotonic() + seconds
        self._turn = asyncio.Lock()
        """Held by the row in work, and by a commit."""
        self._messages: deque[tuple[Any, Any]] = deque()
        self._worked: dict[Any, int] = {}
        """The offset behind the last row that was worked on, by partition."""
        self._error: AckerError | None = None

    async def run(self, topics: Sequence[str], running: Callable[[], object]) -> AsyncIterator[Row]:
        """Subscribes, and yields rows while `running()` is true; flushes by rows and time, and at its end."""
        for _ in range(2):  # turns of the event loop, which closes a loop that was dropped
            await asyncio.sleep(0)
        self._exchange.begin(self)
        shared = time.monotonic()
        try:
            self.consumer.subscribe(list(topics), listener=_listener(self))
            while goes_on(running):
                await self._read()
                async with self._turn:
                    if self._error is not None:
                        raise self._error
                    if self._messages:
                        partition, message = self._messages.popleft()
                        where = f"{message.topic}/{message.partition}@{message.offset}"
                        row = await self._incoming.extract(message.headers, where)
                        row.message = message
                        self._row = row
                        yield row
                        self._take_back(row)
                        self._since += 1
                        self._worked[partition] = message.offset + 1
                    if self._since >= self._rows or time.monotonic() >= self._due:
                        await self._commit()
                if (
                    time.monotonic() - shared > _TURN
                ):  # rows that are at hand must not keep other tasks waiting
                    await asyncio.sleep(0)
                    shared = time.monotonic()
            async with self._turn:
                await self._commit()
        finally:
            self.end()

    async def _read(self) -> None:
        """Reads messages ahead, if none is at hand."""
        if not self._messages:
            wait = min(_POLL, max(0.0, self._due - time.monotonic()))
            read = await self.consumer.getmany(timeout_ms=int(wait * 1000), max_records=self._rows)
            self._messages.extend((where, one) for where, messages in read.items() for one in messages)

    async def _commit(self) -> None:
        """Delivers, flushes and commits what was worked on; in its turn."""
        for producer in self._producers:
            await producer.flush()
        await self._flush()
        present = self.consumer.assignment()
        offsets = {where: offset for where, offset in self._worked.items() if where in present}
        if offsets:
            try:
                await self.consumer.commit(offsets)
            except Exception as error:  # noqa: BLE001 - the client's: its rows come again, which changes nothing
                _log.warning("stream %s: offsets are not committed: %s", self.stream, error)
        self._worked = {}
        self._since, self._due = 0, time.monotonic() + self._seconds

    async def on_partitions_revoked(self, _: Any) -> None:
        """Commits what was worked on of partitions that go to another member."""
        if self.ended:
            return
        try:
            async with asyncio.timeout(self._seconds):
                await self._turn.acquire()
        except TimeoutError:
            self._messages.clear()  # the row in work is not committed: it comes again
            return
        try:
            self._messages.clear()
            if self._since:
                await self._commit()
        except AckerError as error:  # the client would only log it
            self._error = error
        finally:
            self._turn.release()

    async def on_partitions_assigned(self, _: Any) -> None:
        """Does nothing: partitions begin at their committed offsets."""


def _listener(loop: AsyncConsuming) -> Any:
    """The loop as a listener of rebalances, which aiokafka takes only of a type of its own."""
    try:
        from aiokafka import ConsumerRebalanceListener
    except ModuleNotFoundError:  # the consumer is of another client
        return loop
    if not issubclass(AsyncConsuming, ConsumerRebalanceListener):
        ConsumerRebalanceListener.register(AsyncConsuming)
    return loop
