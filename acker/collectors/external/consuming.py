"""The usual loop over a client of Kafka: rows, then one flush, then the offsets.

It imports no client. A consumer is any object with the methods of confluent-kafka's Consumer, and a producer
is any object with `flush`.
"""

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from acker.collectors.external.exchange import Exchange
from acker.collectors.external.row import Row
from acker.errors import AckerError, ValidationError, shown
from acker.ledger.settings.settings import check_number
from acker.ledger.user_functions.undone import undone

_PARTITION_EOF = -191
_POLL = 0.1
_log = logging.getLogger("acker")


def goes_on(running: Callable[[], object]) -> bool:
    """Returns the answer of `running`. Raises ValidationError for an answer that comes later, and is true."""
    answer = running()
    if answer is not True and (kind := undone(answer)):
        raise ValidationError(
            f"running: expected a function that returns True or False, got one that returned a {kind}"
        )
    return bool(answer)


class ConsumerLoop:
    """A ready-made loop as its exchange knows it: it gives out one row at a time, and others may end it."""

    def __init__(self, stream: str, consumer: Any, exchange: Exchange) -> None:
        self.stream, self.consumer, self._exchange = stream, consumer, exchange
        self._row: Row | None = None
        self.ended = False

    @property
    def has_given(self) -> bool:
        """True while the loop does nothing, because its caller works on a row of it."""
        return self._row is not None

    def end(self) -> None:
        """Ends a loop that was left: its row in work comes again."""
        self.ended = True
        self._exchange.leave(self)
        if self._row is not None:
            self._exchange.give_up(self._row)

    def _take_back(self, row: Row) -> None:
        """Takes a row back from the caller, who has acked or failed it. Raises TupleError, or AckerError."""
        if self.ended:
            raise AckerError(
                "another loop uses the consumer: this loop has ended, and its last rows are not committed"
            )
        if not self._exchange.observes:
            row.check_ended()
        self._row = None


class Consuming(ConsumerLoop):
    """Reads a consumer's messages as rows, and commits them.

    The order keeps the promise: first the rows that were made are delivered, then one flush tells which rows
    were worked on and sent, then offsets are committed. After a crash between two of these, rows come again,
    and their bits are set already.

    Offsets are committed behind rows that were worked on alone. The consumer has gone further: a row that was
    read is never given out if its extract raises.
    """

    def __init__(
        self,
        stream: str,
        extract: Callable[[Any, str], Row],
        exchange: Exchange,
        flush: Callable[[], None],
        consumer: Any,
        producers: Sequence[Any],
        rows: int,
        seconds: float,
    ) -> None:
        super().__init__(stream, consumer, exchange)
        self._extract, self._flush, self._producers = extract, flush, producers
        self._rows, self._seconds = rows, seconds
        self._since, self._next = 0, time.monotonic() + seconds
        self._worked: dict[tuple[str, int], int] = {}
        """The offset behind the last row that was worked on, by topic and partition."""

    def run(self, topics: Sequence[str], running: Callable[[], object]) -> Iterator[Row]:
        """Subscribes, and yields rows while `running()` is true; flushes by rows and time, and at its end."""
        self._exchange.begin(self)
        try:
            if self.consumer.assignment():  # an earlier loop may have left rows: from committed offsets
                self.consumer.unsubscribe()
            self.consumer.subscribe(list(topics), on_revoke=self._on_revoke)
            while goes_on(running):
                message = self.consumer.poll(_POLL)
                if message is not None and self._is_row(message):
                    where = f"{message.topic()}/{message.partition()}@{message.offset()}"
                    row = self._row = self._extract(message.headers(), where)
                    row.message = message
                    yield row
                    self._take_back(row)
                    self._since += 1
                    self._worked[message.topic(), message.partition()] = message.offset() + 1
                if self._since >= self._rows or time.monotonic() >= self._next:
                    self._commit()
            self._commit()
        finally:
            self.end()

    def _is_row(self, message: Any) -> bool:
        error = message.error()
        if error is None:
            return True
        if error.fatal():
            raise AckerError(f"the consumer of stream {self.stream!r} cannot go on: {error}")
        if error.code() != _PARTITION_EOF:
            _log.warning("stream %s: %s", self.stream, error)
        return False

    def _commit(self) -> None:
        """Delivers, flushes and commits what was worked on."""
        for producer in self._producers:
            if left := producer.flush():
                raise AckerError(f"{left:,} rows wait in a producer after its flush: expected 0")
        self._flush()
        try:
            self._commit_offsets()
        except Exception as error:  # noqa: BLE001 - the client's: its rows come again, which changes nothing
            _log.warning("stream %s: offsets are not committed: %s", self.stream, error)
        self._worked = {}
        self._since, self._next = 0, time.monotonic() + self._seconds

    def _commit_offsets(self) -> None:
        """Commits what was worked on of the partitions that the consumer has."""
        offsets = []
        for place in self.consumer.assignment() if self._worked else ():
            offset = self._worked.get((place.topic, place.partition))
            if offset is not None:
                place.offset = offset
                offsets.append(place)
        if offsets:
            self.consumer.commit(offsets=offsets, asynchronous=False)

    def _on_revoke(self, *_: Any) -> None:
        """Commits what was worked on of partitions that go to another member."""
        if self._since and self._row is None and not self.ended:
            self._commit()


def checked(rows: object, seconds: object, topics: object) -> None:
    """Raises ValidationError for an option of `Incoming.consume` that cannot be."""
    check_number(rows, "rows", 1, 1_000_000, int)
    check_number(seconds, "seconds", 0.0, 3600.0, float)
    if not isinstance(topics, list | tuple) or not topics:
        raise ValidationError(f"topics: expected a list of topics, got {shown(topics)}")
