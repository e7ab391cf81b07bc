"""Fields of what is shown: one annotated line says its JSON and its place in the API."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, Any

from acker.ledger.fields import (
    HIDDEN,
    SPREAD,
    Count,
    Cursor,
    Examples,
    Id,
    Instant,
    MessageId,
    Named,
    Row,
    as_json,
    json_line,
)
from acker.store.records import Bounds
from api.fields import answer


class Colour(StrEnum):
    RED = "red"


@dataclass(frozen=True, slots=True)
class Part:
    """A part."""

    colour: Colour
    by: Annotated[str, "Its maker."] = ""


@dataclass(frozen=True, slots=True)
class Thing:
    """A thing."""

    id: Annotated[Id, Named("thing"), "Its number."]
    at: Instant | None
    message_id: MessageId
    part: Annotated[Part, SPREAD]
    row: Row
    parts: tuple[Part, ...] = ()
    named: Mapping[str, Id] = field(default_factory=dict)
    secret: Annotated[object, HIDDEN] = None
    cursor: Cursor = None
    share: Annotated[float, Bounds(0, 1), Examples(0.5)] = 0.5

    @property
    def left(self) -> Count:
        return -1

    @property
    def not_shown(self) -> int:
        return 1

    def text(self, *, loud: bool = False) -> Annotated[str, "The thing, for people."]:
        return "THING" if loud else "thing"


THING = Thing(
    -(2**63), 1.5, b"\xff", Part(Colour.RED, "ann"), {"n": 2**53}, (Part(Colour.RED),), {"a": 2**60}, object()
)
SHOWN: dict[str, Any] = {
    "thing": "-9223372036854775808",
    "at": "1970-01-01T00:00:01.500Z",
    "message_id": None,
    "message_id_base64": "/w==",
    "colour": "red",
    "by": "ann",
    "row": {"n": "9007199254740992"},
    "parts": [{"colour": "red", "by": ""}],
    "named": {"a": "1152921504606846976"},
    "cursor": None,
    "share": 0.5,
    "left": 0,
    "text": "thing",
}


def test_a_value_is_written_by_its_annotations() -> None:
    assert as_json(THING) == SHOWN
    assert as_json({"things": [THING], "age": 1.5}) == {"things": [SHOWN], "age": 1.5}
    assert json_line(Part(Colour.RED, "\x7f\u2028")) == '{"colour":"red","by":"\\u007f\\u2028"}\n'


def test_an_answer_takes_a_value_as_it_is_written_and_describes_its_fields() -> None:
    model = answer(Thing, "AThing")
    assert model.model_validate(THING).model_dump(mode="json") == SHOWN
    schema = model.model_json_schema(mode="serialization")
    properties = schema["properties"]
    assert (schema["title"], schema["description"]) == ("AThing", "A thing.")
    assert properties.keys() == SHOWN.keys() == set(schema["required"])
    assert properties["by"]["description"] == "Its maker."
    assert properties["text"]["description"] == "The thing, for people."
    assert (properties["share"]["minimum"], properties["share"]["maximum"]) == (0, 1)
    assert properties["share"]["examples"] == [0.5]
    assert schema["$defs"]["Part"]["properties"]["colour"] == {
        "const": "red",
        "title": "Colour",
        "type": "string",
    }
