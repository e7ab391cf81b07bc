"""Reading what a stream holds at one moment, to be acked by a commit: the same segments each time."""

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
from acker.streams.log.subscriptions import Range, Taken
from acker.streams.reader import payload_of
from acker.streams.staging.skipped import Left
from acker.streams.upkeep import stale
from acker.streams.upkeep.stale import Planned

_PARTITIONS = 200


class _Reader(Shipped):
    """Reads the rows of segments, given as their records; what `DataFrame.mapInArrow` is given."""

    def __init__(
        self, ledger: Ledger, stream: str, slot: int, wanted: pa.Schema, left: Mapping[str, Left | None]
    ) -> None:
        self.ledger = ledger
        self.stream = stream
        self.slot = slot
        self.wanted = wanted
        self.left = left

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows of all segments."""
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
    """Takes what a stream holds for a reader of a subscription; its rows, and the range that acks them.

    What the reader took before, and did not ack, comes again. schema: of the rows; None takes the stream's
    own. Raises UnknownStream without it where nothing was written yet; SchemaMismatch.
    """
    core = ledger.core
    if schema is None:
        schema = spark_schema(ledger.run(schemas.read(core, stream)))
    wanted = arrow_schema(schema)
    ledger.run(schemas.check_reader(core, stream, wanted))
    taken, planned = ledger.run(_take(core, stream, subscription, reader))
    found = planned.members
    if not found:
        return spark.createDataFrame([], schema), taken
    rows = sum(segment.rows for segment in found)
    parts = max(1, min(_PARTITIONS, len(found), rows // PARTITION_ROWS))
    reading = _Reader(ledger, stream, taken.slot, wanted, planned.left)
    listed = spark.createDataFrame([(segment.dump(),) for segment in found], "record string")
    return listed.repartition(parts).mapInArrow(reading, schema), taken


def _take(core: Core, stream: str, subscription: str, reader: str) -> Operation[tuple[Range, Planned]]:
    """All segments that there are for a reader, and what is left out of them."""
    slot = yield from subscriptions.subscribe(core, stream, subscription)
    yield from fencing.recover(core, stream, slot)
    # From now on nobody takes them back from the reader: it has a name, and will come for them.
    yield from subscriptions.log(core, stream, slot, reader)
    acked = yield from _acked(core, Range(stream, slot, reader, 0, 2**53))
    start = at = max(acked, (yield from subscriptions.given_back(core, stream, slot, reader)))
    found = list[Segment]()
    while (last := (yield from subscriptions.claim(core, stream, slot, reader, at, name=subscription))) > at:
        part = yield from subscriptions.taken(core, Range(stream, slot, reader, at, last))
        yield from downtime.take_up(core, stream, slot, part)
        found += [piece.segment for piece in part]
        at = last
    planned = yield from stale.plan(core, stream, slot, found)
    return Range(stream, slot, reader, start, at, planned.token, subscriptions.digest(found)), planned


def _acked(core: Core, what: Range) -> Operation[int]:
    """The number of the last segment that a reader took and acked: those of a range go together, in order."""
    own = keys.Stream(core.config.name, what.stream)
    at = 0
    while True:
        part: list[Taken] = yield from subscriptions.taken(
            core, Range(what.stream, what.slot, what.reader, at, what.end)
        )
        if not part:
            return at
        states = yield [command("HGET", own.owed(piece.segment.token), what.slot) for piece in part]
        for piece, state in zip(part, states, strict=True):
            if state == b"1":
                return at
            at = piece.number
