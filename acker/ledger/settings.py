"""Settings, each listed once: its default, what it can be, and in words what it does.

They are the fields of a dataclass. Its checks, the API's models, the options of the data source, the help of
the command line and the tables in docs/ all take them from there.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, TypeAlias, TypeVar

from acker.errors import ValidationError

Number: TypeAlias = type[int] | type[float]
D = TypeVar("D", bound=float | None)
N = TypeVar("N", int, float)


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting: a number of a kind from `low` to `high`. words: what it does, in its units.

    later: whether what was stored by an earlier version may lack it, and has the default.
    """

    default: float | None
    low: float
    high: float
    kind: Number
    words: str
    later: bool = False

    @property
    def values(self) -> str:
        """What it can be, in words."""
        return f"{self.low:,.15g} to {self.high:,.15g}"

    @property
    def preset(self) -> str:
        """The default, in words."""
        return "" if self.default is None else f"{self.default:,.15g}"

    def check(self, value: object, name: str) -> None:
        """Raises ValidationError unless it can be that."""
        check_number(value, name, self.low, self.high, self.kind)


def number(default: D, low: N, high: N, words: str, *, later: bool = False) -> D:
    """A field of a dataclass that is a setting (`Setting`): a number of the kind of `low`."""
    setting = Setting(default, low, high, type(low), words, later)
    made: D = field(default=default, metadata={"setting": setting})
    return made


def of(kind: type[Any]) -> Mapping[str, Setting]:
    """The settings of a dataclass, in their order."""
    return {one.name: one.metadata["setting"] for one in fields(kind) if "setting" in one.metadata}


def check_number(value: object, what: str, low: float, high: float, kind: Number) -> None:
    """Raises ValidationError unless `value` is a number of that kind, from `low` to `high`."""
    numeric = isinstance(value, int) if kind is int else isinstance(value, (int, float))
    if not numeric or isinstance(value, bool) or not low <= value <= high:  # type: ignore[operator]
        raise ValidationError(f"{what}: expected {kind.__name__} from {low:,} to {high:,}, got {value!r}")
