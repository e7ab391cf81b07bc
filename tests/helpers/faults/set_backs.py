"""Moments of a store, to which it is set back: all of it, or the keys of some hash tags."""

import re
from collections.abc import Container
from typing import Any, TypeAlias

from tests.helpers.servers.servers import raw_clients

Moment: TypeAlias = dict[bytes, tuple[bytes, int]]
"""The value of each key, and how long it lives yet (ms; 0: for ever)."""


ENDED = (0, -2)
"""The time to live (ms) of a key that ends at this moment, and the reply for a key that has ended."""


def moment(raw: Any) -> Moment:
    """The content of a store: its keys, values and lives. A key that ends meanwhile is left out."""
    names = list(raw.scan_iter(count=1000))
    pipeline = raw.pipeline(transaction=False)
    for name in names:
        pipeline.dump(name).pttl(name)
    values = pipeline.execute()
    held = zip(names, values[::2], values[1::2], strict=True)
    there = ((name, value, left) for name, value, left in held if value is not None and left not in ENDED)
    return {name: (value, max(0, left)) for name, value, left in there}


def set_back(raw: Any, to: Moment, tags: Container[bytes] | None = None) -> None:
    """Makes a store hold what it did at a moment, and nothing else. tags: of these keys alone."""
    pipeline = raw.pipeline()
    for name in raw.scan_iter(count=1000):
        if tags is None or tag(name) in tags:
            pipeline.delete(name)
    for name, (value, left) in to.items():
        if tags is None or tag(name) in tags:
            pipeline.restore(name, left, value)
    pipeline.execute()


def tag(name: bytes) -> bytes:
    """The hash tag of a key, which tells where in a cluster it lies; empty where that is its whole name."""
    found = re.search(rb"\{(.*?)\}", name)
    return found[1] if found else b""


def lasting(url: str, name: str) -> dict[bytes, bytes]:
    """The keys of a topology that have no time to live, and what they hold."""
    own = re.compile(rb"acker:\{%s[}:/@]" % re.escape(name.encode()))
    found: dict[bytes, bytes] = {}
    for client in raw_clients(url):
        with client:
            found |= {
                key: dump for key, (dump, left) in moment(client).items() if own.match(key) and not left
            }
    return found
