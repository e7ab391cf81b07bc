"""A transport in memory for tests of steps: no broker, and the faults of a real one on demand."""

import random
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import Any, ParamSpec

from acker.collectors.topology import Topology
from acker.testing.clients import AsyncMemoryConsumer, AsyncMemoryProducer, MemoryConsumer, MemoryProducer
from acker.testing.groups import Drained, Faults, Group
from acker.testing.messages import Message, Record
from acker.testing.stamped import Stamped, Value

P = ParamSpec("P")


class Transport:
    """Topics in memory, with the faults of real transports: rows come twice, late, out of order, or never.

    The faults of a seed are the same in each run. A row that is duplicated, delayed or reordered comes at
    most ten rows or polls later than without the fault.

    Args:
        seed: Of the faults.
        duplicated: The chance of a row to come twice, from 0 to 1.
        lost: The chance never to come.
        delayed: The chance to come only after some polls that find nothing.
        reordered: The chance to come after rows that were sent later.
        undelivered: The chance of a row that is sent not to be delivered, which its producer reports.
        errors: The chance of an error that a consumer as confluent-kafka's gives before a row, as a message.

    Raises:
        ValidationError: A chance is out of range.

    Examples:
        >>> def split(topology, consumer, producer):  # the step to test
        ...     lines = topology.incoming("lines", subscription="split")
        ...     words = topology.outgoing("words")
        ...     for row in lines.consume(consumer, producers=[producer], seconds=0.1):
        ...         if not row.message.value():
        ...             lines.fail(row, "empty")
        ...             continue
        ...         for word in row.message.value().split():
        ...             headers = words.inject(row.message.headers(), row)
        ...             producer.produce("words", word, headers=headers, on_delivery=words.reports(headers))
        ...         lines.ack(row)
        >>> transport = Transport(seed=1, duplicated=0.5, delayed=0.5, reordered=0.5)
        >>> lines = transport.stamped(topology, "lines", "split", [b"the quick fox", b""])
        >>> transport.run(split, topology, transport.consumer("split"), transport.producer())
        >>> lines.acked
        [b'the quick fox']
        >>> [(line.value, line.reason) for line in lines.failed]
        [(b'', 'empty')]
        >>> sorted({(word, *made_of) for word, made_of in lines.sent("words")})[0]
        (b'fox', b'the quick fox')
    """

    def __init__(
        self,
        seed: int = 0,
        *,
        duplicated: float = 0.0,
        lost: float = 0.0,
        delayed: float = 0.0,
        reordered: float = 0.0,
        undelivered: float = 0.0,
        errors: float = 0.0,
    ) -> None:
        self._faults = Faults(duplicated, lost, delayed, reordered, undelivered, errors)
        self._faults.check()
        self._seed, self._chance = seed, random.Random(f"{seed}/producers")
        self._topics: dict[str, list[Record]] = {}
        self._groups: dict[str, Group] = {}
        self._stamped = 0

    def consumer(self, group: str) -> MemoryConsumer:
        """A consumer as confluent-kafka's; it begins at what its group has committed.

        Args:
            group: Its group.
        """
        return MemoryConsumer(self._group(group))

    def producer(self) -> MemoryProducer:
        """A producer as confluent-kafka's."""
        return MemoryProducer(self._append, self._fails)

    def async_consumer(self, group: str) -> AsyncMemoryConsumer:
        """A consumer as aiokafka's; it begins at what its group has committed.

        Args:
            group: Its group.
        """
        return AsyncMemoryConsumer(self._group(group))

    def async_producer(self) -> AsyncMemoryProducer:
        """A producer as aiokafka's."""
        return AsyncMemoryProducer(self._append, self._fails)

    def sent(self, topic: str) -> list[Message]:
        """The messages of a topic, in the order in which they were sent.

        Args:
            topic: The topic.
        """
        return [Message(record) for record in self._topics.get(topic, ())]

    def stamped(
        self,
        topology: Topology,
        stream: str,
        subscription: str,
        values: Iterable[Value],
        *,
        topic: str = "",
    ) -> Stamped:
        """Sends rows to a topic: each is of a record of its own, and is stamped.

        Args:
            topology: The topology. Its flush is called.
            stream: The external stream.
            subscription: The step's subscription, which is created if it is missing.
            values: The rows: a value each, or a pair of a value and headers.
            topic: The topic; without it, the stream's name.

        Returns:
            The rows: they tell what a step has sent, acked and failed.
        """
        self._stamped += 1
        return Stamped(
            topology, stream, subscription, values, f"stamped-{self._stamped}", self, topic or stream
        )

    def run(self, step: Callable[P, object], *given: P.args, **named: P.kwargs) -> None:
        """Calls a step, and ends it when all rows were worked on and committed.

        Args:
            step: The function; it may loop for ever.
            *given: Its arguments.
            **named: Its arguments by name.

        Raises:
            AckerError: The step has all rows, and has not committed them for half a minute.
        """
        with suppress(Drained):
            step(*given, **named)

    async def run_async(
        self, step: Callable[P, Awaitable[object]], *given: P.args, **named: P.kwargs
    ) -> None:
        """Awaits a step, and ends it when all rows were worked on and committed, as `run` does.

        Args:
            step: The coroutine function.
            *given: Its arguments.
            **named: Its arguments by name.
        """
        with suppress(Drained):
            await step(*given, **named)

    def _group(self, name: str) -> Group:
        if name not in self._groups:
            self._groups[name] = Group(self._log, f"{self._seed}/{name}", self._faults)
        return self._groups[name]

    def _log(self, topic: str) -> list[Record]:
        return self._topics.setdefault(topic, [])

    def _append(self, topic: str, value: Any, key: Any, headers: Any) -> Record:
        log = self._log(topic)
        log.append(Record(topic, len(log), value, key, headers))
        return log[-1]

    def _fails(self) -> bool:
        return self._chance.random() < self._faults.undelivered
