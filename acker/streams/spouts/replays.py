"""Replays: a tree that was not acked is followed by a new one for the same row, until its last attempt.

What a spout keeps for it is in the store, so any process may do it, any number of them side by side, and none
needs to know the spout: see `acker.streams.spouts.settler`.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import pyarrow as pa  # noqa: TID251 - rows travel as Arrow, from and to Spark and plain Python

from acker.errors import SchemaMismatch, ValidationError
from acker.ledger import ids
from acker.ledger.calls.core import Core
from acker.ledger.outcomes import outcomes
from acker.ledger.outcomes.outcomes import Entry
from acker.ledger.slabs import sections
from acker.ledger.user_functions.undone import undone
from acker.store.operation import Operation, abreast
from acker.streams.commits import commit as commits
from acker.streams.commits import record
from acker.streams.commits.contents import Commit
from acker.streams.log import gathers, schemas, subscriptions
from acker.streams.log.segments import SEGMENT_BYTES
from acker.streams.sources import attempts, kept_rows, roots
from acker.streams.sources.attempts import Attempt
from acker.streams.sources.kept_rows import KeptSlab, Settled
from acker.streams.sources.roots import Drawn, Roots
from acker.streams.sources.spout_options import SpoutOptions, outcomes_stream
from acker.streams.spouts import backoff
from acker.streams.spouts.backoff import SettleProgress
from acker.streams.staging import late
from acker.streams.staging.staging import STAGING_TTL, Staged, Staging, stage_segment

STEP_TREES = 200_000
"""Trees after which a step takes no further outcomes."""
STEP_REPLAYS = 20_000
"""Trees to be replayed or buried after which it takes none either."""
ENTRY_TREES = 20
"""So many trees an entry counts as at least there: with few trees it costs what these cost."""
STEP_LOOK = 20_000
"""Entries of outcomes after which a step looks at no further ones, where some wait for their time."""

OUTCOMES = pa.schema(
    [
        ("message_id", pa.binary()),
        ("anchor", pa.int64()),
        ("status", pa.string()),
        ("reason", pa.string()),
        ("attempt", pa.int32()),
        ("final", pa.bool_()),
        ("latency", pa.float64()),
        ("at", pa.timestamp("us", "UTC")),
        ("step", pa.string()),
        ("batch", pa.int64()),
    ]
)
"""Outcomes as rows. status: acked, failed or expired. final: no replay follows. latency: seconds from track
to outcome by the store's clock; at: when it was. step, batch: who has failed it, and in which batch of its
query; "" and -1 where that is not known."""

_log = logging.getLogger(__name__)

OnOutcomes: TypeAlias = Callable[[pa.Table], object]


@dataclass(frozen=True, slots=True)
class Stepped:
    """What a step has settled: rows that were acked, replayed, and made dead letters."""

    acked: int = 0
    replayed: int = 0
    dead: int = 0

    @property
    def all(self) -> int:
        """All of them."""
        return self.acked + self.replayed + self.dead


def writer_of(spout: str) -> str:
    """The writer of a spout's commits: their numbers let one of several processes win."""
    return f"{record.SHARED}{spout}"


def step(
    core: Core, spout: str, on_outcomes: OnOutcomes | None = None, reading: SettleProgress | None = None
) -> Operation[Stepped]:
    """Settles a bounded number of the outcomes of a spout that has kept rows: replays, buries, confirms.

    reading: where the step before has come to, for the next one; None begins with the oldest outcomes.
    on_outcomes: is called with the outcomes (`OUTCOMES`) before anything else is done; if it raises, or the
    process dies, they are reported again. Raises DeadLettersFull, before that; what is not settled waits,
    unconfirmed.
    """
    number = yield from commits.next_number(core, writer_of(spout))
    reading = reading or SettleProgress(core, spout)
    names = dict[bytes, list[bytes]]()
    entries, known = yield from _read(core, spout, reading, None if on_outcomes is None else names)
    if not entries:
        reading.finish(entries)
        return Stepped()
    unreadable = yield from kept_rows.look_at_dead(core, spout, entries, known)
    wanted = any(place.roots.how.outcomes for place in known.values())
    table = None
    if wanted or on_outcomes is not None:
        table = yield from _table(core, entries, known, names if on_outcomes is not None else None)
    some = table is not None and table.num_rows > 0
    if on_outcomes is not None and some and (kind := undone(on_outcomes(table))):
        raise ValidationError(
            "on_outcomes: expected a function that has handled its outcomes when it returns, got one that "
            f"returned a {kind}; they are reported again. Run that work in the function, as by asyncio.run"
        )
    staged, again, gone = yield from _stage_replays(core, entries, known)
    unreadable |= gone
    if wanted and table is not None:
        staged += yield from _stage_outcomes(core, spout, table)
    if staged:
        taken = [entry.receipt for entry in entries]
        places = tuple((one.shard, one.id.decode(), one.digest.decode()) for one in taken)
        settled = Settled(spout, places, unreadable=tuple(sorted(unreadable)))
        what = Commit(tuple(staged), tuple(again), settled=settled)
        mine = yield from commits.commit(core, writer_of(spout), number, what)
        if not mine:
            return Stepped()
    else:
        settling = yield from kept_rows.settling(core, spout, entries, unreadable, known)
        yield from settling.carry_out()
    reading.finish(entries)
    return _stepped(entries, known, unreadable)


