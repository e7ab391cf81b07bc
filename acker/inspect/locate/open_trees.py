"""Open records: first tracked before a time, and neither acked nor dead letters.

A record is open in one of four places, through which it goes in this order: a pending tree, a pending tree of
a replay, and an outcome other than acked that its spout has not settled. Then its next replay begins. So
three looks, in this order, miss a record only if a replay began meanwhile, and the caller compares
`replayed` before and after them. The fourth place is a spout that notes how far it is in its source
(`acker.streams.sources.reached`). Its notes count what it has not settled, so outcomes of records that they
tell of are left out. But all other outcomes, and its trees in flight, are counted: a spout that notes nothing
may have had its name since.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from acker.errors import ValidationError
from acker.ledger import ids
from acker.ledger.calls.core import Core
from acker.ledger.outcomes import outcomes
from acker.ledger.settings.config import spout_of
from acker.ledger.slabs import registries
from acker.ledger.slabs import slabs as headers
from acker.ledger.slabs.sections import SPOUT as SECTIONS
from acker.store import keys
from acker.store.keys import Shard
from acker.store.operation import Operation, Request, command
from acker.store.replies import milliseconds, pairs, whole
from acker.streams.sources import kept_rows, roots
from acker.streams.sources.kept_rows import KeptSlab
from acker.streams.sources.reached import Noted
from acker.streams.sources.roots import Roots

MOST_NAMED = 10_000
"""Slabs with open trees that are named, to look where their tuples are."""
_PAGE = 256
_ENTRIES = 100


@dataclass(slots=True)
class OpenTrees:
    """The open records that were found.

    Attributes:
        pending: Trees in flight.
        waiting: Spout -> records whose outcome it has not settled, or that wait for their replay.
        noted: Spout that notes how far it is -> its trees in flight. They are in `pending`, and in its notes.
        slabs: Shard -> slabs with trees in flight, `MOST_NAMED` at most.
        unreadable: Records of the ledger that could not be read.
    """

    pending: int = 0
    waiting: dict[str, int] = field(default_factory=dict)
    noted: dict[str, int] = field(default_factory=dict)
    slabs: dict[int, set[bytes]] = field(default_factory=dict)
    unreadable: int = 0

    def add(self, shard: int, slab: bytes, count: int) -> None:
        """Adds trees in flight."""
        self.pending += count
        if count and sum(map(len, self.slabs.values())) < MOST_NAMED:
            self.slabs.setdefault(shard, set()).add(slab)

    def wait(self, spout: str, count: int) -> None:
        """Adds records that wait for their spout."""
        if count:
            self.waiting[spout] = self.waiting.get(spout, 0) + count


def find(core: Core, before: int, noting: Mapping[str, Noted]) -> Operation[OpenTrees]:
    """Finds the open records of all spouts.

    It reads page by page, so its memory is bounded, and its time goes by the trees that the ledger holds.

    Args:
        core: The ledger.
        before: The time, in ms by the server's clock.
        noting: Notes of the spouts that note how far they are.
    """
    seen = OpenTrees()
    for shard in core.shards:
        yield from _pending(shard, before, noting, seen)
    names = yield from _names(core)
    keeping = yield from _keeping(core)
    for spout in keeping:
        yield from _replays(core, spout, before, seen)
    for shard, its in zip(core.shards, names, strict=True):
        for spout in sorted(its):
            notes = noting.get(spout_of(spout))
            if notes is None or spout == spout_of(spout):  # only what notes positions has members
                partitions = notes.partitions if notes else ()
                yield from _outcomes(core, shard, spout, before, spout in keeping, partitions, seen)
    return seen


def replayed(core: Core) -> Operation[Mapping[str, int]]:
    """The number of replays of each spout that keeps rows."""
    names = yield from _keeping(core)
    counts = yield [command("HGET", keys.Spout(core.config.name, name).counts, "replayed") for name in names]
    return {
        name: whole(count, f"spout {name!r}, rows that are replayed")
        for name, count in zip(names, counts, strict=True)
    }


def _names(core: Core) -> Operation[list[set[str]]]:
    """For each shard the spouts that it may have trees of.

    A shard has its own list of them (`acker.ledger.slabs.registries`): a program that opened the topology
    before it was made anew tracks for a spout which the topology does not list.
    """
    yield from core.refresh_spouts()
    stored = yield [command("HGET", shard.clock, "spouts") for shard in core.shards]
    return [{*core.spouts, *registries.names(registry or b"").values()} - {SECTIONS} for registry in stored]


def _keeping(core: Core) -> Operation[list[str]]:
    """The spouts that keep rows."""
    names = sorted(set[str]().union(*(yield from _names(core))))
    there = (
        (yield [command("EXISTS", keys.Spout(core.config.name, name).counts) for name in names])
        if names
        else []
    )
    return [name for name, exists in zip(names, there, strict=True) if exists]


def _pending(shard: Shard, before: int, noting: Collection[str], seen: OpenTrees) -> Operation[None]:
    """Adds the pending trees of a shard that were tracked before the time.

    Trees from after the server's time may be older than they say: its clock was ahead.
    """
    scan = 0
    while True:
        [(cursor, named), registry, instant] = yield [
            command("HSCAN", shard.slabs, scan, "COUNT", _PAGE),
            command("HGET", shard.clock, "spouts"),
            Request(shard.clock, ["TIME"]),
        ]
        names, now = registries.names(registry or b""), milliseconds(instant)
        seen.unreadable += not registries.readable(registry or b"")
        wanted: dict[str, list[tuple[bytes, int]]] = {}
        for slab, stored in pairs(named).items():
            header = headers.read(stored)
            if header is None or len(slab) != ids.SLAB_BYTES:
                seen.unreadable += 1
            elif (
                header.kind == headers.TRACKED
                and not before <= header.tracked_at <= now
                and (spout := spout_of(names.get(header.spout, ""))) != SECTIONS
            ):
                wanted.setdefault(spout, []).append((slab, header.count))
        for spout, slabs in wanted.items():
            count = seen.pending
            yield from _words(shard, slabs, seen)
            if spout in noting:
                seen.noted[spout] = seen.noted.get(spout, 0) + seen.pending - count
        scan = int(cursor)
        if scan == 0:
            return


def _words(shard: Shard, slabs: Sequence[tuple[bytes, int]], seen: OpenTrees) -> Operation[None]:
    """Adds the trees of slabs that are pending."""
    for first in range(0, len(slabs), _PAGE):
        part = slabs[first : first + _PAGE]
        stored = yield [
            command("HGET", shard.ones, slab) if ids.is_one(slab) else command("GET", shard.vector(slab))
            for slab, _ in part
        ]
        for (slab, count), vector in zip(part, stored, strict=True):
            words = np.frombuffer((vector or b"")[: 8 * count].ljust(8 * count, b"\0"), "<i8")
            seen.add(shard.number, slab, int(np.count_nonzero(words)))


def _replays(core: Core, spout: str, before: int, seen: OpenTrees) -> Operation[None]:
    """Adds replays in flight that were tracked since the time, of records that were tracked before it."""
    spout_keys, scan = keys.Spout(core.config.name, spout), 0
    while True:
        [(cursor, named)] = yield [command("HSCAN", spout_keys.kept, scan, "COUNT", _PAGE)]
        for record in pairs(named).values():
            kept = roots.readable(record)
            if kept is None:
                seen.unreadable += 1
            elif kept.number > 1 and (kept.first_tracked or 1) < before:
                yield from _of_replay(core, spout_keys, kept, before, seen)
        scan = int(cursor)
        if scan == 0:
            return


def _of_replay(
    core: Core, spout_keys: keys.Spout, kept: Roots, before: int, seen: OpenTrees
) -> Operation[None]:
    names = kept.names()
    slabs = [names[at : at + 8] for at in range(0, len(names), 8)]
    for first in range(0, len(slabs), _PAGE):
        part = slabs[first : first + _PAGE]
        shards = [core.shards[ids.shard_of(slab, core.config.ackers)] for slab in part]
        stored = yield [command("HGET", shard.slabs, slab) for shard, slab in zip(shards, part, strict=True)]
        masks = yield [
            request
            for slab in part
            for request in (
                command("HGET", spout_keys.slabs, slab),
                command("HGET", spout_keys.declared()[2], slab),
            )
        ]
        for place, (shard, slab, header) in enumerate(
            zip(shards, part, map(headers.read, stored), strict=True)
        ):
            if header is None or header.kind != headers.TRACKED:
                # It is not tracked yet, or the ledger has lost it.
                kept_slab, mask = masks[2 * place], masks[2 * place + 1] or b""
                count = min(kept.slab, kept.rows - (first + place) * kept.slab)
                seen.wait(kept.how.spout, (count - mask.count(b"\1")) if kept_slab is not None else 0)
            elif header.tracked_at >= before:  # the others were counted as any tree
                yield from _words(shard, [(slab, header.count)], seen)


def _outcomes(
    core: Core,
    shard: Shard,
    spout: str,
    before: int,
    keeps: bool,
    partitions: Collection[bytes],
    seen: OpenTrees,
) -> Operation[None]:
    """Adds failed and expired trees of a shard whose outcome the spout has not settled, or not confirmed.

    partitions: Those whose records are counted by notes.
    """
    last = b"-"
    while True:
        [page] = yield [command("XRANGE", shard.outcomes(spout), last, "+", "COUNT", _ENTRIES)]
        entries, unreadable = outcomes.parse_all(shard.number, page)
        seen.unreadable += len(unreadable)
        entries = [entry for entry in entries if entry.status != "acked"]
        slabs = kept_rows.slabs_of(entries)
        by_slab: dict[bytes, KeptSlab] = {}
        if keeps and entries:
            by_slab = yield from kept_rows.kept_slabs(core, spout, slabs)
        counts = yield from _counts(shard, [] if keeps else slabs)
        for entry in entries:
            for outcome in entry.slabs:
                place = by_slab.get(outcome.slab)
                if keeps and place is None:
                    continue  # it is settled, and about to be confirmed
                first = kept_rows.first_tracked(place.roots if place else None, entry, outcome)
                if first < before:
                    count = place.count if place else counts[outcome.slab]
                    indexes = outcome.indexes_in(count)
                    if partitions and not keeps:
                        indexes = yield from _unnoted(core, shard, outcome.slab, count, indexes, partitions)
                    seen.wait(spout, len(indexes))
        if len(page) < _ENTRIES:
            return
        last = b"(" + page[-1][0]


def _unnoted(
    core: Core,
    shard: Shard,
    slab: bytes,
    count: int,
    indexes: Sequence[int],
    partitions: Collection[bytes],
) -> Operation[Sequence[int]]:
    """The trees of a slab whose message ids, `topic/number@offset`, are of no such partition."""
    [packed] = yield [command("HGET", shard.message_ids, slab)]
    if packed is None:
        return indexes
    parts = yield from outcomes.pieces(core, slab, packed, count)
    try:
        message_ids = [
            one for piece, trees in parts for one in headers.unpack_message_ids(piece or b"", trees)
        ]
    except ValidationError:
        return indexes
    return [index for index in indexes if message_ids[index].rpartition(b"@")[0] not in partitions]


def _counts(shard: Shard, slabs: Sequence[bytes]) -> Operation[dict[bytes, int]]:
    """The number of trees of slabs; 1 of a slab that cannot be read."""
    counts: dict[bytes, int] = {}
    for first in range(0, len(slabs), _PAGE):
        part = slabs[first : first + _PAGE]
        [stored] = yield [command("HMGET", shard.slabs, *part)]
        for slab, header in zip(part, map(headers.read, stored), strict=True):
            counts[slab] = 1 if header is None else header.count
    return counts
