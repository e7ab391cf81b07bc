"""Tuples that bolts in plain Python report to hold, as places of expiring trees.

Terms: a tree is all that comes of one record; a slab is the trees that one call tracked together.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from acker.ledger import ids
from acker.ledger.calls.core import Core
from acker.ledger.steps import held
from acker.ledger.steps.held import Held
from acker.store.operation import Operation

MOST_TEXTS = 16
"""Distinct texts of places in one tick; where there are more, they lack the times, and then the process."""
UNSAID = "no bolt said that it had it"


@dataclass(slots=True)
class Holds:
    """Places of trees. parts: slab, indexes of trees, number of the text. steps: the step of each text.

    unnamed: in words, what processes may have that no report names, to be added to the text of a tree.
    """

    parts: list[tuple[bytes, npt.NDArray[np.uint16], int]] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    steps: dict[str, str] = field(default_factory=dict)
    unnamed: str = ""


def find(core: Core, wanted: Mapping[int, frozenset[bytes]]) -> Operation[Holds]:
    """The places of trees of some slabs, by shard, that processes have reported."""
    slabs = frozenset[bytes]().union(*wanted.values())
    there: list[tuple[bytes, int, Held]] = []
    unnamed = list[str]()
    reports = yield from held.reports(core)
    for report in reports:
        names, indexes = ids.split(report.anchors)
        named = names.astype(">u8").tobytes()
        slab_names = [named[at : at + ids.SLAB_BYTES] for at in range(0, len(named), ids.SLAB_BYTES)]
        places = [place for place, slab in enumerate(slab_names) if slab in slabs]
        there += [
            (slab_names[place], int(indexes[place]), hold)
            for place, hold in zip(places, report.holds(places), strict=True)
        ]
        unnamed += filter(None, [report.process.unnamed])
    holds = Holds()
    for texts in (
        [hold.text() for _, _, hold in there],
        [f"{hold.step} had it, {hold.place()}" for _, _, hold in there],
        [f"{hold.step} had it" for _, _, hold in there],
    ):
        holds.texts = list(dict.fromkeys(texts))
        if len(holds.texts) <= MOST_TEXTS:
            break
    numbers = {text: number for number, text in enumerate(holds.texts)}
    by_part: dict[tuple[bytes, int], list[int]] = {}
    for (slab, index, hold), text in zip(there, texts, strict=True):
        holds.steps[text] = hold.step
        by_part.setdefault((slab, numbers[text]), []).append(index)
    holds.parts = [
        (slab, np.array(indexes, np.uint16), number) for (slab, number), indexes in by_part.items()
    ]
    if unnamed:
        holds.unnamed += f"; {unnamed[0]}"
    if len(unnamed) > 1:
        holds.unnamed += f", and such is known of {len(unnamed) - 1} processes more"
    if len(reports) >= held.MOST_PROCESSES:
        holds.unnamed += f"; only the last {held.MOST_PROCESSES} processes that said what they had are known"
    return holds
