"""Segments: batches of tuples on their way from one job to the next, as Arrow tables and as bytes.

The column `_acker` has a row's anchors: one bigint if rows have a single anchor, a list of them if they may
have several. 0 is no anchor: the row has no tree. Null, and an empty list, are unknown anchors. Tuple ids are
never stored: the n-th edge of a segment (its rows in order, the anchors of a row in order) has the n-th id of
a sequence (`acker.ledger.ids`). The seed of the sequence comes from the segment's seed and the slot of a
subscription, so each subscription has ids of its own.

Terms: a tree is all that comes of one record; an anchor is the number of a tree; a vector has a number for
each tree, the XOR of tuple ids; a slot is the random number of a subscription; a lane is one of the four
queues of a stream that is read fairly.
"""

import builtins
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any

import numpy as np
import pyarrow as pa  # noqa: TID251 - rows travel as Arrow, from and to Spark and plain Python

from acker.errors import UnreadableRecord, ValidationError, shown
from acker.ledger import ids
from acker.ledger.ids import Ids
from acker.store.keys import Stream
from acker.store.operation import Word
from acker.store.records import Bounds, Count, HexId, Record

ANCHORS = "_acker"
"""The column that holds the anchors of a row."""
COMPRESSIONS = ("lz4", "zstd", "none")
SEGMENT_ROWS = 524_288
"""Rows after which a writer starts another segment."""
LARGEST_SEGMENT = 1 << 20
"""Rows that a segment can have at most."""
SEGMENT_BYTES = 16 << 20
"""Bytes of rows, before compression, after which a writer starts another segment."""
_THREADS_FROM = 1 << 20
"""Bytes of rows from which on it is worth to wake Arrow's threads."""
_BATCH_ROWS = 65_536
NOT_PYTHONS = (ValueError, OverflowError)
"""Errors that Arrow raises for values that Python cannot represent."""
_OTHER_SLOTS = 0x5851F42D4C957F2D
LAST = "!"
"""The prefix of the place of a segment that ends a bundle (`acker.streams.log.gathers`)."""


@dataclass(frozen=True, slots=True)
class Segment(Record, label="a segment", most=1 << 16, cached=512):
    """The record of a segment in a stream's entry.

    Attributes:
        id: Its name; 32 hexadecimal digits.
        rows: The number of its rows.
        seed: The seed of its tuple ids.
        bytes: The size of its payload.
        shards: The shards in which it has vectors.
        slots: The slots of the subscriptions that it was staged for.
        to: Its place in a stream that gathers (`acker.streams.log.gathers.destination`), "" in any other.
        lane: 0 to 3, in a stream that is read fairly (`acker.streams.log.fairness`).
        size: Bytes of its rows before compression, which limit a claim (lua/streams/log/claim_segments.lua);
            0 if unknown.
    """

    id: HexId
    rows: Count
    seed: int
    bytes: Count
    shards: tuple[Count, ...]
    slots: tuple[Count, ...]
    to: Annotated[str, Bounds(0, 256)] = ""
    lane: Annotated[int, Bounds(0, 3)] = 0
    size: Count = 0

    @property
    def counted(self) -> int:
        """The number of its rows in figures for people, which leave out rows that only end a bundle."""
        return 0 if self.to.startswith(LAST) else self.rows


UNREAD = Segment("", 0, 0, 0, (), ())
"""Stands for a segment whose record cannot be read: without rows and vectors, and never acked."""


def readable(record: builtins.bytes) -> Segment:
    """A segment, parsed from its record; `UNREAD` if it is none."""
    try:
        return Segment.load(record)
    except UnreadableRecord:
        return UNREAD


def new_hex_id() -> str:
    """A random name for a segment."""
    return secrets.token_hex(16)


def new_seed() -> int:
    """A random seed for the tuple ids of a segment: 63 bits."""
    return secrets.randbits(63)


def check_anchors_type(kind: pa.DataType) -> None:
    """Raises ValidationError if a column of that type cannot hold anchors."""
    listed = pa.types.is_list(kind) or pa.types.is_large_list(kind)
    if not pa.types.is_int64(kind.value_type if listed else kind):
        raise ValidationError(f"column {ANCHORS}: expected bigint or array<bigint>, got {kind}")


def edges(column: pa.Array | pa.ChunkedArray) -> tuple[Ids, Ids]:
    """The anchors of a column, row after row, and the position of each among the segment's edges.

    A position without an anchor (an unanchored row) is left out, but counted.
    """
    check_anchors_type(column.type)
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
        if isinstance(column, pa.ChunkedArray):
            column = column.chunk(0) if column.num_chunks else pa.array([], column.type)
    values = column if pa.types.is_int64(column.type) else column.flatten()
    anchors = (values.fill_null(0) if values.null_count else values).to_numpy(zero_copy_only=False)
    if anchors.all():
        return anchors, np.arange(len(anchors), dtype=np.int64)
    positions = np.flatnonzero(anchors).astype(np.int64)
    return anchors[positions], positions


