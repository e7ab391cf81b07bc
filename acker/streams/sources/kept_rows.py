"""Kept rows of a spout, and their end: an outcome settles them, or makes them dead letters.

Terms: a tree is all that comes of one record; a slab is the trees that one call tracked together; roots are
rows of a spout that were staged together, and get a tree each; staged rows are stored, but nobody sees them
before a commit.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Literal, TypeAlias

import numpy as np
import pyarrow as pa  # noqa: TID251 - rows travel as Arrow, from and to Spark and plain Python

from acker.ledger import ids
from acker.ledger.calls.calls import Call
from acker.ledger.calls.core import Core
from acker.ledger.outcomes import outcomes
from acker.ledger.outcomes.outcomes import Confirmation, Entry, SlabOutcome
from acker.store import keys
from acker.store.operation import Operation, Reply, Request, Word, chain, command
from acker.store.records import Count, HexId, Name
from acker.store.replies import pairs, whole
from acker.streams.log import segments
from acker.streams.sources import attempts, columns, dead_letter_store, kept_ids, rereads, roots, scripts
from acker.streams.sources.attempts import Attempt
from acker.streams.sources.roots import Roots
from acker.streams.staging import late

_CALL_SLABS, _CALL_INDEXES = 100, 4_096
_LOOK, _LOOKS = 500, 16
_PLACE_BYTES = 6
_CHAINED, _HEAVY = 64, 4
"""Requests that one server runs in turn at most, and the weight of a slow request among them."""

Fate: TypeAlias = Literal["acked", "replayed", "dead"]


@dataclass(frozen=True, slots=True)
class Settled:
    """Outcomes or dead letters that a commit settles.

    Attributes:
        spout: The spout.
        entries: Entries of the spout's outcomes (`Entry.place`).
        letters: Numbers of dead letters.
        unreadable: Ids of roots whose rows could be neither replayed nor buried.
        id: A random id that distinguishes commits of the same work, or "".
    """

    spout: Name
    entries: tuple[tuple[Count, str, str], ...] = ()
    letters: tuple[str, ...] = ()
    unreadable: tuple[HexId, ...] = ()
    id: str = ""


@dataclass(frozen=True, slots=True)
class KeptSlab:
    """The rows of a slab: `count` rows of `roots` from `first` on."""

    roots: Roots
    first: int
    count: int

    def rows(self, outcome: SlabOutcome) -> list[int]:
        """The rows of an outcome."""
        return [self.first + index for index in outcome.indexes_in(self.count)]

    def fate(self, entry: Entry, outcome: SlabOutcome) -> Fate:
        """The end of a row whose tree has that outcome."""
        if entry.status == "acked":
            return "acked"
        last = self.roots.number >= self.roots.how.attempts or self.roots.refused
        again = outcome.cause.retry and not last
        return "replayed" if again else "dead"

    def buries(self, entry: Entry, outcome: SlabOutcome) -> bool:
        """Return True if a row whose tree has that outcome becomes a dead letter."""
        return self.roots.how.letters and self.fate(entry, outcome) == "dead"


@dataclass(slots=True)
class _Settling:
    """A call of lua/streams/sources/settle.lua in the making."""

    how: Fate
    slabs: list[tuple[bytes, bytes, int]] = field(default_factory=list)
    roots_ids: dict[str, int] = field(default_factory=dict)
    indexes: int = 0

    def has_room(self, indexes: int) -> bool:
        return len(self.slabs) < _CALL_SLABS and (not self.indexes or self.indexes + indexes <= _CALL_INDEXES)


def kept_slabs(core: Core, spout: str, slabs: Sequence[bytes]) -> Operation[dict[bytes, KeptSlab]]:
    """The rows of slabs, by slab. A slab that is settled, or whose rows are not kept, is left out.

    So is a slab whose record cannot be read: its rows stay where they are, for people.
    """
    spout_keys = keys.Spout(core.config.name, spout)
    place_of: dict[bytes, tuple[int, int, str]] = {}
    records: dict[str, Roots] = {}
    parts = [slabs[first : first + _LOOK] for first in range(0, len(slabs), _LOOK)]
    for first in range(0, len(parts), _LOOKS):
        flight = parts[first : first + _LOOKS]
        replies = yield [scripts.find_kept_rows(spout_keys, part) for part in flight]
        for part, (places, kept) in zip(flight, replies, strict=True):
            for slab, place in zip(part, places, strict=True):
                if place is not None and len(place) > _PLACE_BYTES:
                    number, count = int.from_bytes(place[:4], "little"), int.from_bytes(place[4:6], "little")
                    place_of[slab] = number, count, place[_PLACE_BYTES:].decode("utf-8", "replace")
            for roots_id, record in pairs(kept).items():
                name = roots_id.decode("utf-8", "replace")
                if name not in records and (known := roots.readable(record)) is not None:
                    records[name] = known
    return {
        slab: KeptSlab(records[roots_id], number * records[roots_id].slab, count)
        for slab, (number, count, roots_id) in place_of.items()
        if roots_id in records and number * records[roots_id].slab + count <= records[roots_id].rows
    }


def whole_rows(core: Core, kept: Roots) -> Operation[pa.Table | None]:
    """The rows of roots, as by `roots.kept_rows`. Where their ids are kept, the rows that were read again."""
    table = yield from roots.kept_rows(core, kept)
    if table is None or not kept.keeps_ids:
        return table
    return kept_ids.whole(table, kept.how.attempt, kept.number)


def first_tracked(kept: Roots | None, entry: Entry, outcome: SlabOutcome) -> int:
    """The time of the first track of an outcome's rows, in ms, or earlier. kept: their roots, if any.

    A clock that was set back makes a latency too short, never too long.
    """
    if kept is not None and (kept.first_tracked or kept.number > 1):
        return kept.first_tracked or 1  # an earlier version of acker has noted none for a replay
    return max(1, round(entry.at * 1000) - round(outcome.latency * 1000))


def slabs_of(entries: Iterable[Entry]) -> list[bytes]:
    """The slabs of entries, each once."""
    return list({outcome.slab: None for entry in entries for outcome in entry.slabs})


@dataclass(frozen=True, slots=True)
class Settling:
    """Requests that settle outcomes, in this order; the same again changes nothing.

    Attributes:
        buries: Requests that make dead letters.
        settles: Requests that settle trees.
        confirms: Calls that confirm the outcomes.
    """

    core: Core
    spout: str
    confirmations: Sequence[Confirmation] = ()
    buries: Sequence[Request] = ()
    settles: Sequence[Request] = ()
    confirms: Sequence[Call] = ()

    def confirmed(self, replies: Sequence[Reply]) -> Operation[None]:
        """Takes the replies of `confirms`. A call has a bounded number of trees, so it may have left some."""
        for call, (_, _, unreadable) in zip(self.confirms, replies, strict=True):
            outcomes.log_unreadable(self.core, call.shard, unreadable)
        if sum(seen for _, seen, _ in replies) < len(self.confirmations):
            yield from outcomes.confirm(self.core, self.spout, self.confirmations)

    def carry_out(self) -> Operation[None]:
        """Settles without a commit: one server runs all requests in turn, a cluster runs three flights."""
        asked = [*self.buries, *self.settles, *map(self.core.request, self.confirms)]
        few = len(self.buries) + _HEAVY * (len(self.settles) + len(self.confirms)) <= _CHAINED
        replies = None
        if self.core.one_server is not False and asked and few:
            [replies] = yield [chain(asked)]
        done = replies or ()
        if len(done) == len(asked) and not any(isinstance(one, bytes) for one in done[-1:]):
            yield from self.confirmed(done[len(asked) - len(self.confirms) :])
            return
        yield list(self.buries)
        yield list(self.settles)
        yield from outcomes.confirm(self.core, self.spout, self.confirmations)


def read_settling(core: Core, settled: Settled) -> Operation[Settling]:
    """The requests that settle a commit's outcomes, as far as these still exist."""
    entries: list[Entry] = []
    replies = yield [
        command("XRANGE", core.shards[shard].outcomes(settled.spout), entry_id, entry_id)
        for shard, entry_id, _ in settled.entries
    ]
    for (shard, _, digest), reply in zip(settled.entries, replies, strict=True):
        # Another entry of that id is about trees that this commit has not settled.
        there = outcomes.parse_all(shard, reply)[0]
        entries += [entry for entry in there if entry.confirmation.digest == digest.encode()]
    settling_requests = Settling(core, settled.spout)
    if settled.entries:
        by_slab, states = (yield from kept_slabs(core, settled.spout, slabs_of(entries))), rereads.States()
        yield from rereads.read_states(core, entries, by_slab, states)
        # A commit has only rows that were read again. If the store has lost that, they are read once more.
        left = rereads.unread(entries, by_slab, states)
        entries = rereads.divided([one for one in entries if one.confirmation not in left], by_slab, states)
        settling_requests = yield from settling(core, settled.spout, entries, settled.unreadable, by_slab)
    if settled.letters:
        dropping = scripts.drop_letters(keys.Spout(core.config.name, settled.spout), settled.letters)
        settling_requests = replace(settling_requests, settles=[*settling_requests.settles, dropping])
    return settling_requests


