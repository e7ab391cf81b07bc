"""What a user of the store must be allowed (Redis ACL), and what a server says where it is not.

EVALSHA itself is refused where the user may not read and write every key of a call. The commands of a script
are not looked at then: the server refuses them one by one, when the script has changed something already. So
each script asks for all of them first, by `guard`.
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


def commands(lua: str) -> tuple[str, ...]:
    """The commands that a script may call, by its text."""
    return tuple(sorted(set(_CALL.findall(_COMMENT.sub("", lua)))))


def guard(needed: tuple[str, ...]) -> str:
    """Lua that ends a script, before it has changed anything, where its user may not run all it may need.

    Takes a quarter of a microsecond for each command. A server without `acl_check_cmd` is not asked.
    """
    if not needed:
        return ""
    asked = [f"may('{name}', key, key)" for name in needed]
    lines = [" and ".join(asked[at : at + _EACH_LINE]) for at in range(0, len(asked), _EACH_LINE)]
    names = [f"'{name}'" for name in needed]
    rows = [", ".join(names[at : at + 8]) for at in range(0, len(names), 8)]
    return _GUARD.format(all="\n      and ".join(lines), names=",\n      ".join(rows))


# A command that the server does not have, for it was renamed there, raises: pcall.
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
    """Whether a server's reply says that its user lacks a right."""
    return isinstance(error, redis.exceptions.NoPermissionError) or (
        isinstance(error, redis.ResponseError) and str(error).startswith(_MISSING)
    )


def lacking(url: str, error: Exception, what: str = "", key: bytes = b"") -> MissingRights:
    """What a reply that a right is missing is raised as.

    what: the script or command that was sent, if it is known. key: one of its keys.
    """
    text = str(error)
    named: tuple[str, ...] = ()
    if text.startswith(_MISSING):
        named, text = tuple(text.split()[1:]), ""
    elif found := _RUN.search(text):
        named = (found[1].upper(),)
    sample = key[:200].decode("utf-8", "backslashreplace")
    user = parse(url).settings["username"] or "default"
    return MissingRights(shown(url), user, named, sample, what, text[:300])