def _read(
    core: Core, spout: str, reading: SettleProgress, names: dict[bytes, list[bytes]] | None
) -> Operation[tuple[list[Entry], dict[bytes, KeptSlab]]]:
    """The next outcomes that are due, as many as a step takes, and where their rows are.

    names: gets the message ids of their slabs; None: nobody wants them.
    """
    yield from core.register_spout(spout)
    reading.begin()
    taken: dict[object, Entry] = {}
    known: dict[bytes, KeptSlab] = {}
    trees, bad, looked, most = 0, 0, 0, core.config.slab_trees
    while looked < STEP_LOOK:
        before = reading.reader.position
        found = yield from reading.reader.read()
        if not found:
            reading.ended = True
            break
        looked += len(found)
        slabs = kept_rows.slabs_of(found)
        looks: list[Operation[Any]] = [kept_rows.kept_slabs(core, spout, slabs)]
        looks += [] if names is None else [outcomes.message_ids(core, slabs)]
        places, *read = yield from abreast(looks)
        for one in read:
            names |= one
        due, wait = yield from backoff.due(core, spout, found, places)
        reading.passed(len(found) - len(due), wait)
        for entry in due:
            if trees >= STEP_TREES or bad >= STEP_REPLAYS:
                reading.reader.position = before
                break
            taken[entry.receipt] = entry
            known |= {outcome.slab: places[outcome.slab] for outcome in entry.slabs if outcome.slab in places}
            rows = (
                len(outcome.of(places[outcome.slab].count if outcome.slab in places else most))
                for outcome in entry.slabs
            )
            count = max(sum(rows), ENTRY_TREES)
            trees += count
            bad += count if entry.status != "acked" else 0
        if len(due) == len(found) or trees >= STEP_TREES or bad >= STEP_REPLAYS:
            break  # only what waits for its time is passed over
    return list(taken.values()), known


def _stepped(entries: Sequence[Entry], known: dict[bytes, KeptSlab], unreadable: set[str]) -> Stepped:
    counts = {"acked": 0, "replayed": 0, "dead": 0}
    for entry in entries:
        for outcome in entry.slabs:
            if place := known.get(outcome.slab):
                fate = place.fate(entry, outcome)
                if fate == "acked" or place.roots.token not in unreadable:
                    counts[fate] += len(place.rows(outcome))
    return Stepped(**counts)


@dataclass(slots=True)
class _Group:
    """Rows that are replayed in one way."""

    how: SpoutOptions
    number: int
    batches: list[pa.RecordBatch]
    origin: tuple[str, int] | None = None
    rows: int = 0
    bytes: int = 0
    tokens: set[str] = field(default_factory=set)


def _stage_replays(
    core: Core, entries: Sequence[Entry], known: dict[bytes, KeptSlab]
) -> Operation[tuple[list[Staged], list[Roots], set[str]]]:
    """Stages a new root, and a tuple of the stream, for each row that is to be tried again.

    Returns the tokens, too, of those whose rows cannot be read, are gone, or are of no use to their stream.
    """
    again: dict[str, tuple[Roots, dict[int, Attempt]]] = {}
    expired = ""
    for entry in entries:
        for outcome in entry.slabs:
            place = known.get(outcome.slab)
            if place is not None and place.fate(entry, outcome) == "replayed":
                if entry.status == "expired" and not expired:
                    expired = yield from late.why_expired(core)
                one = Attempt.of(place.roots.number, entry, outcome, expired)
                ended = again.setdefault(place.roots.token, (place.roots, {}))[1]
                ended.update(dict.fromkeys(place.rows(outcome), one))
    staged: list[Staged] = []
    tracked: list[Roots] = []
    unreadable: set[str] = set()
    groups: dict[tuple[object, ...], _Group] = {}
    for old, ended in again.values():
        rows = yield from roots.kept_rows(core, old)
        if rows is None:
            unreadable.add(old.token)
            continue
        most, places = roots.most_rows(core, old.how), sorted(ended)
        for at in range(0, len(places), most):
            part = attempts.take(rows, {place: ended[place] for place in places[at : at + most]})
            query, batch = old.origin or ("", 0)
            name = (old.how, old.number, part.schema.to_string(), query)
            group = groups.get(name)
            if group is not None and group.rows + part.num_rows > most:
                unreadable |= yield from _stage_group(core, groups.pop(name), staged, tracked)
                group = None
            if group is None:
                group = groups[name] = _Group(old.how, old.number + 1, [], old.origin)
            if group.origin is not None:
                group.origin = query, min(batch, group.origin[1])
            group.batches += part.to_batches()
            group.rows += part.num_rows
            group.bytes += part.nbytes
            group.tokens.add(old.token)
            if group.bytes >= SEGMENT_BYTES:
                unreadable |= yield from _stage_group(core, groups.pop(name), staged, tracked)
    for group in groups.values():
        unreadable |= yield from _stage_group(core, group, staged, tracked)
    return staged, tracked, unreadable


