"""Columns that a spout reads of its rows: their message ids, and their places in its source."""

import pyarrow as pa  # noqa: TID251 - rows travel as Arrow, from and to Spark and plain Python

from acker.errors import ValidationError, shown
from acker.ledger.settings.config import MESSAGE_ID_BYTES

MOST_PARTITIONS = 1_000
_MOST_OFFSET = 2**53 - 1


def named(rows: pa.Table, column: str) -> pa.ChunkedArray:
    """The column of message ids, as text or bytes; ValidationError where it is not there, or cannot be."""
    place = rows.schema.get_field_index(column) if column in rows.schema.names else -1
    if place < 0:
        raise ValidationError(
            f"message_id: expected one of the columns {', '.join(rows.column_names)}, got {shown(column)}"
        )
    found = rows.column(place)
    if pa.types.is_binary(found.type) or pa.types.is_large_binary(found.type):
        return found
    try:
        return found.cast(pa.string())
    except pa.ArrowException as error:
        raise ValidationError(f"message_id: column {column!r} of {found.type} cannot be text") from error


def bad(named: pa.ChunkedArray) -> pa.ChunkedArray:
    """Which message ids are null or too long."""
    # Not above: Spark imports this file for each query that it starts, and Arrow's functions take a while.
    import pyarrow.compute as pc  # noqa: TID251

    return pc.fill_null(pc.greater(pc.binary_length(named), MESSAGE_ID_BYTES), fill_value=True)


def sound(named: pa.ChunkedArray) -> bool:
    """Whether no message id is null or too long."""
    if named.null_count:
        return False
    return bool(named.nbytes <= MESSAGE_ID_BYTES or bad(named).index(True).as_py() < 0)


def message_ids(rows: pa.Table, column: str) -> pa.ChunkedArray:
    """The message ids of rows, as text or bytes: one that is too long is cut, for null there is none."""
    found = named(rows, column)
    if sound(found):
        return found
    texts = found.cast(pa.large_binary()).to_pylist()
    return pa.chunked_array([pa.array([_shortened(text or b"") for text in texts], pa.binary())])


def _shortened(text: bytes) -> bytes:
    if len(text) <= MESSAGE_ID_BYTES:
        return text
    return text[: MESSAGE_ID_BYTES - 3].decode("utf-8", "ignore").encode() + b"..."


def trackable(rows: pa.Table, column: str) -> bool:
    """Whether all rows have a message id that can be tracked. Raises ValidationError for no such column."""
    return sound(named(rows, column))


def refusals(rows: pa.Table, column: str) -> list[str]:
    """Why rows are not tracked."""
    texts = named(rows, column).cast(pa.large_binary()).to_pylist()
    return [
        f"message_id: expected at most {MESSAGE_ID_BYTES:,} bytes, got "
        f"{'null' if text is None else f'{len(text):,}'} in column {column!r}"
        for text in texts
    ]


def _partitions(rows: pa.Table, column: str) -> pa.ChunkedArray:
    """The names of partitions, as bytes; null stands for the one without a name, as ""."""
    found = rows.column(column)
    if not (pa.types.is_binary(found.type) or pa.types.is_large_binary(found.type)):
        try:
            found = found.cast(pa.string())
        except pa.ArrowException as error:
            raise ValidationError(f"partition: column {column!r} of {found.type} cannot be text") from error
    return found.cast(pa.binary()).fill_null(b"")


def offsets(rows: pa.Table, offset: str, partition: str) -> dict[str, tuple[int, int]]:
    """The lowest and highest offset of each partition; none where `offset` is "". Raises ValidationError."""
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
    found: dict[str, tuple[int, int]] = {}
    for one in grouped.aggregate([("offset", "min"), ("offset", "max")]).to_pylist():
        name = one["name"].decode("utf-8", "backslashreplace")
        low, high = found.get(name, (one["offset_min"], one["offset_max"]))
        found[name] = min(low, one["offset_min"]), max(high, one["offset_max"])
    if len(found) > MOST_PARTITIONS:
        raise ValidationError(
            f"partition: expected at most {MOST_PARTITIONS:,} different, got {len(found):,}"
        )
    for low, high in found.values():
        if low < 0 or high > _MOST_OFFSET:
            raise ValidationError(f"offset: expected 0 to {_MOST_OFFSET:,}, got {low:,} to {high:,}")
    return found
