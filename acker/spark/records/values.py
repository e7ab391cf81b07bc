"""Values between Arrow and a Python function.

A function gets the values that Spark's own UDFs get (UDFs on Arrow, its default). Its results are converted
as a UDF's, if the column holds them exactly (`acker.streams.types.fitting`). So a record whose result does
not fit its column fails by itself. Spark's own converters would not do: they move and change from version to
version, and some need a package of Spark Connect's. `tests/spark/records/test_values.py` compares.
"""

import datetime as dt
from collections.abc import Callable, Mapping
from functools import partial
from operator import itemgetter
from typing import Any, TypeAlias

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    DataType,
    MapType,
    Row,
    StructType,
    TimestampType,
    UserDefinedType,
    VariantType,
    VariantVal,
)

from acker.errors import ValidationError
from acker.streams.types.fitting import fitted, listed
from acker.streams.types.scalar_types import Unfit

Convert: TypeAlias = Callable[[Any], Any]
_UTC = dt.UTC
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=_UTC)


def to_python(kind: DataType) -> Convert | None:
    """Returns a conversion of Arrow's Python values to a UDF's; None if they are the same."""
    if isinstance(kind, StructType):
        fields = [(member.name, to_python(member.dataType)) for member in kind.fields]
        row = Row(*kind.names)
        return _unless_none(
            lambda value: row(*(make(value[name]) if make else value[name] for name, make in fields))
        )
    if isinstance(kind, ArrayType):
        element = to_python(kind.elementType)
        return None if element is None else _unless_none(lambda value: [element(member) for member in value])
    if isinstance(kind, MapType):
        key, item = to_python(kind.keyType) or _same, to_python(kind.valueType) or _same
        return _unless_none(lambda value: {key(name): item(member) for name, member in value})
    if isinstance(kind, TimestampType):
        return _unless_none(_local)
    if isinstance(kind, UserDefinedType):
        stored = to_python(kind.sqlType()) or _same
        return _unless_none(lambda value: kind.deserialize(stored(value)))
    if isinstance(kind, VariantType):
        return _unless_none(lambda value: VariantVal(value["value"], value["metadata"]))
    if type(kind).__name__ in ("GeographyType", "GeometryType"):  # of some versions
        return kind.fromInternal
    return None


def _local(value: dt.datetime) -> dt.datetime:
    """Returns the time in the zone of the process; for an hour that comes twice, `fold` selects it."""
    local = value.astimezone().replace(tzinfo=None)
    try:
        first = local.replace(microsecond=0).timestamp() == value.replace(microsecond=0).timestamp()
    except (ValueError, OverflowError):  # in year 1
        first = True
    return local if first else local.replace(fold=1)


def _same(value: Any) -> Any:
    return value


def _unless_none(convert: Convert) -> Convert:
    return lambda value: None if value is None else convert(value)


def to_arrow(kind: DataType) -> Convert | None:
    """Returns a conversion of values that only Spark has in Python; None if a type has no such values.

    The converted values are known to `acker.streams.types.fitting`. The conversion raises Unfit, or any error
    of the value's own methods.
    """
    made = _to_arrow(kind)
    return None if made is None else _unless_none(made)


def _to_arrow(kind: DataType) -> Convert | None:
    if isinstance(kind, StructType):
        return _struct(kind)
    if isinstance(kind, ArrayType):
        element = to_arrow(kind.elementType)
        return element and (lambda value: [element(one) for one in value] if listed(value) else value)
    if isinstance(kind, MapType):
        key, item = to_arrow(kind.keyType), to_arrow(kind.valueType)
        return _map(key or _same, item or _same) if key or item else None
    if isinstance(kind, TimestampType):
        return _instant
    if isinstance(kind, UserDefinedType):
        stored = to_arrow(kind.sqlType()) or _same
        return lambda value: stored(kind.serialize(value))
    if isinstance(kind, VariantType):
        return _variant
    if type(kind).__name__ in ("GeographyType", "GeometryType"):
        return kind.toInternal
    return None


def _instant(value: Any) -> Any:
    """Returns the instant of a time without a zone, in the zone of the worker's process, as for inputs."""
    if not isinstance(value, dt.datetime) or value.tzinfo is not None:
        return value
    if type(value) is not dt.datetime:
        return value.astimezone(_UTC)
    whole = value.replace(microsecond=0)
    seconds = int(whole.timestamp())  # faster than `astimezone`
    if dt.datetime.fromtimestamp(seconds) != whole:
        raise Unfit("timestamp", value, inexact=True, hint=": there is no such time in the worker's zone")
    return _EPOCH + dt.timedelta(seconds=seconds, microseconds=value.microsecond)


def _variant(value: Any) -> dict[str, bytes]:
    if not isinstance(value, VariantVal):
        raise Unfit("variant", value)
    return {"value": bytes(value.value), "metadata": bytes(value.metadata)}


def _struct(kind: StructType) -> Convert:
    names = kind.names
    fields = [to_arrow(member.dataType) for member in kind.fields]
    plain = not any(fields)
    by_name = {name: made or _same for name, made in zip(names, fields, strict=True)}

    def convert(value: Any) -> Any:
        if not isinstance(value, tuple | Mapping):
            attributes = getattr(value, "__dict__", {})
            if not names or not attributes.keys() >= set(names):
                return value
            value = {name: attributes[name] for name in names}
        if plain:
            return value
        if isinstance(value, Mapping):
            return {name: by_name.get(name, _same)(member) for name, member in value.items()}
        if len(value) != len(names):
            return value
        return tuple(make(member) for make, member in zip(by_name.values(), value, strict=True))

    return convert


def _map(key: Convert, item: Convert) -> Convert:
    def convert(value: Any) -> Any:
        if isinstance(value, Mapping):
            return [(key(name), item(one)) for name, one in value.items()]
        return value

    return convert


class Columns:
    """Makes columns of results, in tasks; it is not pickled."""

    def __init__(self, schema: StructType, columns: list[pa.Field]) -> None:
        self._columns = [
            partial(
                fitted,
                kind=column.type,
                name=field.name,
                declared=field.dataType.simpleString(),
                nullable=field.nullable,
                convert=to_arrow(field.dataType),
            )
            for field, column in zip(schema.fields, columns, strict=True)
        ]

    def of(self, rows: list[tuple[Any, ...]]) -> tuple[list[pa.Array], dict[int, ValidationError]]:
        """Returns the columns of rows, and for each row that does not fit its position and an error."""
        unfit: dict[int, ValidationError] = {}
        arrays: list[pa.Array] = []
        # Not `zip(*rows)`: it makes an iterator for each row, and the garbage collector looks at all of them.
        for place, column in enumerate(self._columns):
            made, wrong = column(list(map(itemgetter(place), rows)))
            arrays.append(made)
            unfit = wrong | unfit
        return arrays, unfit
