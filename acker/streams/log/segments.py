"""Segments: batches of tuples on their way from one job to the next, as Arrow tables and as bytes.

A row's anchors stand in the column `_acker`: one bigint where rows have a single anchor, a list of them where
they may have several. 0 is no anchor: the row has no tree. Null, and an empty list, say that nobody knows.
Tuple ids are never stored: the n-th edge of a segment (its rows in order, the anchors of a row in order) has
the n-th id of a sequence (`acker.ledger.ids`), whose seed is made of the segment's and the slot of a
subscription: each has ids of its own.
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
from acker.store.records import Bounds, Count, Record, Token

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
"""Bytes of rows from which on Arrow's threads are worth that they have to be woken."""
_BATCH_ROWS = 65_536
NOT_PYTHONS = (ValueError, OverflowError)
"""What values raise that Arrow and Spark have, and Python has not."""
_OTHER_SLOTS = 0x5851F42D4C957F2D


@dataclass(frozen=True, slots=True)
class Segment(Record, what="a segment", most=1 << 16, cached=512):
    """What a stream's entry says of a segment.

    token: names it; 32 hexadecimal digits. seed: of its tuple ids. shards: where it has vectors.
    bytes: size of its payload. size: bytes of its rows before compression, by which a claim is bounded
    (lua/streams/log/claim_segments.lua); 0: not known. slots: numbers of the subscriptions that it was staged
    for. to: where it waits in a stream that gathers (`acker.streams.log.gathers.destination`), "" in any
    other. lane: 0 to 3, of a stream that is read fairly (`acker.streams.log.fairness`).
    """

    token: Token
    rows: Count
    seed: int
    bytes: Count
    shards: tuple[Count, ...]
    slots: tuple[Count, ...]
    to: Annotated[str, Bounds(0, 256)] = ""
    lane: Annotated[int, Bounds(0, 3)] = 0
    size: Count = 0


UNREAD = Segment("", 0, 0, 0, (), ())
"""Stands for a segment whose record cannot be read: it has no rows, no vectors, and is owed to nobody."""


def readable(record: builtins.bytes) -> Segment:
    """A segment; `UNREAD` where the record is of none."""
    try:
        return Segment.load(record)
    except UnreadableRecord:
        return UNREAD


def new_token() -> str:
    """A random name for a segment."""
    return secrets.token_hex(16)


def new_seed() -> int:
    """A random seed for the tuple ids of a segment: 63 bits."""
    return secrets.randbits(63)


def check_anchors_type(kind: pa.DataType) -> None:
    """Raises ValidationError where a column of that type cannot hold anchors."""
    listed = pa.types.is_list(kind) or pa.types.is_large_list(kind)
    if not pa.types.is_int64(kind.value_type if listed else kind):
        raise ValidationError(f"column {ANCHORS}: expected bigint or array<bigint>, got {kind}")


def edges(column: pa.Array | pa.ChunkedArray) -> tuple[Ids, Ids]:
    """The anchors of a column, row after row, and the place of each among the segment's edges.

    A place that has no anchor (an unanchored row) is left out, but counted.
    """
    check_anchors_type(column.type)
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
        if isinstance(column, pa.ChunkedArray):
            column = column.chunk(0) if column.num_chunks else pa.array([], column.type)
    values = column if pa.types.is_int64(column.type) else column.flatten()
    found = (values.fill_null(0) if values.null_count else values).to_numpy(zero_copy_only=False)
    if found.all():
        return found, np.arange(len(found), dtype=np.int64)
    places = np.flatnonzero(found).astype(np.int64)
    return found[places], places


def unanchored(column: pa.Array) -> int:
    """How many rows of a column of anchors have lost them: null, no element, or none but null."""
    check_anchors_type(column.type)
    if pa.types.is_int64(column.type):
        return int(column.null_count)
    values, lengths = column.flatten(), _lengths(column)
    if not values.null_count:
        return int(np.count_nonzero(lengths == 0))
    rows = np.repeat(np.arange(len(column)), lengths)
    return len(column) - len(np.unique(rows[values.is_valid().to_numpy(zero_copy_only=False)]))


