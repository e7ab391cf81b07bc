"""Reading: `spark.read` takes what a stream holds, `spark.readStream` goes on from segment to segment.

An offset is a reader of a subscription and how many segments it has taken: planning a batch takes the next
ones, so queries that share a subscription have each segment once. Reading acks nothing: a batch read never
does, and of a streaming read the bolt or the writer at its end does, when all of the batch is done.
"""

import logging
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from acker.errors import UnknownOffset, UnreadableRecord
from acker.spark.options.options import Options
from acker.spark.queries import store_loss
from acker.spark.queries.conflicts import Company
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
from acker.streams import downtime, reader
from acker.streams.log import fairness, fencing, segments, subscriptions
from acker.streams.log.segments import LARGEST_SEGMENT, SEGMENT_BYTES, Segment
from acker.streams.log.stream_totals import stream_totals
from acker.streams.log.subscriptions import Range
from acker.streams.upkeep import retention, stale

Offset: TypeAlias = dict[str, Any]
ONLY = "only"
"""The reader of a subscription on a Spark that does not tell a source where it was: it cannot be shared."""
_ENTRIES = 1_000
_RETAIN_EVERY = 10.0
_log = logging.getLogger(__name__)


class Reader(Shipped, DataSourceReader):
    """Reads what the stream holds now; acks nothing."""

    def __init__(self, options: Options, schema: StructType) -> None:
        self._rows = Rows(options, schema)

    def partitions(self) -> Sequence[InputPartition]:
        """Partitions over the segments that the stream holds."""
        rows, found, start = self._rows, list[Segment](), reader.FIRST
        while True:
            part = rows.ledger.run(reader.entries(rows.ledger, rows.options.stream, start, count=_ENTRIES))
            found += [segment for _, segment in part]
            if len(part) < _ENTRIES:
                return deal(found, None, rows.options.partitions)
            start = part[-1][0]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """The rows of a partition."""
        return self._rows.read(partition)


