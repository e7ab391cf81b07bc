"""Unreadable records of a ledger, for tests."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from acker.ledger import ids
from acker.ledger.client import Ledger
from acker.ledger.ids import Ids
from acker.ledger.outcomes.outcomes import OutcomeReader
from tests.helpers.builders.ledgers import Trees
from tests.helpers.models.ledger_state import read_all, shard_key

BROKEN: dict[str, Callable[[bytes], bytes]] = {
    "newer": lambda header: b"\x09" + header[1:],
    "short": lambda header: header[:5],
    "empty": lambda header: b"",
    "longer": lambda header: header + b"more",
    "spout": lambda header: header[:1] + b"\xc8" + header[2:],
    "count": lambda header: header[:2] + b"\xff\xff" + header[4:],
}


def first(trees: Trees) -> int:
    return int(trees.anchors[0])


def slab_of(trees: Trees) -> bytes:
    return ids.slab_of(first(trees))


def expire(ledger: Ledger) -> None:
    for _ in range(3):
        ledger.tick(force=True)


def break_header(ledger: Ledger, raw: Any, trees: Trees, how: str) -> bytes:
    key = shard_key(ledger, 0, "slabs")
    broken = BROKEN[how](raw.hget(key, slab_of(trees)))
    raw.hset(key, slab_of(trees), broken)
    return broken


def counter(ledger: Ledger, raw: Any, name: str) -> int:
    return int(raw.hget(shard_key(ledger, 0, "counters"), name) or 0)


def together(members: Sequence[Trees], most: int = 4096) -> tuple[Ids, Ids]:
    """Anchors and values of the last trees of each slab, so many of them."""
    anchors = [one.anchors[-most:] for one in members]
    return np.concatenate(anchors), np.concatenate([one.values[-most:] for one in members])


def states(ledger: Ledger, *trees: Trees) -> Counter[str]:
    """Counts of the trees that were reported and not confirmed, by their state."""
    counts = {slab_of(one): one.count for one in trees}
    found: Counter[str] = Counter()
    for entry in read_all(ledger, OutcomeReader(ledger.core, "s")):
        for part in entry.slabs:
            if part.slab in counts:
                found[entry.status] += len(part.indexes_in(counts[part.slab]))
    return found
