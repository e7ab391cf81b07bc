"""The registry of a shard: its spouts by number.

See lua/ledger/includes/shard.lua. A number is valid in that shard only, and never given twice there.
Everywhere else a spout goes by its name, even in the keys of its outcomes.
"""

import re
from functools import lru_cache

_REGISTRY = re.compile(r"(\d+),\d+((?:/\d+:[A-Za-z0-9._-]{1,64})*)")


@lru_cache(maxsize=4096)
def spouts(registry: bytes) -> tuple[tuple[int, str], ...]:
    """Number and name of each spout of a shard, in their order; empty if they cannot be read."""
    match = _REGISTRY.fullmatch(registry.decode("utf-8", "replace"))
    if match is None:
        return ()
    pairs = (one.split(":") for one in match[2].split("/")[1:])
    return tuple((int(number), name) for number, name in pairs)


def readable(registry: bytes) -> bool:
    """True if a registry lists as many spouts as it counts, which may be none."""
    count = registry.partition(b",")[0]
    return not registry or count == b"%d" % len(spouts(registry))


def with_spout(registry: bytes, name: str) -> bytes:
    """A registry after an accepted track for a spout (lua/ledger/calls/track.lua does the same)."""
    if any(name == other for _, other in spouts(registry)):
        return registry
    counts, _, rest = registry.partition(b"/")
    count, made = map(int, counts.split(b",")) if counts else (0, 0)
    return b"%d,%d%s/%d:%s" % (count + 1, made + 1, b"/" + rest if rest else b"", made, name.encode())


@lru_cache(maxsize=4096)
def names(registry: bytes) -> dict[int, str]:
    """The names of a shard's spouts by number."""
    return dict(spouts(registry))
