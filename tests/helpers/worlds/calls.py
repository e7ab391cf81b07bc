"""The world of plain calls of a ledger: trees that several processes track, ack and fail."""

from typing import ClassVar

from acker.ledger import ids
from acker.ledger.client import Ledger
from tests.helpers.builders.ledgers import Trees, confirm_all
from tests.helpers.faults.simulator import World
from tests.helpers.models.leaks import assert_settled
from tests.helpers.worlds.commits import Outcomes, pass_time

PARTS = 3


class CallWorld(World):
    """A slab of four trees of three tuples each. A process acks one of each tree, another fails the last.

    The model: a tree is acked when all of its tuples were, failed when it was failed before that, and it ends
    once. What became of a call whose process has died nobody knows.
    """

    actors: ClassVar = ("track", "ack_0", "ack_1", "ack_2", "fail")
    events: ClassVar = ("tick",)
    scripts: ClassVar = ("track", "update", "fail")

    def __init__(self, url: str, cluster: bool = False, seed: int = 0) -> None:
        super().__init__(url, cluster, seed)
        self.trees = Trees(4)
        self.parts = [ids.new_ids(4) for _ in range(PARTS)]
        self.trees.values = self.parts[0] ^ self.parts[1] ^ self.parts[2]
        self.done = set[str]()
        self.ticks = 0

    def track(self, ledger: Ledger) -> None:
        """The spout's call."""
        self.trees.track(ledger)
        self.done.add("track")

    def ack(self, ledger: Ledger, part: int) -> None:
        """Acks a tuple of each tree, once."""
        if self.begun[f"ack_{part}"] == 1:
            ledger.update(self.trees.anchors, self.parts[part])
            self.done.add(f"ack_{part}")

    def ack_0(self, ledger: Ledger) -> None:
        """Acks the first tuples."""
        self.ack(ledger, 0)

    def ack_1(self, ledger: Ledger) -> None:
        """Acks the second tuples."""
        self.ack(ledger, 1)

    def ack_2(self, ledger: Ledger) -> None:
        """Acks the third tuples."""
        self.ack(ledger, 2)

    def fail(self, ledger: Ledger) -> None:
        """Fails the last tree."""
        ledger.fail(self.trees.anchors[3:], "bad")
        self.done.add("fail")

    def tick(self) -> None:
        """Time passes."""
        self.ticks += 1
        pass_time(self.ledger)

    def check(self) -> None:
        """Each tree has ended as its calls have it, where all of them are known to have taken effect."""
        self.track(self.ledger)
        begun = {name for name in self.begun if name.startswith("ack")}
        for part in range(PARTS):
            if f"ack_{part}" not in begun:
                self.begun[f"ack_{part}"] += 1
                self.ack(self.ledger, part)
        outcomes = Outcomes(self.ledger, {ids.slab_of(int(self.trees.anchors[0])): 4})
        ended = [outcomes.of(int(one)) for one in self.trees.anchors]
        if len(self.done - {"fail", "track"}) == PARTS and self.ticks < 3:
            assert ended[:3] == ["acked"] * 3
            assert ended[3] in ("acked", "failed") if self.begun["fail"] else ended[3] == "acked"
        for _ in range(4):
            pass_time(self.ledger)
        confirm_all(self.ledger)
        for _ in range(4):
            pass_time(self.ledger)
        assert_settled(self.raw)
