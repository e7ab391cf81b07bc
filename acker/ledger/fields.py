"""Fields of shown values: each is one annotated line of a dataclass.

    age: Annotated[Seconds, "Since its track."]

`as_json` writes a dataclass by these lines, for the command line and the API alike, and `api.fields.answer`
makes the API's model of it, with the texts as descriptions. A property or method whose result is annotated is
a field, too.
"""

import base64
import functools
import json
import math
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from datetime import UTC, datetime
from enum import Enum
from operator import attrgetter, methodcaller
from typing import Annotated, Any, TypeAlias, Union, get_args, get_origin, get_type_hints

from acker.store.records import Bounds

Writer: TypeAlias = Callable[[Any], Any]
_EXACT = 2**53


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of values.

    Attributes:
        name: The name of the kind.
        write: Makes JSON of a value other than None; a value without it is JSON already.
        spread: True where a value becomes several fields.
    """

    name: str
    write: Writer | None = None
    spread: bool = False


@dataclass(frozen=True, slots=True)
class Named:
    """The JSON name of a field that has another name in Python."""

    name: str


class Examples(tuple[object, ...]):
    """Examples of a value."""

    __slots__ = ()

    def __new__(cls, *values: object) -> "Examples":
        """Makes examples of values."""
        return super().__new__(cls, values)


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a shown value.

    Attributes:
        name: Its name in JSON.
        hint: Its type, without the annotations of the field itself.
        marks: These annotations; a text describes the field.
        read: Reads it from a value of the dataclass.
    """

    name: str
    hint: Any
    marks: tuple[object, ...]
    read: Writer

    @property
    def spread(self) -> bool:
        """True where the annotated field becomes several fields of JSON."""
        return any(isinstance(mark, Kind) and mark.spread for mark in self.marks)


def instant(seconds: float) -> str:
    """A time in Unix seconds as ISO 8601 in UTC, to the millisecond."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def message_id_fields(message_id: bytes | None) -> dict[str, str | None]:
    """A message id for JSON: as text, null where it is no UTF-8, and always as base64."""
    if message_id is None:
        return {"message_id": None, "message_id_base64": None}
    try:
        text = message_id.decode()
    except UnicodeDecodeError:
        text = None
    return {"message_id": text, "message_id_base64": base64.b64encode(message_id).decode()}


def plain(value: object) -> Any:
    """A value of a row for JSON: text for what JSON lacks, and for numbers that JavaScript would round."""
    if value is None or isinstance(value, str | bool):
        return value
    if isinstance(value, int):
        return value if abs(value) < _EXACT else str(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, dict):
        return {str(name): plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def as_json(value: object) -> Any:
    """A value as JSON, by the annotations of its dataclass and of the values in it."""
    if isinstance(value, Enum):
        return value.value
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, Mapping):
        return {name: as_json(part) for name, part in value.items()}
    if is_dataclass(value) and not isinstance(value, type):
        return _writer(type(value))(value)
    assert isinstance(value, Sequence), value
    return [as_json(part) for part in value]


def json_text(value: object, **form: Any) -> str:
    """A value as JSON text, in ASCII. form: arguments of `json.dumps`."""
    # JSON does not escape DEL, the control character of ASCII beyond the letters.
    return json.dumps(as_json(value), **form).replace("\x7f", "\\u007f")


def json_line(value: object) -> str:
    """A value as a line of JSON."""
    return json_text(value, separators=(",", ":")) + "\n"


ID = Kind("id", str)
HIDDEN = Kind("hidden")
"""Marks a field that is not shown."""

Id: TypeAlias = Annotated[int, ID]
"""A signed number of 64 bits: text in JSON, since JavaScript's numbers would lose bits."""
Instant: TypeAlias = Annotated[float, Kind("instant", instant)]
"""Unix seconds by the server's clock: ISO 8601 in JSON."""
Seconds: TypeAlias = Annotated[float, Kind("seconds")]
Count: TypeAlias = Annotated[int, Kind("count", lambda value: max(0, value))]
"""A number from 0 on. A difference of counts may be negative between two calls of the ledger: 0 then."""
Name: TypeAlias = Annotated[str, Kind("name")]
"""A name of a topology, stream or spout (`acker.ledger.settings.config.check_name`)."""
Cursor: TypeAlias = Annotated[str | None, Kind("cursor"), "Of the next page; null at the end."]
MESSAGE_ID = Kind("message id", message_id_fields, spread=True)
MessageId: TypeAlias = Annotated[bytes | None, MESSAGE_ID]
"""A spout's own name of a record: two fields in JSON, text and base64."""
Row: TypeAlias = Annotated[dict[str, object], Kind("row", plain)]
"""Columns of a row, as Python values."""
Batch: TypeAlias = Annotated[int, Kind("batch", lambda value: None if value < 0 else value)]
"""The number of a micro-batch. -1 is none: null in JSON."""
Whole: TypeAlias = Annotated[int, Bounds(0)]
SPREAD = Kind("spread", as_json, spread=True)
"""Marks a dataclass whose fields stand among the fields of its owner."""


