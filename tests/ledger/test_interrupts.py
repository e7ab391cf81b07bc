"""An interrupt at any step of a ledger's user: its connections serve others, and no outcome is lost."""

import itertools

import pytest

from acker.ledger import ids
from acker.ledger.client import open_ledger
from acker.ledger.outcomes.outcomes import OutcomeReader
from acker.store import client
from acker.store.client import Store
from tests.helpers.faults.interrupts import each, each_answer

FILES = (
    "acker/ledger/client.py",
    "acker/ledger/outcomes/outcomes.py",
    *(f"acker/store/{name}.py" for name in ("client", "connections", "flight", "loops", "operation")),
)


class Tracking:
    """A spout by the ledger alone: each tree that it has tracked gets its outcome, once it was acked."""

    def __init__(self, url: str) -> None:
        self.ledger = open_ledger(Store(url), "t", ackers=2)
        self.reader = OutcomeReader(self.ledger.core, "s")
        self.numbers = itertools.count(1)
        self.acked, self.told = set[int](), set[int]()
        self.idle = self.connections()

    def work(self) -> None:
        anchors, number = ids.new_anchors(3), next(self.numbers)
        self.ledger.track(anchors, [number] * 3, [b"a", b"b", b"c"], spout="s")
        self.ledger.update(anchors, [number] * 3)
        self.acked.add(int(anchors[0]))
        entries = self.ledger.outcomes(self.reader)
        self.told |= {ids.anchor_at(slab.slab, 0) for entry in entries for slab in entry.slabs}
        self.ledger.confirm("s", [entry.confirmation for entry in entries])
        self.reader.confirmed(entry.confirmation for entry in entries)

    def check(self) -> None:
        self.work()
        assert self.told >= self.acked
        assert self.connections() <= self.idle + 4

    def connections(self) -> int:
        """Idle connections of the process to this store, which tests before may have left."""
        return sum(len(pool._idle) for pool in client._client(self.ledger.store)._pools.values())


def test_an_interrupt_at_any_step_leaves_a_ledger_that_goes_on(valkey_url: str) -> None:
    tracking = Tracking(valkey_url)
    tracking.work()
    assert each(FILES, tracking.work, tracking.check) > 200


def test_an_answer_that_is_lost_leaves_a_ledger_that_goes_on(
    valkey_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tracking = Tracking(valkey_url)
    assert each_answer(monkeypatch, tracking.work, tracking.check, KeyboardInterrupt()) >= 4
