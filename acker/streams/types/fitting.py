"""The types of columns, and the Python values that each of them takes: the table for all callers.

A column takes values of its own kind if it can hold them exactly. Another value is refused with an error that
names both, so that only its row fails. None is taken if the column may have null.

| Arrow | Spark | takes |
| --- | --- | --- |
| bool | boolean | bool |
| int8 to int64 | tinyint to bigint | int; a float or Decimal without fraction |
| double, float | double, float | float; int |
| decimal128 | decimal | Decimal; int |
| string | string | str that UTF-8 has |
| binary | binary | bytes, bytearray, memoryview |
| date32 | date | date that is no datetime |
| timestamp with UTC | timestamp | datetime with a time zone: it is the same instant, in UTC |
| timestamp | timestamp_ntz | datetime without a time zone |
| duration | interval day to second | timedelta |
| time64 | time | time without a time zone |
| list | array | a sequence, but neither text nor bytes; an array of NumPy, Arrow or pandas |
| struct | struct | a dict with none but its fields; a tuple with all of them |
| map | map | a dict; a sequence of pairs |

NumPy's and Arrow's scalars count as the Python value that they hold.
"""

from array import array
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any

import numpy as np
import pyarrow as pa  # noqa: TID251 - rows travel as Arrow, from and to Spark and plain Python

from acker.errors import ValidationError, class_name, is_interrupt, shown, text_of
from acker.streams.types.scalar_types import SCALARS, ColumnType, Fit, Table, Unfit, other_kind

_KNOWN = 256
_PLAIN_LISTS = {list, tuple, type(None)}


def fitted(
    values: Sequence[Any],
    kind: pa.DataType,
    name: str,
    declared: str = "",
    *,
    nullable: bool = True,
    convert: Fit | None = None,
) -> tuple[pa.Array, dict[int, ValidationError]]:
    """Make a column of Python values.

    Args:
        values: one for each row.
        kind: the type of the column.
        name: the column's name, for errors.
        declared: the type as its user knows it, for errors; by default as Arrow has it.
        nullable: False where None is refused.
        convert: is called with each value before; it may raise `Unfit`.

    Returns:
        The column, and for each value that it does not take its place and an error. Null stands for such a
        value.
    """
    column = column_type(kind)
    unfit: dict[int, ValidationError] = {}

    def each(make: Fit, values: Sequence[Any]) -> list[Any]:
        fits: list[Any] = []
        for place, value in enumerate(values):
            try:
                fits.append(make(value))
                continue
            except Unfit as error:
                why = error.error(name, declared or str(kind))
            except BaseException as error:  # the value is the user's: its methods may raise anything
                if is_interrupt(error):
                    raise
                said = f"expected {declared or kind}, got {shown(value)} ({class_name(value)})"
                said += f": {class_name(error)}: {text_of(error)}"
                why = ValidationError(f"column {shown(name)}: {said}")
            fits.append(None)
            unfit.setdefault(place, why)
        return fits

    converted = values if convert is None else each(convert, values)
    if (nullable or all(value is not None for value in converted)) and column.takes_all(converted):
        try:
            return pa.array(converted, kind), unfit
        except Exception:  # noqa: BLE001 - some value is out of range: it is found below
            pass
    return pa.array(each(partial(_fit, column, kind, nullable=nullable), converted), kind), unfit


def _fit(column: ColumnType, kind: pa.DataType, value: Any, *, nullable: bool) -> Any:
    if isinstance(value, pa.Scalar):
        value = value.as_py()
    if value is None:
        if not nullable:
            raise Unfit(kind, None)
        return None
    return column.fit(value)


@lru_cache(_KNOWN)
def column_type(kind: pa.DataType) -> ColumnType:
    """The values that a type takes. Raises ValidationError for a type that no column has."""
    for is_of, make in _TABLE:
        if is_of(kind):
            return make(kind)
    raise ValidationError(f"expected a type that Spark has, got {kind}")


def _list(kind: pa.DataType) -> ColumnType:
    takes_inner, fit_one = _inner(kind.value_field, "element")

    def fit(value: Any) -> list[Any]:
        if not listed(value):
            raise other_kind(kind, value)
        return [fit_one(element) for element in value]

    def takes_all(values: Sequence[Any]) -> bool:
        return _PLAIN_LISTS.issuperset(map(type, values)) and all(
            element is None or takes_inner(element) for element in values
        )

    return ColumnType(fit, takes_all)


def listed(value: Any) -> bool:
    """Return True if a value is a sequence of others."""
    if isinstance(value, Sequence):
        return not isinstance(value, str | bytes | bytearray | memoryview)
    if isinstance(value, np.ndarray):
        return value.ndim > 0
    # A column of pandas has one dimension. A frame has two, and gives the names of its columns.
    of_pandas = getattr(value, "ndim", 0) == 1 and hasattr(value, "__array__")
    return of_pandas or isinstance(value, array | pa.Array | pa.ChunkedArray)


def _struct(kind: pa.DataType) -> ColumnType:
    fields = [kind.field(place) for place in range(kind.num_fields)]
    inner = {field.name: _inner(field, field.name) for field in fields}

    def fit(value: Any) -> dict[str, Any]:
        if isinstance(value, Mapping):
            if not inner.keys() >= value.keys():
                raise Unfit(kind, value, inexact=True)
            return {name: fit_one(value.get(name)) for name, (_, fit_one) in inner.items()}
        if not isinstance(value, tuple):
            raise other_kind(kind, value)
        if len(value) != len(inner):
            raise Unfit(kind, value, inexact=True)
        return {name: fit_one(item) for (name, (_, fit_one)), item in zip(inner.items(), value, strict=True)}

    def takes_all(values: Sequence[Any]) -> bool:
        there = [item for item in values if item is not None]
        if not {dict}.issuperset(map(type, there)) or not all(inner.keys() >= item.keys() for item in there):
            return False
        return all(takes([item.get(name) for item in there]) for name, (takes, _) in inner.items())

    return ColumnType(fit, takes_all)


def _map(kind: pa.DataType) -> ColumnType:
    (takes_keys, key), (takes_items, item) = _inner(kind.key_field, "key"), _inner(kind.item_field, "value")

    def fit(value: Any) -> list[tuple[Any, Any]]:
        pairs = value.items() if isinstance(value, Mapping) else value
        if pairs is value and not (listed(value) and all(listed(pair) and len(pair) == 2 for pair in value)):
            raise other_kind(kind, value)
        return [(key(name), item(content)) for name, content in pairs]

    def takes_all(values: Sequence[Any]) -> bool:
        there = [mapping for mapping in values if mapping is not None]
        return {dict}.issuperset(map(type, there)) and all(
            takes_keys(list(mapping)) and takes_items(list(mapping.values())) for mapping in there
        )

    return ColumnType(fit, takes_all)


def _inner(field: pa.Field, name: str) -> tuple[Callable[[Sequence[Any]], bool], Fit]:
    """`takes_all` and `fit` of values within others."""
    column, nullable = column_type(field.type), field.nullable

    def fit(value: Any) -> Any:
        try:
            return _fit(column, field.type, value, nullable=nullable)
        except Unfit as error:
            raise error.within(name) from None

    def takes_all(values: Sequence[Any]) -> bool:
        return column.takes_all(values) and (nullable or all(one is not None for one in values))

    return takes_all, fit


_TABLE: Table = (
    *SCALARS,
    (pa.types.is_list, _list),
    (pa.types.is_struct, _struct),
    (pa.types.is_map, _map),
)
