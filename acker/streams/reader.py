"""Reads a stream from plain Python: shows its rows, or acks them.

Terms: a segment is some thousand rows of a stream, stored and acked as one piece.
"""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa  # noqa: TID251 - rows travel as Arrow, from and to Spark and plain Python

from acker.errors import ReaderFenced, UnknownStream
from acker.ledger.client import Ledger
from acker.ledger.settings.config import check_name
from acker.store import keys
from acker.store.operation import Operation, abreast, command
from acker.streams.log import fencing, kinds, schemas, segments, subscriptions
from acker.streams.log.segments import Segment
from acker.streams.log.subscriptions import DEFAULT, Range
from acker.streams.staging import acks

FIRST = "0-0"
"""The position before the first entry of a stream."""
_COUNT = 500
_KNOWN = 1 << 18
_FLIGHT = 64
_BYTES = 64 << 20


class StreamReader:
    """Reads a stream of a topology from its oldest segment on, one segment at a time.

    Reading changes nothing, and shows rows that readers have still to ack. `ack` acks the tuples of the rows
    that were read, for a subscription. Use it if the subscription has no other reader, such as for dead
    letters.

    Ids of entries are times of the server's clock. A store that was emptied, rolled back or replaced may have
    new entries below `offset`: these are read, too. Segments that were read before are not read again. If
    the store has lost their ack, the next `ack` repeats it. The reader remembers its latest 262,144 segments;
    it does not ack earlier ones.

    Args:
        ledger: The ledger of the topology.
        stream: The name of the stream.
        subscription: The name of the subscription to ack for.
    """

    def __init__(self, ledger: Ledger, stream: str, subscription: str = DEFAULT) -> None:
        self.ledger = ledger
        self.stream = check_name(stream, "stream")
        self.subscription = check_name(subscription, "subscription")
        self.offset = FIRST
        """The id of the last entry that was read."""
        self._reader = segments.new_hex_id()
        self._at = 0
        self._managed = False
        self._read: dict[str, bool] = {}
        """Ids of segments that were read, with True if their rows were given: these are acked."""

    def schema(self) -> pa.Schema:
        """Returns the schema of the rows.

        Raises:
            UnknownStream: Nothing was written to the stream yet.
        """
        return self.ledger.run(schemas.read(self.ledger.core, self.stream))

    def count(self) -> int:
        """Returns the number of segments in the stream."""
        return self.ledger.run(_length(self.ledger, self.stream))

    def tables(self, segments_at_a_time: int = 1) -> Iterator[pa.Table]:
        """Yields the existing rows after `offset`: a table for each segment.

        `offset` follows the last table.

        Segments that another reader acks meanwhile are passed over. Yields nothing for an unknown stream.

        Args:
            segments_at_a_time: Segments that one exchange with the store reads; at most 64 MiB of rows, or
                one segment.
        """
        for entry, segment, table in self._tables(max(1, segments_at_a_time)):
            # At once, right before: rows that an interrupt keeps from the caller are not acked.
            self._read[segment.id], self.offset = True, entry
            yield table

    def rows(self) -> Iterator[dict[str, object]]:
        """Yields the existing rows after `offset`, in the form of `acker.streams.log.segments.values`.

        A segment counts as read with its last row. If the caller stops before, it is read again.

        Examples:
            >>> writer = StreamWriter(topology.ledger, "orders")
            >>> segments = writer.write(pa.table({"id": ["order-1", "order-2"]}))
            >>> reader = StreamReader(topology.ledger, "orders")
            >>> [row["id"] for row in reader.rows()]
            ['order-1', 'order-2']
            >>> reader.ack()
            1
        """
        for entry, segment, table in self._tables(1):
            left = table.num_rows
            for batch in table.to_batches(max_chunksize=1024):
                for row in segments.values(batch):
                    left -= 1
                    if not left:
                        self._read[segment.id], self.offset = True, entry
                    yield row

    def ack(self) -> int:
        """Acks the tuples of the rows that were read, for the subscription; returns the number of segments.

        Segments that another reader of the subscription has taken are left to it.
        """
        return self.ledger.run(self._ack(self.offset, everything=False))

    def ack_all(self) -> int:
        """Acks all segments of the stream, read or not; returns their number."""
        return self.ledger.run(self._ack("+", everything=True))

    def _tables(self, most: int) -> Iterator[tuple[str, Segment, pa.Table]]:
        """Entries, segments and rows after `offset`. The caller notes each when it hands it on."""
        if not self._managed:
            self.ledger.run(kinds.check_managed(self.ledger.core, self.stream))
            self._managed = True
        while True:
            while len(self._read) > _KNOWN:
                del self._read[next(iter(self._read))]
            entries_found, unread = self.ledger.run(_page(self.ledger, self.stream, self.offset, most))
            if unread is not None and unread.id not in self._read:
                self.offset = FIRST  # the newest entry up to there came since, below it
                continue
            if not entries_found:
                return
            try:
                schema = self.schema()
            except UnknownStream:
                return
            entries_found = _bounded(entries_found)
            new = [segment for _, segment in entries_found if segment.id not in self._read]
            payloads = dict(zip(new, self.ledger.run(payload_of(self.ledger, self.stream, new)), strict=True))
            for entry, segment in entries_found:
                payload = payloads.get(segment)
                if payload is None:
                    given = self._read.get(segment.id, False)
                    self._read[segment.id], self.offset = given, entry
                    continue
                batches = [segments.conform(batch, schema) for batch in segments.decode(payload)]
                yield entry, segment, pa.Table.from_batches(batches, schema)
                if segment.id not in self._read:  # without rows
                    self._read[segment.id], self.offset = True, entry

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
            except ReaderFenced:  # an earlier call was cut, and its segments were given back since
                self._begin_anew()
                continue
            if last == self._at:
                break
            read_range = Range(self.stream, slot, reader, self._at, last)
            members = yield from subscriptions.all_delivered(core, read_range)
            read = [one for one in members if everything or self._read.get(one.segment.id, False)]
            for first in range(0, len(read), _FLIGHT):
                part = read[first : first + _FLIGHT]
                acked += (yield from acks.ack(core, read_range, part))[0]
            self._at = last  # before it forgets: forgotten numbers are not given again
            yield from subscriptions.forget(core, read_range)
        back, _ = yield from fencing.take_back(core, self.stream, slot, reader)
        if back:  # a reader whose segments were given back takes no more
            self._begin_anew()
        return acked

    def _begin_anew(self) -> None:
        self._reader, self._at = segments.new_hex_id(), 0


