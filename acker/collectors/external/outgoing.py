"""Sending rows of an external stream: each is stamped, and the flush emits what was stamped.

Terms: a tree is all that comes of one record; a segment is the rows of an external stream that one sender
stamped together.
"""

import secrets
from asyncio import isfuture
from collections.abc import Callable, Iterable, Sequence
from itertools import repeat
from types import MethodType
from typing import Any

import numpy as np

from acker.collectors.external.exchange import MOST_ROWS, Exchange
from acker.collectors.external.row import Row
from acker.collectors.external.rows import Rows
from acker.collectors.tuples import Tuple, ending, is_ending, listed
from acker.errors import AckerError, TupleError, ValidationError, shown
from acker.ledger.ids import Ids
from acker.ledger.slabs.causes import Cause
from acker.streams.log import segments
from acker.streams.staging.external.rows import carriers
from acker.streams.staging.external.rows.stamps import MOST_ANCHORS, Seal, Stamp
from acker.streams.staging.external.segments import MOST_TREES, Sent

_HEADERS, _SOURCES = "the headers of each row, as a list", "rows of topology.incoming, or acker.Tuples"
_TOGETHER, _MOST_TOGETHER = 1_000, 10_000
"""Rows that are stamped in one turn: other threads wait meanwhile. More go where no row was looked at."""
SEGMENT_ROWS = 1_000
"""Rows of a segment by default. A lost row costs its segment: the records of all its rows are replayed."""