def unanchored(column: pa.Array) -> int:
    """The number of rows that have lost their anchors: null, no element, or only null."""
    check_anchors_type(column.type)
    if pa.types.is_int64(column.type):
        return int(column.null_count)
    values, lengths = column.flatten(), _lengths(column)
    if not values.null_count:
        return int(np.count_nonzero(lengths == 0))
    rows = np.repeat(np.arange(len(column)), lengths)
    return len(column) - len(np.unique(rows[values.is_valid().to_numpy(zero_copy_only=False)]))


def treeless(column: pa.Array) -> int:
    """The number of rows that have no tree: all their anchors are 0."""
    check_anchors_type(column.type)
    values = column if pa.types.is_int64(column.type) else column.flatten()
    anchors = (values.fill_null(0) if values.null_count else values).to_numpy(zero_copy_only=False)
    if anchors.all():
        return 0
    lengths = None if pa.types.is_int64(column.type) else _lengths(column)
    rows = np.arange(len(column)) if lengths is None else np.repeat(np.arange(len(column)), lengths)
    known = rows[values.is_valid().to_numpy(zero_copy_only=False)]
    return len(np.unique(known)) - len(np.unique(rows[anchors != 0]))


def read(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Conforms a batch for Spark: rows without a tree have 0 as their anchor, or [0], and no anchor is null.

    pandas makes floats of a column of whole numbers with a null, which changes the other rows' anchors.
    """
    rows = conform(batch, schema)
    place = schema.get_field_index(ANCHORS)
    if place < 0:
        return rows
    return rows.set_column(place, schema.field(place), _with_zeros(rows.column(place)))


def _with_zeros(column: pa.Array) -> pa.Array:
    if pa.types.is_int64(column.type):
        return column.fill_null(0) if column.null_count else column
    if not pa.types.is_list(column.type):
        return column
    values, lengths = column.flatten(), _lengths(column)
    if values.null_count:
        values = values.fill_null(0)
    elif lengths.all():
        return column
    kept = np.repeat(lengths > 0, np.maximum(lengths, 1))
    filled = np.zeros(len(kept), dtype=np.int64)
    filled[kept] = values.to_numpy(zero_copy_only=False)
    ends = np.concatenate(([0], np.cumsum(np.maximum(lengths, 1))))
    return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), pa.array(filled), type=column.type)


def _lengths(column: pa.Array) -> Ids:
    found: Ids = column.value_lengths().fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    return found


def width(column: pa.ChunkedArray) -> int:
    """The number of anchors of each row of a column; 1 if it differs from row to row, or some are null."""
    if pa.types.is_int64(column.type) or column.null_count or not len(column):
        return 1
    chunks = [chunk for chunk in column.chunks if len(chunk)]
    lengths = np.concatenate([chunk.value_lengths().to_numpy() for chunk in chunks])
    if lengths.min() != lengths.max() or any(chunk.flatten().null_count for chunk in chunks):
        return 1
    return max(1, int(lengths[0]))


def edge_ids(seed: int, slot: int, positions: Ids) -> Ids:
    """The tuple ids of a segment's edges, at ascending `positions`, for a subscription."""
    if not len(positions):
        return np.zeros(0, dtype=np.int64)
    if slot:
        # Sequences of seeds that are near each other overlap: so this one is far away.
        seed = int(ids.seeded_ids(seed ^ _OTHER_SLOTS, slot, 1)[0])
    made = ids.seeded_ids(seed, 0, int(positions[-1]) + 1)
    return made if len(made) == len(positions) else made[positions]


def encode(batches: Sequence[pa.RecordBatch], compression: str) -> bytes:
    """Rows as a segment's payload: one Arrow IPC stream, in batches that a reader can process one by one."""
    if compression not in COMPRESSIONS:
        raise ValidationError(
            f"compression: expected one of {', '.join(COMPRESSIONS)}, got {shown(compression)}"
        )
    # Not `nbytes`, which looks into the buffers: that takes longer than a small segment itself.
    threads = sum(batch.get_total_buffer_size() for batch in batches) >= _THREADS_FROM
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batches[0].schema, options=_options(compression, threads)) as writer:
        if len(batches) == 1 and 0 < batches[0].num_rows <= _BATCH_ROWS:
            writer.write_batch(batches[0])
        else:
            table = pa.Table.from_batches(batches).combine_chunks()
            writer.write_table(table, max_chunksize=_BATCH_ROWS)
    payload: bytes = sink.getvalue().to_pybytes()
    return payload


@cache
def _options(compression: str, threads: bool) -> pa.ipc.IpcWriteOptions:
    return pa.ipc.IpcWriteOptions(
        compression=None if compression == "none" else compression, use_threads=threads
    )


@cache
def _read_options(threads: bool) -> pa.ipc.IpcReadOptions:
    return pa.ipc.IpcReadOptions(use_threads=threads)