def settling(
    core: Core,
    spout: str,
    entries: Sequence[Entry],
    unreadable: Collection[str] = (),
    by_slab: Mapping[bytes, KeptSlab] | None = None,
    rows: Mapping[str, pa.Table | None] = MappingProxyType({}),
    expired: str = "",
) -> Operation[Settling]:
    """The requests that settle the trees of outcomes, bury rows after their last attempt, and confirm.

    Rows to be replayed must have been replayed before. Rows that cannot be read, or are gone, were not: they
    stay pending, so that the watermark never passes them.

    Args:
        core: The ledger.
        spout: The spout.
        entries: Its outcomes.
        unreadable: Ids of roots whose rows cannot be read.
        by_slab: The rows of slabs, if they were read: a slab always has the same ones.
        rows: Rows of roots, by id, as far as they were read.
        expired: The reason of expired trees, if it was read.
    """
    if by_slab is None:
        by_slab = yield from kept_slabs(core, spout, slabs_of(entries))
    spout_keys = keys.Spout(core.config.name, spout)
    calls: list[_Settling] = []
    dead: dict[str, dict[bytes, list[tuple[SlabOutcome, Entry]]]] = {}
    current: dict[Fate, _Settling] = {}
    # A slab whose trees ended for many causes is settled as one that ended for one.
    ended: dict[tuple[Fate, bytes], list[int] | None] = {}
    for entry in entries:
        for outcome in entry.slabs:
            place = by_slab.get(outcome.slab)
            if place is None:
                continue
            fate = place.fate(entry, outcome)
            if fate != "acked" and place.roots.id in unreadable:
                continue
            if place.buries(entry, outcome):
                of_roots = dead.setdefault(place.roots.id, {})
                of_roots.setdefault(outcome.slab, []).append((outcome, entry))
                continue
            indexes_ended = ended.setdefault((fate, outcome.slab), [])
            if outcome.indexes is None or indexes_ended is None:
                ended[fate, outcome.slab] = None
            else:
                indexes_ended += outcome.indexes
    for (fate, slab), indexes in ended.items():
        call, place = current.get(fate), by_slab[slab]
        places = np.unique(np.array(indexes or (), dtype="<u2"))
        count = len(places)
        if call is None or not call.has_room(count):
            call = current[fate] = _Settling(fate)
            calls.append(call)
        roots_id = call.roots_ids.setdefault(place.roots.id, len(call.roots_ids))
        call.slabs.append((slab, places.tobytes(), roots_id))
        call.indexes += count
    if not expired and _any_expired(dead.values()):
        expired = yield from late.why_expired(core)
    buries = list[Request]()
    for name, of_slabs in dead.items():  # the rows of roots are read once, whatever they ended for
        if name in rows:
            rows_of = rows[name]
        else:
            rows_of = yield from whole_rows(core, by_slab[next(iter(of_slabs))].roots)
        for slab, buried in of_slabs.items() if rows_of is not None else ():
            buries += _bury(spout_keys, by_slab[slab], buried, rows_of, expired)
    settles = [scripts.settle(spout_keys, call.how, call.slabs, list(call.roots_ids)) for call in calls]
    confirmations = list(dict.fromkeys(entry.confirmation for entry in entries))
    return Settling(
        core, spout, confirmations, buries, settles, outcomes.confirming(core, spout, confirmations)
    )


