"""Rights that a user of the store needs (Redis ACL), and the server's refusals.

The server refuses EVALSHA if the user may not read and write every key of a call. It does not check the
script's commands then: it refuses them one by one, after the script may have changed something. So each
script first asks for all its rights, by `guard`.
"""

import re

import redis

from acker.errors import MissingRights
from acker.store.address import parse, shown

_COMMENT = re.compile(r"--[^\n]*")
_CALL = re.compile(r"call\('([A-Z]+)'")
_RUN = re.compile(r"(?:run|execute) (?:the )?'([^']+)'")
_MISSING = "RIGHTS "
_EACH_LINE = 3
_SECOND = ("BITOP", "RENAME")
"""Commands whose second word is a key, too."""


def commands(lua: str) -> tuple[str, ...]:
    """The commands in the text of a script."""
    return tuple(sorted(set(_CALL.findall(_COMMENT.sub("", lua)))))


def guard(needed: tuple[str, ...]) -> str:
    """Lua that ends a script before any change, if its user lacks the right to one of its commands.

    It takes a quarter of a microsecond for each command. A server without `acl_check_cmd` skips it.
    """
    if not needed:
        return ""
    asked = [f"may('{name}', key{', key' * (name in _SECOND)})" for name in needed]
    lines = [" and ".join(asked[at : at + _EACH_LINE]) for at in range(0, len(asked), _EACH_LINE)]
    names = [f"'{name}'" for name in needed]
    rows = [", ".join(names[at : at + 8]) for at in range(0, len(names), 8)]
    return _GUARD.format(all="\n      and ".join(lines), names=",\n      ".join(rows))


# pcall, because a command that the server lacks, such as a renamed one, raises.
_GUARD = """\
if redis.acl_check_cmd then
  local may, key = redis.acl_check_cmd, KEYS[1]
  local known, all = pcall(function()
    return {all}
  end)
  if not (known and all) then
    local missing = {{}}
    for _, name in ipairs({{
      {names}
    }}) do
      known, all = pcall(may, name, key, key)
      if not (known and all) then missing[#missing + 1] = name end
    end
    return redis.error_reply('RIGHTS ' .. table.concat(missing, ' '))
  end
end
"""


def missing(error: object) -> bool:
    """True if a server's reply says that its user lacks a right."""
    return isinstance(error, redis.exceptions.NoPermissionError) or (
        isinstance(error, redis.ResponseError) and str(error).startswith(_MISSING)
    )


def lacking(url: str, error: Exception, call: str = "", key: bytes = b"") -> MissingRights:
    """The error for a reply that a right is missing.

    call: The script or command that was sent, if it is known. key: One of its keys.
    """
    text = str(error)
    denied: tuple[str, ...] = ()
    if text.startswith(_MISSING):
        denied, text = tuple(text.split()[1:]), ""
    elif found := _RUN.search(text):
        denied = (found[1].upper(),)
    sample = key[:200].decode("utf-8", "backslashreplace")
    user = parse(url).settings["username"] or "default"
    return MissingRights(shown(url), user, denied, sample, call, text[:300])
