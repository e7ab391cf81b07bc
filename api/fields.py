"""Values in JSON: 64-bit ids as decimal strings, times as ISO 8601 UTC, bytes as base64."""

import base64
import functools
import inspect
import operator
import re
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import is_dataclass
from datetime import datetime
from enum import Enum
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationInfo,
    WithJsonSchema,
    create_model,
    field_validator,
    model_validator,
)

from acker import errors
from acker.ledger.fields import Examples, Kind, as_json, shown
from acker.ledger.outcomes.counts import Counter
from acker.ledger.settings.config import MESSAGE_ID_BYTES, REASON_BYTES
from acker.store.records import Bounds


def _up_to(digits: str) -> str:
    """A pattern of the numbers from 1 to the one with these digits, without leading zeros."""
    alternatives = [f"[1-9][0-9]{{0,{len(digits) - 2}}}"]
    for place, digit in enumerate(digits):
        lowest = 1 if place == 0 else 0
        if int(digit) > lowest:
            rest = len(digits) - place - 1
            tail = f"[0-9]{{{rest}}}" if rest else ""
            alternatives.append(f"{digits[:place]}[{lowest}-{int(digit) - 1}]{tail}")
    return "|".join([*alternatives, digits])


ID_PATTERN = f"^(0|-?({_up_to('9223372036854775807')})|-9223372036854775808)$"
"""Exactly the whole numbers of signed 64 bits."""

_BASE64 = "[A-Za-z0-9+/]"
MESSAGE_ID_PATTERN = (
    f"^({_BASE64}{{4}}){{0,341}}({_BASE64}{{2}}==)?$|^({_BASE64}{{4}}){{0,340}}{_BASE64}{{3}}=$"
)
"""Exactly the base64 texts of at most 1,024 bytes."""


def _bytes_at_most(limit: int) -> AfterValidator:
    def check(text: str) -> str:
        if len(text.encode()) > limit:
            raise ValueError(f"expected at most {limit} bytes of UTF-8, got {len(text.encode())}")
        return text

    return AfterValidator(check)


Id = Annotated[
    str,
    Field(
        pattern=ID_PATTERN,
        description="A signed 64-bit number in decimal digits: JavaScript's numbers would lose bits.",
        examples=["-4611686018427387903"],
    ),
]


def _as_iso_text(value: object) -> object:
    """Raises ValueError for a text that is no date with a time: pydantic takes seconds and dates, too."""
    if isinstance(value, datetime) or (isinstance(value, str) and re.match(r"\d{4}-\d\d-\d\d[Tt]", value)):
        return value
    raise ValueError(f"expected a time as 2026-11-21T03:04:05Z, got {errors.shown(value)}")


_INSTANT = WithJsonSchema({"type": "string", "format": "date-time", "examples": ["2026-11-21T03:04:05.678Z"]})
Instant = Annotated[AwareDatetime, BeforeValidator(_as_iso_text), _INSTANT]
"""A time that a client gives, as ISO 8601."""
At = Annotated[str, _INSTANT]
"""A time as `acker.ledger.fields.instant` writes it."""
InstantText = Annotated[str, WithJsonSchema({"type": "string", "format": "date-time"})]
_OTHER = "[A-Za-z0-9_-]"
_ANY = "[A-Za-z0-9._-]"
NAME_PATTERN = f"^({_OTHER}{_ANY}{{0,63}}|[.]{_OTHER}{_ANY}{{0,62}}|[.][.]{_ANY}{{1,62}})$"
"""The names that `acker.ledger.settings.config.check_name` takes."""
Name = Annotated[str, Field(pattern=NAME_PATTERN, examples=["wordcount"])]
Seconds = Annotated[float, Field(description="Seconds.", examples=[12.5])]
Count = Annotated[int, Field(ge=0, examples=[1200])]
MessageId = Annotated[
    str,
    _bytes_at_most(MESSAGE_ID_BYTES),
    Field(
        max_length=MESSAGE_ID_BYTES, description="As text: at most 1 KiB of UTF-8.", examples=["poem.txt:1"]
    ),
]
MessageIdBase64 = Annotated[
    str,
    Field(pattern=MESSAGE_ID_PATTERN, description="Any bytes, at most 1 KiB.", examples=["cG9lbS50eHQ6MQ=="]),
]
Reason = Annotated[
    str,
    _bytes_at_most(REASON_BYTES),
    Field(max_length=REASON_BYTES, description="At most 1 KiB of UTF-8.", examples=["no such word"]),
]
Retry = Annotated[
    bool,
    Field(
        strict=True, description="false: for good. The record becomes a dead letter, and is not tried again."
    ),
]
CURSOR_PATTERN = r"^[A-Za-z0-9_-]{1,16384}$"
Cursor = Annotated[
    str,
    Field(pattern=CURSOR_PATTERN, description="Of the page before; hand it back unread."),
]
EXPECTED: Mapping[str, str] = {
    ID_PATTERN: "a signed 64-bit number, without leading zeros",
    NAME_PATTERN: "1 to 64 of A-Z a-z 0-9 . _ -, and not only dots",
    MESSAGE_ID_PATTERN: "base64 of at most 1,024 bytes",
    CURSOR_PATTERN: "the cursor of the page before",
}
"""The patterns of fields in words."""


