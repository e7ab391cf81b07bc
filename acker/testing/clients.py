"""Clients of a transport in memory, with the methods that steps use of confluent-kafka and of aiokafka."""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from acker.errors import AckerError
from acker.testing.groups import Group
from acker.testing.messages import Fault, Message, Partition, Record, TopicPartition, pairs_of

_NAP = 0.001


class MemoryConsumer:
    """A consumer of one group, as confluent-kafka's Consumer."""

    def __init__(self, group: Group) -> None:
        self._group, self._topics = group, list[str]()
        group.rejoin()

    def subscribe(self, topics: Sequence[str], **_: Any) -> None:
        """Names the topics. Callbacks of rebalances are not called: the group has one member."""
        self._topics = list(topics)

    def poll(self, timeout: float = -1) -> Message | None:
        """The next message, or an error as such; None after a short wait.

        Raises Drained where all are committed.
        """
        if self._group.is_faulty(self._topics):
            fault = Fault()
            return Message(Record(self._topics[0], -1, str(fault).encode(), None, ()), fault)
        record = self._group.take(self._topics)
        if record is None and timeout:
            time.sleep(_NAP)
        return None if record is None else Message(record)

    def consume(self, num_messages: int = 1, timeout: float = -1) -> list[Message]:
        """The next messages that are at hand. Raises Drained where all are committed."""
        messages = list[Message]()
        while len(messages) < num_messages and (message := self.poll(0 if messages else timeout)) is not None:
            messages.append(message)
        return messages

    def commit(self, message: Message | None = None, offsets: Any = None, asynchronous: bool = True) -> None:
        """Commits all messages that were given, or these up to a message, or below offsets.

        Raises KafkaException, as confluent-kafka does, if no message was given since the last commit;
        AckerError where that is not installed.
        """
        if message is not None:
            self._group.commit({message.topic(): message.offset() + 1})
        elif offsets is not None:
            self._group.commit({one.topic: one.offset for one in offsets})
        elif self._group.is_committed:
            raise _no_offset()
        else:
            self._group.commit()

    def unsubscribe(self) -> None:
        """Leaves the topics. The next subscription begins at what was committed."""
        self._topics = []
        self._group.rejoin()

    def assignment(self) -> list[TopicPartition]:
        """The partitions: one of each topic."""
        return [TopicPartition(topic) for topic in self._topics]

    def close(self) -> None:
        """Leaves the group."""


class MemoryProducer:
    """A producer, as confluent-kafka's Producer: messages are in their topic after `flush` or `poll`."""

    def __init__(self, append: Callable[[str, Any, Any, Any], Record], fails: Callable[[], bool]) -> None:
        self._append, self._fails = append, fails
        self._waiting: list[tuple[Record, Callable[[Any, Any], None] | None]] = []

    def produce(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        partition: int = -1,
        on_delivery: Callable[[Any, Any], None] | None = None,
        timestamp: int = 0,
        headers: Any = None,
        *,
        callback: Callable[[Any, Any], None] | None = None,
    ) -> None:
        """Takes a message."""
        record = Record(topic, -1, _bytes(value), _bytes(key), pairs_of(headers))
        self._waiting.append((record, on_delivery or callback))

    def poll(self, timeout: float = 0) -> int:
        """Delivers what waits, and calls the callbacks; returns how many."""
        waiting, self._waiting = self._waiting, []
        for record, report in waiting:
            fault = self._fails()
            if not fault:
                record = self._append(record.topic, record.value, record.key, record.headers)
            if report is not None:
                report(
                    "undelivered" if fault else None, Message(replace(record, headers=()))
                )  # as the client has it
        return len(waiting)

    def flush(self, timeout: float = -1) -> int:
        """Delivers what waits; returns 0."""
        self.poll()
        return 0

    def __len__(self) -> int:
        return len(self._waiting)


class AsyncMemoryConsumer:
    """A consumer of one group, as aiokafka's AIOKafkaConsumer."""

    def __init__(self, group: Group) -> None:
        self._group, self._topics = group, list[str]()

    async def start(self) -> None:
        """Does nothing."""

    async def stop(self) -> None:
        """Does nothing."""

    def subscribe(self, topics: Sequence[str] = (), pattern: Any = None, listener: Any = None) -> None:
        """Names the topics, and begins at what was committed. No rebalance comes."""
        self._topics = list(topics)
        self._group.rejoin()

    def assignment(self) -> frozenset[Partition]:
        """The partitions: one of each topic."""
        return frozenset(Partition(topic) for topic in self._topics)

    async def getmany(
        self, *partitions: Any, timeout_ms: int = 0, max_records: int | None = None
    ) -> dict[Partition, list[Record]]:
        """The messages that are at hand, in the order of the transport.

        Raises Drained where all are committed.
        """
        await asyncio.sleep(0)
        first = self._group.take(self._topics)
        if first is None:
            await asyncio.sleep(min(timeout_ms / 1000, _NAP))
            return {}
        return {Partition(first.topic): [first]}

    async def getone(self, *partitions: Any) -> Record:
        """The next message. Raises Drained where all are committed."""
        while True:
            for [record] in (await self.getmany(timeout_ms=1)).values():
                return record

    async def commit(self, offsets: Any = None) -> None:
        """Commits all messages that were given, or these below offsets by partition."""
        self._group.commit(None if offsets is None else {at.topic: to for at, to in offsets.items()})


class AsyncMemoryProducer:
    """A producer, as aiokafka's AIOKafkaProducer."""

    def __init__(self, append: Callable[[str, Any, Any, Any], Record], fails: Callable[[], bool]) -> None:
        self._append, self._fails = append, fails
        self._waiting: list[tuple[Record, asyncio.Future[Record]]] = []

    async def start(self) -> None:
        """Does nothing."""

    async def stop(self) -> None:
        """Delivers what waits."""
        await self.flush()

    async def send(
        self, topic: str, value: Any = None, key: Any = None, *, headers: Any = None, **_: Any
    ) -> "asyncio.Future[Record]":
        """Takes a message; the future has it when it is delivered."""
        future: asyncio.Future[Record] = asyncio.get_running_loop().create_future()
        self._waiting.append((Record(topic, -1, _bytes(value), _bytes(key), pairs_of(headers)), future))
        return future

    async def send_and_wait(self, topic: str, value: Any = None, key: Any = None, **named: Any) -> Record:
        """Takes a message, and delivers it. Raises AckerError where it is not delivered."""
        future = await self.send(topic, value, key, **named)
        await self.flush()
        return await future

    async def flush(self) -> None:
        """Delivers what waits."""
        waiting, self._waiting = self._waiting, []
        for record, future in waiting:
            if future.done():
                continue
            if self._fails():
                future.set_exception(AckerError("undelivered"))
                future.exception()  # nobody has to look at it
            else:
                future.set_result(self._append(record.topic, record.value, record.key, record.headers))
        await asyncio.sleep(0)


def _no_offset() -> Exception:
    """The error of a commit without a message since the last one."""
    try:
        from confluent_kafka import KafkaError, KafkaException
    except ModuleNotFoundError:
        return AckerError("commit: expected a message since the last commit, got none")
    return KafkaException(KafkaError(KafkaError._NO_OFFSET))


def _bytes(value: Any) -> bytes | None:
    return value.encode() if isinstance(value, str) else value
