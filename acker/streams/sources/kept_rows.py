"""The rows of roots that a spout keeps, and what becomes of them with an outcome: settled, dead letters."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Literal, TypeAlias

import numpy as np
import pyarrow as pa  # noqa: TID251 - rows travel as Arrow, from and to Spark and plain Python

from acker.errors import DeadLettersFull
from acker.ledger import ids
from acker.ledger.calls.calls import Call
from acker.ledger.calls.core import Core
from acker.ledger.outcomes import outcomes
from acker.ledger.outcomes.outcomes import Entry, Receipt, SlabOutcome
from acker.ledger.settings import config
from acker.store import keys
from acker.store.operation import Operation, Reply, Request, Word, chain, command
from acker.store.records import Count, Name, Token
from acker.store.replies import pairs, whole
from acker.streams.log import segments
from acker.streams.sources import attempts, columns, dead_letter_store, roots, scripts
from acker.streams.sources.attempts import Attempt
from acker.streams.sources.roots import Roots
from acker.streams.staging import late

_CALL_SLABS, _CALL_INDEXES = 100, 4_096
_LOOK = 500
_PLACE_BYTES = 6
_CHAINED, _HEAVY = 64, 4
"""Requests that one server does in turn at most, and how many of them one counts for that takes long."""

Fate: TypeAlias = Literal["acked", "replayed", "dead"]


@dataclass(frozen=True, slots=True)
class Settled:
    """What a commit takes care of: entries of a spout's outcomes (`Entry.place`), or dead letters.

    unreadable: tokens of roots whose rows could not be replayed or buried. token: random, where two commits
    that do the same are to be distinguished, or "".
    """

    spout: Name
    entries: tuple[tuple[Count, str, str], ...] = ()
    letters: tuple[str, ...] = ()
    unreadable: tuple[Token, ...] = ()
    token: str = ""


@dataclass(frozen=True, slots=True)
class KeptSlab:
    """Which rows a slab is of: `count` rows of `roots` from `first` on."""

    roots: Roots
    first: int
    count: int

    def rows(self, outcome: SlabOutcome) -> list[int]:
        """The rows of an outcome."""
        return [self.first + index for index in outcome.of(self.count)]

    def fate(self, entry: Entry, outcome: SlabOutcome) -> Fate:
        """What becomes of a row whose tree has that outcome."""
        if entry.status == "acked":
            return "acked"
        last = self.roots.number >= self.roots.how.attempts or self.roots.refused
        again = outcome.cause.retry and not last
        return "replayed" if again else "dead"

    def buries(self, entry: Entry, outcome: SlabOutcome) -> bool:
        """Whether a row whose tree has that outcome becomes a dead letter."""
        return self.roots.how.letters and self.fate(entry, outcome) == "dead"


@dataclass(slots=True)
class _Settling:
    """One call of lua/streams/sources/settle.lua in the making."""

    how: Fate
    slabs: list[tuple[bytes, bytes, int]] = field(default_factory=list)
    tokens: dict[str, int] = field(default_factory=dict)
    indexes: int = 0

    def has_room(self, indexes: int) -> bool:
        return len(self.slabs) < _CALL_SLABS and (not self.indexes or self.indexes + indexes <= _CALL_INDEXES)


def kept_slabs(core: Core, spout: str, slabs: Sequence[bytes]) -> Operation[dict[bytes, KeptSlab]]:
    """Where the rows of slabs are. One that is settled, or whose rows nobody keeps, is left out.

    So is a slab whose place cannot be read: its rows stay where they are, for people.
    """
    own = keys.Spout(core.config.name, spout)
    found: dict[bytes, tuple[int, int, str]] = {}
    for first in range(0, len(slabs), _LOOK):
        part = slabs[first : first + _LOOK]
        [packed] = yield [command("HMGET", own.slabs, *part)]
        for slab, place in zip(part, packed, strict=True):
            if place is not None and len(place) > _PLACE_BYTES:
                number, count = int.from_bytes(place[:4], "little"), int.from_bytes(place[4:6], "little")
                found[slab] = number, count, place[_PLACE_BYTES:].decode("utf-8", "replace")
    tokens = sorted({token for _, _, token in found.values()})
    records: dict[str, Roots] = {}
    for first in range(0, len(tokens), _LOOK):
        names = tokens[first : first + _LOOK]
        [kept] = yield [command("HMGET", own.kept, *names)]
        for name, record in zip(names, kept, strict=True):
            if (known := roots.readable(record)) is not None:
                records[name] = known
    return {
        slab: KeptSlab(records[token], number * records[token].slab, count)
        for slab, (number, count, token) in found.items()
        if token in records and number * records[token].slab + count <= records[token].rows
    }


def slabs_of(entries: Iterable[Entry]) -> list[bytes]:
    """The slabs that entries name, each once."""
    return list({outcome.slab: None for entry in entries for outcome in entry.slabs})


def look_at_dead(
    core: Core, spout: str, entries: Iterable[Entry], known: dict[bytes, KeptSlab]
) -> Operation[set[str]]:
    """Looks at what would become dead letters; returns the tokens of those whose rows are gone or unreadable.

    Raises DeadLettersFull where a spout has its most. Who asks before anything is stored may go over that by
    what one step takes: what is stored must never wait for dead letters to go, for their replay waits for it.
    """
    dead = {
        place.roots.token: place.roots
        for entry in entries
        for outcome in entry.slabs
        if (place := known.get(outcome.slab)) is not None and place.buries(entry, outcome)
    }
    unreadable = set()
    for token, one in dead.items():
        if (yield from roots.kept_rows(core, one)) is None:
            unreadable.add(token)
    if len(unreadable) < len(dead):
        [found] = yield [command("XLEN", keys.Spout(core.config.name, spout).dead)]
        if found >= config.DEAD_LETTERS:
            way_out = config.WAY_OUT.format(core.config.name)
            raise DeadLettersFull(f"spout {spout!r} has {found:,} dead letters, its most: {way_out}")
    return unreadable


@dataclass(frozen=True, slots=True)
class Settling:
    """Requests that settle outcomes, in this order; the same again changes nothing.

    buries: make dead letters; settles: settle trees; confirms: confirm the outcomes.
    """

    core: Core
    spout: str
    receipts: Sequence[Receipt] = ()
    buries: Sequence[Request] = ()
    settles: Sequence[Request] = ()
    confirms: Sequence[Call] = ()

    def confirmed(self, replies: Sequence[Reply]) -> Operation[None]:
        """Takes the replies of `confirms`: a call has a bounded number of trees, and may have left some."""
        for call, (_, _, unreadable) in zip(self.confirms, replies, strict=True):
            outcomes.log_unreadable(self.core, call.shard, unreadable)
        if sum(seen for _, seen, _ in replies) < len(self.receipts):
            yield from outcomes.confirm(self.core, self.spout, self.receipts)

    def carry_out(self) -> Operation[None]:
        """Settles without a commit: one server does all in turn, a cluster in three flights."""
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
        yield from outcomes.confirm(self.core, self.spout, self.receipts)


def look(core: Core, what: Settled) -> Operation[Settling]:
    """What takes care of what a commit has settled: of the outcomes that are there still."""
    found: list[Entry] = []
    replies = yield [
        command("XRANGE", core.shards[shard].outcomes(what.spout), entry_id, entry_id)
        for shard, entry_id, _ in what.entries
    ]
    for (shard, _, digest), reply in zip(what.entries, replies, strict=True):
        # Another one of that id is of trees that this commit has not taken care of.
        there = outcomes.parse_all(shard, reply)[0]
        found += [entry for entry in there if entry.receipt.digest == digest.encode()]
    made = Settling(core, what.spout)
    if what.entries:
        made = yield from settling(core, what.spout, found, what.unreadable)
    if what.letters:
        dropping = scripts.drop_letters(keys.Spout(core.config.name, what.spout), what.letters)
        made = replace(made, settles=[*made.settles, dropping])
    return made


def settling(
    core: Core,
    spout: str,
    entries: Sequence[Entry],
    unreadable: Collection[str] = (),
    known: Mapping[bytes, KeptSlab] | None = None,
    rows: Mapping[str, pa.Table | None] = MappingProxyType({}),
) -> Operation[Settling]:
    """What settles the trees of outcomes, makes dead letters of rows that had their last attempt.

    And confirms.

    What is to be replayed must have been: this is its end. Rows that cannot be read, or are gone, were
    not: they stay pending (unreadable: tokens of such roots), so that the watermark never passes them.
    known: where the rows are, if that was read: a slab has the same ones for ever. rows: of roots, by
    token, as far as they were read.
    """
    if known is None:
        known = yield from kept_slabs(core, spout, slabs_of(entries))
    spout_keys = keys.Spout(core.config.name, spout)
    calls: list[_Settling] = []
    dead: dict[str, dict[bytes, list[tuple[SlabOutcome, Entry]]]] = {}
    current: dict[Fate, _Settling] = {}
    # A slab whose trees ended for many causes is settled as one that ended for one.
    ended: dict[tuple[Fate, bytes], list[int] | None] = {}
    for entry in entries:
        for outcome in entry.slabs:
            place = known.get(outcome.slab)
            if place is None:
                continue
            fate = place.fate(entry, outcome)
            if fate != "acked" and place.roots.token in unreadable:
                continue
            if place.buries(entry, outcome):
                of_roots = dead.setdefault(place.roots.token, {})
                of_roots.setdefault(outcome.slab, []).append((outcome, entry))
                continue
            own = ended.setdefault((fate, outcome.slab), [])
            if outcome.indexes is None or own is None:
                ended[fate, outcome.slab] = None
            else:
                own += outcome.indexes
    for (fate, slab), indexes in ended.items():
        call, place = current.get(fate), known[slab]
        places = np.unique(np.array(indexes or (), dtype="<u2"))
        count = len(places)
        if call is None or not call.has_room(count):
            call = current[fate] = _Settling(fate)
            calls.append(call)
        token = call.tokens.setdefault(place.roots.token, len(call.tokens))
        call.slabs.append((slab, places.tobytes(), token))
        call.indexes += count
    expired = (yield from late.why_expired(core)) if _any_expired(dead.values()) else ""
    buries = list[Request]()
    for name, of_slabs in dead.items():  # the rows of roots are read once, whatever they ended for
        if name in rows:
            rows_of = rows[name]
        else:
            rows_of = yield from roots.kept_rows(core, known[next(iter(of_slabs))].roots)
        for slab, buried in of_slabs.items() if rows_of is not None else ():
            buries += _bury(spout_keys, known[slab], buried, rows_of, expired)
    settles = [scripts.settle(spout_keys, call.how, call.slabs, list(call.tokens)) for call in calls]
    receipts = [entry.receipt for entry in entries]
    return Settling(core, spout, receipts, buries, settles, outcomes.confirming(core, spout, receipts))


def _any_expired(dead: Iterable[Mapping[bytes, Sequence[tuple[SlabOutcome, Entry]]]]) -> bool:
    return any(entry.status == "expired" for of in dead for buried in of.values() for _, entry in buried)


def _bury(
    own: keys.Spout,
    place: KeptSlab,
    ended: Sequence[tuple[SlabOutcome, Entry]],
    rows: pa.Table,
    expired: str,
) -> Iterator[Request]:
    """The requests that make dead letters of rows of a slab, one for each; `rows` are all of the roots'."""
    buried = [
        (at, outcome, entry, attempt)
        for outcome, entry in ended
        for attempt in (Attempt.of(place.roots.number, entry, outcome, expired),)
        for at in place.rows(outcome)
    ]
    rows = rows.take(
        pa.array([at for at, *_ in buried], pa.int64())
    )  # what is done with each column costs by its rows
    users = attempts.without(rows)
    how = place.roots.how
    named = columns.message_ids(rows, how.message_id).cast(pa.binary())  # Python may not have it as text
    record = place.roots.dump()
    for row, (at, outcome, entry, attempt) in enumerate(buried):
        index = at - place.first
        one = pa.Table.from_batches(users.slice(row, 1).to_batches(), users.schema)
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
            "stream": how.stream,
        }
        payload = segments.encode(one.to_batches(), "none")
        stored = dead_letter_store.packed(record, payload, attempts.pack(history))
        yield scripts.bury(own, place.roots.token, outcome.slab, index, stored, facts)


