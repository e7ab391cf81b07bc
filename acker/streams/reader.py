"""Reading a stream from plain Python: looking at it, or taking its rows away."""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa  # noqa: TID251 - rows travel as Arrow, from and to Spark and plain Python

from acker.errors import ReaderFenced, UnknownStream
from acker.ledger.client import Ledger
from acker.ledger.settings.config import check_name
from acker.store import keys
from acker.store.operation import Operation, abreast, command
from acker.streams.log import fencing, schemas, segments, subscriptions
from acker.streams.log.segments import Segment
from acker.streams.log.subscriptions import DEFAULT, Range
from acker.streams.staging import acks

FIRST = "0-0"
"""Before the first entry of a stream."""
_COUNT = 500
_KNOWN = 1 << 18
_FLIGHT = 64
_BYTES = 64 << 20


class StreamReader:
    """Reads a stream of a topology from its oldest segment on, one segment at a time.

    Reading changes nothing, and shows what somebody has still to ack; `ack` acks the tuples of what was read
    for a subscription. Use that where the subscription has no other reader, as for dead letters.

    Ids of entries are times of the server's clock. A store that was emptied, set back or replaced may have
    new entries below `position`: these are read, too. What was read before is not read again, and the next
    `ack` acks it again where the store lost that. The reader knows the latest 262,144 segments that it has
    read: what it read before these it does not ack.
    """

    def __init__(self, ledger: Ledger, stream: str, subscription: str = DEFAULT) -> None:
        self.ledger = ledger
        self.stream = check_name(stream, "stream")
        self.subscription = check_name(subscription, "subscription")
        self.position = FIRST
        """Id of the entry that was read last."""
        self._reader = segments.new_token()
        self._at = 0
        self._read: dict[str, bool] = {}
        """Segments that were read, by their tokens, and whether their rows were given: these are acked."""

    def schema(self) -> pa.Schema:
        """The schema of the rows; raises UnknownStream before the first is written."""
        return self.ledger.run(schemas.read(self.ledger.core, self.stream))

    def count(self) -> int:
        """How many segments the stream holds."""
        return self.ledger.run(_length(self.ledger, self.stream))

    def tables(self, segments_at_a_time: int = 1) -> Iterator[pa.Table]:
        """What there is now after `position`: a table for each segment; `position` is that of the last.

        segments_at_a_time: that one exchange with the store reads, at most 64 MiB of rows, or one segment.
        Segments that someone else consumes meanwhile are passed over. Yields nothing for an unknown stream.
        """
        for entry, segment, table in self._tables(max(1, segments_at_a_time)):
            # At once, and as the last thing before: what an interrupt keeps from the caller is not acked.
            self._read[segment.token], self.position = True, entry
            yield table

    def rows(self) -> Iterator[dict[str, object]]:
        """What there is now after `position`, row by row, as `acker.streams.log.segments.values` shows it.

        A segment counts as read with its last row: one that was left before is read again.
        """
        for entry, segment, table in self._tables(1):
            left = table.num_rows
            for batch in table.to_batches(max_chunksize=1024):
                for row in segments.values(batch):
                    left -= 1
                    if not left:
                        self._read[segment.token], self.position = True, entry
                    yield row

    def ack(self) -> int:
        """Acks the tuples of what was read for the subscription; returns of how many segments.

        What another reader of the subscription has taken is left to that.
        """
        return self.ledger.run(self._ack(self.position, everything=False))

    def ack_all(self) -> int:
        """As `ack`, of all that the stream holds, read or not."""
        return self.ledger.run(self._ack("+", everything=True))

    def _tables(self, most: int) -> Iterator[tuple[str, Segment, pa.Table]]:
        """Entries, segments and rows after `position`, which the caller notes when it gives them."""
        while True:
            while len(self._read) > _KNOWN:
                del self._read[next(iter(self._read))]
            found, unread = self.ledger.run(_page(self.ledger, self.stream, self.position, most))
            if unread is not None and unread.token not in self._read:
                self.position = FIRST  # the newest entry up to there is one that came since, below it
                continue
            if not found:
                return
            try:
                schema = self.schema()
            except UnknownStream:
                return
            found = _bounded(found)
            new = [segment for _, segment in found if segment.token not in self._read]
            payloads = dict(zip(new, self.ledger.run(payload_of(self.ledger, self.stream, new)), strict=True))
            for entry, segment in found:
                payload = payloads.get(segment)
                if payload is None:
                    given = self._read.get(segment.token, False)
                    self._read[segment.token], self.position = given, entry
                    continue
                batches = [segments.conform(batch, schema) for batch in segments.decode(payload)]
                yield entry, segment, pa.Table.from_batches(batches, schema)
                if segment.token not in self._read:  # without rows
                    self._read[segment.token], self.position = True, entry

    def _ack(self, end: str, *, everything: bool) -> Operation[int]:
        core, acked = self.ledger.core, 0
        slot = yield from subscriptions.subscribe(core, self.stream, self.subscription)
        yield from fencing.recover(core, self.stream, slot)
        while True:
            reader = self._reader
            try:
                last = yield from subscriptions.claim(
                    core, self.stream, slot, reader, self._at, name=self.subscription, end=end
                )
            except ReaderFenced:  # a call before was cut, and what it had taken was given back since
                self._begin_anew()
                continue
            if last == self._at:
                break
            what = Range(self.stream, slot, reader, self._at, last)
            members = yield from subscriptions.all_taken(core, what)
            own = [one for one in members if everything or self._read.get(one.segment.token, False)]
            for first in range(0, len(own), _FLIGHT):
                part = own[first : first + _FLIGHT]
                acked += (yield from acks.ack(core, what, part))[0]
            self._at = last  # before it forgets: numbers that are forgotten are not given again
            yield from subscriptions.forget(core, what)
        back, _ = yield from fencing.take_back(core, self.stream, slot, reader)
        if back:  # a reader whose segments were given back takes none any more
            self._begin_anew()
        return acked

    def _begin_anew(self) -> None:
        self._reader, self._at = segments.new_token(), 0