def _any_expired(dead: Iterable[Mapping[bytes, Sequence[tuple[SlabOutcome, Entry]]]]) -> bool:
    return any(entry.status == "expired" for of in dead for buried in of.values() for _, entry in buried)


def _bury(
    spout_keys: keys.Spout,
    place: KeptSlab,
    ended: Sequence[tuple[SlabOutcome, Entry]],
    rows: pa.Table,
    expired: str,
) -> Iterator[Request]:
    """The requests that make dead letters of rows of a slab, one for each.

    `rows` are all rows of the roots.
    """
    buried = [
        (at, outcome, entry, attempt)
        for outcome, entry in ended
        for attempt in (Attempt.from_outcome(place.roots.number, entry, outcome, expired),)
        for at in place.rows(outcome)
    ]
    rows = rows.take(pa.array([at for at, *_ in buried], pa.int64()))  # work on each column costs by its rows
    users = attempts.without(rows)
    options = place.roots.how
    named = columns.message_ids(rows, options.message_id).cast(pa.binary())  # it may be no text for Python
    record = place.roots.dump()
    for row, (at, outcome, entry, attempt) in enumerate(buried):
        index = at - place.first
        table = pa.Table.from_batches(users.slice(row, 1).to_batches(), users.schema)
        history = attempts.with_attempt(attempts.of_row(rows, row), attempt)
        why = attempts.decisive(history)
        facts: dict[str, Word] = {
            "message_id": named[row].as_py(),
            "anchor": ids.anchor_at(outcome.slab, index),
            "status": entry.status,
            "reason": why.reason,
            "step": why.step,
            "batch": why.batch,
            "attempts": place.roots.number,
            "at": round(entry.at * 1000),
            "stream": options.stream,
        }
        payload = segments.encode(table.to_batches(), "none")
        stored = dead_letter_store.pack_row(record, payload, attempts.pack(history))
        yield scripts.bury(spout_keys, place.roots.id, outcome.slab, index, stored, facts)


