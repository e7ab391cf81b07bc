"""Values between Arrow and a Python function, as Spark's own UDFs have them (those on Arrow, its default).

What a function is given and what it returns is converted value by value; so a record whose result has no
place in its column is known by itself. Not Spark's own converters: they are where they are not the same from
version to version, and take a package of Spark Connect's in some. `tests/spark/test_values.py` compares.
"""

import array
import datetime as dt
import decimal
from collections.abc import Callable
from operator import itemgetter
from typing import Any, TypeAlias

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DecimalType,
    MapType,
    NullType,
    Row,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
    UserDefinedType,
    VariantType,
    VariantVal,
)

from acker.errors import shown
from acker.undone import undone

Convert: TypeAlias = Callable[[Any], Any]
_UTC = dt.UTC
_PLAIN: dict[type[DataType], set[type]] = {StringType: {str, type(None)}, BinaryType: {bytes, type(None)}}
"""Types of values that a column takes as they are."""


def to_python(kind: DataType) -> Convert | None:
    """What makes of a value that Arrow has as Python's the one that a UDF is given; None where it is that."""
    if isinstance(kind, StructType):
        fields = [(one.name, to_python(one.dataType)) for one in kind.fields]
        row = Row(*kind.names)
        return _unless_none(
            lambda value: row(*(make(value[name]) if make else value[name] for name, make in fields))
        )
    if isinstance(kind, ArrayType):
        element = to_python(kind.elementType)
        return None if element is None else _unless_none(lambda value: [element(one) for one in value])
    if isinstance(kind, MapType):
        key, item = to_python(kind.keyType) or _same, to_python(kind.valueType) or _same
        return _unless_none(lambda value: {key(name): item(one) for name, one in value})
    if isinstance(kind, TimestampType):
        return _unless_none(lambda value: value.astimezone().replace(tzinfo=None))
    if isinstance(kind, UserDefinedType):
        stored = to_python(kind.sqlType()) or _same
        return _unless_none(lambda value: kind.deserialize(stored(value)))
    if isinstance(kind, VariantType):
        return _unless_none(lambda value: VariantVal(value["value"], value["metadata"]))
    if type(kind).__name__ in ("GeographyType", "GeometryType"):  # of some versions
        return kind.fromInternal
    return None


def _same(value: Any) -> Any:
    return value


def _unless_none(convert: Convert) -> Convert:
    return lambda value: None if value is None else convert(value)


def to_arrow(kind: DataType, nullable: bool = True) -> Convert | None:
    """What makes of a result of a function what Arrow takes; None where it takes it as it is.

    It raises ValueError, or whatever else the value's own methods raise, for one that a UDF may not return.
    """
    made = _to_arrow(kind)
    if nullable:
        return made if made is None or isinstance(kind, NullType) else _unless_none(made)

    def present(value: Any) -> Any:
        found = value if value is None or made is None else made(value)
        if found is None:
            raise ValueError(f"expected a value of {kind.simpleString()}, got None")
        return found

    return present


def _to_arrow(kind: DataType) -> Convert | None:
    if isinstance(kind, StructType):
        return _struct(kind)
    if isinstance(kind, ArrayType):
        return _array(kind)
    if isinstance(kind, MapType):
        key, item = to_arrow(kind.keyType, False) or _same, to_arrow(kind.valueType, kind.valueContainsNull)
        each = item or _same
        return lambda value: [(key(name), each(one)) for name, one in _of(value, dict, kind).items()]
    if isinstance(kind, NullType):
        return _none
    if isinstance(kind, BinaryType):
        return lambda value: bytes(_of(value, (bytes, bytearray), kind))
    if isinstance(kind, TimestampType):
        return lambda value: _of(value, dt.datetime, kind).astimezone(_UTC)
    if isinstance(kind, TimestampNTZType):
        return _without_zone
    if isinstance(kind, DecimalType):
        return _decimal(kind)
    if isinstance(kind, StringType):
        return _text
    if isinstance(kind, UserDefinedType):
        stored = to_arrow(kind.sqlType()) or _same
        return lambda value: stored(kind.serialize(value))
    if isinstance(kind, VariantType):
        return lambda value: {
            "value": bytes(_of(value, VariantVal, kind).value), "metadata": bytes(value.metadata)
        }  # fmt: skip
    if type(kind).__name__ in ("GeographyType", "GeometryType"):
        return kind.toInternal
    return None