def shown(kind: type) -> Iterator[Field]:
    """The shown fields of a dataclass: its fields, annotated properties and methods."""
    hints = get_type_hints(kind, include_extras=True)
    for one in fields(kind):
        yield from _field(one.name, hints[one.name], attrgetter(one.name))
    for name in dir(kind):
        member = getattr(kind, name)
        function = member.fget if isinstance(member, property) else member
        if isinstance(function, types.FunctionType) and _is_annotated(function.__annotations__.get("return")):
            hint = get_type_hints(function, include_extras=True)["return"]
            yield from _field(name, hint, attrgetter(name) if function is not member else methodcaller(name))


def _field(name: str, hint: Any, read: Writer) -> Iterator[Field]:
    marks = hint.__metadata__ if _is_annotated(hint) else ()
    if HIDDEN not in marks:
        name = next((mark.name for mark in marks if isinstance(mark, Named)), name)
        yield Field(name, hint.__origin__ if marks else hint, marks, read)


def _is_annotated(hint: object) -> bool:
    return get_origin(hint) is Annotated


@functools.cache
def _writer(kind: type) -> Writer:
    """Makes the function that writes the values of a dataclass."""
    alone, spread = list[tuple[str, Writer, Writer | None]](), list[tuple[Writer, Writer]]()
    for field in shown(kind):
        write = _write(Annotated[field.hint, *field.marks] if field.marks else field.hint)
        if field.spread:
            assert write is not None
            spread.append((field.read, write))
        else:
            alone.append((field.name, field.read, write))

    def written(value: object) -> dict[str, Any]:
        members = {name: read(value) if write is None else write(read(value)) for name, read, write in alone}
        for read, write in spread:
            members.update(write(read(value)))
        return members

    return written


def _write(hint: Any) -> Writer | None:
    """Makes the function that writes a value of a type; None for what is JSON already."""
    if _is_annotated(hint):
        kinds = [mark for mark in hint.__metadata__ if isinstance(mark, Kind)]
        own = kinds[-1].write if kinds else None
        return own or _write(hint.__origin__)
    origin, args = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        writes = {_write(arg) for arg in args if arg is not types.NoneType}
        if writes == {None}:
            return None
        part: Writer = (len(writes) == 1 and writes.pop()) or as_json
        return lambda value: None if value is None else part(value)
    if isinstance(origin, type) and issubclass(origin, Mapping | Sequence):
        each = _write(args[-1 if issubclass(origin, Mapping) else 0]) or as_json
        if issubclass(origin, Sequence):
            return lambda value: [each(one) for one in value]
        return lambda value: {name: each(one) for name, one in value.items()}
    return None if hint in (str, int, float, bool) or not isinstance(hint, type) else as_json
