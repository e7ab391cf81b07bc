"""Rows that a step emits as columns of the types that the stream has, without losing a part of a value."""

import datetime as dt
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa  # noqa: TID251 - rows travel as Arrow, from and to Spark and plain Python

from acker.errors import ValidationError, shown, text_of
from acker.streams.segments import ANCHORS


def load_pandas() -> None:
    """Has pyarrow load pandas now, and not by the first array that some thread makes.

    It holds a lock meanwhile, for which a process that is forked just then would wait for ever.
    """
    pa.array([])


def table(rows: Sequence[Mapping[str, Any]], known: pa.Schema | None) -> pa.Table:
    """Rows with the columns that the stream has, and with new ones, but for new ones without a value.

    Raises ValidationError, which names the column, for a value that it cannot have as it is.
    """
    types = {} if known is None else {field.name: field.type for field in known}
    types.setdefault(ANCHORS, _of_anchors(rows))
    columns = {}
    for name in dict.fromkeys([*types, *(name for row in rows for name in row)]):
        values = [row.get(name) for row in rows]
        if name == ANCHORS:
            values = _anchors(values, types[name])
        if name in types or any(value is not None for value in values):
            columns[name] = _column(name, values, types.get(name))
    return pa.table(columns)


def _of_anchors(rows: Sequence[Mapping[str, Any]]) -> pa.DataType:
    """The type of the column of anchors in a new stream."""
    several = any(isinstance(row[ANCHORS], tuple) for row in rows)
    return pa.list_(pa.int64()) if several else pa.int64()


def _anchors(values: Sequence[Any], kind: pa.DataType) -> list[Any]:
    """Anchors as a stream has them: of one tree a row, or of several."""
    if not pa.types.is_int64(kind):
        return [(one or (0,)) if isinstance(one, tuple) else (one,) for one in values]
    several = [one for one in values if isinstance(one, tuple) and len(one) > 1]
    if several:
        raise ValidationError(
            f"column {ANCHORS}: expected one tree for a row, as the rows of that stream have, got "
            f"{len(several[0])}: emit to a stream whose first rows have several"
        )
    return [(one[0] if one else 0) if isinstance(one, tuple) else one for one in values]


def _column(name: str, values: list[Any], kind: pa.DataType | None) -> pa.Array:
    try:
        found = pa.array(values, kind)
    except Exception as error:
        wanted = "values of one type that Arrow has" if kind is None else str(kind)
        raise ValidationError(f"column {shown(name)}: expected {wanted}: {text_of(error)}") from error
    if name != ANCHORS and kind is not None and _may_lose(kind):
        for value in values:
            if not _whole(value, kind):
                said = f"expected {kind}, got {shown(value)}, of which that would lose a part"
                raise ValidationError(f"column {shown(name)}: {said}")
    return found


def _whole(value: Any, kind: pa.DataType) -> bool:
    """Whether a value that Arrow takes for a type is all there then: it cuts fractions, times and fields."""
    if value is None or type(value) in (int, str, bytes):
        return True
    if isinstance(value, pa.Scalar):
        value = value.as_py()
    if pa.types.is_integer(kind):
        return bool(int(value) == value)
    if pa.types.is_date32(kind):
        return not isinstance(value, dt.datetime) or value.time() == dt.time()
    if pa.types.is_struct(kind) and isinstance(value, Mapping):
        fields = {kind.field(place).name: kind.field(place).type for place in range(kind.num_fields)}
        return all(each in fields and _whole(inner, fields[each]) for each, inner in value.items())
    if pa.types.is_list(kind) and _may_lose(kind.value_type):
        return all(_whole(one, kind.value_type) for one in value)
    if pa.types.is_map(kind) and (_may_lose(kind.key_type) or _may_lose(kind.item_type)):
        pairs = value.items() if isinstance(value, Mapping) else value
        return all(_whole(key, kind.key_type) and _whole(one, kind.item_type) for key, one in pairs)
    return True


def _may_lose(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_date32(kind) or pa.types.is_nested(kind))