def treeless(column: pa.Array) -> int:
    """How many rows of a column of anchors say that they have no tree: 0 is all that they have."""
    check_anchors_type(column.type)
    values = column if pa.types.is_int64(column.type) else column.flatten()
    found = (values.fill_null(0) if values.null_count else values).to_numpy(zero_copy_only=False)
    if found.all():
        return 0
    lengths = None if pa.types.is_int64(column.type) else _lengths(column)
    rows = np.arange(len(column)) if lengths is None else np.repeat(np.arange(len(column)), lengths)
    known = rows[values.is_valid().to_numpy(zero_copy_only=False)]
    return len(np.unique(known)) - len(np.unique(rows[found != 0]))


def read(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """As `conform`, for Spark: rows without a tree have 0 as their anchor, or [0], and no anchor is null.

    pandas makes floats of a column in which a whole number is null, and so other anchors of the other rows.
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
    """How many anchors each row of a column has; 1 where that differs from row to row, or some are null."""
    if pa.types.is_int64(column.type) or column.null_count or not len(column):
        return 1
    chunks = [chunk for chunk in column.chunks if len(chunk)]
    lengths = np.concatenate([chunk.value_lengths().to_numpy() for chunk in chunks])
    if lengths.min() != lengths.max() or any(chunk.flatten().null_count for chunk in chunks):
        return 1
    return max(1, int(lengths[0]))


def edge_ids(seed: int, slot: int, places: Ids) -> Ids:
    """The tuple ids that the edges at ascending `places` of a segment have for a subscription."""
    if not len(places):
        return np.zeros(0, dtype=np.int64)
    if slot:
        # Sequences of seeds that are near each other overlap: so this one is far away.
        seed = int(ids.seeded_ids(seed ^ _OTHER_SLOTS, slot, 1)[0])
    made = ids.seeded_ids(seed, 0, int(places[-1]) + 1)
    return made if len(made) == len(places) else made[places]


def encode(batches: Sequence[pa.RecordBatch], compression: str) -> bytes:
    """Rows as a segment's payload: one Arrow IPC stream, in batches that a reader can work on one by one."""
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
    """The rows of a payload; UnreadableRecord where it holds none.

    Text may be any bytes, as Spark's may: who makes Python's text of it has to see to that (`texts`).
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
                    except pa.ArrowInvalid:  # for text that is no UTF-8, too
                        _check_as_bytes(payload, reader.schema)
                        checked = True
                yield batch
    except (pa.ArrowException, UnicodeDecodeError, OSError, MemoryError) as error:
        raise UnreadableRecord(f"not the rows of a segment: {len(payload)} bytes: {error!s:.200}") from error


def _check_as_bytes(payload: bytes, schema: pa.Schema) -> None:
    """Raises ArrowInvalid where parts of a payload's arrays do not fit together, whatever its texts are."""
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
    """Python's text of a column of text; what is no UTF-8 in it is replaced."""
    large = pa.types.is_large_string(column.type)
    found = column.cast(pa.large_binary() if large else pa.binary()).to_pylist()
    return [None if one is None else one.decode("utf-8", "replace") for one in found]


def values(rows: pa.RecordBatch) -> list[dict[str, Any]]:
    """Rows as Python's values, for who shows them.

    What Python has not, as a day of the year 10000, or text that is no UTF-8, becomes text.
    """
    names, columns = rows.schema.names, [column_values(column) for column in rows.columns]
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def column_values(column: pa.Array) -> list[Any]:
    """The values of a column, as `values` has them."""
    try:
        return column.to_pylist()  # type: ignore[no-any-return]
    except NOT_PYTHONS:
        if len(column) > 1:
            return [one for place in range(len(column)) for one in column_values(column.slice(place, 1))]
        if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
            return texts(column)
        return [column.to_string(skip_new_lines=True)]


def check_names(schema: pa.Schema) -> None:
    """Raises UnicodeDecodeError where a name of a column, or of a field in one, is no UTF-8.

    Arrow takes any bytes, and decodes them when somebody asks for the name.
    """
    fields = list(schema)
    for field in fields:  # as many as the schema's own bytes hold
        str(field.name)
        fields += [field.type.field(place) for place in range(field.type.num_fields)]


def conform(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """A batch with the columns of `schema`: in its order and of its types; null where the batch has none.

    ValidationError where a value has no place in the column's type.
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
    """For each segment: payload, owed."""
    return [key for one in segments for key in (stream.payload(one.token), stream.owed(one.token))]


def published_words(segment: Segment) -> list[Word]:
    """Record, rows, bytes and slots of a segment, as the scripts that publish it take them."""
    return [segment.dump(), segment.rows, segment.bytes, ",".join(map(str, segment.slots))]