def decode(payload: bytes) -> Iterator[pa.RecordBatch]:
    """The rows of a payload. Raises UnreadableRecord if it holds none.

    Like Spark's, text may be any bytes: `texts` makes Python's text of it.
    """
    try:
        options = _read_options(len(payload) >= _THREADS_FROM)
        with pa.ipc.open_stream(pa.py_buffer(payload), options=options) as reader:
            check_names(reader.schema)
            checked = False
            for batch in reader:
                if not checked:
                    try:
                        batch.validate(full=True)
                    except pa.ArrowInvalid:  # also for text that is no UTF-8
                        _check_as_bytes(payload, reader.schema)
                        checked = True
                yield batch
    except (pa.ArrowException, UnicodeDecodeError, OSError, MemoryError) as error:
        raise UnreadableRecord(f"not the rows of a segment: {len(payload)} bytes: {error!s:.200}") from error


def decode_all(payload: bytes, rows: int) -> list[pa.RecordBatch]:
    """All rows of a payload. Raises UnreadableRecord if it does not hold exactly so many."""
    batches = list(decode(payload))
    count = sum(batch.num_rows for batch in batches)
    if count != rows:  # Arrow takes a stream that is cut between two batches for a whole one
        raise UnreadableRecord(f"expected {rows:,} rows, got {count:,}")
    return batches


def _check_as_bytes(payload: bytes, schema: pa.Schema) -> None:
    """Raises ArrowInvalid if parts of a payload's arrays do not fit together, whatever its texts are."""
    plain = pa.schema([field.with_type(_text_as_bytes(field.type)) for field in schema])
    for message in pa.ipc.MessageReader.open_stream(pa.py_buffer(payload)):
        if message.type == "record batch":
            pa.ipc.read_record_batch(message, plain).validate(full=True)


def _text_as_bytes(kind: pa.DataType) -> pa.DataType:
    """A type of the same layout in which text is bytes."""

    def inner(field: pa.Field) -> pa.Field:
        return field.with_type(_text_as_bytes(field.type))

    if pa.types.is_string(kind):
        return pa.binary()
    if pa.types.is_large_string(kind):
        return pa.large_binary()
    if pa.types.is_struct(kind):
        return pa.struct([inner(field) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(inner(kind.key_field), inner(kind.item_field))
    if pa.types.is_list(kind):
        return pa.list_(inner(kind.value_field))
    if pa.types.is_large_list(kind):
        return pa.large_list(inner(kind.value_field))
    return kind


def texts(column: pa.Array | pa.ChunkedArray) -> list[str | None]:
    """A column of text as Python's text. Bytes that are no UTF-8 are replaced."""
    large = pa.types.is_large_string(column.type)
    found = column.cast(pa.large_binary() if large else pa.binary()).to_pylist()
    return [None if one is None else one.decode("utf-8", "replace") for one in found]


def values(rows: pa.RecordBatch) -> list[dict[str, Any]]:
    """Rows as Python values, for display.

    A value that Python cannot represent, such as a day of the year 10000, or text that is no UTF-8, becomes
    text.
    """
    names, columns = rows.schema.names, [column_values(column) for column in rows.columns]
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def column_values(column: pa.Array) -> list[Any]:
    """The values of a column, in the form of `values`."""
    try:
        return column.to_pylist()  # type: ignore[no-any-return]
    except NOT_PYTHONS:
        if len(column) > 1:
            return [one for place in range(len(column)) for one in column_values(column.slice(place, 1))]
        if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
            return texts(column)
        return [column.to_string(skip_new_lines=True)]


def check_names(schema: pa.Schema) -> None:
    """Raises UnicodeDecodeError if the name of a column, or of a field in one, is no UTF-8.

    Arrow takes any bytes, and decodes a name only when it is read.
    """
    fields = list(schema)
    for field in fields:  # as many as the schema's own bytes hold
        str(field.name)
        fields += [field.type.field(place) for place in range(field.type.num_fields)]


def conform(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """A batch with the columns of `schema`, in its order and of its types. A missing column is null.

    Raises ValidationError for a value that does not fit into the column's type.
    """
    columns: list[Any] = []
    for field in schema:
        place = batch.schema.get_field_index(field.name)
        if place < 0:
            columns.append(pa.nulls(batch.num_rows, field.type))
        else:
            columns.append(_cast(batch.column(place), field))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _cast(column: pa.Array, field: pa.Field) -> pa.Array:
    if column.type == field.type:
        return column
    try:
        return column.cast(field.type)
    except pa.ArrowException as error:
        raise ValidationError(f"column {field.name}: {error}") from error


def row_keys(stream: Stream, segments: Sequence[Segment]) -> list[bytes]:
    """The keys of each segment: payload, unacked."""
    return [key for one in segments for key in (stream.payload(one.id), stream.unacked(one.id))]


def published_words(segment: Segment) -> list[Word]:
    """Record, rows, bytes and slots of a segment, as arguments of the scripts that publish it."""
    return [segment.dump(), segment.rows, segment.bytes, ",".join(map(str, segment.slots))]
