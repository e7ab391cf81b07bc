"""Which spouts a shard tells outcomes to, as it has them: by numbers of its own.

See lua/ledger/includes/shard.lua.

A number is good in that shard only, and never given twice there. Nobody else keeps one: a spout goes
by its name everywhere else, in the keys of its outcomes too.
"""

import re
from functools import lru_cache

_REGISTRY = re.compile(r"(\d+),\d+((?:/\d+:[A-Za-z0-9._-]{1,64})*)")


@lru_cache(maxsize=4096)
def spouts(registry: bytes) -> tuple[tuple[int, str], ...]:
    """Number and name of each spout of a shard, in their order; none where they cannot be read."""
    found = _REGISTRY.fullmatch(registry.decode("utf-8", "replace"))
    if found is None:
        return ()
    pairs = (one.split(":") for one in found[2].split("/")[1:])
    return tuple((int(number), name) for number, name in pairs)


def readable(registry: bytes) -> bool:
    """Whether it says which spouts a shard has: as many as it counts, which may be none."""
    count = registry.partition(b",")[0]
    return not registry or count == b"%d" % len(spouts(registry))


def with_spout(registry: bytes, name: str) -> bytes:
    """What a registry is after a track for a spout was accepted (lua/ledger/calls/track.lua has the same)."""
    if any(name == other for _, other in spouts(registry)):
        return registry
    counts, _, rest = registry.partition(b"/")
    count, made = map(int, counts.split(b",")) if counts else (0, 0)
    return b"%d,%d%s/%d:%s" % (count + 1, made + 1, b"/" + rest if rest else b"", made, name.encode())


@lru_cache(maxsize=4096)
def names(registry: bytes) -> dict[int, str]:
    """The names of a shard's spouts by number."""
    return dict(spouts(registry))