class Model(BaseModel):
    """A body: it holds declared fields only."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Numbers(Model):
    """A body of numbers, and of choices: JSON's true is no 1, and "1" is none either."""

    @field_validator("*", mode="before")
    @classmethod
    def _is_number(cls, value: object, info: ValidationInfo) -> object:
        a_number = bool(cls.model_fields[str(info.field_name)].metadata)  # its bounds
        if isinstance(value, bool | str) and a_number:
            raise ValueError(f"expected a number, got {value!r:.100}")
        return value


class Paged(Model):
    """A query whose answer has pages."""

    cursor: Cursor | None = Field(default=None, description="Of the page before.")


class ByMessageId(Paged):
    """A query that may name a record, as text or as bytes."""

    message_id: (
        Annotated[str, Field(max_length=1024, description="The spout's own name, as text.")] | None
    ) = None
    message_id_base64: MessageIdBase64 | None = Field(
        default=None, description="The same for a message id that is no text; goes before `message_id`."
    )

    @property
    def wanted(self) -> bytes | None:
        """The message id that is looked for; None where none is given."""
        if self.message_id_base64 is not None:
            return base64.b64decode(self.message_id_base64)
        return None if self.message_id is None else self.message_id.encode()


class Answer(BaseModel):
    """An answer, or a part of one. Clients pass over what they do not know: later versions may add to it.

    It is made of its fields, or of a dataclass that shows them (`acker.ledger.fields`).
    """

    model_config = ConfigDict(frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _as_json(cls, value: object) -> object:
        return as_json(value) if is_dataclass(value) else value


M = TypeVar("M", bound=BaseModel)
_MODELS: dict[Any, type[Answer]] = {}
"""The model of each dataclass that has one."""
_KINDS: dict[str, Any] = {
    "id": Id,
    "instant": At,
    "seconds": Seconds,
    "count": Count,
    "batch": Count | None,
    "name": Name,
    "cursor": Cursor | None,
    "row": dict[str, Any],
}


def answer(kind: Any, name: str = "", **narrow: Any) -> type[Answer]:
    """Makes the model of the answer that shows a dataclass; the models of dataclasses in it come along.

    Args:
        kind: The dataclass.
        name: The name of the model; by default the name of the dataclass.
        **narrow: The types of fields that are narrower in the API than in Python.
    """
    listed: dict[str, Any] = {}
    for field in shown(kind):
        if field.spread:
            listed |= _part(field.hint)
        else:
            hint = narrow.get(field.name) or _type(field.hint, field.marks)
            listed[field.name] = hint, Field(**_facts(field.marks))
    model: type[Answer] = create_model(
        name or kind.__name__, __base__=Answer, __doc__=inspect.getdoc(kind), **listed
    )
    return _MODELS.setdefault(kind, model)


def _model(kind: Any) -> type[Answer]:
    return _MODELS.get(kind) or answer(kind)


def _part(hint: Any) -> dict[str, Any]:
    """The fields that the value of a field becomes."""
    model = _model(hint) if is_dataclass(hint) else MessageIdFields
    return {name: (field.annotation, field) for name, field in model.model_fields.items()}


def _facts(marks: Iterable[object]) -> dict[str, Any]:
    facts: dict[str, Any] = {}
    for mark in marks:
        if isinstance(mark, str):
            facts["description"] = mark
        elif isinstance(mark, Examples):
            facts["examples"] = list(mark)
        elif isinstance(mark, Bounds):
            facts |= {"ge": mark.low} | ({} if mark.high is None else {"le": mark.high})
    return facts


def _type(hint: Any, marks: Iterable[object] = ()) -> Any:
    """The type of a field for the API."""
    for mark in marks:
        if isinstance(mark, Kind) and mark.name in _KINDS:
            return _KINDS[mark.name]
    origin, args = get_origin(hint), get_args(hint)
    if origin is Annotated:
        kept = _facts(hint.__metadata__)
        made = _type(args[0], hint.__metadata__)
        return Annotated[made, Field(**kept)] if kept else made
    if origin in (Union, types.UnionType):
        return functools.reduce(operator.or_, map(_type, args))
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return dict[_type(args[0]), _type(args[1])]  # type: ignore[misc]
    if isinstance(origin, type) and issubclass(origin, Sequence):
        return list[_type(args[0])]  # type: ignore[misc]
    if isinstance(hint, type) and issubclass(hint, Enum):
        return Literal[tuple(one.value for one in hint)]
    return _model(hint) if is_dataclass(hint) else hint


def several(name: str, doc: str, field: str, model: type[Answer], words: str | None = None) -> type[Answer]:
    """Makes the model of an answer that is a list."""
    listed: Any = {field: (list[model], Field(description=words))}  # type: ignore[valid-type]
    made: type[Answer] = create_model(name, __base__=Answer, __doc__=doc, **listed)
    return made


def with_fields(listed: dict[str, Any]) -> Callable[[type[M]], type[M]]:
    """Gives a model further fields, which are listed elsewhere: name -> (type, `Field(...)`)."""

    def decorate(model: type[M]) -> type[M]:
        return create_model(
            model.__name__, __base__=model, __doc__=model.__doc__, __module__=model.__module__, **listed
        )

    return decorate


def counted(counters: Mapping[str, Counter], kind: object) -> dict[str, Any]:
    """Counters as fields of that kind."""
    return {name: (kind, Field(description=one.words)) for name, one in counters.items()}


class MessageIdFields(Answer):
    """A spout's own name of a record, which may be any bytes."""

    message_id: str | None = Field(description="As text; null where it is unknown or no UTF-8.")
    message_id_base64: str | None = Field(description="Its bytes; null where it is unknown.")