class StreamingReader(Shipped, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads a subscription of a stream, micro-batch by micro-batch."""

    def __init__(self, options: Options, schema: StructType) -> None:
        self._rows = Rows(options, schema)
        self._slot: int | None = None
        self._reader = segments.new_token() if LEARNS_OFFSETS else ONLY
        self._end = "+"
        self._position: int | None = None
        self._last_dealt: tuple[Range | None, Sequence[InputPartition]] = (None, ())
        self._retained = -_RETAIN_EVERY
        self._heartbeat = Heartbeat(self._rows.ledger, options.stream)
        self._company = Company(self._rows.ledger, options)
        # Only the source of a spout's replays: what other streams carry is in the hands of spouts.
        own = options.stream.endswith(store_loss.REPLAYS)
        self._losses = Losses(self._rows.ledger, options.stream, options.after_loss) if own else None

    @property
    def slot(self) -> int:
        """The number of the subscription, which is made at the first look."""
        if self._slot is None:
            ledger, options = self._rows.ledger, self._rows.options
            slot = ledger.run(subscriptions.subscribe(ledger.core, options.stream, options.subscription))
            if options.fair_by:
                ledger.run(fairness.declare(ledger.core, options.stream, options.fair_by, slot))
            self._slot = slot
            ledger.run(fencing.recover(ledger.core, options.stream, self._slot))
        return self._slot

    def initialOffset(self) -> Offset:  # noqa: N802 - Spark's name
        """Before the first segment of a new reader, or of one whose name is another one's again."""
        core, stream = self._rows.ledger.core, self._rows.options.stream
        first = 0
        if self._reader == ONLY:
            first = self._rows.ledger.run(subscriptions.given_back(core, stream, self.slot, ONLY))
        return self._offset(self._reader, first, None)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Notes what is there now as the end of this run."""
        self._end = self._last() or reader.FIRST

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """The options' `max_rows`; `max_bytes` and `max_segments` go with it."""
        return ReadMaxRows(self._rows.options.max_rows)

    def latestOffset(self, start: Offset | None = None, limit: Any = None) -> Offset:  # noqa: N802
        """The end of the next batch: as much as the options allow, unless Spark wants all.

        The segments up to there are this reader's from now on.
        """
        options = self._rows.options
        if start:
            self._check(start)
            self._check_store(start)
        name, at = (start["reader"], start["at"]) if start else (self._reader, self._before())
        if LEARNS_OFFSETS:
            self._company.look_for_acks(self.slot, name, at)
        if time.monotonic() - self._retained > _RETAIN_EVERY:
            self._rows.ledger.run(retention.retain(self._rows.ledger.core, options.stream))
            if LEARNS_OFFSETS and self._losses is None:  # the replays of a spout are anybody's
                self._company.look_for_others(self.slot, name)
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
        """How far behind the subscription is, as Spark's progress shows it: a source's `latestOffset`.

        rows_behind: not acked yet, those of the batch at hand among them. acks_late: acks that came when
        their trees were over, mostly because they had expired: batches take too long. rows_stale: rows that
        were dropped when they were read, for their trees were over. unread_ms: age of
        the oldest segment that no reader has taken; -1 where all are taken. segments, bytes: what the
        stream holds. None where that cannot be read.
        """
        ledger, options, slot = self._rows.ledger, self._rows.options, self.slot
        try:
            [found] = ledger.run(stream_totals(ledger.core, [options.stream]))
        except UnreadableRecord as error:
            _log.error("%s", error)
            return None
        for one in found.subscriptions:
            if one.slot == slot:
                age = -1 if one.unread_age is None else round(one.unread_age * 1000)
                return {
                    "rows_behind": one.rows_behind,
                    "acks_late": one.acks_late,
                    "rows_stale": one.rows_stale,
                    "unread_ms": age,
                    "segments": found.segments,
                    "bytes": found.bytes,
                }
        return None

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """Partitions over a range: the same segments whenever Spark runs its batch again.

        Raises UnknownOffset where the offsets are not of this source: nothing was read then.
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
        known = True
        if end["at"] and (moved or not at):
            log = subscriptions.log(rows.ledger.core, rows.options.stream, slot, name, anew=moved)
            known = rows.ledger.run(log)
        batch = Range(rows.options.stream, slot, name, at, end["at"])
        found = self._take_up(batch)
        self._heartbeat.of(slot, name)
        # Those of a reader that is known were acked: another batch of it has run since.
        if batch.end > batch.start and not found and not (known and self._knows(name)):
            self._miss(end)
        return self._dealt(batch, found)

    def _dealt(self, batch: Range, found: Sequence[Segment]) -> Sequence[InputPartition]:
        """The partitions of a batch: this run gets the same rows whenever it evaluates it.

        So each of its tasks notes all that is left out of it, and none of that is acked.
        """
        if self._last_dealt[0] != batch:
            rows = self._rows
            planned = rows.ledger.run(
                stale.plan(rows.ledger.core, batch.stream, batch.slot, found, everything=rows.options.stale)
            )
            noted = replace(batch, skipped=planned.token, planned=subscriptions.digest(found))
            parts = deal(planned.members, noted, rows.options.partitions, planned.left)
            self._last_dealt = batch, parts
        return self._last_dealt[1]

    def _take_up(self, batch: Range) -> list[Segment]:
        """The segments of a range, from now on in hand: they have the whole message timeout."""
        core, found, at = self._rows.ledger.core, list[Segment](), batch.start
        while at < batch.end:
            rest = Range(batch.stream, batch.slot, batch.reader, at, batch.end)
            part = self._rows.ledger.run(subscriptions.taken(core, rest))
            if not part:
                break
            self._rows.ledger.run(downtime.take_up(core, batch.stream, batch.slot, part))
            found += [piece.segment for piece in part]
            at = part[-1].number
        return found

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """The rows of a partition."""
        return self._rows.read(partition)

    def commit(self, end: Offset) -> None:
        """Nothing: Spark tells this only with the next batch; bolts and writers ack."""

    def stop(self) -> None:
        """The query has ended: what it has taken is nobody's work until it is started again."""
        self._heartbeat.stop()

    def _offset(self, name: str, at: int, start: Offset | None) -> Offset:
        """Where a reader is. All but the reader and its place tell whose this is; Spark keeps it as JSON."""
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
        own = options.topology, options.stream, options.subscription
        place = offset.get("topology"), offset.get("stream"), offset.get("subscription")
        if place != own:
            raise UnknownOffset(
                f"the query's checkpoint goes on here with {_place(*place)}, but this source reads "
                f"{_place(*own)}. The sources of a query have to come in the same order at each start: put "
                "them into an order of their own (not that of a Python set), or start with a new checkpoint"
            )

    def _check_store(self, offset: Offset) -> None:
        if self._losses is not None:
            self._losses.check(offset)

    def _knows(self, name: str) -> bool:
        ledger, stream = self._rows.ledger, self._rows.options.stream
        return ledger.run(subscriptions.knows(ledger.core, stream, self.slot, name))

    def _miss(self, end: Offset) -> None:
        """What a batch was to read is not there: raises UnknownOffset, but where it cannot come back."""
        options = self._rows.options
        place = _place(options.topology, options.stream, options.subscription)
        if end["slot"] != self.slot:
            _log.error(
                "%s: it is not the subscription that this batch was planned from, which was dropped, or lost "
                "with its store: what the batch was to read is gone, and the query goes on without it", place
            )  # fmt: skip
            return
        raise UnknownOffset(
            f"the query's checkpoint goes on with reader {end['reader']} of {place}, which has no such "
            "reader: what that had was given back to others, or the checkpoint is of another source. Start "
            "with a new checkpoint"
        )

    def _next(self, name: str, at: int) -> int:
        """The end of the next batch. A call takes some hundred segments; a batch of small ones has more."""
        options = self._rows.options
        rows, size, most = options.max_rows, options.max_bytes, options.max_segments
        last = self._claim(name, at, rows, size, most)
        core, slot, stream = self._rows.ledger.core, self.slot, self._rows.options.stream
        begin = at
        while last - begin >= subscriptions.MOST_GIVEN and most > last - at:
            found = self._rows.ledger.run(subscriptions.taken(core, Range(stream, slot, name, begin, last)))
            rows -= sum(piece.segment.rows for piece in found)
            size -= sum(piece.segment.size for piece in found)
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
        """Where a Spark that does not tell is: at what the reader took last, which it may not have seen."""
        if self._position is None:
            ledger, stream = self._rows.ledger, self._rows.options.stream
            last = ledger.run(subscriptions.last_taken(ledger.core, stream, self.slot, self._reader))
            self._position = last
        return self._position

    def _last(self) -> str | None:
        def read() -> Operation[str | None]:
            key = keys.Stream(self._rows.options.topology, self._rows.options.stream).entries
            [found] = yield [command("XREVRANGE", key, "+", "-", "COUNT", 1)]
            return found[0][0].decode() if found else None

        return self._rows.ledger.run(read())


def _place(topology: object, stream: object, subscription: object) -> str:
    """How errors name a source."""
    return f"subscription {subscription!r} of stream {stream!r} of topology {topology!r}"
