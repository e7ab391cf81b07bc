"""The rows of segments that a task reads for its partition.

Terms: a segment is some thousand rows of a stream, stored and acked as one piece; a bundle is the rows that
have gathered for one task of a group.
"""

from collections.abc import Iterable, Iterator

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from acker.errors import SegmentGone, ValidationError
from acker.spark.options.options import Options
from acker.spark.queries import batch_inputs, microbatches, plan_check
from acker.spark.records.anchors import named_schema
from acker.spark.runtime.versions import arrow_schema
from acker.spark.source.partitions import SegmentsPartition
from acker.store.operation import Operation
from acker.streams import reader
from acker.streams.log import schemas, segments
from acker.streams.log.gathers import FINISHED
from acker.streams.log.segments import LAST, Segment
from acker.streams.log.subscriptions import Range
from acker.streams.staging import acks
from acker.streams.upkeep import stale


class Rows:
    """Reads the rows of partitions, on executors; pickled there, so it holds no connection."""

    def __init__(self, options: Options, schema: StructType) -> None:
        self.options = options
        self.ledger = options.ledger()
        asked = arrow_schema(schema)
        self.names = asked.names  # Spark takes rows by the names that it gave
        self.wanted = named_schema(asked, f"the schema to read stream {options.stream!r} with")
        place, of_stream = self.wanted.get_field_index(FINISHED), self.wanted
        if options.requests and (place < 0 or not pa.types.is_boolean(self.wanted.field(place).type)):
            raise ValidationError(
                f"option requests: expected the column {FINISHED} boolean in the schema, got "
                f"{', '.join(self.wanted.names)}"
            )
        if options.fair_by and options.fair_by not in self.wanted.names:
            raise ValidationError(
                f"option fair_by: expected one of the columns {', '.join(self.wanted.names)}, got "
                f"{options.fair_by!r}"
            )
        if options.requests:
            of_stream = self.wanted.remove(place)
        self.ledger.run(schemas.check_reader(self.ledger.core, options.stream, of_stream))

    def read(self, part: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yields the rows of a partition. Raises SegmentGone."""
        if not isinstance(part, SegmentsPartition):
            return
        if part.batch is not None and (at := microbatches.of_task()):
            batch_inputs.note(self.ledger, at, part.batch)
            if self.ledger.config.ackers and any(segment.shards for segment in part.members):
                plan_check.check_sink(self.ledger, at)
        for segment in part.members:
            [payload] = self.ledger.run(reader.payload_of(self.ledger, self.options.stream, [segment]))
            if payload is None:
                if part.batch is None:
                    continue  # acked since this was planned: there is nothing left to ack
                raise SegmentGone(
                    f"segment {segment.id} of stream {self.options.stream!r} was acked or dropped after "
                    "this batch was planned"
                )
            for batch in self._decoded(segment, payload, part):
                if batch.num_rows:
                    yield segments.read(batch, self.wanted).rename_columns(self.names)

    def _decoded(self, segment: Segment, payload: bytes, part: SegmentsPartition) -> Iterable[pa.RecordBatch]:
        """Yields rows. Rows of no batch are only looked at: that changes nothing."""
        of = part.batch
        if segment.to.startswith(LAST) and not self.options.requests:
            return []
        if of is None:
            return segments.decode(payload)
        if segment.to.startswith(LAST):
            return self.ledger.run(self._ends(segment, payload, part, of))
        return self.ledger.run(stale.rows(self.ledger.core, of.stream, segment, of.slot, payload, part.left))

    def _ends(
        self, segment: Segment, payload: bytes, part: SegmentsPartition, of: Range
    ) -> Operation[list[pa.RecordBatch]]:
        """Returns the rows that end a bundle, except the rows of requests that are over."""
        core = self.ledger.core
        found = yield from acks.rows(core, of.stream, segment, of.slot, payload)
        return (yield from stale.fresh(core, of.stream, segment, of.slot, found, part.left))
