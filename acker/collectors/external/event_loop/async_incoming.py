"""Receiving rows of an external stream on an event loop.

Terms: a segment is the rows of an external stream that one sender stamped together.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

from acker.collectors.external.consuming import checked
from acker.collectors.external.event_loop.async_consuming import AsyncConsuming
from acker.collectors.external.exchange import Exchange
from acker.collectors.external.opening import Opened
from acker.collectors.external.receiving import Receiver
from acker.collectors.external.row import Row
from acker.collectors.external.rows import Rows
from acker.collectors.tuples import listed
from acker.errors import ValidationError
from acker.store.operation import Operation
from acker.streams.staging.external.rows import carriers


class AsyncIncoming(Receiver):
    """The rows of an external stream, for one subscription. Made by `AsyncTopology.incoming`.

    It is `Incoming` on an event loop: calls that may ask the store are coroutines, and `ack` and `fail` are
    plain calls, because `AsyncTopology.flush` alone sends them.
    """

    def __init__(
        self,
        exchange: Exchange,
        opened: Opened,
        run: Callable[[Operation[None]], Awaitable[None]],
        flush: Callable[[], Awaitable[None]],
    ) -> None:
        super().__init__(exchange, *opened)
        self._run, self._flush = run, flush

    async def extract(self, headers: Any, where: str = "") -> Row:
        """Reads what a message carries.

        Args:
            headers: A sequence of pairs or a dict, or None: as the transport's client gives them.
            where: A name for the row, as "items/3@1204", for error messages.

        Returns:
            The row, as of `Incoming.extract`. A call that is cancelled has made none.

        Raises:
            StoreUnavailable: The row is of a segment that this process has not seen lately, and the store is
                away. Nothing that a message carries is an error.
            StreamLost: The stream was removed, or lost, since this process began to use it.
        """
        value = carriers.find(headers)
        row = self._usual_row(value, where)
        if row is None:
            [row] = await self._rows([value], [where])
        return row

    async def extract_many(self, headers: Sequence[Any]) -> Rows:
        """Reads what messages carry, as `extract` does for each, with one question to the store for all.

        Returns:
            As of `Incoming.extract_many`.
        """
        many = listed(headers, "the headers of several messages, as a list", ValidationError)
        return await self.read(carriers.find_many(many))

    async def read(self, stamps: Sequence[Any]) -> Rows:
        """Reads bare stamps, as columns and JSON have them; None is no stamp."""
        stamps = listed(stamps, "several stamps, as a list", ValidationError)
        if (usual := self._read_usual(stamps)) is not None:
            if asked := self._unknown(usual):
                await self._run(self._learn(self._known, asked))
            if (rows := self._usual_rows(usual)) is not None:
                return rows
        return Rows(self, None, await self._rows(stamps, [""] * len(stamps)))

    def consume(
        self,
        consumer: Any,
        topics: Sequence[str] = (),
        *,
        producers: Sequence[Any] = (),
        rows: int = 1_000,
        seconds: float = 1.0,
        running: Callable[[], object] = lambda: True,
    ) -> AsyncIterator[Row]:
        """Reads rows from Kafka: each is acked or failed before the next; flushes and commits offsets itself.

        Args:
            consumer: aiokafka's AIOKafkaConsumer, started, with `enable_auto_commit=False`.
            topics: Topics to subscribe to; without, the one with the stream's name.
            producers: AIOKafkaProducers of the rows that are sent on: they deliver before each flush.
            rows: Number of rows after which it flushes and commits.
            seconds: Seconds after which it does so; also the longest wait of a rebalance for the row in work.
            running: Is asked before each row; False ends the loop after a last flush.

        Yields:
            Rows, with `message`. A loop that is left early, cancelled or ended by an exception commits
            nothing more: its last row is neither acked nor failed, and comes again. `consume` may be called
            again, also with the same consumer, which goes on from its committed offsets.

        Raises:
            AckerError: A row was neither acked nor failed, and what `AsyncTopology.flush` raises. Offsets are
                not committed then. Also at the first row, if another loop over the topology goes on: give
                each loop an AsyncTopology of its own.
        """
        chosen = list(topics) or [self.stream]
        checked(rows, seconds, chosen)
        loop = AsyncConsuming(self, self._exchange, self._flush, consumer, producers, rows, seconds)
        return loop.run(chosen, running)

    async def _rows(self, values: Sequence[Any], names: Sequence[str]) -> list[Row]:
        stamps = self._read(values)
        if new := self._new_keys(values, stamps):
            await self._run(self._learn_keys(new))
            stamps = self._read(values)
        over_by_token, asked = self._look(stamps)
        if asked:
            await self._run(self._learn(over_by_token, asked))
        return self._make_rows(stamps, names, over_by_token)
