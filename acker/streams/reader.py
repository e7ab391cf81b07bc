"""Reading a stream from plain Python: looking at it, or taking its rows away."""

from collections.abc import Iterator

import pyarrow as pa  # noqa: TID251 - rows travel as Arrow, from and to Spark and plain Python

from acker.errors import UnknownStream
from acker.ledger.client import Ledger
from acker.ledger.config import check_name
from acker.store import keys
from acker.store.operation import Operation, command
from acker.streams import schemas, segments, subscriptions, taking_back
from acker.streams.commits import inputs
from acker.streams.segments import Segment
from acker.streams.subscriptions import DEFAULT, Range

FIRST = "0-0"
"""Before the first entry of a stream."""
_COUNT = 500
_BYTES = 64 << 20


class StreamReader:
    """Reads a stream of a topology from its oldest segment on, one segment at a time.

    Reading changes nothing, and shows what somebody has still to ack; `ack` acks the tuples of what was read
    for a subscription. Use that where the subscription has no other reader, as for dead letters.
    """

    def __init__(self, ledger: Ledger, stream: str, subscription: str = DEFAULT) -> None:
        self.ledger = ledger
        self.stream = check_name(stream, "stream")
        self.subscription = check_name(subscription, "subscription")
        self.position = FIRST
        """Id of the entry that was read last."""
        self._reader = segments.new_token()
        self._at = 0

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
        while True:
            found = self.ledger.run(
                entries(self.ledger, self.stream, self.position, count=max(1, segments_at_a_time))
            )
            if not found:
                return
            try:
                schema = self.schema()
            except UnknownStream:
                return
            found = _bounded(found)
            payloads = self.ledger.run(
                payload_of(self.ledger, self.stream, [segment for _, segment in found])
            )
            for (entry_id, _), payload in zip(found, payloads, strict=True):
                self.position = entry_id
                if payload is not None:
                    batches = [segments.conform(batch, schema) for batch in segments.decode(payload)]
                    yield pa.Table.from_batches(batches, schema)

    def rows(self) -> Iterator[dict[str, object]]:
        """What there is now after `position`, row by row, as `acker.streams.segments.values` shows it."""
        for table in self.tables():
            for batch in table.to_batches(max_chunksize=1024):
                yield from segments.values(batch)

    def ack(self) -> int:
        """Acks the tuples of all up to `position` for the subscription; returns of how many segments.

        What another reader of the subscription has taken is left to that.
        """
        return self.ledger.run(self._ack(self.position))

    def ack_all(self) -> int:
        """As `ack`, of all that the stream holds, read or not."""
        return self.ledger.run(self._ack("+"))

    def _ack(self, end: str) -> Operation[int]:
        core, reader, acked = self.ledger.core, self._reader, 0
        slot = yield from subscriptions.subscribe(core, self.stream, self.subscription)
        yield from taking_back.recover(core, self.stream, slot)
        while True:
            last = yield from subscriptions.claim(
                core, self.stream, slot, reader, self._at, name=self.subscription, end=end
            )
            if last == self._at:
                break
            what = Range(self.stream, slot, reader, self._at, last)
            acked += (yield from inputs.consume(core, what)).segments
            yield from subscriptions.forget(core, what)
            self._at = last
        back, _ = yield from taking_back.take_back(core, self.stream, slot, reader)
        if back:  # a reader whose segments were given back takes none any more
            self._reader, self._at = segments.new_token(), 0
        return acked


def _bounded(found: list[tuple[str, Segment]]) -> list[tuple[str, Segment]]:
    """The first entries, whose rows are no more than one exchange reads; one at least."""
    left = _BYTES
    for place, (_, segment) in enumerate(found):
        left -= segment.size
        if left < 0:
            return found[: max(1, place)]
    return found


def entries(
    ledger: Ledger, stream: str, start: str = FIRST, end: str = "+", count: int = _COUNT
) -> Operation[list[tuple[str, Segment]]]:
    """The next entries of a stream after the id `start`, up to and including `end`: ids and segments."""
    own = keys.Stream(ledger.config.name, stream)
    [found] = yield [command("XRANGE", own.entries, f"({start}", end, "COUNT", count)]
    return [(entry_id.decode(), Segment.parse(fields[1])) for entry_id, fields in found]


def _length(ledger: Ledger, stream: str) -> Operation[int]:
    [reply] = yield [command("XLEN", keys.Stream(ledger.config.name, stream).entries)]
    return int(reply)


def payload_of(ledger: Ledger, stream: str, members: list[Segment]) -> Operation[list[bytes | None]]:
    """The payloads of segments; None for one that is gone."""
    own = keys.Stream(ledger.config.name, stream)
    replies: list[bytes | None] = yield [command("GET", own.payload(segment.token)) for segment in members]
    return replies
