"""Reading the rows that a stream has at one moment, to be acked by a commit: always the same segments.

Terms: a segment is some thousand rows of a stream, stored and acked as one piece.
"""

from collections.abc import Iterator, Mapping

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from acker.errors import SegmentGone
from acker.ledger.calls.core import Core
from acker.ledger.client import Ledger
from acker.spark.runtime.pickling import Shipped
from acker.spark.runtime.versions import arrow_schema, spark_schema
from acker.spark.source.partitions import PARTITION_ROWS
from acker.store import keys
from acker.store.operation import Operation, command
from acker.streams import downtime
from acker.streams.log import fencing, schemas, segments, subscriptions
from acker.streams.log.segments import Segment
from acker.streams.log.subscriptions import Delivery, Range
from acker.streams.reader import payload_of
from acker.streams.staging.skipped import Left
from acker.streams.upkeep import stale
from acker.streams.upkeep.stale import Planned

_PARTITIONS = 200


class _Reader(Shipped):
    """Reads the rows of segments, given as their records, for `DataFrame.mapInArrow`."""

    def __init__(
        self, ledger: Ledger, stream: str, slot: int, wanted: pa.Schema, left: Mapping[str, Left | None]
    ) -> None:
        self.ledger = ledger
        self.stream = stream
        self.slot = slot
        self.wanted = wanted
        self.left = left

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yields the rows of all segments."""
        for batch in batches:
            for record in batch.column(0).to_pylist():
                segment = Segment.load(record)
                [payload] = self.ledger.run(payload_of(self.ledger, self.stream, [segment]))
                if payload is None:
                    raise SegmentGone(f"a segment of stream {self.stream!r} was acked or dropped meanwhile")
                found = stale.rows(self.ledger.core, self.stream, segment, self.slot, payload, self.left)
                for rows in self.ledger.run(found):
                    yield segments.read(rows, self.wanted)


def pinned(
    spark: SparkSession,
    ledger: Ledger,
    stream: str,
    subscription: str,
    reader: str,
    schema: StructType | None,
) -> tuple[DataFrame, Range]:
    """Takes the present rows of a stream for a reader of a subscription; returns them and their range.

    Rows that the reader took before, and did not ack, come again. schema: the columns to read; by default the
    stream's own. Raises UnknownStream if there is none yet; SchemaMismatch.
    """
    core = ledger.core
    if schema is None:
        schema = spark_schema(ledger.run(schemas.read(core, stream)))
    wanted = arrow_schema(schema)
    ledger.run(schemas.check_reader(core, stream, wanted))
    delivered, planned = ledger.run(_take(core, stream, subscription, reader))
    members = planned.members
    if not members:
        return spark.createDataFrame([], schema), delivered
    rows = sum(segment.rows for segment in members)
    parts = max(1, min(_PARTITIONS, len(members), rows // PARTITION_ROWS))
    reading = _Reader(ledger, stream, delivered.slot, wanted, planned.left)
    listed = spark.createDataFrame([(segment.dump(),) for segment in members], "record string")
    return listed.repartition(parts).mapInArrow(reading, schema), delivered


def _take(core: Core, stream: str, subscription: str, reader: str) -> Operation[tuple[Range, Planned]]:
    """Returns all segments for a reader, and the rows that are left out of them."""
    slot = yield from subscriptions.subscribe(core, stream, subscription)
    yield from fencing.recover(core, stream, slot)
    # From now on no one takes them back from the reader: it has a name, and will return for them.
    yield from subscriptions.log(core, stream, slot, reader)
    acked = yield from _acked(core, Range(stream, slot, reader, 0, 2**53))
    start = at = max(acked, (yield from subscriptions.given_back(core, stream, slot, reader)))
    segments = list[Segment]()
    while (last := (yield from subscriptions.claim(core, stream, slot, reader, at, name=subscription))) > at:
        part = yield from subscriptions.delivered(core, Range(stream, slot, reader, at, last))
        yield from downtime.take_up(core, stream, slot, part)
        segments += [piece.segment for piece in part]
        at = last
    planned = yield from stale.plan(core, stream, slot, segments)
    return Range(stream, slot, reader, start, at, planned.skipped, subscriptions.digest(segments)), planned


def _acked(core: Core, taken: Range) -> Operation[int]:
    """Returns the number of the last segment that a reader has acked: a range is acked in order."""
    keys_of_stream = keys.Stream(core.config.name, taken.stream)
    at = 0
    while True:
        part: list[Delivery] = yield from subscriptions.delivered(
            core, Range(taken.stream, taken.slot, taken.reader, at, taken.end)
        )
        if not part:
            return at
        states = yield [
            command("HGET", keys_of_stream.unacked(piece.segment.id), taken.slot) for piece in part
        ]
        for piece, state in zip(part, states, strict=True):
            if state == b"1":
                return at
            at = piece.number
