"""The types of columns, and the Python values that each of them takes: the one table for all who take values.

A column takes values of its own kind, and of these the ones that it holds exactly. Another value is refused
with both named, so that the row which has it fails alone. None is taken where the column may have null.

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
| list | array | a sequence, but neither text nor bytes; a NumPy array |
| struct | struct | a dict with none but its fields; a tuple with all of them |
| map | map | a dict; a sequence of pairs |

NumPy's and Arrow's scalars count as the Python value that they hold.
"""

import datetime as dt
import decimal
from array import array
from collections.abc import Callable, Mapping, Sequence
from ctypes import c_float
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa  # noqa: TID251 - rows travel as Arrow, from and to Spark and plain Python

from acker.errors import ValidationError, class_name, is_interrupt, shown, text_of
from acker.undone import undone

Fit: TypeAlias = Callable[[Any], Any]
"""Makes of a value the one that Arrow takes as it is. Raises `Unfit`."""
_NONE = type(None)
_KNOWN = 256
_DIGITS = 76
_PLAIN_LISTS = {list, tuple, _NONE}
_FLOAT_HINT = ": numpy.float32 of it is the nearest value that it can hold"


class Unfit(Exception):
    """A value is of another kind than its column (inexact: False), or not exactly held by it.

    kind: the type that was expected. inner: the place within the value, "" for itself. hint: what helps.
    work: the kind of a value that is work which nobody has done, as "coroutine".
    """

    def __init__(
        self, kind: object, value: object, *, inexact: bool = False, hint: str = "", work: str = ""
    ) -> None:
        super().__init__()
        self.kind, self.value, self.inexact, self.hint, self.work = kind, value, inexact, hint, work
        self.inner = ""

    def within(self, name: str) -> "Unfit":
        """The same, of a value that has this one at a place."""
        self.inner = f"{name}.{self.inner}" if self.inner else name
        return self

    def error(self, column: str, declared: str) -> ValidationError:
        """The error that names the column, the type and the value."""
        expected = f"{self.kind} in {self.inner}" if self.inner else declared
        if self.work:
            said = (
                f"expected {expected}, got a {self.work}: nobody has done its work; await it, or make a list"
            )
            return ValidationError(f"column {shown(column)}: {said}")
        said = f"column {shown(column)}: expected {expected}, got {shown(self.value)}"
        if self.value is not None:
            said += f" ({_kind_of(self.value)})"
        return ValidationError(f"{said}{', which it cannot hold exactly' * self.inexact}{self.hint}")


@dataclass(frozen=True, slots=True)
class ColumnType:
    """The values that a type takes.

    takes_all: returns True if Arrow itself keeps each of these values exactly, or raises. It is quick.
    """

    fit: Fit
    takes_all: Callable[[Sequence[Any]], bool]


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
    known = column_type(kind)
    given = nullable or all(value is not None for value in values)
    if convert is None and given and known.takes_all(values):
        try:
            return pa.array(values, kind), {}
        except Exception:  # noqa: BLE001 - some value is out of range: it is found below
            pass
    unfit: dict[int, ValidationError] = {}
    found: list[Any] = []
    for place, value in enumerate(values):
        try:
            made = value if convert is None else convert(value)
            found.append(_fit(known, kind, made, nullable=nullable))
        except Unfit as error:
            found.append(None)
            unfit[place] = error.error(name, declared or str(kind))
        except BaseException as error:  # the value is the user's: its methods may raise anything
            if is_interrupt(error):
                raise
            found.append(None)
            said = f"expected {declared or kind}, got {shown(value)} ({class_name(value)})"
            unfit[place] = ValidationError(
                f"column {shown(name)}: {said}: {class_name(error)}: {text_of(error)}"
            )
    return pa.array(found, kind), unfit


def _fit(known: ColumnType, kind: pa.DataType, value: Any, *, nullable: bool) -> Any:
    if isinstance(value, pa.Scalar):
        value = value.as_py()
    if value is None:
        if not nullable:
            raise Unfit(kind, None)
        return None
    return known.fit(value)


@lru_cache(_KNOWN)
def column_type(kind: pa.DataType) -> ColumnType:
    """The values that a type takes. Raises ValidationError for a type that no column has."""
    for is_of, make in _TABLE:
        if is_of(kind):
            return make(kind)
    raise ValidationError(f"expected a type that Spark has, got {kind}")


def _kind_of(value: object) -> str:
    """The kind of a value, for an error."""
    name = class_name(value)
    if isinstance(value, dt.datetime):
        return f"{name} {'without' if value.tzinfo is None else 'with'} time zone"
    return name


def _other(kind: pa.DataType, value: object) -> Unfit:
    """The error of a value of another kind. Work that nobody has done is closed."""
    return Unfit(kind, value, work=undone(value))


