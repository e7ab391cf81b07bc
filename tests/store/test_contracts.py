"""Each script has one function, which gives it as many keys and arguments as its header says.

A header numbers its KEYS and ARGV; after them stand, with dots, what there is of each member of a list, and
as `last` keys that come after those. In brackets stands a list that each member has.
"""

import inspect
import re
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import is_dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Union, get_args, get_origin, get_type_hints

import pytest

import acker
from acker.ledger.calls.calls import Call
from acker.ledger.calls.core import Core
from acker.ledger.settings.config import TopologyConfig
from acker.store import function_keys, keys, scripts

PACKAGE = Path(acker.__file__).parent
MODULES = [
    import_module(".".join(("acker", *path.relative_to(PACKAGE).with_suffix("").parts)))
    for path in sorted(PACKAGE.rglob("scripts.py"))
    if path.parent.name != "store"
]
CONFIG = TopologyConfig("t")
GIVEN = {
    TopologyConfig: CONFIG,
    keys.Shard: keys.Shard("t", 0, 4),
    keys.Stream: keys.Stream("t", "s"),
    keys.Spout: keys.Spout("t", "s"),
    function_keys.Function: function_keys.Function("t", "f"),
}
FUNCTIONS: list[tuple[str, Callable[..., Any]]] = [
    (name, function)
    for module in MODULES
    for name, function in vars(module).items()
    if inspect.isfunction(function) and function.__module__ == module.__name__ and name[0] != "_"
]
ENTRY = re.compile(r"(\d+) |last (?=\w)|\.\.\. (\[?\w+\]?(?:, \[?\w+\]?)*)(?:  |$)")


def sample(kind: Any, members: int, number: int = 1) -> Any:
    """A value of a type: every list in it has so many members."""
    if kind in GIVEN:
        return GIVEN[kind]
    if kind in (str, bytes):
        text = f"{number:02}"  # some are hexadecimal
        return text if kind is str else text.encode()
    if kind in (int, float, bool):
        return kind(number)
    args = get_args(kind)
    if get_origin(kind) in (Union, types.UnionType):
        return sample(args[0], members, number)
    if get_origin(kind) in (Sequence, list):
        return [sample(args[0], members, one) for one in range(members)]
    if get_origin(kind) is Mapping:
        return {sample(args[0], members, one): sample(args[1], members) for one in range(members)}
    if get_origin(kind) is tuple:
        return tuple(sample(arg, members, number) for arg in args if arg is not ...)
    assert isinstance(kind, type)
    assert is_dataclass(kind), f"no sample of {kind}"
    return kind(**{name: sample(of, members) for name, of in get_type_hints(kind).items()})


def declared(text: str, what: str) -> tuple[int, int, int]:
    """The number of KEYS or ARGV that a header has in any case, and of those for each member of its lists.

    And how many for each member of a list that such a member has.
    """
    block = re.search(rf"^-- {what}  (.*\n(?:--  .*\n)*)", text, re.MULTILINE)
    assert block is not None, "the header does not say it"
    alone = each = nested = number = 0
    first, *lines = block[1].splitlines()
    if shared := re.match(r"\w+ of ([\w/]+)\.lua(, then)?$", first):
        include = Path(__file__).parents[2] / "lua" / f"{shared[1]}.lua"
        alone, *_ = declared(include.read_text(), what)
    else:
        lines.insert(0, first)
    for line in (re.sub("^-- {6,7}(?! )", "", line) for line in lines):
        entry = ENTRY.match(line)
        if entry is None:
            assert line.startswith(("--  ", "then ")) or line == "none", (
                f"neither an entry nor more about one: {line!r}"
            )
        elif entry[2]:
            names = entry[2].split(", ")
            nested += sum(name[0] == "[" for name in names)
            each += sum(name[0] != "[" for name in names)
        elif entry[1] is None:
            alone += 1
        else:
            assert int(entry[1]) == number + 1, f"out of turn: {line!r}"
            for found in re.finditer(r"(?:^|, )(\d+) ", line.partition("  ")[0]):
                number += int(found[1]) == number + 1
    return alone + number, each, nested


def test_each_script_has_one_function_of_its_name() -> None:
    own = set(scripts.load_all()) - {"chain"}  # its members are scripts (acker.store.operation.chain)
    assert sorted(name for name, _ in FUNCTIONS) == sorted(own)


@pytest.mark.parametrize(("name", "function"), FUNCTIONS)
def test_a_function_gives_what_the_header_declares(name: str, function: Callable[..., Any]) -> None:
    hints = {one: kind for one, kind in get_type_hints(function).items() if one != "return"}
    text = scripts.get(name).text
    for members in (1, 2, 5):
        made = function(**{one: sample(kind, members) for one, kind in hints.items()})
        if isinstance(made, Call):
            made.stamp = (b"w" * 16, 1) if "2 writer" in text.partition("-- Returns")[0] else None
            made = Core(CONFIG).request(made)
        assert made.script.name == name
        for what, given in (("KEYS", made.keys), ("ARGV", made.args)):
            alone, each, nested = declared(text, what)
            assert len(given) == alone + each * members + nested * members**2, what
