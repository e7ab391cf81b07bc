"""Tuples that bolts in plain Python report to hold, as places of expiring trees.

A report may be older than an ack. So the ack value of each tree is looked at, as `acker.inspect.locate.why`
does: where the ids of some reported tuples and of those in streams give it, exactly these are left.
`in_flight` sums the reported tuples of all trees in flight.

Terms: a tree is all that comes of one record; a slab is the trees that one call tracked together.
"""

import itertools
import math
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import attrgetter, xor
from typing import Annotated, TypeAlias

import numpy as np
import numpy.typing as npt

from acker.ledger import ids
from acker.ledger.calls.core import Core
from acker.ledger.fields import Count, Instant
from acker.ledger.steps import held
from acker.ledger.steps.held import Held
from acker.store.operation import Operation, Request, command

MOST_TEXTS = 16
"""Distinct texts of places in one tick; where there are more, they lack the times, and then the process."""
UNSAID = "no bolt said that it had it"
UNPROVED = ": the tree's ack value does not prove that it still has it"
MOST_SUMMED = 10_000
"""Reported tuples of which `in_flight` looks whether their trees are in flight, in each of their trees."""
_PAGE = 500
_MOST_TRIED = 6
Place: TypeAlias = tuple[bytes, int]
"""A tree: its slab, and its index there."""


@dataclass(frozen=True, slots=True)
class HeldTrees:
    """Trees in flight of which a bolt in plain Python has tuples, as its process said last."""

    step: Annotated[str, "The bolt that has taken tuples of them."]
    host: Annotated[str, "Of its process."]
    pid: Annotated[Count, "The number of its process."]
    program: Annotated[str, "The program of its process."]
    trees: Annotated[Count, "Their number."]
    since: Annotated[Instant, "When the bolt took the oldest tuple of these."]
    reported: Annotated[Instant, "When the process last said so: nobody knows what it has done since."]
    more: Annotated[Count, "Tuples that the process has and does not name, of any of its bolts."] = 0
    partly: Annotated[bool, "There are more than the 10,000 reported tuples that were looked at."] = False

    def text(self) -> Annotated[str, "The bolt and its process, for people."]:
        """The bolt and its process, for people."""
        return f"{self.step} on host {self.host}, process {self.pid} ({self.program})"


@dataclass(slots=True)
class Holds:
    """Places of trees. parts: slab, indexes of trees, number of the text. steps: the step of each text."""

    parts: list[tuple[bytes, npt.NDArray[np.uint16], int]] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    steps: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Reported:
    """Reported tuples of trees.

    unnamed: in words, what processes may have that no report names, to be added to the text of a tree.
    """

    trees: Mapping[Place, Sequence[Held]]
    unnamed: str = ""

    def holds(self, core: Core, beside: Mapping[Place, int], end: float) -> Operation[Holds]:
        """The tuples as places of their trees.

        Args:
            core: The topology.
            beside: The XOR of the tuples of trees that streams hold, by tree.
            end: The time of the monotonic clock until which ack values are read: later ones prove nothing.
        """
        values = yield from _values(core, list(self.trees), end)
        proofs = {
            tree: _left(holds, values[tree] ^ beside.get(tree, 0)) if tree in values else None
            for tree, holds in self.trees.items()
        }
        there = [
            (tree, one, UNPROVED if proof is None else "")
            for tree, proof in proofs.items()
            for one in (self.trees[tree] if proof is None else proof)
        ]
        return _numbered(there)


def find(core: Core, wanted: Mapping[int, frozenset[bytes]]) -> Operation[Reported]:
    """The tuples of trees of some slabs, by shard, that processes have reported."""
    slabs = frozenset[bytes]().union(*wanted.values())
    trees: dict[Place, dict[int, Held]] = {}
    unnamed = list[str]()
    reports = yield from held.reports(core)
    for report in sorted(reports, key=attrgetter("at")):  # a tuple may have come to two processes
        names, indexes = ids.split(report.anchors)
        named = names.astype(">u8").tobytes()
        slab_names = [named[at : at + ids.SLAB_BYTES] for at in range(0, len(named), ids.SLAB_BYTES)]
        places = [place for place, slab in enumerate(slab_names) if slab in slabs]
        for place, hold in zip(places, report.holds(places), strict=True):
            trees.setdefault((slab_names[place], int(indexes[place])), {})[hold.own] = hold
        unnamed += filter(None, [report.process.unnamed])
    text = f"; {unnamed[0]}" if unnamed else ""
    if len(unnamed) > 1:
        text += f", and such is known of {len(unnamed) - 1} processes more"
    if len(reports) >= held.MOST_PROCESSES:
        text += f"; only the last {held.MOST_PROCESSES} processes that said what they had are known"
    return Reported({tree: list(holds.values()) for tree, holds in trees.items()}, text)


