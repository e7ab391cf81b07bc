"""Parameters of commands that are made of options and arguments of their own, as a ledger of its topology."""

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

_LAST = ("url", "timeout", "as_json")
"""Options that stand last in the help of each command."""


@dataclass(frozen=True, slots=True)
class Given:
    """Marks a parameter of commands. make: makes its value; the parameters of that are the command's."""

    make: Callable[..., Any]


def with_given(command: Callable[..., Any]) -> Callable[..., Any]:
    """The command with options and arguments in place of each parameter that is made of them."""
    wanted: dict[str, inspect.Parameter] = {}
    makers: dict[str, tuple[Callable[..., Any], list[str]]] = {}
    for name, parameter in inspect.signature(command).parameters.items():
        marks = getattr(parameter.annotation, "__metadata__", ())
        make = next((mark.make for mark in marks if isinstance(mark, Given)), None)
        parts = {name: parameter} if make is None else dict(inspect.signature(make).parameters)
        wanted |= parts
        if make is not None:
            makers[name] = make, list(parts)

    @functools.wraps(command)
    def run(**given: Any) -> Any:
        made = {name: make(**{part: given[part] for part in parts}) for name, (make, parts) in makers.items()}
        own = {name: value for name, value in given.items() if name in inspect.signature(command).parameters}
        return command(**own, **made)

    def place(parameter: inspect.Parameter) -> tuple[bool, int]:
        return parameter.default is not parameter.empty, _LAST.index(
            parameter.name
        ) if parameter.name in _LAST else -1

    run.__signature__ = inspect.Signature(sorted(wanted.values(), key=place))  # type: ignore[attr-defined]
    run.__annotations__ = {name: parameter.annotation for name, parameter in wanted.items()}
    return run
