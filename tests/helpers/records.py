"""All types of stored records, and values of them as their fields allow."""

import importlib
import pkgutil
from dataclasses import fields, is_dataclass
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from hypothesis import strategies as st

import acker
from acker.store.records import Bounds, Codec, Matching, Record, _codec
from acker.streams.sources.spout_options import SpoutOptions

TEXT = st.text(st.characters(codec="utf-8"), max_size=8)
OPTIONS = (
    SpoutOptions("s", "lines", "id"),
    SpoutOptions("s", "lines", "id", 5, "n", True, 7, "at", "part", "untracked", 1.5, 60.0, "line", 8, False),
)
"""Options of spouts: which of their values go together is theirs to say."""


def codecs() -> dict[str, tuple[Codec[Any], st.SearchStrategy[Any]]]:
    """All codecs of acker, by their names, and values of each."""
    by_name: dict[str, tuple[Codec[Any], st.SearchStrategy[Any]]] = {}
    for each in pkgutil.walk_packages(acker.__path__, "acker."):
        module = importlib.import_module(each.name)
        for name, value in vars(module).items():
            if isinstance(value, Codec):
                by_name[f"{each.name}.{name}"] = value, values(value.kind)
            elif isinstance(value, type) and issubclass(value, Record) and value is not Record:
                by_name[value.__qualname__] = _codec(value), values(value)  # type: ignore[arg-type]
    return by_name


def values(kind: Any, bounds: Any = None) -> st.SearchStrategy[Any]:
    """Values of a type that can be stored."""
    origin, args = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return values(args[0], next((part for part in args[1:] if isinstance(part, Bounds | Matching)), None))
    if isinstance(bounds, Matching):
        return st.from_regex(bounds.pattern, fullmatch=True)
    low, high = map(int, bounds.to((1 << 63) - 1)) if isinstance(bounds, Bounds) else (0, 1 << 20)
    if kind is int:
        return st.integers(*((low, high) if bounds else (-(1 << 63), (1 << 63) - 1)))
    if kind is float:
        return st.floats(*((low, high) if bounds else ()), allow_nan=False, allow_infinity=False)
    if kind is str:
        return TEXT.filter(lambda text: low <= len(text) <= high)
    if kind is bool:
        return st.booleans()
    if origin in (Union, UnionType):
        return st.one_of(*(st.none() if part is NoneType else values(part) for part in args))
    if kind is SpoutOptions:
        return st.sampled_from(OPTIONS)
    if isinstance(kind, type) and is_dataclass(kind):
        hints = get_type_hints(kind, include_extras=True)
        return st.builds(kind, **{part.name: values(hints[part.name]) for part in fields(kind)})
    if origin is tuple and args[-1] is not Ellipsis:
        return st.tuples(*map(values, args))
    few: dict[str, Any] = {"min_size": low, "max_size": min(2, high)}
    if origin is tuple:
        return st.lists(values(args[0]), **few).map(tuple)
    if origin is frozenset:
        return st.frozensets(values(args[0]), **few)
    return st.dictionaries(*map(values, args), **few)
