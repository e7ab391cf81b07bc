"""Rows as Python values, for steps that work on them; and the values that Python cannot represent."""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa  # noqa: TID251 - rows travel as Arrow, from and to Spark and plain Python

from acker.errors import ValidationError, shown
from acker.streams.log import segments

_PYTHONS = (pa.types.is_integer, pa.types.is_boolean, pa.types.is_floating, pa.types.is_binary)
"""Types of which Python can represent each value."""


def of_rows(rows: pa.RecordBatch) -> tuple[list[dict[str, Any]], dict[int, ValidationError]]:
    """Rows as Python values, for steps.

    Returns:
        The rows, and the place and an error for each row with a value that Python cannot represent. Its row
            has
        text in place of this value, like rows of `values`.
    """
    unfit: dict[int, ValidationError] = {}
    columns: list[list[Any]] = []
    names = rows.schema.names
    for name, column in zip(names, rows.columns, strict=True):
        try:
            columns.append(column.to_pylist())
        except segments.NOT_PYTHONS:
            columns.append(segments.column_values(column))
            for place, said in unshowable(column):
                unfit.setdefault(place, ValidationError(f"column {shown(name)}: {said}"))
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)], unfit


def unshowable(column: pa.Array) -> Iterator[tuple[int, str]]:
    """Places of values that Python cannot represent, each with the reason.

    Such are text that is no UTF-8, and a day of the year 10000.
    """
    for place in _unshowable(column, 0):
        text = segments.column_values(column.slice(place, 1))[0]
        yield place, f"Python has no value for this {column.type}: {shown(text)}"


def _unshowable(column: pa.Array, at: int) -> Iterator[int]:
    if any(is_one(column.type) for is_one in _PYTHONS):
        return
    try:
        if pa.types.is_string(column.type):
            column.validate(full=True)  # as below, without Python's values
        else:
            column.to_pylist()
    except segments.NOT_PYTHONS:
        if len(column) == 1:
            yield at
        else:
            half = len(column) // 2
            yield from _unshowable(column.slice(0, half), at)
            yield from _unshowable(column.slice(half), at + half)
