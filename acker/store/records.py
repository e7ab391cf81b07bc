"""Stored records: values that the store holds as JSON, written and read by their types.

A dataclass is a list of its fields in their order. Every written record can be read: a value that its type
does not allow is refused before it is stored. Text that is not exactly such a record is an UnreadableRecord,
so each read gives the whole record as it was written. `Annotated[..., Bounds(low, high)]` bounds a number, or
a length.
"""

import json
import logging
import re
import struct
import sys
import zlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from functools import cache, lru_cache
from operator import attrgetter
from types import NoneType, TracebackType, UnionType
from typing import (
    Annotated,
    Any,
    Generic,
    NamedTuple,
    Self,
    TypeAlias,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from acker.errors import StoreError, UnreadableRecord, ValidationError

UNREADABLE = (
    ArithmeticError, AttributeError, LookupError, NotImplementedError, RecursionError, TypeError, ValueError,
    struct.error, zlib.error,
)  # fmt: skip
"""Errors of a reader that meets another record than was written."""
MOST_BYTES = 64 << 20
"""Most bytes of a record, unless its type has another limit."""
_ENCODER = json.JSONEncoder(separators=(",", ":"), allow_nan=False)
_DECODER = json.JSONDecoder(parse_constant=float)
_S = TypeVar("_S")
_T = TypeVar("_T")
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Bounds:
    """The least and the greatest value of a number, or length of a text or a collection."""

    low: float
    high: float | None = None

    def to(self, high: float) -> tuple[float, float]:
        """Returns the bounds, with an upper bound of `high` at most."""
        return self.low, high if self.high is None else self.high


@dataclass(frozen=True, slots=True)
class Matching:
    """The form of a text, as a regular expression."""

    pattern: str


_Bounds: TypeAlias = Bounds | Matching | None
_MOST_WHOLE = (1 << 63) - 1
_MOST_LENGTH = 1 << 20
NAME = r"(?!\.\.?\Z)[A-Za-z0-9._-]{1,64}\Z"  # "." and ".." would be folders in a URL
Name = Annotated[str, Matching(NAME)]
"""The name of a topology, a stream, a step, a spout and the like."""
HexId = Annotated[str, Matching("[0-9a-f]{1,64}")]
"""A random name, in hexadecimal digits."""
MOST_COUNT = 1 << 53
Count = Annotated[int, Bounds(0, MOST_COUNT)]
"""A whole number from 0 that Lua also has exactly."""


class _Form(NamedTuple):
    """Conversions of a type's values to JSON and back. Both raise errors of `UNREADABLE`."""

    write: Callable[[Any], Any]
    read: Callable[[Any], Any]


class Codec(Generic[_T]):
    """Writes and reads values of a type.

    Args:
        kind: The type.
        label: Name of a value, for errors.
        most: Most bytes of a value.
        cached: Number of latest values that are remembered by their text.
    """

    __slots__ = ("_form", "_label", "kind", "load", "most")

    def __init__(self, kind: Any, label: str, most: int = MOST_BYTES, cached: int = 0) -> None:
        self.kind, self.most = kind, most
        self._form, self._label = _form(kind), label
        self.load = lru_cache(cached)(self._load) if cached else self._load

    def dump(self, value: _T) -> str:
        """A value as text. Raises ValidationError for a value that `load` would refuse."""
        try:
            text = _ENCODER.encode(self._form.write(value))
            if len(text) > self.most:
                raise ValueError(f"expected at most {self.most:,} bytes, got {len(text):,}")
        except UNREADABLE as error:
            raise ValidationError(f"{self._label} cannot be stored: {error!s:.200}") from error
        return text

    def _load(self, stored: str | bytes) -> _T:
        """The inverse of `dump`; UnreadableRecord for anything else."""
        try:
            if len(stored) > self.most:
                raise ValueError(f"expected at most {self.most:,} bytes, got {len(stored):,}")
            text = stored if isinstance(stored, str) else stored.decode("ascii")
            value: _T = self._form.read(_DECODER.decode(text))
        except UNREADABLE as error:
            raise UnreadableRecord(f"not {self._label}: {stored[:200]!r}: {error!s:.200}") from error
        return value


class Record:
    """Base of stored dataclasses. label, most, cached: see `Codec`."""

    __slots__ = ()
    _how = ("", 0, 0)

    def __init_subclass__(cls, label: str = "", most: int = MOST_BYTES, cached: int = 0) -> None:
        if label:  # Python makes a dataclass with slots a second time, without these arguments
            cls._how = label, most, cached

    def dump(self) -> str:
        """The record as text.

        Raises:
            ValidationError: The record could not be read again.
        """
        return _codec(type(self)).dump(self)  # type: ignore[arg-type]

    @classmethod
    def load(cls, stored: str | bytes) -> Self:
        """The inverse of `dump`.

        Args:
            stored: The record as text.

        Raises:
            UnreadableRecord: The text is not such a record.
        """
        value: Self = _codec(cls).load(stored)  # type: ignore[arg-type]
        return value


@cache
def _codec(kind: Any) -> Codec[Any]:
    return Codec(kind, *kind._how)


def _form(kind: Any, bounds: _Bounds = None) -> _Form:
    """The form of a type."""
    origin, args = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return _form(
            args[0], next((part for part in args[1:] if isinstance(part, Bounds | Matching)), bounds)
        )
    if isinstance(bounds, Matching):
        return _same(_matching(bounds))
    if kind is float:
        return _real(bounds)
    if kind in _SCALARS:
        return _same(_SCALARS[kind](bounds))
    if origin in (Union, UnionType):
        return _union(args)
    if is_dataclass(kind):
        return _dataclass(kind)
    if origin is tuple and args[-1] is not Ellipsis:
        return _fixed([_form(part) for part in args], tuple)
    if origin in (tuple, frozenset):
        return _collection(origin, _form(args[0]), bounds or Bounds(0))
    if origin in (dict, Mapping):
        pairs = _collection(dict, _fixed([_form(part) for part in args], tuple), bounds or Bounds(0))
        return _Form(lambda value: pairs.write(tuple(value.items())), pairs.read)
    raise TypeError(f"no form of {kind}")


def _same(check: Callable[[Any], Any]) -> _Form:
    """The form of values that are JSON already."""
    return _Form(check, check)


def _whole(bounds: Bounds | None) -> Callable[[Any], int]:
    low, high = (bounds or Bounds(-1 - _MOST_WHOLE)).to(_MOST_WHOLE)

    def check(value: Any) -> int:
        if type(value) is not int or not low <= value <= high:
            raise ValueError(f"expected a whole number from {low} to {high}, got {_shown(value)}")
        return value

    return check


def _real(bounds: Bounds | None) -> _Form:
    low, high = (bounds or Bounds(-sys.float_info.max)).to(sys.float_info.max)

    def read(value: Any) -> float:
        if not isinstance(value, float) or not low <= value <= high:
            raise ValueError(f"expected a number from {low} to {high}, got {_shown(value)}")
        return value

    return _Form(lambda value: read(float(value) if type(value) is int else value), read)


def _text(bounds: Bounds | None) -> Callable[[Any], str]:
    low, high = (bounds or Bounds(0)).to(_MOST_LENGTH)

    def check(value: Any) -> str:
        if not isinstance(value, str) or not low <= len(value) <= high:
            raise ValueError(f"expected text of {low} to {high} characters, got {_shown(value)}")
        if not value.isascii():
            value.encode()  # half of a surrogate pair is no text
        return value

    return check


def _matching(form: Matching) -> Callable[[Any], str]:
    match = re.compile(form.pattern, re.ASCII).fullmatch

    def check(value: Any) -> str:
        if not isinstance(value, str) or match(value) is None:
            raise ValueError(f"expected text as {form.pattern}, got {_shown(value)}")
        return value

    return check


def _flag(_: Bounds | None) -> Callable[[Any], bool]:
    def check(value: Any) -> bool:
        if not isinstance(value, bool):
            raise TypeError(f"expected true or false, got {_shown(value)}")
        return value

    return check


_SCALARS: dict[Any, Callable[[Bounds | None], Callable[[Any], Any]]] = {
    int: _whole, str: _text, bool: _flag,
}  # fmt: skip


def _union(kinds: tuple[Any, ...]) -> _Form:
    """The form of None or a value of another type; or of dataclasses, each with its number before it."""
    forms = [_form(one) for one in kinds if one is not NoneType]
    if NoneType in kinds:
        [form] = forms
        return _Form(
            lambda value: None if value is None else form.write(value),
            lambda value: None if value is None else form.read(value),
        )
    number = _whole(Bounds(0, len(kinds) - 1))

    def write(value: Any) -> list[Any]:
        place = kinds.index(type(value))
        return [place, forms[place].write(value)]

    def read(value: Any) -> Any:
        place, rest = _listed(value)
        return forms[number(place)].read(rest)

    return _Form(write, read)


def _dataclass(kind: Any) -> _Form:
    """A list of the fields."""
    hints = get_type_hints(kind, include_extras=True)
    names = [one.name for one in fields(kind)]
    form = _fixed([_form(hints[name]) for name in names], lambda values: kind(*values))
    values = attrgetter(*names) if len(names) > 1 else lambda value: [getattr(value, names[0])]

    def write(value: Any) -> list[Any]:
        if type(value) is not kind:
            raise TypeError(f"expected {kind.__name__}, got {_shown(value)}")
        return form.write(values(value))  # type: ignore[no-any-return]

    return _Form(write, form.read)


def _fixed(forms: Sequence[_Form], make: Callable[[list[Any]], Any]) -> _Form:
    """A fixed number of values, each with its own form."""
    writes, reads = [form.write for form in forms], [form.read for form in forms]

    def write(values: Any) -> list[Any]:
        return [form(value) for form, value in zip(writes, values, strict=True)]

    def read(values: Any) -> Any:
        return make([form(value) for form, value in zip(reads, _listed(values), strict=True)])

    return _Form(write, read)


def _collection(kind: Callable[[list[Any]], Any], item: _Form, bounds: Bounds) -> _Form:
    """The form of any number of values of one form."""
    low, high = bounds.to(_MOST_LENGTH)

    def check(values: Collection[Any]) -> Collection[Any]:
        if not low <= len(values) <= high:
            raise ValueError(f"expected {low} to {high} values, got {len(values)}")
        return values

    def write(values: Any) -> list[Any]:
        if isinstance(values, str | bytes):
            raise TypeError(f"expected values, got {_shown(values)}")
        written = [item.write(member) for member in check(values)]
        return sorted(written) if kind is frozenset else written

    def read(value: Any) -> Any:
        values = [item.read(member) for member in check(_listed(value))]
        collection = kind(values)
        if len(collection) != len(values) or (kind is frozenset and values != sorted(values)):
            raise ValueError("expected each value once, in order")
        return collection

    return _Form(write, read)


def _listed(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise TypeError(f"expected a list, got {_shown(value)}")
    return value


def _shown(value: object) -> str:
    if isinstance(value, int | float | str | None):
        return repr(value[:50] if isinstance(value, str) else value)[:60]
    return type(value).__name__


class reading:  # noqa: N801 - it is used as a function
    """Turns errors of `UNREADABLE` in its block into an UnreadableRecord that names the record `label`."""

    __slots__ = ("_label",)

    def __init__(self, label: str) -> None:
        self._label = label

    def __enter__(self) -> None:
        """Begins to read."""

    def __exit__(self, _: object, error: BaseException | None, __: TracebackType | None) -> None:
        if isinstance(error, UNREADABLE) or (isinstance(error, UnreadableRecord) and not error.anchors):
            raise UnreadableRecord(f"{self._label} cannot be read: {error!r:.200}") from error


class passing_over:  # noqa: N801 - it is used as a function
    """Ends its block at an unreadable record, and logs the error: the record counts as missing.

    where: The record's topology, and its name if the error lacks it. label: The record, if errors of
    `UNREADABLE` end the block likewise. refusals: True if refusals of the store do, too, as of a key of
    another type. A record for which memory did not suffice is not passed over: it can be read elsewhere.
    """

    __slots__ = ("_kind", "_label", "_where")

    def __init__(self, where: str, label: str = "", *, refusals: bool = False) -> None:
        self._where, self._label = where, label
        self._kind = StoreError if refusals else UnreadableRecord

    def __enter__(self) -> None:
        """Begins the block."""

    def __exit__(self, _: object, error: BaseException | None, __: TracebackType | None) -> bool:
        if error is not None and isinstance(error.__cause__, MemoryError):
            return False
        unread = self._label and isinstance(error, UNREADABLE)
        if unread or isinstance(error, self._kind):
            said = f"{self._label} cannot be read: {error!r:.200}" if self._label else error
            _log.error("%s: %s", self._where, said)
            return True
        return False


def readable(load: Callable[[_S], _T], stored: _S | None, where: str) -> _T | None:
    """The result of `load` for a record; None without a record, or where it is passed over."""
    with passing_over(where):
        return None if stored is None else load(stored)
    return None
