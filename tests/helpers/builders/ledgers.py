"""Ledgers and trees for tests, in few words."""

from collections import Counter
from dataclasses import dataclass, field

import numpy as np

from acker.ledger import ids
from acker.ledger.client import Ledger, open_ledger
from acker.ledger.ids import Ids
from acker.ledger.outcomes.outcomes import OutcomeReader
from acker.store import keys
from acker.store.client import Store
from acker.store.operation import command
from tests.helpers.models.ledger_state import told


def opened(url: str, name: str = "tested", *, timeout: float = 10.0, **settings: float) -> Ledger:
    """A ledger of one shard by default, or as it is stored."""
    [stored] = Store(url).send([command("EXISTS", keys.config(name))])
    wanted = settings if stored else {"ackers": 1, **settings}
    return open_ledger(Store(url, timeout=timeout), name, **wanted)  # type: ignore[arg-type]


@dataclass
class Trees:
    """One slab of trees, tracked or not yet."""

    count: int
    anchors: Ids = field(init=False)
    values: Ids = field(init=False)

    def __post_init__(self) -> None:
        self.anchors = ids.new_anchors(self.count)
        self.values = ids.new_ids(self.count)

    @property
    def message_ids(self) -> list[bytes]:
        return [b"message %d" % index for index in range(self.count)]

    def track(self, ledger: Ledger, spout: str = "s") -> "Trees":
        ledger.track(self.anchors, self.values, self.message_ids, spout=spout)
        return self

    def complete(self, ledger: Ledger, *indexes: int) -> None:
        """Acks all that was emitted into some of the trees; all of them, when none is named."""
        chosen = np.array(indexes or range(self.count), dtype=np.int64)
        ledger.update(self.anchors[chosen], self.values[chosen])


def reported(ledger: Ledger, *trees: Trees, spout: str = "s") -> Counter[tuple[int, str, str]]:
    """All outcomes that a spout has not confirmed, as (anchor, status, reason)."""
    counts = {ids.slab_of(int(slab.anchors[0])): slab.count for slab in trees}
    reader = OutcomeReader(ledger.core, spout)
    found: Counter[tuple[int, str, str]] = Counter()
    while entries := ledger.outcomes(reader):
        for entry in entries:
            found.update(told(entry, counts))
    return found


def confirm_all(ledger: Ledger, spout: str = "s") -> int:
    """Confirms all that was reported to a spout; returns how many trees."""
    reader, trees = OutcomeReader(ledger.core, spout), 0
    while entries := ledger.outcomes(reader):
        trees += ledger.confirm(spout, [entry.confirmation for entry in entries])
    return trees


def counted(ledger: Ledger, **expected: int) -> None:
    """Fails unless the counters are these, and all others but the rotations zero."""
    counters = {name: count for name, count in ledger.counters().items() if count and name != "rotations"}
    assert counters == expected
