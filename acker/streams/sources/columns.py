"""Columns that a spout reads from its rows: their message ids, and their places in its source."""

import pyarrow as pa  # noqa: TID251 - rows travel as Arrow, from and to Spark and plain Python

from acker.errors import ValidationError, shown
from acker.ledger.settings.config import MESSAGE_ID_BYTES

MOST_PARTITIONS = 1_000
_MOST_OFFSET = 2**53 - 1


def message_id_column(rows: pa.Table, column: str) -> pa.ChunkedArray:
    """The column of message ids, as text or bytes.

    Raises ValidationError if it is missing, or cannot be text.
    """
    place = rows.schema.get_field_index(column) if column in rows.schema.names else -1
    if place < 0:
        raise ValidationError(
            f"message_id: expected one of the columns {', '.join(rows.column_names)}, got {shown(column)}"
        )
    values = rows.column(place)
    if pa.types.is_binary(values.type) or pa.types.is_large_binary(values.type):
        return values
    try:
        return values.cast(pa.string())
    except pa.ArrowException as error:
        raise ValidationError(f"message_id: column {column!r} of {values.type} cannot be text") from error


def bad(named: pa.ChunkedArray) -> pa.ChunkedArray:
    """True for each message id that is null or too long."""
    # Not above: Spark imports this file for each query that it starts, and Arrow's functions take a while.
    import pyarrow.compute as pc  # noqa: TID251

    return pc.fill_null(pc.greater(pc.binary_length(named), MESSAGE_ID_BYTES), fill_value=True)


def sound(named: pa.ChunkedArray) -> bool:
    """Return True if no message id is null or too long."""
    if named.null_count:
        return False
    return bool(named.nbytes <= MESSAGE_ID_BYTES or bad(named).index(True).as_py() < 0)


def message_ids(rows: pa.Table, column: str) -> pa.ChunkedArray:
    """The message ids of rows, as text or bytes. One that is too long is cut; null becomes empty."""
    ids = message_id_column(rows, column)
    if sound(ids):
        return ids
    texts = ids.cast(pa.large_binary()).to_pylist()
    return pa.chunked_array([pa.array([_shortened(text or b"") for text in texts], pa.binary())])


def _shortened(text: bytes) -> bytes:
    if len(text) <= MESSAGE_ID_BYTES:
        return text
    return text[: MESSAGE_ID_BYTES - 3].decode("utf-8", "ignore").encode() + b"..."


def trackable(rows: pa.Table, column: str) -> bool:
    """Return True if each row has a message id that can be tracked.

    Raises ValidationError for a missing column.
    """
    return sound(message_id_column(rows, column))


def refusals(rows: pa.Table, column: str) -> list[str]:
    """The reasons why rows are not tracked."""
    texts = message_id_column(rows, column).cast(pa.large_binary()).to_pylist()
    return [
        f"message_id: expected at most {MESSAGE_ID_BYTES:,} bytes, got "
        f"{'null' if text is None else f'{len(text):,}'} in column {column!r}"
        for text in texts
    ]


def _partitions(rows: pa.Table, column: str) -> pa.ChunkedArray:
    """The names of partitions, as bytes. Null stands for the partition without a name, like ""."""
    names = rows.column(column)
    if not (pa.types.is_binary(names.type) or pa.types.is_large_binary(names.type)):
        try:
            names = names.cast(pa.string())
        except pa.ArrowException as error:
            raise ValidationError(f"partition: column {column!r} of {names.type} cannot be text") from error
    return names.cast(pa.binary()).fill_null(b"")


def offsets(rows: pa.Table, offset: str, partition: str) -> dict[str, tuple[int, int]]:
    """The lowest and highest offset of each partition; none if `offset` is "". Raises ValidationError."""
    if not offset:
        return {}
    for column in filter(None, (offset, partition)):
        if column not in rows.column_names:
            raise ValidationError(
                f"offset: expected columns of {', '.join(rows.column_names)}, got {shown(column)}"
            )
    places = rows.column(offset)
    if not pa.types.is_integer(places.type) or places.null_count:
        raise ValidationError(
            f"offset: expected whole numbers without null in column {offset!r}, got {places.type}"
        )
    names = _partitions(rows, partition) if partition else pa.array([b""] * len(rows))
    grouped = pa.table({"name": names, "offset": places.cast(pa.int64())}).group_by("name")
    ranges: dict[str, tuple[int, int]] = {}
    for group in grouped.aggregate([("offset", "min"), ("offset", "max")]).to_pylist():
        name = group["name"].decode("utf-8", "backslashreplace")
        low, high = ranges.get(name, (group["offset_min"], group["offset_max"]))
        ranges[name] = min(low, group["offset_min"]), max(high, group["offset_max"])
    if len(ranges) > MOST_PARTITIONS:
        raise ValidationError(
            f"partition: expected at most {MOST_PARTITIONS:,} different, got {len(ranges):,}"
        )
    for low, high in ranges.values():
        if low < 0 or high > _MOST_OFFSET:
            raise ValidationError(f"offset: expected 0 to {_MOST_OFFSET:,}, got {low:,} to {high:,}")
    return ranges
