"""Values as keys: values that are equal by Spark's rules have equal bytes, whichever batch they are in.

Zero has no sign and all NaN are one. A decimal is the same at any scale, a time the same in any zone, and
text is its bytes. So everything that follows from a key, such as a task or a lane, is the same for equal
values.

Terms: a lane is one of the four queues of a stream that is read fairly.
"""

import struct
from decimal import Decimal
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa  # noqa: TID251 - rows travel as Arrow, from and to Spark and plain Python

from acker.ledger.ids import Ids

_NAN = np.float64("nan")


def encoded(column: pa.Array | pa.ChunkedArray) -> tuple[Ids, list[bytes]]:
    """The keys of a column.

    Returns:
        For each row the place of its key among the keys, after the last one for null; and the keys, each
        once.
    """
    if isinstance(column, pa.ChunkedArray):
        column = pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pa.types.is_nested(column.type):
        places, row_keys = np.arange(len(column), dtype=np.int64), _keys(column)
    elif pa.types.is_null(column.type):
        places, row_keys = np.zeros(len(column), dtype=np.int64), [None]
    else:
        coded = column.dictionary_encode()
        known = coded.dictionary
        row_keys = [*_keys(known), None]
        places = coded.indices.fill_null(len(known)).to_numpy(zero_copy_only=False).astype(np.int64)
    numbers: dict[bytes, int] = {}
    for key in row_keys:
        if key is not None:
            numbers.setdefault(key, len(numbers))
    of_place = [len(numbers) if key is None else numbers[key] for key in row_keys]
    return np.array(of_place, dtype=np.int64)[places], list(numbers)


def _keys(column: pa.Array) -> list[bytes | None]:
    """The key of each value; None for null."""
    kind = column.type
    if pa.types.is_nested(kind):
        return _nested(column)
    if pa.types.is_null(kind):
        return [None] * len(column)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        column = column.cast(pa.large_binary())  # text may be any bytes
    if pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type):
        return column.to_pylist()  # type: ignore[no-any-return]
    if pa.types.is_decimal(kind):
        return [None if one is None else _decimal(one) for one in column.to_pylist()]
    valid = column.is_valid().to_numpy(zero_copy_only=False)
    if pa.types.is_floating(kind):
        numbers: Any = column.cast(pa.float64()).fill_null(0.0).to_numpy(zero_copy_only=False) + 0.0
        numbers = np.where(np.isnan(numbers), _NAN, numbers)
    else:
        numbers = _whole(column).fill_null(0).to_numpy(zero_copy_only=False)
    packed = np.ascontiguousarray(numbers).tobytes()
    return [
        packed[8 * place : 8 * place + 8] if there else None for place, there in enumerate(valid.tolist())
    ]


def _whole(column: pa.Array) -> pa.Array:
    """Numbers, days and times as whole numbers. Times of any zone and unit count microseconds."""
    kind = column.type
    if pa.types.is_timestamp(kind):
        column = column.cast(pa.timestamp("us", kind.tz), safe=False)
    elif pa.types.is_duration(kind):
        column = column.cast(pa.duration("us"), safe=False)
    elif pa.types.is_date32(kind) or pa.types.is_time32(kind):
        column = column.cast(pa.int32())
    return column.cast(pa.int64())


def _decimal(value: Decimal) -> bytes:
    text = f"{value:f}"
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return (text if text != "-0" else "0").encode()


def _nested(column: pa.Array) -> list[bytes | None]:
    """The keys of structs, lists and maps: the keys of their parts, each with its length before it."""
    kind, count = column.type, len(column)
    column = column.take(pa.array(np.arange(count)))  # its parts begin with its first value then
    valid = column.is_valid().to_numpy(zero_copy_only=False).tolist()
    if pa.types.is_struct(kind):
        fields = [_keys(column.field(place)) for place in range(kind.num_fields)]
        made = [b"".join(map(_part, row)) for row in zip(*fields, strict=True)] if fields else [b""] * count
        return [key if there else None for key, there in zip(made, valid, strict=True)]
    offsets = column.offsets.to_numpy(zero_copy_only=False).tolist()
    if pa.types.is_map(kind):
        entries = zip(_keys(column.keys), _keys(column.items), strict=True)
        parts = [_part(key) + _part(item) for key, item in entries]
    else:
        parts = [*map(_part, _keys(column.values))]
    row_keys: list[bytes | None] = []
    for there, (begin, end) in zip(valid, pairwise(offsets), strict=True):
        own = parts[begin:end]
        row_keys.append(b"".join(sorted(own) if pa.types.is_map(kind) else own) if there else None)
    return row_keys


def _part(key: bytes | None) -> bytes:
    return struct.pack("<i", -1) if key is None else struct.pack("<i", len(key)) + key