def pending(core: Core, spout: str) -> Operation[dict[str, int]]:
    """Counts a spout's rows: pending ones, and rows that were acked, replayed or made dead letters.

    Raises UnreadableRecord.
    """
    counts = keys.Spout.COUNTS
    [found] = yield [command("HMGET", keys.Spout(core.config.name, spout).counts, *counts)]
    named = zip(counts, found, strict=True)
    return {name: whole(value, f"spout {spout!r}, rows that are {name}") for name, value in named}


def watermark(core: Core, spout: str) -> Operation[dict[str, int]]:
    """The watermark of a spout: for each partition of the source the first offset that may not be done.

    All rows below it are acked or dead letters, so the source may be acknowledged up to it (a Kafka
    consumer's offset). It is exact if nothing is pending, and otherwise stays behind by at most the rows
    staged together. It never goes back, as long as a source gives its offsets in ascending order: a replayed
    dead letter does not hold it back. The partition without a name is "". Raises UnreadableRecord.
    """
    spout_keys = keys.Spout(core.config.name, spout)
    # Kept rows are read last: roots that come in between only hold the watermark back. A partition without a
    # highest row belongs to a commit that has not kept all its roots yet, perhaps not its lowest.
    [highest] = yield [command("HGETALL", spout_keys.highest)]
    [kept] = yield [command("HVALS", spout_keys.kept)]
    offsets = {
        name.decode("utf-8", "replace"): whole(after, f"spout {spout!r}, offset of partition {name!r:.100}")
        for name, after in pairs(highest).items()
    }
    for record in kept:
        for name, (low, _) in Roots.load(record).offsets.items():
            if name in offsets:
                offsets[name] = min(offsets[name], low)
    return offsets