def in_flight(core: Core) -> Operation[tuple[HeldTrees, ...]]:
    """The trees in flight of which bolts in plain Python have tuples, by process, the oldest first."""
    shares = list[HeldTrees]()
    reports, left = (yield from held.reports(core)), MOST_SUMMED
    # The small ones first: what they leave is for the others, and each process has its part.
    for number, report in enumerate(sorted(reports, key=lambda report: len(report.edges))):
        most = left // (len(reports) - number)
        holds = list(report.holds(range(min(most, len(report.edges)))))
        partly, left = len(holds) < len(report.edges), left - len(holds)
        trees = {hold.anchor: (ids.slab_of(hold.anchor), ids.index_of(hold.anchor)) for hold in holds}
        values = yield from _values(core, list(trees.values()), math.inf)
        by_step: dict[str, list[Held]] = {}
        for hold in holds:
            if values[trees[hold.anchor]]:
                by_step.setdefault(hold.step, []).append(hold)
        shares += [
            HeldTrees(
                step, mine[0].host, mine[0].pid, mine[0].program, len({hold.anchor for hold in mine}),
                min(hold.since for hold in mine), report.at, report.process.more, partly,
            )
            for step, mine in by_step.items()
        ]  # fmt: skip
    return tuple(sorted(shares, key=attrgetter("since", "step")))


def _values(core: Core, trees: Sequence[Place], end: float) -> Operation[dict[Place, int]]:
    """The ack values of trees, as far as there is time."""
    values: dict[Place, int] = {}
    for first in range(0, len(trees), _PAGE):
        if time.monotonic() > end:
            break
        part = trees[first : first + _PAGE]
        words = yield [_word(core, *tree) for tree in part]
        values |= {
            tree: int.from_bytes(word or b"", "little", signed=True)
            for tree, word in zip(part, words, strict=True)
        }
    return values


def _word(core: Core, slab: bytes, index: int) -> Request:
    shard = core.shards[ids.shard_of(slab, core.config.ackers)]
    if ids.is_one(slab):
        return command("HGET", shard.ones, slab)
    return command("GETRANGE", shard.vector(slab), 8 * index, 8 * index + 7)


def _left(holds: Sequence[Held], left: int) -> Sequence[Held] | None:
    """The reported tuples whose ids give what is left of an ack value; None where that proves none."""
    if not left:
        return ()
    fewest = 1 if len(holds) <= _MOST_TRIED else len(holds)
    for number in range(len(holds), fewest - 1, -1):
        for some in itertools.combinations(holds, number):
            if reduce(xor, (one.own for one in some)) == left:
                return some
    return None


def _numbered(there: Iterable[tuple[Place, Held, str]]) -> Holds:
    """Tuples as places, with few texts."""
    there, holds = list(there), Holds()
    for texts in (
        [hold.text() + doubt for _, hold, doubt in there],
        [f"{hold.step} had it, {hold.place()}{doubt}" for _, hold, doubt in there],
        [f"{hold.step} had it{doubt}" for _, hold, doubt in there],
    ):
        holds.texts = list(dict.fromkeys(texts))
        if len(holds.texts) <= MOST_TEXTS:
            break
    numbers = {text: number for number, text in enumerate(holds.texts)}
    by_part: dict[tuple[bytes, int], list[int]] = {}
    for ((slab, index), hold, doubt), text in zip(there, texts, strict=True):
        holds.steps[text] = "" if doubt else hold.step
        by_part.setdefault((slab, numbers[text]), []).append(index)
    holds.parts = [
        (slab, np.array(indexes, np.uint16), number) for (slab, number), indexes in by_part.items()
    ]
    return holds
