"""The Lua scripts: found in the package (or beside it in a checkout), put together, hashed once.

Each script's header lists its KEYS and ARGV, and a function of the script's name puts them in this order: in
`scripts.py` of the same folder of acker/. `python -m acker.store.scripts --expand DIR` writes the scripts as
the server gets them.
"""

import argparse
import hashlib
import re
from dataclasses import dataclass
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path

from acker.errors import AckerError
from acker.store import rights

_SCRIPT = re.compile(r'^--- @script "(\w+)"$', re.MULTILINE)
_INCLUDE = re.compile(r'^--- @include "([\w/]+)"$', re.MULTILINE)
_HEADER = re.compile(r"(?:(?:#|--(?!- @(?:include|script|chained_scripts))).*\n)*")
_CHAINED = re.compile(r"^--- @chained (.+)$", re.MULTILINE)
_CHAINED_SCRIPTS = "--- @chained_scripts\n"
_COMMENT = re.compile(r"^ *--(?!- @).*\n", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Script:
    """A script as the server gets it.

    Attributes:
        name: Name of the script.
        text: Its Lua.
        sha: SHA-1 of the text: 40 hexadecimal digits, as EVALSHA takes it.
        commands: Commands that it may call, in capitals: it asks first for the right to all of them.
        reads: True if it changes nothing, so that a user with read rights only may call it.
        chained: True if it may be part of a chain (lua/store/chain.lua).
    """

    name: str
    text: str
    sha: bytes
    commands: tuple[str, ...]
    reads: bool
    chained: bool


def _folder() -> Traversable:
    packaged = resources.files("acker") / "lua"
    if packaged.is_dir():
        return packaged
    checkout = Path(__file__).parent.parent.parent / "lua"
    if checkout.is_dir():
        return checkout
    raise AckerError("acker's Lua scripts are missing from this installation: install the wheel again")


def _files(folder: Traversable) -> dict[str, Traversable]:
    """Scripts by name, from all folders except `includes`."""
    files: dict[str, Traversable] = {}
    for entry in folder.iterdir():
        if entry.name.endswith(".lua"):
            files[entry.name[:-4]] = entry
        elif entry.is_dir() and entry.name != "includes":
            files |= _files(entry)
    return dict(sorted(files.items()))


def _parts(folder: Traversable, name: str) -> tuple[str, str]:
    """A script's header, and its code without comments: shared pieces put in, other scripts as functions."""

    def include(match: re.Match[str]) -> str:
        text = folder.joinpath(*f"{match[1]}.lua".split("/")).read_text("utf-8")
        return _INCLUDE.sub(include, text)

    def script(match: re.Match[str]) -> str:
        return _FUNCTION.format(name=match[1], code=_parts(folder, match[1])[1])

    own = _files(folder)[name].read_text("utf-8")
    begins = _HEADER.match(own).end()  # type: ignore[union-attr]
    return own[:begins], _COMMENT.sub("", _SCRIPT.sub(script, _INCLUDE.sub(include, own[begins:])))


def _chained(folder: Traversable) -> str:
    """Lua with a function for each script that may be part of a chain (lua/store/chain.lua).

    The chain asks for the rights of all of them first.
    """
    parts = [_CHAIN]
    for name in _files(folder):
        header, code = _parts(folder, name)
        if done := _CHAINED.search(header):
            parts.append(_MEMBER.format(name=name, code=code, done=done[1]))
    return "".join(parts) + "end\n"


_FUNCTION = """\
local {name} = function(KEYS, ARGV)
{code}
end
"""
_CHAIN = """\
-- True if all members of a list, from a position on, are one of two values.
local function only(list, first, one, other)
  for k = first, #list do
    if list[k] ~= one and list[k] ~= other then return false end
  end
  return true
end

-- A script, made for one run: to make all of them takes longer than most scripts.
local function chained(member)
"""
_MEMBER = """
if member == '{name}' then
  return {{
    run = function(KEYS, ARGV)
{code}
    end,
    done = function(reply, ARGV) return {done} end,
  }}
end
"""


def _expand(folder: Traversable, name: str) -> Script:
    header, code = _parts(folder, name)
    if _CHAINED_SCRIPTS in code:
        code = code.replace(_CHAINED_SCRIPTS, _chained(folder))
    needed = rights.commands(code)
    text = header + rights.guard(needed) + code
    sha = hashlib.sha1(text.encode()).hexdigest().encode()
    chained = _CHAINED.search(header) is not None
    return Script(name, text, sha, needed, text.startswith("#!lua flags=no-writes"), chained)


@cache
def load_all() -> dict[str, Script]:
    """All scripts by name."""
    folder = _folder()
    return {name: _expand(folder, name) for name in _files(folder)}


def get(name: str) -> Script:
    """The script of that name; KeyError where there is none."""
    return load_all()[name]


def _main() -> None:
    parser = argparse.ArgumentParser(description="Write the scripts as the server gets them.")
    parser.add_argument("--expand", metavar="DIR", type=Path, required=True)
    target: Path = parser.parse_args().expand
    target.mkdir(parents=True, exist_ok=True)
    for script in load_all().values():
        (target / f"{script.name}.lua").write_text(script.text, "utf-8")


if __name__ == "__main__":
    _main()
