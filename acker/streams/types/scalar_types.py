"""Types of columns that have no parts, and the values that each takes.

See `acker.streams.types.fitting`.
"""

import datetime as dt
import decimal
from collections.abc import Callable, Sequence
from ctypes import c_float
from dataclasses import dataclass
from typing import Any, TypeAlias
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa  # noqa: TID251 - rows travel as Arrow, from and to Spark and plain Python

from acker.errors import ValidationError, class_name, shown
from acker.ledger.user_functions.undone import undone

Fit: TypeAlias = Callable[[Any], Any]
"""Converts a value to one that Arrow takes. Raises `Unfit`."""
_NONE = type(None)
_DIGITS = 76
_FLOAT_HINT = ": numpy.float32 of it is the nearest value that it can hold"


class Unfit(Exception):
    """A value is of another kind than its column (inexact: False), or does not fit into it exactly.

    Attributes:
        kind: The expected type.
        inner: The place within the value, "" for itself.
        hint: A way out.
        work: The kind of a value that is work not done yet, such as "coroutine".
    """

    def __init__(
        self, kind: object, value: object, *, inexact: bool = False, hint: str = "", work: str = ""
    ) -> None:
        super().__init__()
        self.kind, self.value, self.inexact, self.hint, self.work = kind, value, inexact, hint, work
        self.inner = ""

    def within(self, name: str) -> "Unfit":
        """The same error, with the place of the value within another one."""
        self.inner = f"{name}.{self.inner}" if self.inner else name
        return self

    def error(self, column: str, declared: str) -> ValidationError:
        """The error that names the column, the type and the value."""
        expected = f"{self.kind} in {self.inner}" if self.inner else declared
        if self.work:
            said = f"expected {expected}, got a {self.work}: its work is not done. Await it, or make a list"
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


def _kind_of(value: object) -> str:
    """The kind of a value, for an error."""
    name = class_name(value)
    if isinstance(value, dt.datetime):
        return f"{name} {'without' if value.tzinfo is None else 'with'} time zone"
    return name


def other_kind(kind: pa.DataType, value: object) -> Unfit:
    """The error of a value of another kind. Work that is not done yet is closed."""
    return Unfit(kind, value, work=undone(value))


def _held(kind: pa.DataType, value: Any) -> Any:
    """The Python value that a scalar of NumPy's stands for; any other value as it is."""
    if not isinstance(value, np.generic):
        return value
    if not isinstance(value, np.datetime64 | np.timedelta64):
        return value.item()
    unit = np.datetime_data(value.dtype)[0]
    if np.isnat(value) or unit == "generic":
        raise other_kind(kind, value)
    if unit == "D" and isinstance(value, np.datetime64):
        return value.item()
    micros = value.astype(f"{value.dtype.kind}8[us]")  # of one in nanoseconds, NumPy makes a number
    if micros != value or micros.astype(value.dtype) != value:
        raise Unfit(kind, value, inexact=True)
    return micros.item()


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
            raise other_kind(kind, value)
        return held if make is None else make(held)

    return fit


def _integer(kind: pa.DataType) -> ColumnType:
    most = 2 ** (kind.bit_width - 1)

    def fit(value: Any) -> int:
        held = _held(kind, value)
        if isinstance(held, bool) or not isinstance(held, int | float | decimal.Decimal):
            raise other_kind(kind, value)
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
            raise other_kind(kind, value)
        try:
            number = float(held)
        except OverflowError:
            raise Unfit(kind, value, inexact=True) from None
        kept = c_float(number).value if single else number
        if kept != held and number == number:  # NaN is held as such
            raise Unfit(kind, value, inexact=True, hint=_FLOAT_HINT if single else "")
        return number

    return ColumnType(fit, _never if single else _of_types(float))


def _exact_decimal(kind: pa.DataType) -> ColumnType:
    exponent = decimal.Decimal(1).scaleb(-kind.scale)
    context = decimal.Context(_DIGITS, traps=[decimal.Inexact, decimal.InvalidOperation])

    def fit(value: Any) -> decimal.Decimal:
        held = _held(kind, value)
        if isinstance(held, bool) or not isinstance(held, int | decimal.Decimal):
            raise other_kind(kind, value)
        try:
            number = decimal.Decimal(held).quantize(exponent, context=context)
        except decimal.DecimalException:
            raise Unfit(kind, value, inexact=True) from None
        if not number.is_finite() or len(number.as_tuple().digits) > kind.precision:
            raise Unfit(kind, value, inexact=True)
        return number

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
            raise other_kind(kind, value)
        return held

    return ColumnType(fit, _of_types(dt.date))


def _timestamp(kind: pa.DataType) -> ColumnType:
    def fit(value: Any) -> dt.datetime:
        held = _held(kind, value)
        if not isinstance(held, dt.datetime) or (held.utcoffset() is None) == (kind.tz is not None):
            raise other_kind(kind, value)
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
            raise other_kind(kind, value)
        if getattr(held, "nanoseconds", 0) or not -most <= held <= most:
            raise Unfit(kind, value, inexact=True)
        return held

    return ColumnType(fit, _of_types(dt.timedelta))


def _time_of_day(kind: pa.DataType) -> ColumnType:
    def checked(value: dt.time) -> dt.time:
        if value.tzinfo is not None:
            raise other_kind(kind, value)
        return value

    return ColumnType(_instance(kind, (dt.time,), checked), _never)


def _null(kind: pa.DataType) -> ColumnType:
    return ColumnType(_instance(kind, ()), _of_types())


Table: TypeAlias = tuple[tuple[Callable[[pa.DataType], bool], Callable[[pa.DataType], ColumnType]], ...]
"""Types: a test that is True for each, and the function that makes its `ColumnType`."""
SCALARS: Table = (
    (pa.types.is_boolean, _boolean),
    (pa.types.is_signed_integer, _integer),
    (lambda kind: kind in (pa.float32(), pa.float64()), _floating),
    (pa.types.is_decimal128, _exact_decimal),
    (pa.types.is_string, _text),
    (pa.types.is_binary, _binary),
    (pa.types.is_date32, _date),
    (lambda kind: pa.types.is_timestamp(kind) and kind.unit == "us", _timestamp),
    (lambda kind: kind == pa.duration("us"), _duration),
    (pa.types.is_time64, _time_of_day),
    (pa.types.is_null, _null),
)
