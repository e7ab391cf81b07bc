"""Moments of a store, to which it is set back: all of it, or the keys of some hash tags."""

import re
from collections.abc import Container
from typing import Any, TypeAlias

Moment: TypeAlias = dict[bytes, tuple[bytes, int]]
"""The value of each key, and how long it lives yet (ms; 0: for ever)."""


def moment(raw: Any) -> Moment:
    """The content of a store: its keys, values and lives."""
    names = list(raw.scan_iter(count=1000))
    pipeline = raw.pipeline(transaction=False)
    for name in names:
        pipeline.dump(name).pttl(name)
    values = pipeline.execute()
    return {name: (values[2 * n], max(0, values[2 * n + 1])) for n, name in enumerate(names)}


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
