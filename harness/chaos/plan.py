"""The plan of a run, its faults and their times: it follows from its seed alone."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from acker.errors import ValidationError

Store: TypeAlias = Literal["server", "cluster"]

CLIENT_TIMEOUT = 3.0
"""Seconds until a client of the store gives up; a connection waits half of that for a reply."""
TARGETS = 1_000


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of fault.

    often: how many of it are in each deck of faults. low, high: seconds that one lasts. stores, servers: the
    stores and kinds of servers that can have it.
    """

    often: int
    low: float
    high: float
    stores: tuple[Store, ...] = ("server", "cluster")
    servers: tuple[str, ...] = ("valkey", "redis")


KINDS: dict[str, Kind] = {
    "server killed": Kind(4, 0.1, 1.5 * CLIENT_TIMEOUT, ("server",)),
    "master killed": Kind(4, 3.0, 10.0, ("cluster",)),
    "replica promoted": Kind(2, 0.5, 1.5, ("server",)),
    "file cut": Kind(2, 0.5, 1.5, ("server",)),
    "server's clock steps": Kind(4, 1.0, 8.0, ("server",), ("valkey",)),
    "registration lost": Kind(2, 0.0, 0.0),
    "spout interrupted": Kind(4, 0.5, 1.5),
    "executor killed": Kind(2, 0.0, 0.0),
    "driver killed": Kind(1, 0.0, 4.0),
    "spout killed": Kind(4, 0.0, 4.0),
    "every ticker killed": Kind(4, 0.0, 8.0),
    "service killed": Kind(2, 0.0, 4.0),
    "everything flushed": Kind(1, 0.0, 0.0),
    "scripts flushed": Kind(5, 0.0, 0.0),
    "connections cut": Kind(5, 0.0, 1.5, ("server",)),
    "replies lost": Kind(6, 0.5, 3.0, ("server",)),
    "short stall": Kind(5, 0.1, 0.4 * CLIENT_TIMEOUT),
    "long stall": Kind(1, 1.2 * CLIENT_TIMEOUT, 2 * CLIENT_TIMEOUT),
    "slow network": Kind(4, 1.0, 5.0, ("server",)),
    "disk full": Kind(4, 0.5, 4.0, ("server",)),
    "memory full": Kind(4, 0.5, 4.0),
    "clock jumps": Kind(5, 1.0, 5.0),
    "messages doubled": Kind(6, 0.5, 3.0, ("server",)),
    "poison": Kind(3, 0.0, 0.0),
    "bolt hangs": Kind(1, 0.0, 0.0),
}
"""Each kind of fault by its name."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault. at, duration: seconds, from the start. target: 0 to 999, chooses among what there is."""

    kind: str
    at: float
    duration: float
    target: int

    def choose(self, count: int) -> int:
        """One of so many targets."""
        return self.target * count // TARGETS


def plan(
    seed: int,
    minutes: float,
    store: Store = "server",
    every: float = 3.0,
    server: str = "valkey",
    only: Sequence[str] = (),
) -> list[Fault]:
    """The faults of a run, in their order: one about each `every` seconds (0.1 to 3,600).

    only: of these kinds; none named: of all that the store and this kind of server can have.

    They are dealt from shuffled decks that hold each kind, so even a short run has most of them. The same
    arguments give the same plan. Raises ValidationError.
    """
    if not 0 < minutes <= 7 * 24 * 60:
        raise ValidationError(f"minutes: expected more than 0, and at most a week, got {minutes!r}")
    if not 0.1 <= every <= 3_600:
        raise ValidationError(f"every: expected 0.1 to 3,600 seconds, got {every!r}")
    if unknown := [name for name in only if name not in KINDS]:
        raise ValidationError(f"only: expected kinds of faults ({', '.join(KINDS)}), got {unknown}")
    kinds = {
        name: kind
        for name, kind in KINDS.items()
        if store in kind.stores and server in kind.servers and (not only or name in only)
    }
    if not kinds:
        raise ValidationError(f"only: a store of kind {store} on {server} can have none of {list(only)}")
    chance = random.Random(f"{seed} {store}")
    deck: list[str] = []
    found: list[Fault] = []
    at = every * chance.uniform(0.5, 1.5)
    while at < 60 * minutes:
        if not deck:
            deck = [name for name, kind in kinds.items() for _ in range(kind.often)]
            chance.shuffle(deck)
        kind = KINDS[name := deck.pop()]
        duration = chance.uniform(kind.low, kind.high)
        found.append(Fault(name, round(at, 3), round(duration, 3), chance.randrange(TARGETS)))
        at += every * chance.uniform(0.5, 1.5)
    return found
