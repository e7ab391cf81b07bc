"""Receiving rows of an external stream, in calls that wait for the store where they must.

Terms: a tree is all that comes of one record; a segment is the rows of an external stream that one sender
stamped together.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from acker.collectors.external.blocking import BlockingExchange
from acker.collectors.external.consuming import Consuming, checked
from acker.collectors.external.opening import Opened
from acker.collectors.external.receiving import Receiver
from acker.collectors.external.row import Row
from acker.collectors.external.rows import Rows
from acker.collectors.tuples import listed
from acker.errors import ValidationError
from acker.streams.staging.external.rows import carriers


class Incoming(Receiver):
    """The rows of an external stream, for one subscription. Made by `Topology.incoming`, for any thread.

    A row is extracted from what its message carries, and acked or failed when it was worked on. That is kept
    until `Topology.flush`, which every thread may call while no row is in work.

    A row may go to another thread, which acks it; a second ack or fail is a TupleError. A forked child begins
    with no rows: to ack, fail or stamp a row that its parent has extracted is a TupleError there.
    """

    _exchange: BlockingExchange

    def __init__(self, exchange: BlockingExchange, opened: Opened, flush: Callable[[], None]) -> None:
        super().__init__(exchange, *opened)
        self._flush = flush

    def extract(self, headers: Any, where: str = "") -> Row:
        """Reads what a message carries.

        Args:
            headers: A list of pairs or a dict, or None: as the transport's client gives them.
            where: A name for the row, as "items/3@1204", for error messages.

        Returns:
            The row. It is untracked where the message has no stamp, or one that cannot be read, or that is of
            another stream, or whose trees are over.

        Raises:
            StoreUnavailable: The row is of a segment that this process has not seen lately, and the store is
                away. Nothing that a message carries is an error.
            StreamLost: The stream was removed, or lost, since this process began to use it.
            UnknownSubscription: The subscription was dropped, or lost.
        """
        value = carriers.find(headers)
        row = self._usual_row(value, where)
        if row is None:
            [row] = self._rows([value], [where])
        return row

    def extract_many(self, headers: Sequence[Any]) -> Rows:
        """Reads what messages carry, as `extract` does for each, with one question to the store for all.

        Returns:
            The rows in the order of the messages, as `acker.collectors.external.rows.Rows`: a sequence, no
            list.
        """
        many = listed(headers, "the headers of several messages, as a list", ValidationError)
        return self.read(carriers.find_many(many))

    def read(self, stamps: Sequence[Any]) -> Rows:
        """Reads bare stamps, as columns and JSON have them; None is no stamp."""
        stamps = listed(stamps, "several stamps, as a list", ValidationError)
        if (usual := self._read_usual(stamps)) is not None:
            if asked := self._unknown(usual):
                self._exchange.ledger.run(self._learn(self._known, asked))
            if (rows := self._usual_rows(usual)) is not None:
                return rows
        return Rows(self, None, self._rows(stamps, [""] * len(stamps)))

    def consume(
        self,
        consumer: Any,
        topics: Sequence[str] = (),
        *,
        producers: Sequence[Any] = (),
        rows: int = 1_000,
        seconds: float = 1.0,
        running: Callable[[], object] = lambda: True,
    ) -> Iterator[Row]:
        """Reads rows from Kafka: each is acked or failed before the next; flushes and commits offsets itself.

        Args:
            consumer: confluent-kafka's Consumer, or one like it, with `enable.auto.commit` False.
            topics: Topics to subscribe to; without, the one with the stream's name.
            producers: Producers of the rows that are sent on: they deliver before each flush.
            rows: Number of rows after which it flushes and commits.
            seconds: Seconds after which it does so.
            running: Is asked before each row; False ends the loop after a last flush.

        Yields:
            Rows, with `message`. A loop that is left early, or by an exception, commits nothing more: its
            last row is neither acked nor failed, and comes again. `consume` may be called again, also with
            the same consumer, which goes on from its committed offsets.

        Raises:
            AckerError: A row was neither acked nor failed, a producer did not deliver, or the consumer cannot
                go on; and what `Topology.flush` raises. Offsets are not committed then. Also at the first
                row, if another loop over the topology goes on: give each loop a Topology of its own.
        """
        chosen = list(topics) or [self.stream]
        checked(rows, seconds, chosen)
        loop = Consuming(
            self.stream, self.extract, self._exchange, self._flush, consumer, producers, rows, seconds
        )
        return loop.run(chosen, running)

    def _rows(self, values: Sequence[Any], names: Sequence[str]) -> list[Row]:
        stamps = self._read(values)
        if new := self._new_keys(values, stamps):
            self._exchange.ledger.run(self._learn_keys(new))
            stamps = self._read(values)
        over_by_token, asked = self._look(stamps)
        if asked:
            self._exchange.ledger.run(self._learn(over_by_token, asked))
        return self._make_rows(stamps, names, over_by_token)
