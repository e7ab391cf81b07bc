"""Writes a stream from plain Python: for spouts, and for other sources of records without Spark.

Terms: a tree is all that comes of one record; an anchor is the number of a tree; a segment is some thousand
rows of a stream, stored and acked as one piece; a vector has a number for each tree, the XOR of tuple ids; a
lane is one of the four queues of a stream that is read fairly.
"""

import numpy as np
import pyarrow as pa  # noqa: TID251 - rows travel as Arrow, from and to Spark and plain Python

from acker.errors import ValidationError, shown
from acker.ledger.client import Ledger
from acker.ledger.ids import IdsLike, as_ids
from acker.ledger.settings.config import check_name
from acker.store import keys
from acker.store.operation import Operation, command
from acker.streams.batch import Batch, Part
from acker.streams.commits import publishing
from acker.streams.log import fairness, schemas, segments, subscriptions
from acker.streams.log.segments import ANCHORS, SEGMENT_ROWS, Segment
from acker.streams.log.subscriptions import HOLD_TTL
from acker.streams.staging.staging import stage_vectors

_RESEND = 3600
"""Seconds for which the store remembers that a batch was published."""


class StreamWriter:
    """Writes a stream of a topology: rows whose trees a spout has tracked, or rows without a tree.

    A spout tracks first and publishes then, with the ids of the batch as the trees' first tuples:

        batch = writer.batch(rows)
        anchors, _ = spout.emit_many(message_ids, values=batch.ids())
        writer.publish(batch, anchors)

    A bolt in plain Python that emits anchored rows needs `acker.streams.commits.commit` instead. A writer is
    safe to share between threads.

    Args:
        ledger: The ledger of the topology.
        stream: The name of the stream.
        compression: lz4, zstd or none.
    """

    def __init__(self, ledger: Ledger, stream: str, *, compression: str = "lz4") -> None:
        self.ledger = ledger
        self.stream = check_name(stream, "stream")
        if compression not in segments.COMPRESSIONS:
            raise ValidationError(
                f"compression: expected one of {', '.join(segments.COMPRESSIONS)}, got {shown(compression)}"
            )
        self.compression = compression
        self._recorded: pa.Schema | None = None

    def batch(self, rows: pa.Table) -> Batch:
        """Makes a batch of rows, with the seed of their tuple ids; nothing is sent yet.

        The rows are for the present subscriptions of the stream, and go into its present lanes.

        Args:
            rows: 1 to 524,288 rows, without a column `_acker`.

        Returns:
            A batch to publish.

        Raises:
            ValidationError: The rows have another number, or the column `_acker`. Or the stream gathers: only
                rows that a step of its line emits can wait there.
        """
        if not 1 <= rows.num_rows <= SEGMENT_ROWS:
            raise ValidationError(f"rows: expected 1 to {SEGMENT_ROWS:,}, got {rows.num_rows:,}")
        if ANCHORS in rows.column_names:
            raise ValidationError(f"rows: the column {ANCHORS} is added when they are published")
        return self.ledger.run(self._batch(rows))

    def _batch(self, rows: pa.Table) -> Operation[Batch]:
        core = self.ledger.core
        slots, gathering, fair = yield from subscriptions.staged_for(core, self.stream)
        if gathering is not None:
            raise ValidationError(
                f"stream: {self.stream!r} gathers the rows of requests: expected a stream that does not"
            )
        if fair is None:
            return Batch(rows, slots, (Part(segments.new_seed(), segments.new_hex_id()),))
        column = fair.decode("utf-8", "replace")
        if column == ANCHORS:  # each row has a tree of its own, unknown as yet: no tree has many rows
            lanes = fairness.divide_unknown(rows.num_rows)
        else:
            lanes = yield from fairness.divide(core, self.stream, column, rows)
        parts = [
            Part(segments.new_seed(), segments.new_hex_id(), lane, None if len(lanes) == 1 else places)
            for lane, places in lanes
        ]
        return Batch(rows, slots, tuple(parts))

    def publish(self, batch: Batch, anchors: IdsLike | None = None) -> list[Segment]:
        """Publishes a batch; returns its segments.

        After StoreUnavailable the same batch can be published again within an hour.

        Args:
            batch: The batch.
            anchors: The tree of each row, tracked with the batch's ids; None for rows without trees.

        Returns:
            The published segments.

        Raises:
            SchemaMismatch: The columns are not the columns of the stream.
            ValidationError: The number of anchors is not the number of rows, or a type is none that Spark
                has.

        Examples:
            >>> writer = StreamWriter(topology.ledger, "orders")
            >>> batch = writer.batch(pa.table({"id": ["order-1", "order-2"]}))
            >>> anchors, _ = spout.emit_many(["order-1", "order-2"], values=batch.ids())
            >>> [segment.rows for segment in writer.publish(batch, anchors)]
            [2]
        """
        anchor_ids = np.zeros(0, dtype=np.int64) if anchors is None else as_ids(anchors, "anchors")
        if anchors is not None and len(anchor_ids) != batch.rows.num_rows:
            raise ValidationError(f"anchors: expected {batch.rows.num_rows:,}, got {len(anchor_ids):,}")
        column = pa.nulls(batch.rows.num_rows, pa.int64()) if anchors is None else pa.array(anchor_ids)
        rows = batch.rows.append_column(ANCHORS, column)
        return self.ledger.run(self._publish(rows, batch))

    def _publish(self, rows: pa.Table, batch: Batch) -> Operation[list[Segment]]:
        core = self.ledger.core
        if self._recorded is None or not self._recorded.equals(rows.schema):
            yield from schemas.record(core, self.stream, rows.schema)
            self._recorded = rows.schema
        wanted = schemas.normal(rows.schema)
        published = []
        for part in batch.parts:
            own = rows if part.places is None else rows.take(pa.array(part.places))
            batches = [segments.conform(one, wanted) for one in own.combine_chunks().to_batches()]
            published.append((yield from self._publish_part(part, batches, rows.schema, batch.slots)))
        return published

    def _publish_part(
        self, part: Part, batches: list[pa.RecordBatch], schema: pa.Schema, slots: tuple[int, ...]
    ) -> Operation[Segment]:
        core = self.ledger.core
        # The trees count these tuples by their track: the vectors are only for their ack.
        requests, shards = stage_vectors(core, HOLD_TTL, batches, part.id, part.seed, slots, "1")
        [recorded, *_] = yield [
            command("EXISTS", keys.Stream(core.config.name, self.stream).schema),
            *requests,
        ]
        if not recorded:  # in a store that has lost everything since
            yield from schemas.record(core, self.stream, schema)
        payload = segments.encode(batches, self.compression)
        rows, size = sum(one.num_rows for one in batches), sum(one.nbytes for one in batches)
        segment = Segment(part.id, rows, part.seed, len(payload), shards, slots, "", part.lane, size)
        yield from publishing.publish_once(core, self.stream, segment, payload, _RESEND)
        return segment

    def write(self, rows: pa.Table) -> list[Segment]:
        """Publishes rows without trees; returns their segments.

        Args:
            rows: 1 to 524,288 rows, without a column `_acker`.
        """
        return self.publish(self.batch(rows))
