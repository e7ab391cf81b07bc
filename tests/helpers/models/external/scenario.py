"""Scenarios of the model's histories: what may happen in each, drawn from its seed."""

import random
from dataclasses import dataclass


@dataclass(frozen=True)
class Scenario:
    """The faults and the habits of a history.

    shards: their number. cluster: nodes are set back alone. between: a step between source and consumers
    that copies or filters rows. offsets_first: offsets are committed before the flush at times. rest:
    consumers send bits at positions that are no rows. fails: rows fail. lossy: the transport loses rows.
    undelivered: rows are not delivered at times. repeats: copies of calls come late. ticks: shards rotate.
    room: few slabs may wait for their track. set_back, emptied: of the store. pauses: of any length. copies:
    the transport stores a row twice at times. apart: another process tracks the trees, at any time. often:
    time passes, shards rotate and the store is set back five times as often. records: of the source.
    """

    shards: int
    cluster: bool
    between: str
    offsets_first: bool
    rest: bool
    fails: bool
    lossy: bool
    undelivered: bool
    repeats: bool
    ticks: bool
    room: bool
    set_back: bool
    emptied: bool
    pauses: bool
    copies: bool
    apart: bool
    often: bool
    records: int

    @property
    def ticking(self) -> bool:
        """True if nothing is lost or late, but for ticks."""
        return not (self.room or self.set_back or self.emptied or self.pauses)

    @property
    def calm(self) -> bool:
        """True if not even ticks come."""
        return self.ticking and not self.ticks

    @property
    def whole(self) -> bool:
        """True if the store loses nothing."""
        return not (self.set_back or self.emptied)

    @classmethod
    def draw(cls, chance: random.Random) -> "Scenario":
        """Draws a scenario."""

        def odd(share: float) -> bool:
            return chance.random() < share

        hard = odd(0.6)
        return cls(
            shards=chance.choice((1, 2, 2)),
            cluster=odd(0.6),
            between=chance.choice(("", "", "", "", "copies", "filters")),
            offsets_first=odd(0.1),
            rest=odd(0.15),
            fails=odd(0.25),
            lossy=odd(0.2),
            undelivered=odd(0.25),
            repeats=odd(0.5),
            ticks=hard and odd(0.45),
            room=hard and odd(0.12),
            set_back=hard and odd(0.4),
            emptied=hard and odd(0.12),
            pauses=hard and odd(0.35),
            copies=odd(0.5),
            apart=odd(0.3),
            often=odd(0.25),
            records=chance.choice((2, 3, 4, 6)),
        )