def _held(kind: pa.DataType, value: Any) -> Any:
    """The Python value that a scalar of NumPy's stands for; any other value as it is."""
    if not isinstance(value, np.generic):
        return value
    if not isinstance(value, np.datetime64 | np.timedelta64):
        return value.item()
    unit = np.datetime_data(value.dtype)[0]
    if np.isnat(value) or unit == "generic":
        raise _other(kind, value)
    if unit == "D" and isinstance(value, np.datetime64):
        return value.item()
    found = value.astype(f"{value.dtype.kind}8[us]")  # of one in nanoseconds, NumPy makes a number
    if found != value or found.astype(value.dtype) != value:
        raise Unfit(kind, value, inexact=True)
    return found.item()


def _of_types(*types: type) -> Callable[[Sequence[Any]], bool]:
    plain = {*types, _NONE}
    return lambda values: plain.issuperset(map(type, values))


def _never(_: Sequence[Any]) -> bool:
    return False


def _boolean(kind: pa.DataType) -> ColumnType:
    return ColumnType(_instance(kind, (bool,)), _of_types(bool))


def _instance(kind: pa.DataType, types: tuple[type, ...], make: Fit | None = None) -> Fit:
    """Takes values of some types."""

    def fit(value: Any) -> Any:
        held = _held(kind, value)
        if not isinstance(held, types):
            raise _other(kind, value)
        return held if make is None else make(held)

    return fit


def _integer(kind: pa.DataType) -> ColumnType:
    most = 2 ** (kind.bit_width - 1)

    def fit(value: Any) -> int:
        held = _held(kind, value)
        if isinstance(held, bool) or not isinstance(held, int | float | decimal.Decimal):
            raise _other(kind, value)
        finite = not isinstance(held, decimal.Decimal) or held.is_finite()  # others cannot be compared
        if not (finite and -most <= held < most) or (whole := int(held)) != held:
            raise Unfit(kind, value, inexact=True)
        return whole

    return ColumnType(fit, _of_types(int))


def _floating(kind: pa.DataType) -> ColumnType:
    single = kind == pa.float32()

    def fit(value: Any) -> float:
        held = _held(kind, value)
        if isinstance(held, bool) or not isinstance(held, int | float):
            raise _other(kind, value)
        try:
            found = float(held)
        except OverflowError:
            raise Unfit(kind, value, inexact=True) from None
        kept = c_float(found).value if single else found
        if kept != held and found == found:  # NaN is held as such
            raise Unfit(kind, value, inexact=True, hint=_FLOAT_HINT if single else "")
        return found

    return ColumnType(fit, _never if single else _of_types(float))


def _decimal(kind: pa.DataType) -> ColumnType:
    exponent = decimal.Decimal(1).scaleb(-kind.scale)
    context = decimal.Context(_DIGITS, traps=[decimal.Inexact, decimal.InvalidOperation])

    def fit(value: Any) -> decimal.Decimal:
        held = _held(kind, value)
        if isinstance(held, bool) or not isinstance(held, int | decimal.Decimal):
            raise _other(kind, value)
        try:
            found = decimal.Decimal(held).quantize(exponent, context=context)
        except decimal.DecimalException:
            raise Unfit(kind, value, inexact=True) from None
        if not found.is_finite() or len(found.as_tuple().digits) > kind.precision:
            raise Unfit(kind, value, inexact=True)
        return found

    return ColumnType(fit, _of_types(decimal.Decimal))


def _text(kind: pa.DataType) -> ColumnType:
    def checked(value: str) -> str:
        try:
            value.encode()
        except UnicodeEncodeError:
            raise Unfit(kind, value, inexact=True, hint=": UTF-8 has no half characters") from None
        return value

    return ColumnType(_instance(kind, (str,), checked), _of_types(str))


def _binary(kind: pa.DataType) -> ColumnType:
    return ColumnType(_instance(kind, (bytes, bytearray, memoryview), bytes), _of_types(bytes, bytearray))


def _date(kind: pa.DataType) -> ColumnType:
    def fit(value: Any) -> dt.date:
        held = _held(kind, value)
        if not isinstance(held, dt.date) or isinstance(held, dt.datetime):
            raise _other(kind, value)
        return held

    return ColumnType(fit, _of_types(dt.date))


def _timestamp(kind: pa.DataType) -> ColumnType:
    def fit(value: Any) -> dt.datetime:
        held = _held(kind, value)
        if not isinstance(held, dt.datetime) or (held.utcoffset() is None) == (kind.tz is not None):
            raise _other(kind, value)
        if getattr(held, "nanosecond", 0):  # pandas has them
            raise Unfit(kind, value, inexact=True)
        if kind.tz is None:
            return held
        try:
            return held.astimezone(dt.UTC)
        except OverflowError:  # Python has no such time in UTC
            raise Unfit(kind, value, inexact=True) from None

    plainly = _of_types(dt.datetime)

    def takes_all(values: Sequence[Any]) -> bool:
        if not plainly(values):
            return False
        zones = {value.tzinfo for value in values if value is not None}
        return all(zone is None if kind.tz is None else _is_utc(zone) for zone in zones)

    return ColumnType(fit, takes_all)


