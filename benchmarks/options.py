"""Several that programs which measure are given: argparse refuses what makes no sense before anything begins.

    parser.add_argument("--rounds", type=Number(), default=5)                   1 or more
    parser.add_argument("--seconds", type=Number(float), default=60.0)          over 0
    parser.add_argument("--rates", type=Several(Number()), default=(1_000,))    some of them, with commas

The options of a part are the fields of its `Sizes`: `type_of` tells the type of one, and `sized` makes a
field whose numbers have other bounds.
"""

import argparse
import dataclasses
import math
from collections.abc import Callable
from dataclasses import Field, dataclass
from typing import Any

_LIMITS = "limits"


@dataclass(frozen=True)
class Number:
    """A type for argparse: a number of a kind, within bounds.

    least: by default 1 for a whole number; any other has to be over 0.
    """

    kind: type[int] | type[float] = int
    least: float | None = None
    most: float = math.inf

    def __call__(self, text: str) -> Any:
        """The number. Raises ArgumentTypeError, which names what was given and what was expected."""
        try:
            found = self.kind(text)
        except ValueError:
            found = math.nan
        if not self._fits(found):
            raise argparse.ArgumentTypeError(f"expected {self}, got {text!r}")
        return found

    def _fits(self, value: float) -> bool:
        least = self._least
        return (
            math.isfinite(value) and value <= self.most and (value > 0 if least is None else value >= least)
        )

    @property
    def _least(self) -> float | None:
        return 1 if self.kind is int and self.least is None else self.least

    def __str__(self) -> str:
        name = "a whole number" if self.kind is int else "a number"
        if math.isfinite(self.most):
            return f"{name} from {self._least or 0:,} to {self.most:,}"
        return f"{name} over 0" if self._least is None else f"{name} of {self._least:,} or more"


@dataclass(frozen=True)
class Several:
    """A type for argparse: one or more of a type, with commas between them."""

    each: Callable[[str], Any]

    def __call__(self, text: str) -> tuple[Any, ...]:
        """All of them. Raises ArgumentTypeError."""
        return tuple(self.each(word) for word in text.split(","))


def sized(default: Any, least: float | None = None, most: float = math.inf) -> Any:
    """A field of `Sizes` whose numbers have these bounds."""
    return dataclasses.field(default=default, metadata={_LIMITS: (least, most)})


def type_of(field: "Field[Any]") -> Callable[[str], Any]:
    """The type of the option for a field of `Sizes`: the type of its default, or of each default."""
    default: Any = field.default
    many = isinstance(default, tuple)
    kind = type(default[0] if many else default)
    each = Number(kind, *field.metadata.get(_LIMITS, ())) if kind in (int, float) else kind
    return Several(each) if many else each
