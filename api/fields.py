"""How values travel in JSON: 64-bit ids as decimal strings, times as ISO 8601 UTC, bytes as base64."""

import base64
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    PlainSerializer,
    ValidationInfo,
    WithJsonSchema,
    create_model,
    field_validator,
)

from acker.ledger.outcomes.counts import Counter
from acker.ledger.settings.config import MESSAGE_ID_BYTES, REASON_BYTES


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


def instant(seconds: float) -> datetime:
    """A time from Unix seconds."""
    return datetime.fromtimestamp(seconds, UTC)


def _instant_text(value: datetime) -> str:
    return value.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


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
Instant = Annotated[
    datetime,
    PlainSerializer(_instant_text, return_type=str),
    WithJsonSchema({"type": "string", "format": "date-time", "examples": ["2026-11-21T03:04:05.678Z"]}),
]
"""ISO 8601 in UTC, to the millisecond."""
InstantText = Annotated[str, WithJsonSchema({"type": "string", "format": "date-time"})]
"""The same, as text already."""
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
Cursor = Annotated[
    str,
    Field(pattern=r"^[A-Za-z0-9_-]{1,16384}$", description="Of the page before; hand it back unread."),
]


class Model(BaseModel):
    """What all bodies are: nothing in them but what is declared."""

    model_config = ConfigDict(extra="forbid", frozen=True)


REASON = "Of a failure: anybody's text. Of an expired tree: where it was then, as far as that is known."


class Numbers(Model):
    """A body of numbers, and of choices: JSON's true is no 1, and "1" is none either."""

    @field_validator("*", mode="before")
    @classmethod
    def _is_number(cls, value: object, info: ValidationInfo) -> object:
        a_number = bool(cls.model_fields[str(info.field_name)].metadata)  # its bounds
        if isinstance(value, bool | str) and a_number:
            raise ValueError(f"expected a number, got {value!r:.100}")
        return value


class ByMessageId(BaseModel):
    """The part of a query that names a record, as text or as bytes."""

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
    """What all answers are. Clients pass over what they do not know: later versions may add to it."""

    model_config = ConfigDict(frozen=True)


M = TypeVar("M", bound=BaseModel)


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