def _is_utc(zone: dt.tzinfo | None) -> bool:
    return zone is dt.UTC or (isinstance(zone, ZoneInfo) and zone.key == "UTC")


def _duration(kind: pa.DataType) -> ColumnType:
    most = dt.timedelta(microseconds=2**63 - 1)

    def fit(value: Any) -> dt.timedelta:
        held = _held(kind, value)
        if not isinstance(held, dt.timedelta):
            raise _other(kind, value)
        if getattr(held, "nanoseconds", 0) or not -most <= held <= most:
            raise Unfit(kind, value, inexact=True)
        return held

    return ColumnType(fit, _of_types(dt.timedelta))


def _time(kind: pa.DataType) -> ColumnType:
    def checked(value: dt.time) -> dt.time:
        if value.tzinfo is not None:
            raise _other(kind, value)
        return value

    return ColumnType(_instance(kind, (dt.time,), checked), _never)


def _null(kind: pa.DataType) -> ColumnType:
    return ColumnType(_instance(kind, ()), _of_types())


def _list(kind: pa.DataType) -> ColumnType:
    takes_inner, fit_one = _inner(kind.value_field, "element")

    def fit(value: Any) -> list[Any]:
        if not listed(value):
            raise _other(kind, value)
        return [fit_one(one) for one in value]

    def takes_all(values: Sequence[Any]) -> bool:
        return _PLAIN_LISTS.issuperset(map(type, values)) and all(
            one is None or takes_inner(one) for one in values
        )

    return ColumnType(fit, takes_all)


def listed(value: Any) -> bool:
    """Return True if a value is a sequence of others."""
    if isinstance(value, Sequence):
        return not isinstance(value, str | bytes | bytearray | memoryview)
    return isinstance(value, array) or (isinstance(value, np.ndarray) and value.ndim > 0)


def _struct(kind: pa.DataType) -> ColumnType:
    fields = [kind.field(place) for place in range(kind.num_fields)]
    inner = {field.name: _inner(field, field.name) for field in fields}

    def fit(value: Any) -> dict[str, Any]:
        if isinstance(value, Mapping):
            if not inner.keys() >= value.keys():
                raise Unfit(kind, value, inexact=True)
            return {name: one(value.get(name)) for name, (_, one) in inner.items()}
        if not isinstance(value, tuple):
            raise _other(kind, value)
        if len(value) != len(inner):
            raise Unfit(kind, value, inexact=True)
        return {name: fit_one(one) for (name, (_, fit_one)), one in zip(inner.items(), value, strict=True)}

    def takes_all(values: Sequence[Any]) -> bool:
        there = [one for one in values if one is not None]
        if not {dict}.issuperset(map(type, there)) or not all(inner.keys() >= one.keys() for one in there):
            return False
        return all(takes([one.get(name) for one in there]) for name, (takes, _) in inner.items())

    return ColumnType(fit, takes_all)


def _map(kind: pa.DataType) -> ColumnType:
    (takes_keys, key), (takes_items, item) = _inner(kind.key_field, "key"), _inner(kind.item_field, "value")

    def fit(value: Any) -> list[tuple[Any, Any]]:
        pairs = value.items() if isinstance(value, Mapping) else value
        if pairs is value and not (listed(value) and all(listed(one) and len(one) == 2 for one in value)):
            raise _other(kind, value)
        return [(key(name), item(one)) for name, one in pairs]

    def takes_all(values: Sequence[Any]) -> bool:
        there = [one for one in values if one is not None]
        return {dict}.issuperset(map(type, there)) and all(
            takes_keys(list(one)) and takes_items(list(one.values())) for one in there
        )

    return ColumnType(fit, takes_all)


def _inner(field: pa.Field, name: str) -> tuple[Callable[[Sequence[Any]], bool], Fit]:
    """`takes_all` and `fit` of values within others."""
    known, nullable = column_type(field.type), field.nullable

    def fit(value: Any) -> Any:
        try:
            return _fit(known, field.type, value, nullable=nullable)
        except Unfit as error:
            raise error.within(name) from None

    def takes_all(values: Sequence[Any]) -> bool:
        return known.takes_all(values) and (nullable or all(one is not None for one in values))

    return takes_all, fit


_TABLE: tuple[tuple[Callable[[pa.DataType], bool], Callable[[pa.DataType], ColumnType]], ...] = (
    (pa.types.is_boolean, _boolean),
    (pa.types.is_signed_integer, _integer),
    (lambda kind: kind in (pa.float32(), pa.float64()), _floating),
    (pa.types.is_decimal128, _decimal),
    (pa.types.is_string, _text),
    (pa.types.is_binary, _binary),
    (pa.types.is_date32, _date),
    (lambda kind: pa.types.is_timestamp(kind) and kind.unit == "us", _timestamp),
    (lambda kind: kind == pa.duration("us"), _duration),
    (pa.types.is_time64, _time),
    (pa.types.is_null, _null),
    (pa.types.is_list, _list),
    (pa.types.is_struct, _struct),
    (pa.types.is_map, _map),
)
