"""Reading: `spark.read` takes the present rows of a stream, `spark.readStream` goes on by segments.

An offset is a reader of a subscription and the number of segments that it has taken. Planning a batch takes
the next ones, so queries that share a subscription get each segment once. Reading acks nothing: a batch read
never does, and for a streaming read the bolt or the writer at its end does, when all of the batch is done.

Terms: a tree is all that comes of one record; a segment is some thousand rows of a stream, stored and acked
as one piece.
"""

import logging
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from acker.errors import UnknownOffset
from acker.spark.options.options import Options
from acker.spark.queries import store_loss
from acker.spark.queries.conflicts import ConflictWarner
from acker.spark.queries.heartbeat import Heartbeat
from acker.spark.queries.store_loss import Losses
from acker.spark.runtime.pickling import Shipped
from acker.spark.runtime.versions import (
    LEARNS_OFFSETS,
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from acker.spark.source.partitions import deal
from acker.spark.source.rows import Rows
from acker.store import keys
from acker.store.operation import Operation, command
from acker.store.records import passing_over
from acker.streams import downtime, reader
from acker.streams.log import fairness, fencing, segments, subscriptions
from acker.streams.log.segments import LARGEST_SEGMENT, SEGMENT_BYTES, Segment
from acker.streams.log.stream_totals import stream_totals
from acker.streams.log.subscriptions import Range
from acker.streams.upkeep import retention, stale

Offset: TypeAlias = dict[str, Any]
ONLY = "only"
"""The reader of a subscription on a Spark that does not tell a source its position: it cannot be shared."""
_ENTRIES = 1_000
_RETAIN_EVERY = 10.0
_log = logging.getLogger(__name__)


class Reader(Shipped, DataSourceReader):
    """Reads the present rows of a stream; acks nothing."""

    def __init__(self, options: Options, schema: StructType) -> None:
        self._rows = Rows(options, schema)

    def partitions(self) -> Sequence[InputPartition]:
        """Returns partitions over the present segments of the stream."""
        rows, segments, start = self._rows, list[Segment](), reader.FIRST
        while True:
            part = rows.ledger.run(reader.entries(rows.ledger, rows.options.stream, start, count=_ENTRIES))
            segments += [segment for _, segment in part]
            if len(part) < _ENTRIES:
                return deal(segments, None, rows.options.partitions)
            start = part[-1][0]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yields the rows of a partition."""
        return self._rows.read(partition)


class StreamingReader(Shipped, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads a subscription of a stream, micro-batch by micro-batch."""

    def __init__(self, options: Options, schema: StructType) -> None:
        self._rows = Rows(options, schema)
        self._slot: int | None = None
        self._reader = segments.new_hex_id() if LEARNS_OFFSETS else ONLY
        self._end = "+"
        self._position: int | None = None
        self._last_dealt: tuple[Range | None, Sequence[InputPartition]] = (None, ())
        self._retained = -_RETAIN_EVERY
        self._heartbeat = Heartbeat(self._rows.ledger, options.stream)
        self._warner = ConflictWarner(self._rows.ledger, options)
        # Only the source of a spout's replays: rows of other streams belong to their spouts.
        own = options.stream.endswith(store_loss.REPLAYS)
        self._losses = Losses(self._rows.ledger, options.stream, options.after_loss) if own else None

    @property
    def slot(self) -> int:
        """The number of the subscription, which is created at the first use."""
        if self._slot is None:
            ledger, options = self._rows.ledger, self._rows.options
            slot = ledger.run(subscriptions.subscribe(ledger.core, options.stream, options.subscription))
            if options.fair_by:
                ledger.run(fairness.declare(ledger.core, options.stream, options.fair_by, slot))
            self._slot = slot
            ledger.run(fencing.recover(ledger.core, options.stream, self._slot))
        return self._slot

    def initialOffset(self) -> Offset:  # noqa: N802 - Spark's name
        """Returns the offset before the first segment of a new reader, or of one whose name is reused."""
        core, stream = self._rows.ledger.core, self._rows.options.stream
        first = 0
        if self._reader == ONLY:
            first = self._rows.ledger.run(subscriptions.given_back(core, stream, self.slot, ONLY))
        return self._offset(self._reader, first, None)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Makes the present end the end of this run."""
        self._end = self._last() or reader.FIRST

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Returns the option `max_rows`; `max_bytes` and `max_segments` go with it."""
        return ReadMaxRows(self._rows.options.max_rows)

    def latestOffset(self, start: Offset | None = None, limit: Any = None) -> Offset:  # noqa: N802
        """Returns the end of the next batch: as much as the options allow, unless Spark wants all.

        The segments up to there are this reader's from now on.
        """
        options = self._rows.options
        if start:
            self._check(start)
            self._check_store(start)
        name, at = (start["reader"], start["at"]) if start else (self._reader, self._before())
        if LEARNS_OFFSETS:
            self._warner.warn_if_nothing_is_acked(self.slot, name, at)
        if time.monotonic() - self._retained > _RETAIN_EVERY:
            self._rows.ledger.run(retention.retain(self._rows.ledger.core, options.stream))
            if LEARNS_OFFSETS and self._losses is None:  # the replays of a spout are anybody's
                self._warner.warn_of_shared_subscription(self.slot, name)
            self._retained = time.monotonic()
        last = self._next(name, at)
        if LEARNS_OFFSETS and isinstance(limit, ReadAllAvailable):
            most = options.max_rows, options.max_bytes, options.max_segments
            while (more := self._claim(name, last, *most)) > last:
                last = more
        self._take_up(Range(options.stream, self.slot, name, at, last))
        self._heartbeat.of(self.slot, name)
        self._position = last
        return self._offset(name, last, start)

    def reportLatestOffset(self) -> Offset | None:  # noqa: N802 - Spark's name
        """Returns the lag of the subscription, which Spark's progress shows as a source's `latestOffset`.

        rows_behind: unacked rows, including the current batch. acks_late: acks after the end of their trees,
        mostly because these had expired: batches take too long. rows_stale: rows that were dropped when they
        were read, because their trees were over. unread_ms: age of the oldest segment that no reader has
        taken; -1 if all are taken. segments, bytes: contents of the stream. None if that cannot be read.
        """
        ledger, options, slot = self._rows.ledger, self._rows.options, self.slot
        with passing_over(options.topology):
            [totals] = ledger.run(stream_totals(ledger.core, [options.stream]))
            for subscription in totals.subscriptions:
                if subscription.slot == slot:
                    age = -1 if subscription.unread_age is None else round(subscription.unread_age * 1000)
                    return {
                        "rows_behind": subscription.rows_behind,
                        "acks_late": subscription.acks_late,
                        "rows_stale": subscription.rows_stale,
                        "unread_ms": age,
                        "segments": totals.segments,
                        "bytes": totals.bytes,
                    }
        return None

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """Returns partitions over a range: the same segments whenever Spark runs its batch again.

        Raises UnknownOffset if the offsets belong to another source; nothing was read then.
        """
        self._check(start)
        self._check(end)
        if not LEARNS_OFFSETS:  # where Spark tells, the end was made from this start
            self._check_store(start)
        self._check_store(end)
        rows, slot = self._rows, self.slot
        name, at = end["reader"], start["at"]
        # One that comes from another subscription of the same name is new to this one, and known to Spark.
        moved = any(one["slot"] != slot for one in (start, end))
        logged = True
        if end["at"] and (moved or not at):
            log = subscriptions.log(rows.ledger.core, rows.options.stream, slot, name, anew=moved)
            logged = rows.ledger.run(log)
        batch = Range(rows.options.stream, slot, name, at, end["at"])
        segments = self._take_up(batch)
        self._heartbeat.of(slot, name)
        # Segments of a reader in the log were acked: another batch of it has run since.
        if batch.end > batch.start and not segments and not (logged and self._knows(name)):
            self._miss(end)
        return self._dealt(batch, segments)

    def _dealt(self, batch: Range, segments: Sequence[Segment]) -> Sequence[InputPartition]:
        """Returns the partitions of a batch: this run gets the same rows whenever it evaluates it.

        So each of its tasks records all rows that are left out, and none of these is acked.
        """
        if self._last_dealt[0] != batch:
            rows = self._rows
            planned = rows.ledger.run(
                stale.plan(
                    rows.ledger.core, batch.stream, batch.slot, segments, everything=rows.options.stale
                )
            )
            noted = replace(batch, skipped=planned.skipped, planned=subscriptions.digest(segments))
            parts = deal(planned.members, noted, rows.options.partitions, planned.left)
            self._last_dealt = batch, parts
        return self._last_dealt[1]

    def _take_up(self, batch: Range) -> list[Segment]:
        """Takes the segments of a range into work: they have the whole message timeout."""
        core, segments, at = self._rows.ledger.core, list[Segment](), batch.start
        while at < batch.end:
            rest = Range(batch.stream, batch.slot, batch.reader, at, batch.end)
            part = self._rows.ledger.run(subscriptions.delivered(core, rest))
            if not part:
                break
            self._rows.ledger.run(downtime.take_up(core, batch.stream, batch.slot, part))
            segments += [piece.segment for piece in part]
            at = part[-1].number
        return segments

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yields the rows of a partition."""
        return self._rows.read(partition)

    def commit(self, end: Offset) -> None:
        """Does nothing: Spark calls this only with the next batch; bolts and writers ack."""

    def stop(self) -> None:
        """Ends the work on taken rows: the query has ended, and they wait until it is started again."""
        self._heartbeat.stop()

    def _offset(self, name: str, at: int, start: Offset | None) -> Offset:
        """Returns the offset of a reader. The other fields identify the source; Spark keeps it as JSON."""
        slot, options = self.slot, self._rows.options
        marks = {} if self._losses is None else self._losses.marks(start, start is None or at > start["at"])
        return {
            "reader": name,
            "at": at,
            "topology": options.topology,
            "stream": options.stream,
            "subscription": options.subscription,
            "slot": slot,
            **marks,
        }

    def _check(self, offset: Offset) -> None:
        """Raises UnknownOffset for an offset of another source, or of another version of acker."""
        if "slot" not in offset:
            raise UnknownOffset(
                "the query's checkpoint was written by another version of acker, and is not read: "
                "start with a new checkpoint"
            )
        options = self._rows.options
        expected = options.topology, options.stream, options.subscription
        place = offset.get("topology"), offset.get("stream"), offset.get("subscription")
        if place != expected:
            raise UnknownOffset(
                f"the query's checkpoint goes on here with {_place(*place)}, but this source reads "
                f"{_place(*expected)}. The sources of a query must come in the same order at each start: put "
                "them into a fixed order (a Python set has none), or start with a new checkpoint"
            )

    def _check_store(self, offset: Offset) -> None:
        if self._losses is not None:
            self._losses.check(offset)

    def _knows(self, name: str) -> bool:
        ledger, stream = self._rows.ledger, self._rows.options.stream
        return ledger.run(subscriptions.knows(ledger.core, stream, self.slot, name))

    def _miss(self, end: Offset) -> None:
        """Handles a batch whose rows are gone: raises UnknownOffset, unless they cannot come back."""
        options = self._rows.options
        place = _place(options.topology, options.stream, options.subscription)
        if end["slot"] != self.slot:
            _log.error(
                "%s: it is not the subscription that this batch was planned from, which was dropped, or lost "
                "with its store: the rows of the batch are gone, and the query goes on without them", place
            )  # fmt: skip
            return
        raise UnknownOffset(
            f"the query's checkpoint goes on with reader {end['reader']} of {place}, which has no such "
            "reader: its rows were given back to others, or the checkpoint is of another source. Start "
            "with a new checkpoint"
        )

    def _next(self, name: str, at: int) -> int:
        """Returns the end of the next batch, by several calls if its segments are many and small."""
        options = self._rows.options
        rows, size, most = options.max_rows, options.max_bytes, options.max_segments
        last = self._claim(name, at, rows, size, most)
        core, slot, stream = self._rows.ledger.core, self.slot, self._rows.options.stream
        begin = at
        while last - begin >= subscriptions.MOST_GIVEN and most > last - at:
            end = self._rows.ledger.run(subscriptions.delivered(core, Range(stream, slot, name, begin, last)))
            rows -= sum(piece.segment.rows for piece in end)
            size -= sum(piece.segment.size for piece in end)
            # One is always taken, and there may not be room for it.
            if rows < LARGEST_SEGMENT or size < SEGMENT_BYTES:
                break
            begin, last = last, self._claim(name, last, rows, size, most - (last - at))
        return last

    def _claim(self, name: str, at: int, rows: int, size: int, most: int) -> int:
        ledger, stream = self._rows.ledger, self._rows.options.stream
        return ledger.run(
            subscriptions.claim(
                ledger.core,
                stream,
                self.slot,
                name,
                at,
                name=self._rows.options.subscription,
                rows=rows,
                bytes=size,
                segments=most,
                end=self._end,
            )
        )

    def _before(self) -> int:
        """Returns the position for a Spark that does not tell: the end of the last taken segments."""
        if self._position is None:
            ledger, stream = self._rows.ledger, self._rows.options.stream
            last = ledger.run(subscriptions.last_delivered(ledger.core, stream, self.slot, self._reader))
            self._position = last
        return self._position

    def _last(self) -> str | None:
        def read() -> Operation[str | None]:
            key = keys.Stream(self._rows.options.topology, self._rows.options.stream).entries
            [found] = yield [command("XREVRANGE", key, "+", "-", "COUNT", 1)]
            return found[0][0].decode() if found else None

        return self._rows.ledger.run(read())


def _place(topology: object, stream: object, subscription: object) -> str:
    """Returns the name of a source for errors."""
    return f"subscription {subscription!r} of stream {stream!r} of topology {topology!r}"
