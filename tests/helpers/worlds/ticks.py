"""The world of tickers that look why trees expire: they die, pause, and others rotate meanwhile."""

from typing import ClassVar

from acker.inspect.operate.ticker_hooks import HOOKS
from acker.inspect.trees import failures
from acker.ledger import ids
from acker.ledger.client import Ledger
from acker.ledger.tick import tick
from acker.store.operation import Operation
from acker.streams import Stream
from acker.streams.commits.contents import Commit
from acker.streams.log import holders
from tests.helpers.builders.streaming import commit, emit, stage, take
from tests.helpers.faults.simulator import World
from tests.helpers.worlds.commits import Outcomes

NOBODY = "in stream lines for its first subscription, taken by nobody"
TAKEN = "in stream words for subscription count, taken by query 5f0c (batch 17)"


class TickWorld(World):
    """Trees in two places, and two tickers.

    The model: each tree expires once, for where it was. Where a look does not come to its end in time, for no
    reason that is told; never for a wrong one.
    """

    actors: ClassVar = ("tick", "tick_too")
    events: ClassVar = ("rotate",)
    scripts: ClassVar = ("rotate", "drain", "pause_clock", "scan_slabs", "check_slabs")
    settings: ClassVar = {"ackers": 2, "downtime": 0}

    def __init__(self, url: str, cluster: bool = False, seed: int = 0) -> None:
        super().__init__(url, cluster, seed)
        taken = emit(self.ledger, 4, "taken")
        Stream(self.ledger, "words").subscribe("count")
        commit(self.ledger, 0, Commit((stage(self.ledger, taken),), (take(self.ledger, "taken"),)))
        had = take(self.ledger, "words", "count")
        self.ledger.store.send([holders.note_request(self.ledger.core, had, "5f0c", 17)])
        self.places = {NOBODY: emit(self.ledger, 6), TAKEN: taken}

    def tick(self, ledger: Ledger) -> Operation[None]:
        """A ticker's rounds."""
        for _ in range(4):
            yield from tick.tick(ledger.core, force=True, explain=HOOKS.explain)

    def tick_too(self, ledger: Ledger) -> Operation[None]:
        """Another one's."""
        return self.tick(ledger)

    def rotate(self) -> None:
        """Somebody rotates, and dies."""
        self.ledger.run(tick.rotate(self.ledger.core, force=True))

    def check(self) -> None:
        """All trees have expired."""
        self.ledger.run(self.tick(self.ledger))
        slabs = {ids.slab_of(int(one)): len(all_of) for all_of in self.places.values() for one in all_of}
        outcomes = Outcomes(self.ledger, slabs)
        reported = set[str]()
        for place, anchors in self.places.items():
            for anchor in map(int, anchors):
                assert outcomes.of(anchor) == "expired"
                failure = self.ledger.run(failures.find(self.ledger.core, anchor))
                assert failure is not None
                assert failure.cause.reason in ("", place)
                reported.add(failure.cause.reason)
        assert reported == set(self.places) or len(self.simulator.log) > 0