def _of(value: Any, types: type | tuple[type, ...], kind: DataType) -> Any:
    if not isinstance(value, types):
        raise ValueError(f"expected a value of {kind.simpleString()}, got {shown(value)}")
    return value


def _none(value: Any) -> None:
    if value is not None:
        raise ValueError(f"expected None, got {shown(value)}")


def check_value(value: object) -> None:
    """Raises ValueError for a result, or a row of one, that is work which nobody has done."""
    if kind := undone(value):
        raise ValueError(
            f"expected a value, got a {kind}: nobody has done its work; await it, or make a list"
        )


def _text(value: Any) -> str:
    check_value(value)
    return str(value).lower() if isinstance(value, bool) else str(value)


def _without_zone(value: Any) -> Any:
    if _of(value, dt.datetime, TimestampNTZType()).tzinfo is not None:
        raise ValueError(f"expected a datetime without time zone, got {shown(value)}")
    return value


def _decimal(kind: DecimalType) -> Convert:
    exponent = decimal.Decimal(f"1E-{kind.scale}")
    context = decimal.Context(prec=kind.precision, rounding=decimal.ROUND_HALF_EVEN)

    def convert(value: Any) -> Any:
        if _of(value, decimal.Decimal, kind).is_nan():
            return None
        return value.quantize(exponent, context=context)

    return convert


def _struct(kind: StructType) -> Convert:
    names = kind.names
    fields = [to_arrow(one.dataType, one.nullable) or _same for one in kind.fields]

    def convert(value: Any) -> Any:
        if isinstance(value, tuple):
            if len(value) != len(names):
                raise ValueError(f"expected {len(names)} values for {kind.simpleString()}, got {len(value)}")
            values: Any = value
        else:
            found = value if isinstance(value, dict) else getattr(value, "__dict__", None)
            values = [_of(found, dict, kind).get(name) for name in names]
        return {name: make(one) for name, make, one in zip(names, fields, values, strict=True)}

    return convert


def _array(kind: ArrayType) -> Convert | None:
    element = to_arrow(kind.elementType, kind.containsNull)
    if element is None:
        return None
    return lambda value: [element(one) for one in _of(value, (list, array.array), kind)]


class Columns:
    """Makes columns of results, in tasks; it is not pickled."""

    def __init__(self, schema: StructType, columns: list[pa.Field]) -> None:
        self._fields = [
            (to_arrow(field.dataType, field.nullable), column.type, _PLAIN.get(type(field.dataType)))
            for field, column in zip(schema.fields, columns, strict=True)
        ]
        self._strict = [not field.nullable for field in schema.fields]

    def of(self, rows: list[tuple[Any, ...]], alone: bool = False) -> list[pa.Array]:
        """The columns of rows. Raises whatever a value raises that does not fit.

        alone: the rows are of one record. Arrow's cast, the last that a UDF tries, is tried then only: what
        it makes of a value depends on the others.
        """
        # Not `zip(*rows)`: it makes an iterator for each row, and the garbage collector looks at all of them.
        every = range(len(self._fields))
        return [self._column(list(map(itemgetter(place), rows)), place, alone) for place in every]

    def _column(self, values: list[Any], place: int, alone: bool) -> pa.Array:
        convert, kind, plain = self._fields[place]
        if convert is not None and (
            plain is None or self._strict[place] or not plain.issuperset(map(type, values))
        ):
            values = list(map(convert, values))
        try:
            return pa.array(values, kind)
        except pa.ArrowInvalid:
            if not alone:
                raise
            return pa.array(values).cast(kind)