class Outgoing:
    """An external stream that a step sends rows to. Made by `Topology.outgoing`, for any thread.

    A row is stamped before it is given to the transport's client. `Topology.flush` emits what was stamped,
    when the client has sent its rows.
    """

    def __init__(self, exchange: Exchange, stream: str, seal: Seal | None, segment_rows: int) -> None:
        self.stream = stream
        self._exchange, self._seal, self._most = exchange, seal, segment_rows
        self._report = self._reported

    def __repr__(self) -> str:
        return f"Outgoing({self.stream!r})"

    def inject(self, headers: carriers.Headers, source: Row | Tuple, *others: Row | Tuple) -> Any:
        """Puts a stamp into headers, in place of any that is there, and keeps what else is there.

        Args:
            headers: A list of pairs, a dict, or None.
            source: What the row is made of: a row that was extracted and is neither acked nor failed, or a
                tuple, which the next flush acks, once, however many rows are stamped from it. If a call
                raises, the tuple is open again. If your own code fails in between, call `bolt.fail`.
            others: Further ones; the row belongs to the trees of all.

        Returns:
            New headers of the same kind: without a stamp where the row belongs to no tree.

        Raises:
            TupleError: A row or a tuple was acked or failed before, or is of another topology.
            ValidationError: The row would belong to more than 255 trees, or the headers are no headers.
            BufferFull: A million rows wait for the flush.
        """
        rest = carriers.without(headers)  # raises before a row is stamped
        return carriers.add(rest, self._write(source, others))

    def stamp(self, source: Row | Tuple, *others: Row | Tuple) -> str | None:
        """Stamps a row, as `inject` does; None where it belongs to no tree."""
        stamp = self._write(source, others)
        return None if stamp is None else stamp.decode("ascii")

    def _write(self, source: Row | Tuple, others: Sequence[Row | Tuple]) -> bytes | None:
        exchange = self._exchange
        if exchange.is_locked() or is_ending():
            exchange.check_whole()  # raises
        if type(source) is Row and not others:
            with exchange.lock:
                return self._write_one(source)
        sources = (source, *others)
        with exchange.lock, ending:
            tuples = [tuple_ for tuple_ in sources if isinstance(tuple_, Tuple)]
            try:
                anchors = self._anchors(sources)
                if self._seal is None:
                    return None
                for tuple_ in tuples:
                    exchange.check_tuple(tuple_)
                stamp = self._seal.write(self._next(anchors)).encode() if anchors else None
                for tuple_ in tuples:
                    exchange.take_over(tuple_)
            except BaseException:
                # A row of theirs has no stamp: a flush must not ack them, whatever was stamped before.
                exchange.give_back(*tuples)
                raise
            return stamp

    def _write_one(self, row: Row) -> bytes | None:
        """Stamps a row that is made of another; with the lock."""
        exchange, seal = self._exchange, self._seal
        if id(row) in exchange.open and exchange.refusal is None:
            anchors = row.anchors
        else:
            anchors = self._anchors((row,))
        if seal is None or not anchors:
            return None
        if len(anchors) > 1:
            return seal.write(self._next(anchors)).encode()
        if exchange.rows >= MOST_ROWS:
            exchange.make_room()  # raises
        sent = exchange.opened.get(self.stream)
        if sent is None or (position := len(sent.anchors)) >= min(self._most, MOST_TREES) or sent.several:
            sent, _ = self._segment(1)
            position = len(sent.anchors)
            sent.several.pop(position, None)  # as in `Sent.add`
            sent.head = sent.head or seal.head(sent.token, sent.begun)
        head = sent.head or seal.head(sent.token, sent.begun)
        exchange.rows += 1
        [anchor] = anchors
        sent.anchors.append(anchor)
        return seal.write_one(head, position, anchor)

    def stamps(self, rows: Iterable[Row | Tuple]) -> list[str | None]:
        """Stamps a row for each of `rows`, in their order."""
        return [None if stamp is None else stamp.decode("ascii") for stamp in self._write_many(rows)]

    def inject_many(self, headers: Sequence[Any] | None, rows: Sequence[Row | Tuple]) -> list[Any]:
        """Puts a stamp into headers for each of `rows`, as `inject` does.

        Args:
            headers: The headers for each row, in their order; None for no other headers.
            rows: What each row is made of.

        Raises:
            TupleError: As of `inject`. No row has a stamp then, and tuples are open again.
            ValidationError: They are not as many headers as rows, or some are no headers.
            BufferFull: A million rows wait for the flush, with these. No row has a stamp then.
        """
        rows = rows if type(rows) is Rows else listed(rows, _SOURCES)
        if headers is None:
            stamps = self._write_many(rows)
            return [[] if stamp is None else [(carriers.HEADER, stamp)] for stamp in stamps]
        rests = [carriers.without(each) for each in listed(headers, _HEADERS, ValidationError)]
        if len(rests) != len(rows):
            raise ValidationError(f"expected headers for {len(rows):,} rows, got {len(rests):,}")
        return list(map(carriers.add, rests, self._write_many(rows)))

    def _write_many(self, rows: Iterable[Row | Tuple]) -> Sequence[bytes | None]:
        if type(rows) is Rows and (together := self._write_together(rows)) is not None:
            return together
        given, stamps = listed(rows, _SOURCES), list[bytes | None]()
        self._check_room(given)
        try:
            for first in range(0, len(given), _TOGETHER):
                part = given[first : first + _TOGETHER]
                if (together := self._write_listed(part)) is not None:
                    stamps += together
                    continue
                for row in part:
                    stamps.append(self._write(row, ()))
        except BaseException:
            if stamps:
                self._take_back(given, stamps)
            raise
        return stamps

    def _check_room(self, sources: Sequence[Row | Tuple]) -> None:
        """Raises BufferFull if a row for each of these is too many, before one is stamped."""
        exchange = self._exchange
        if self._seal is not None and exchange.rows + len(sources) > MOST_ROWS:
            exchange.check_room(sum(bool(getattr(source, "anchors", ())) for source in sources))

    def _take_back(self, sources: Sequence[Row | Tuple], stamps: Sequence[bytes | None]) -> None:
        """Takes back the stamps of a call that raises, because nobody gets them; its tuples are open again.

        What another thread has ended, or flushed, meanwhile keeps its stamp: its record expires, where it
        would be acked without the row.
        """
        exchange, seal = self._exchange, self._seal
        with exchange.lock:
            exchange.give_back(*(source for source in sources if isinstance(source, Tuple)))
            out, opened = exchange.current.out.get(self.stream), exchange.opened.get(self.stream)
            unsent = {sent.token: sent for sent in [*(out.segments if out else ()), opened] if sent}
            for source, text in zip(sources, stamps, strict=False):
                stamp = None if seal is None or source.ended else seal.read(text)
                if isinstance(stamp, Stamp) and stamp.token in unsent:
                    unsent[stamp.token].lose(stamp.position, b"")

    def _write_together(self, rows: Rows) -> list[bytes] | None:
        """Stamps rows that nobody has looked at; None where they are to be stamped one by one."""
        exchange, stamps = self._exchange, rows.stamps
        exchange.check_whole()
        if stamps is None or self._seal is None or len(rows) > _MOST_TOGETHER:
            return None
        with exchange.lock:
            if rows not in exchange.batches or exchange.refusal is not None:
                return None
            return self._write_trees(stamps.anchors)

    def _write_listed(self, rows: Sequence[Row | Tuple]) -> list[bytes] | None:
        exchange = self._exchange
        if self._seal is None or not all(type(row) is Row and row.shard >= 0 for row in rows):
            return None
        exchange.check_whole()
        with exchange.lock:
            opened = exchange.open.get
            if exchange.refusal is not None or not all(opened(id(row)) is row for row in rows):
                for row in rows:
                    self._anchors((row,))  # raises for one before any is stamped
            return self._write_trees(np.array([row.anchors[0] for row in rows], np.int64))

    def _write_trees(self, anchors: Ids) -> list[bytes]:
        """Stamps a row for each tree; with the lock."""
        seal, stamps = self._seal, list[bytes]()
        assert seal is not None
        self._exchange.make_room(len(anchors))
        while len(stamps) < len(anchors):
            sent, room = self._segment(1)
            part = anchors[len(stamps) : len(stamps) + room]
            first = sent.add_many(part)
            head = sent.head = sent.head or seal.head(sent.token, sent.begun)
            stamps += seal.write_many(head, np.arange(first, first + len(part)), part)
        return stamps

    def delivered(self, error: Any, message: Any) -> None:
        """Takes the client's word on a row by the headers of its message, which few clients report.

        A row that could not be delivered fails its own records with the next flush, and no others. For
        confluent-kafka and aiokafka, whose reports have no headers, use `reports`.

        Raises:
            AckerError: A row was not delivered, and its message has no headers: nobody knows which row it is.
        """
        if error is None or self._seal is None:
            return
        headers = message.headers() if hasattr(message, "headers") else None
        if headers is None:
            raise AckerError(
                f"a row of {self.stream} was not delivered ({shown(error)}), and its report has no headers: "
                "give the client on_delivery=outgoing.reports(headers), with the headers of the row"
            )
        self._not_delivered(carriers.find(headers), error)

    def reports(self, headers: Any) -> Callable[..., None]:
        """Makes a callback for the delivery of a row, for confluent-kafka's producer or aiokafka's future.

        A row that could not be delivered fails its own records with the next flush, and no others.

        Args:
            headers: The headers that `inject` has made for the row.

        Examples:
            >>> def send(producer, words, headers):
            ...     producer.produce("words", b"fox", headers=headers, on_delivery=words.reports(headers))
            >>> async def send_async(producer, words, headers):
            ...     future = await producer.send("words", b"fox", headers=headers)
            ...     future.add_done_callback(words.reports(headers))
        """
        stamp = carriers.find(headers)
        return MethodType(self._report, b"" if stamp is None else stamp)  # None has no methods

    def reports_many(self, headers: Sequence[Any]) -> list[Callable[..., None]]:
        """Makes the callback of `reports` for each row. headers: What `inject_many` has made."""
        found = carriers.find_many(listed(headers, _HEADERS, ValidationError))
        stamps = [b"" if stamp is None else stamp for stamp in found]
        return list(map(MethodType, repeat(self._report), stamps))

    def _reported(self, stamp: object, error: Any, _: Any = None) -> None:
        """Takes an error, or None, and the message; or a future. The callback is a method of the stamp.

        Thousands of callbacks wait at a time, so each is but one small object.
        """
        if error is None:
            return
        if isfuture(error):
            error = "cancelled" if error.cancelled() else error.exception()
        if error is not None:
            self._not_delivered(stamp, error)

    def withdraw(self, headers: Any) -> None:
        """Takes back the stamp of a row that the client did not take, as `produce` raised.

        No record fails by it: fail what the row was made of, or make another row of it.
        """
        self._undelivered(carriers.find(headers), "")

    def _not_delivered(self, stamp: object, error: object) -> None:
        self._undelivered(stamp, f"a row of {self.stream} was not delivered: {shown(error)}")

    def _undelivered(self, text: object, reason: str) -> None:
        stamp = self._seal.read(text) if self._seal is not None else "unstamped"
        if isinstance(stamp, Stamp):
            cause = Cause(reason, self.stream).encode() if reason else b""
            self._exchange.undelivered(self.stream, stamp, cause)

    def _anchors(self, sources: Sequence[Row | Tuple]) -> tuple[int, ...]:
        """The trees of a row that is made of these."""
        self._exchange.check()
        if len(sources) == 1 and type(sources[0]) is Row:
            self._check(sources[0])
            return sources[0].anchors
        for source in sources:
            if isinstance(source, Row):
                self._check(source)
            elif not isinstance(source, Tuple):
                raise TupleError(
                    f"expected a row of topology.incoming, or an acker.Tuple, got {shown(source)}"
                )
        anchors = tuple(dict.fromkeys(anchor for source in sources for anchor in source.anchors))
        if len(anchors) > MOST_ANCHORS:
            raise ValidationError(f"a row belongs to at most {MOST_ANCHORS} trees, got {len(anchors):,}")
        return anchors

    def _check(self, row: Row) -> None:
        if row.incoming._exchange is not self._exchange:
            raise TupleError(f"row {row.named()} is of another topology object: it cannot be stamped")
        if row.ended:
            raise TupleError(f"row {row.named()} was {row.ended} before: it cannot be stamped")
        self._exchange.check_held(row)

    def _next(self, anchors: tuple[int, ...]) -> Stamp:
        """The stamp of the next row: in the open segment, if that has room."""
        self._exchange.make_room()
        sent, _ = self._segment(len(anchors))
        return Stamp(sent.token, sent.add(anchors), sent.begun, anchors)

    def _segment(self, trees: int) -> tuple[Sent, int]:
        """The open segment that takes a row of so many trees, and how many rows of one tree it takes."""
        exchange = self._exchange
        sent = exchange.opened.get(self.stream)
        if sent is not None and (len(sent.anchors) >= self._most or sent.room() < trees):
            out, rest = exchange.sent(self.stream), dict(exchange.opened)
            full, sent = [*out.segments, rest.pop(self.stream)], None
            out.segments, exchange.opened = full, rest  # all at once: an interrupt comes before or after
        if sent is None:
            exchange.keep()
            sent = Sent(secrets.token_hex(14), segments.new_seed(), exchange.now())
            exchange.opened[self.stream] = sent
        return sent, min(self._most - len(sent.anchors), sent.room())
