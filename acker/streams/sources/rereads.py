"""Outcomes of rows whose ids are kept: a row that has not ended well waits until its source was asked again.

The answer decides: a row that the source has is replayed or buried like a row of the store's, a row that it
has no longer becomes a dead letter. An answer is stored before any commit uses it, and never changes
(lua/streams/sources/fill_rows.lua). So processes that settle the same outcome, one of which may finish the
commit of another, give the row the same single end.

Terms: a tree is all that comes of one record; roots are rows of a spout that were staged together, and get a
tree each.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol, TypeAlias

import numpy as np
import pyarrow as pa  # noqa: TID251 - rows travel as Arrow, from and to Spark and plain Python

from acker.ledger.calls.core import Core
from acker.ledger.outcomes.outcomes import Confirmation, Entry, SlabOutcome
from acker.ledger.slabs.causes import Cause
from acker.store import keys
from acker.store.operation import Operation, abreast, command
from acker.streams.log import segments
from acker.streams.sources import kept_ids, roots, scripts
from acker.streams.sources.roots import Roots

GONE = "gone from its source"
"""The reason of a dead letter whose row its source has no longer; the reason of its last tree follows."""
States: TypeAlias = dict[str, np.ndarray]
"""Id of roots -> the state of each row (`kept_ids`)."""
_ABREAST = 16


class Place(Protocol):
    """The kept rows of a slab (`acker.streams.sources.kept_rows.KeptSlab`)."""

    @property
    def roots(self) -> Roots:
        """The roots."""

    @property
    def first(self) -> int:
        """The first row."""

    @property
    def count(self) -> int:
        """The number of rows."""

    def rows(self, outcome: SlabOutcome) -> list[int]:
        """The rows of an outcome."""


class KnownStates:
    """States that a process has read before, each with the tail of what it read: that differs if they change.

    It forgets the states that nobody has looked up since the last but one `turn`. For one thread.
    """

    def __init__(self) -> None:
        self._known: dict[str, tuple[bytes, np.ndarray]] = {}
        self._before: dict[str, tuple[bytes, np.ndarray]] = {}

    def turn(self) -> None:
        """Forgets the states that were not looked up since the last call."""
        self._known, self._before = {}, self._known

    def find(self, roots_id: str, tail: bytes) -> np.ndarray | None:
        """The states of roots whose kept ids have that tail; None if they are not known."""
        noted = self._known.get(roots_id) or self._before.get(roots_id)
        if noted is None or noted[0] != tail:
            return None
        self._known[roots_id] = noted
        return noted[1]

    def note(self, roots_id: str, tail: bytes, state: np.ndarray) -> None:
        """Notes states, with the tail of the ids that they were read from: a store may be set back."""
        self._known[roots_id] = tail, state


def read_states(
    core: Core,
    entries: Iterable[Entry],
    by_slab: Mapping[bytes, Place],
    states: States,
    earlier: KnownStates | None = None,
) -> Operation[None]:
    """Reads the states of rows that have not ended well, for roots that keep ids; asks nothing for others.

    Roots whose ids are gone, or cannot be read, are left out. earlier: saves the reading of states that have
    not changed since it read them.
    """
    wanted = {place.roots.id: place.roots for _, place in _failed(entries, by_slab)}
    missing = [kept for kept in wanted.values() if kept.id not in states]
    if not missing:
        return
    tails = yield [
        command("GETRANGE", keys.Spout(core.config.name, kept.how.spout).rows(kept.id), -kept_ids.TAIL, -1)
        for kept in missing
    ]
    missed: list[Roots] = []
    for kept, tail in zip(missing, tails, strict=True):
        if earlier is not None and (state := earlier.find(kept.id, tail)) is not None:
            states[kept.id] = state
        elif tail:
            missed.append(kept)
    for first in range(0, len(missed), _ABREAST):
        part = missed[first : first + _ABREAST]
        read = dict[str, bytes]()
        tables = yield from abreast([roots.kept_rows(core, kept, read) for kept in part])
        for kept, table in zip(part, tables, strict=True):
            if table is not None:
                states[kept.id] = kept_ids.states(table)
                if earlier is not None:
                    earlier.note(kept.id, read[kept.id], states[kept.id])


def unread(entries: Iterable[Entry], by_slab: Mapping[bytes, Place], states: States) -> set[Confirmation]:
    """The entries with a row whose source was not asked yet."""
    return {
        entry.confirmation
        for entry in entries
        for outcome, place in _failed([entry], by_slab)
        if place.roots.id in states
        and bool((states[place.roots.id][place.rows(outcome)] == kept_ids.UNREAD).any())
    }


def divided(entries: Iterable[Entry], by_slab: Mapping[bytes, Place], states: States) -> list[Entry]:
    """Entries, divided so that the rows which their source has no longer have failed for good."""
    result: list[Entry] = []
    for entry in entries:
        lost = {
            id(outcome): bad
            for outcome, place in _failed([entry], by_slab)
            if place.roots.id in states and (bad := _gone(outcome, place, states[place.roots.id]))
        }
        if not lost:
            result.append(entry)
            continue
        left, gone = list[SlabOutcome](), list[SlabOutcome]()
        for outcome in entry.slabs:
            bad = lost.get(id(outcome), frozenset())
            good = (
                tuple(i for i in outcome.indexes_in(by_slab[outcome.slab].count) if i not in bad)
                if bad
                else ()
            )
            if good:
                left.append(SlabOutcome(outcome.slab, good, outcome.latency, outcome.said))
            elif not bad:
                left.append(outcome)
            if bad:
                gone.append(
                    SlabOutcome(outcome.slab, tuple(sorted(bad)), outcome.latency, _said(outcome.cause))
                )
        result += [replace(entry, slabs=tuple(left))] if left else []
        result.append(replace(entry, status="failed", slabs=tuple(gone)))
    return result


def fill(core: Core, kept: Roots, change: Callable[[pa.Table], pa.Table | None]) -> Operation[bool]:
    """Changes the kept ids of roots, unless another process has changed them meanwhile, or they are settled.

    change: returns None if there is nothing to change. Returns True if they were changed. Raises
    UnreadableRecord.
    """
    spout_keys = keys.Spout(core.config.name, kept.how.spout)
    [payload] = yield [command("GET", spout_keys.rows(kept.id))]
    if payload is None:
        return False
    table = change(roots.decode(payload, kept))
    if table is None:
        return False
    # The tail tells this payload from any other: an Arrow stream ends before it.
    tail = segments.new_hex_id()[: kept_ids.TAIL].encode()
    filled = segments.encode(table.combine_chunks().to_batches(), "lz4") + tail
    asked = scripts.fill_rows(spout_keys, kept.id, payload[-kept_ids.TAIL :], filled)
    [changed] = yield [asked]
    return bool(changed)


def _failed(entries: Iterable[Entry], by_slab: Mapping[bytes, Place]) -> Sequence[tuple[SlabOutcome, Place]]:
    """The outcomes that were not acked, of roots that keep ids."""
    return [
        (outcome, place)
        for entry in entries
        if entry.status != "acked"
        for outcome in entry.slabs
        if (place := by_slab.get(outcome.slab)) is not None and place.roots.keeps_ids
    ]


def _gone(outcome: SlabOutcome, place: Place, state: np.ndarray) -> frozenset[int]:
    indexes = outcome.indexes_in(place.count)
    return frozenset(index for index in indexes if state[place.first + index] == kept_ids.GONE)


def gone(reason: str) -> str:
    """The reason of a dead letter whose row its source has no longer. reason: of its last tree."""
    return f"{GONE}, after: {reason}" if reason else GONE


def _said(cause: Cause) -> bytes:
    return replace(cause, reason=gone(cause.reason), retry=False).encode()