def _bounded(members: list[tuple[str, Segment]]) -> list[tuple[str, Segment]]:
    """The first entries, whose rows fit into one exchange; one at least."""
    left = _BYTES
    for place, (_, segment) in enumerate(members):
        left -= segment.size
        if left < 0:
            return members[: max(1, place)]
    return members


def _page(
    ledger: Ledger, stream: str, offset: str, count: int
) -> Operation[tuple[list[tuple[str, Segment]], Segment | None]]:
    """The next entries after a position, and the segment of the newest entry up to it, if there is one."""
    key = keys.Stream(ledger.config.name, stream).entries
    looks: list[Operation[Any]] = [entries(ledger, stream, offset, count=count)]
    if offset != FIRST:
        looks.append(_newest(key, offset))
    found, *newest = yield from abreast(looks)
    return found, newest[0] if newest else None


def _newest(key: bytes, end: str) -> Operation[Segment | None]:
    [found] = yield [command("XREVRANGE", key, end, "-", "COUNT", 1)]
    return segments.readable(found[0][1][1]) if found else None


def entries(
    ledger: Ledger, stream: str, start: str = FIRST, end: str = "+", count: int = _COUNT
) -> Operation[list[tuple[str, Segment]]]:
    """The next entries of a stream after the id `start`, up to and including `end`: ids and segments."""
    stream_keys = keys.Stream(ledger.config.name, stream)
    [found] = yield [command("XRANGE", stream_keys.entries, f"({start}", end, "COUNT", count)]
    return [(entry_id.decode(), Segment.load(fields[1])) for entry_id, fields in found]


def _length(ledger: Ledger, stream: str) -> Operation[int]:
    [reply] = yield [command("XLEN", keys.Stream(ledger.config.name, stream).entries)]
    return int(reply)


def payload_of(ledger: Ledger, stream: str, members: list[Segment]) -> Operation[list[bytes | None]]:
    """The payloads of segments; None for a payload that is gone."""
    stream_keys = keys.Stream(ledger.config.name, stream)
    replies: list[bytes | None] = yield [
        command("GET", stream_keys.payload(segment.id)) for segment in members
    ]
    return replies