def pending(core: Core, spout: str) -> Operation[dict[str, int]]:
    """How many rows of a spout are pending, and how many were acked, replayed or made dead letters so far.

    Raises UnreadableRecord.
    """
    counts = keys.Spout.COUNTS
    [found] = yield [command("HMGET", keys.Spout(core.config.name, spout).counts, *counts)]
    named = zip(counts, found, strict=True)
    return {name: whole(value, f"spout {spout!r}, rows that are {name}") for name, value in named}


def watermark(core: Core, spout: str) -> Operation[dict[str, int]]:
    """For each partition of the source: the first offset that is not known to be done.

    All rows below it are acked or dead letters: that is what may be acknowledged (a Kafka consumer's offset).
    It is exact where nothing is pending, and stays behind by at most the rows staged together otherwise. It
    never goes back, as long as a source gives its offsets in ascending order: a dead letter that is replayed
    does not hold it back. Partitions without name are "". Raises UnreadableRecord.
    """
    own = keys.Spout(core.config.name, spout)
    # Kept rows are read last: roots that come in between only hold the watermark back. Those of a partition
    # without highest row are of a commit that has not kept all its roots yet, maybe not its lowest.
    [highest] = yield [command("HGETALL", own.highest)]
    [kept] = yield [command("HVALS", own.kept)]
    found = {
        name.decode("utf-8", "replace"): whole(after, f"spout {spout!r}, offset of partition {name!r:.100}")
        for name, after in pairs(highest).items()
    }
    for record in kept:
        for name, (low, _) in Roots.load(record).offsets.items():
            if name in found:
                found[name] = min(found[name], low)
    return found