def _bounded(found: list[tuple[str, Segment]]) -> list[tuple[str, Segment]]:
    """The first entries, whose rows are no more than one exchange reads; one at least."""
    left = _BYTES
    for place, (_, segment) in enumerate(found):
        left -= segment.size
        if left < 0:
            return found[: max(1, place)]
    return found


def _page(
    ledger: Ledger, stream: str, position: str, count: int
) -> Operation[tuple[list[tuple[str, Segment]], Segment | None]]:
    """The next entries after a position, and the segment of the newest entry up to it, if there is one."""
    key = keys.Stream(ledger.config.name, stream).entries
    looks: list[Operation[Any]] = [entries(ledger, stream, position, count=count)]
    if position != FIRST:
        looks.append(_newest(key, position))
    found, *newest = yield from abreast(looks)
    return found, newest[0] if newest else None


def _newest(key: bytes, end: str) -> Operation[Segment | None]:
    [found] = yield [command("XREVRANGE", key, end, "-", "COUNT", 1)]
    return segments.readable(found[0][1][1]) if found else None


def entries(
    ledger: Ledger, stream: str, start: str = FIRST, end: str = "+", count: int = _COUNT
) -> Operation[list[tuple[str, Segment]]]:
    """The next entries of a stream after the id `start`, up to and including `end`: ids and segments."""
    own = keys.Stream(ledger.config.name, stream)
    [found] = yield [command("XRANGE", own.entries, f"({start}", end, "COUNT", count)]
    return [(entry_id.decode(), Segment.load(fields[1])) for entry_id, fields in found]


def _length(ledger: Ledger, stream: str) -> Operation[int]:
    [reply] = yield [command("XLEN", keys.Stream(ledger.config.name, stream).entries)]
    return int(reply)


def payload_of(ledger: Ledger, stream: str, members: list[Segment]) -> Operation[list[bytes | None]]:
    """The payloads of segments; None for one that is gone."""
    own = keys.Stream(ledger.config.name, stream)
    replies: list[bytes | None] = yield [command("GET", own.payload(segment.token)) for segment in members]
    return replies
