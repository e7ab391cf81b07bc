"""Facts: all that a settle needs beside its outcomes, read in one exchange before anything changes.

Terms: a tree is all that comes of one record; a slab is the trees that one call tracked together; a segment
is some thousand rows of a stream, stored and acked as one piece; a slot is the random number of a
subscription; roots are rows of a spout that were staged together, and get a tree each; staged rows are
stored, but nobody sees them before a commit.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa  # noqa: TID251 - rows travel as Arrow, from and to Spark and plain Python

from acker.errors import DeadLettersFull
from acker.ledger.calls.core import Core
from acker.ledger.outcomes import outcomes
from acker.ledger.outcomes.outcomes import Entry, SlabOutcome
from acker.ledger.settings import config
from acker.ledger.slabs import sections
from acker.store import keys
from acker.store.operation import Operation, Reply, Request, abreast, command
from acker.streams.log import gathers, schemas, subscriptions
from acker.streams.log.gathers import Gathers
from acker.streams.log.subscriptions import StagedFor
from acker.streams.sources import kept_ids, roots
from acker.streams.sources.kept_rows import KeptSlab
from acker.streams.sources.roots import Roots
from acker.streams.sources.spout_options import outcomes_stream
from acker.streams.staging import late

_ROWS = 8
"""Roots whose rows are read together, and held in memory: each may have 16 MiB."""


class RowReader:
    """Reads the kept rows of roots, some at a time, in the order in which they are wanted.

    found: the rows that are in memory, by id of the roots; None where they are gone, or cannot be read.
    ids: the id columns of roots that keep ids.
    """

    def __init__(self, core: Core, wanted: Mapping[str, Roots]) -> None:
        self._core, self._wanted = core, list(wanted.values())
        self.found: dict[str, pa.Table | None] = {}
        self.ids: dict[str, tuple[str, ...]] = {}

    def fetch(self, first: int = 0) -> Operation[None]:
        """Reads rows from a place on."""
        part = self._wanted[first : first + _ROWS]
        if part:
            read = yield from abreast([roots.kept_rows(self._core, one) for one in part])
            self.found = {}
            for kept, rows in zip(part, read, strict=True):
                if rows is not None and kept.keeps_ids:
                    self.ids[kept.id] = tuple(kept_ids.id_columns(rows))
                    rows = kept_ids.whole(rows, kept.how.attempt, kept.number)
                self.found[kept.id] = rows

    def rows(self, kept: Roots) -> Operation[pa.Table | None]:
        """The rows of roots that are wanted."""
        if kept.id not in self.found:
            yield from self.fetch(self._wanted.index(kept))
        return self.found[kept.id]


@dataclass(slots=True)
class Facts:
    """Facts that a settle needs."""

    rows: RowReader
    dead: dict[str, Roots]
    """The roots that have rows which become dead letters, by id."""
    expired: str = ""
    """The reason of expired trees, if some have expired."""
    letters: int = 0
    """The number of the spout's dead letters, if it gets some."""
    names: dict[bytes, list[bytes]] = field(default_factory=dict)
    """The message ids of slabs, if they are wanted."""
    streams: dict[str, tuple[bytes | None, StagedFor]] = field(default_factory=dict)
    """The stored schema of each stream that gets rows, and the slots that its segments are staged for."""
    lines: dict[str, Gathers] = field(default_factory=dict)
    """The lines of rows that are requests."""

    def unreadable(self, spout: str) -> Operation[set[str]]:
        """The ids of roots whose rows cannot become dead letters: they are gone, or cannot be read.

        Raises DeadLettersFull if the spout has its most. A settle may go over that by what one step takes:
        a stored commit never waits for dead letters to go, because their replay waits for it.
        """
        gone = set()
        for roots_id, one in self.dead.items():
            if (yield from self.rows.rows(one)) is None:
                gone.add(roots_id)
        if len(gone) < len(self.dead) and self.letters >= config.DEAD_LETTERS:
            way_out = config.WAY_OUT.format(self.rows._core.config.name)
            raise DeadLettersFull(f"spout {spout!r} has {self.letters:,} dead letters, its most: {way_out}")
        return gone


def placed(
    entries: Sequence[Entry], by_slab: Mapping[bytes, KeptSlab]
) -> Iterator[tuple[Entry, SlabOutcome, KeptSlab]]:
    """The outcomes of entries whose rows are kept."""
    for entry in entries:
        for outcome in entry.slabs:
            if (place := by_slab.get(outcome.slab)) is not None:
                yield entry, outcome, place


def read(
    core: Core,
    spout: str,
    entries: Sequence[Entry],
    by_slab: Mapping[bytes, KeptSlab],
    names: dict[bytes, list[bytes]] | None,
    *,
    wanted: bool,
) -> Operation[Facts]:
    """Reads the facts that these outcomes need.

    Args:
        core: The topology.
        spout: The spout of the outcomes.
        entries: The outcomes.
        by_slab: The kept rows of their slabs.
        names: The message ids of the slabs, if they were read.
        wanted: True if the outcomes are written to a stream.

    Returns:
        The facts.
    """
    again, dead = dict[str, Roots](), dict[str, Roots]()
    for entry, outcome, place in placed(entries, by_slab):
        if place.fate(entry, outcome) == "replayed":
            again[place.roots.id] = place.roots
        elif place.buries(entry, outcome):
            dead[place.roots.id] = place.roots
    facts = Facts(RowReader(core, dead | again), dead, names=names or {})
    looks: list[Operation[Any]] = [facts.rows.fetch()]
    if any(entry.status == "expired" for entry in entries):
        looks.append(_why_expired(core, facts))
    if dead:
        looks.append(_count_letters(core, spout, facts))
    if wanted and names is None:
        looks.append(_name(core, list(by_slab), facts))
    streams = {retried.how.stream: None for retried in again.values()} | (
        {outcomes_stream(spout): None} if wanted else {}
    )
    looks += [_look_at_stream(core, stream, facts) for stream in streams]
    lines = {retried.how.line: None for retried in again.values() if retried.how.line}
    looks += [_look_at_line(core, line, facts) for line in lines]
    if again:
        looks.append(core.register_spouts({spout, *([sections.SPOUT] if lines else [])}))
    yield from abreast(looks)
    return facts


def _why_expired(core: Core, facts: Facts) -> Operation[None]:
    facts.expired = yield from late.why_expired(core)


def _count_letters(core: Core, spout: str, facts: Facts) -> Operation[None]:
    [found] = yield [command("XLEN", keys.Spout(core.config.name, spout).dead)]
    facts.letters = int(found)


def _name(core: Core, slabs: Sequence[bytes], facts: Facts) -> Operation[None]:
    facts.names = yield from outcomes.message_ids(core, slabs)


def _look_at_stream(core: Core, stream: str, facts: Facts) -> Operation[None]:
    looks: list[Operation[Any]] = [schemas.enlist(core, stream), subscriptions.staged_for(core, stream)]
    stored, to = yield from abreast(looks)
    facts.streams[stream] = stored, to


def _look_at_line(core: Core, line: str, facts: Facts) -> Operation[None]:
    facts.lines[line] = yield from gathers.read_line(core, line)


def ask(requests: Sequence[Request]) -> Operation[list[Reply]]:
    """Sends requests together with other operations."""
    return (yield list(requests)) if requests else []