def _stage_group(
    core: Core, group: _Group, staged: list[Staged], tracked: list[Roots]
) -> Operation[set[str]]:
    """Returns the tokens of roots whose rows their stream does not take any more: it was made anew."""
    how = group.how
    schema = attempts.visible(group.batches[0].schema)
    try:
        yield from schemas.record(core, how.stream, roots.anchored_schema(schema, how))
    except SchemaMismatch as error:  # the other outcomes of the spout are settled all the same
        _log.error("rows of spout %r are kept and not tried again: %s", how.spout, error)
        return group.tokens
    made, piece = yield from roots.emit(core, how, Staging(how.stream), group.batches, group.number)
    tracked += [replace(one, origin=group.origin) for one in made]
    staged.append(piece)
    return set()


def emit_recorded(
    core: Core,
    how: SpoutOptions,
    staging: Staging,
    batches: Sequence[pa.RecordBatch],
    drawn: Drawn | None = None,
) -> Operation[tuple[tuple[Roots, ...], Staged]]:
    """As `acker.streams.sources.roots.emit`, when the schema of the stream is recorded, or compared.

    drawn: for a commit at once (acker/streams/commits/run.py), which finds its spout noted.
    """
    schema = roots.anchored_schema(batches[0].schema, how)
    looks: list[Operation[Any]] = [
        schemas.record(core, staging.stream, schema),
        subscriptions.staged_for(core, staging.stream),
    ]
    if drawn is not None and core.config.ackers:
        looks.append(core.register_spouts({how.spout, *([sections.SPOUT] if how.line else [])}))
    looks += [gathers.line(core, how.line)] if how.line and core.config.ackers else []
    _, to, *found = yield from abreast(looks)
    line = found[-1] if how.line and core.config.ackers else None
    return (yield from roots.emit(core, how, replace(staging, to=to), batches, line=line, drawn=drawn))


def _table(
    core: Core,
    entries: Sequence[Entry],
    known: dict[bytes, KeptSlab],
    names: dict[bytes, list[bytes]] | None,
) -> Operation[pa.Table]:
    """Outcomes as rows. names: the message ids of slabs, where they were read."""
    if names is None:
        names = yield from outcomes.message_ids(core, list(known))
    expired = any(entry.status == "expired" for entry in entries)
    why = (yield from late.why_expired(core)) if expired else ""
    columns: list[list[object]] = [[] for _ in OUTCOMES]
    for entry in entries:
        for outcome in entry.slabs:
            place, ids_here = known.get(outcome.slab), names.get(outcome.slab)
            if place is None or ids_here is None:
                continue
            indexes = outcome.of(min(place.count, len(ids_here)))
            count = len(indexes)
            final = place.fate(entry, outcome) != "replayed"
            columns[0] += [ids_here[index] for index in indexes]
            columns[1] += [ids.anchor_at(outcome.slab, index) for index in indexes]
            same = (
                entry.status,
                outcome.cause.reason or (why if entry.status == "expired" else ""),
                place.roots.number,
                final,
                outcome.latency,
                round(entry.at * 1e6),
                outcome.cause.step,
                outcome.cause.batch,
            )
            for column, value in zip(columns[2:], same, strict=True):
                column += [value] * count
    return pa.table(
        [pa.array(column, kind.type) for column, kind in zip(columns, OUTCOMES, strict=True)], OUTCOMES
    )


def _stage_outcomes(core: Core, spout: str, table: pa.Table) -> Operation[list[Staged]]:
    how = Staging(outcomes_stream(spout), ttl=STAGING_TTL)
    yield from schemas.record(core, how.stream, OUTCOMES)
    segment = yield from stage_segment(core, how, table.combine_chunks().to_batches())
    return [Staged(how.stream, (segment,))]
