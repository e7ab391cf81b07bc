"""Settings, each listed once: its default, its values, and its description.

They are the fields of a dataclass. Its checks, the API's models, the options of the data source, the help of
the command line and the tables in docs/ all read these fields.
"""

from dataclasses import MISSING, dataclass, field, fields
from typing import Any, TypeAlias, TypeVar

from acker.errors import ValidationError, shown
from acker.store.address import parse_flag

Number: TypeAlias = type[int] | type[float]
D = TypeVar("D", bound=float | None)
N = TypeVar("N", int, float)


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting: a number of a kind from `low` to `high`, one of `choices`, a flag, or a text.

    default: None if it has no effect unless it is given, MISSING if it is required. words: its description,
        with
    the unit. text: the meaning of a text. uses: its only uses; empty: all uses.
    """

    default: object
    words: str
    kind: Number | type[str]
    low: float = 0
    high: float = 0
    choices: tuple[str, ...] = ()
    text: str = ""
    uses: tuple[str, ...] = ()

    @property
    def values(self) -> str:
        """The possible values of the setting, in words."""
        numbers = "" if self.kind in (bool, str) else f"{self.low:,.16g} to {self.high:,.16g}"
        return self.text or numbers or ", ".join(self.choices)

    @property
    def preset(self) -> str:
        """The default, in words."""
        if self.default is MISSING:
            return "required"
        if isinstance(self.default, bool):
            return str(self.default).lower()
        return f"{self.default:,.16g}" if isinstance(self.default, int | float) else str(self.default or "")

    def check(self, value: object, name: str) -> None:
        """Raises ValidationError unless a number or choice is a possible value, or its default None."""
        if self.choices and self.kind is str and value not in self.choices:
            raise ValidationError(f"{name}: expected {_either(self.choices)}, got {shown(value)}")
        if self.kind in (int, float) and (value, self.default) != (None, None):
            check_number(value, name, self.low, self.high, self.kind)

    def parse(self, given: str, name: str) -> object:
        """Parses the text of an option. Raises ValidationError."""
        kinds = {int: f"a whole number from {self.values}", float: f"a number from {self.values}"}
        try:
            value = parse_flag(given) if self.kind is bool else self.kind(given)
            self.check(value, name)
        except ValueError:
            expected = kinds.get(self.kind) or _either(self.choices)
            raise ValidationError(f"option {name}: expected {expected}, got {shown(given)}") from None
        return value


def number(default: D, low: N, high: N, words: str, **more: Any) -> D:
    """A field of a dataclass that is a setting: a number of the kind of `low`. more: see `Setting`."""
    made: D = _field(Setting(default, words, type(low), low, high, **more))
    return made


def flag(default: bool, words: str, **more: Any) -> bool:
    """A field that is a flag."""
    made: bool = _field(Setting(default, words, bool, choices=("true", "false"), **more))
    return made


def choice(choices: tuple[str, ...], words: str, **more: Any) -> str:
    """A field that is one of some texts; the first is the default."""
    made: str = _field(Setting(choices[0], words, str, choices=choices, **more))
    return made


def text(default: object, meaning: str, words: str, *, shown: bool = True, **more: Any) -> Any:
    """A field that is a text, such as a name. default: a str, or MISSING. shown: True if the repr has it."""
    return _field(Setting(default, words, str, text=meaning, **more), shown)


def _field(setting: Setting, shown: bool = True) -> Any:
    return field(default=setting.default, repr=shown, metadata={"setting": setting})


def settings_of(kind: type[Any]) -> dict[str, Setting]:
    """The settings of a dataclass, in their order."""
    return {one.name: one.metadata["setting"] for one in fields(kind) if "setting" in one.metadata}


def check_number(value: object, label: str, low: float, high: float, kind: Number) -> None:
    """Raises ValidationError unless `value` is a number of that kind, from `low` to `high`."""
    numeric = isinstance(value, int) if kind is int else isinstance(value, (int, float))
    if not numeric or isinstance(value, bool) or not low <= value <= high:  # type: ignore[operator]
        raise ValidationError(
            f"{label}: expected {kind.__name__} from {low:,} to {high:,}, got {shown(value)}"
        )


def _either(choices: tuple[str, ...]) -> str:
    return f"{', '.join(choices[:-1])} or {choices[-1]}"
