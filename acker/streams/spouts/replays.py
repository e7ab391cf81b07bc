"""Replays: a tree that was not acked is followed by a new one for the same row, until its last attempt.

The store has all data of a spout that this needs. So any process may do it, any number of them side by side,
and none needs to know the spout: see `acker.streams.spouts.settler`.

Terms: a tree is all that comes of one record; a slab is the trees that one call tracked together.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import pyarrow as pa  # noqa: TID251 - rows travel as Arrow, from and to Spark and plain Python

from acker.errors import ValidationError
from acker.ledger import ids
from acker.ledger.calls.core import Core
from acker.ledger.outcomes import outcomes, unconfirmed
from acker.ledger.outcomes.outcomes import Entry
from acker.ledger.slabs import sections
from acker.ledger.user_functions.undone import undone
from acker.store import keys
from acker.store.operation import Operation, Request, abreast
from acker.store.replies import seconds
from acker.streams.commits import commit as commits
from acker.streams.commits import record
from acker.streams.commits.contents import Commit
from acker.streams.log import gathers, schemas, subscriptions
from acker.streams.sources import kept_rows, rereads, roots
from acker.streams.sources.kept_rows import KeptSlab, Settled
from acker.streams.sources.roots import Roots, StagedRoots
from acker.streams.sources.spout_options import SpoutOptions
from acker.streams.spouts import backoff, settle_facts
from acker.streams.spouts.backoff import SettleProgress
from acker.streams.spouts.settle_facts import Facts
from acker.streams.spouts.staged_replays import StagedReplays
from acker.streams.staging.staging import Staged, Staging

STEP_TREES = 200_000
"""Trees after which a step takes no further outcomes."""
STEP_REPLAYS = 20_000
"""Trees to be replayed or buried after which a step takes no further outcomes either."""
ENTRY_TREES = 20
"""The least number of trees that an entry counts as, because a small entry costs as much."""
STEP_LOOK = 20_000
"""Entries of outcomes after which a step reads no further ones, if some wait for their time."""
_UNREAD_WAIT = 0.5
"""Seconds until outcomes whose rows are to be read again are looked at once more."""

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
"""Outcomes as rows.

status: acked, failed or expired. final: no replay follows. latency: seconds from track to outcome by the
store's clock; at: the time of the outcome. step, batch: the step that failed the tree, and the batch of its
query; "" and -1 if unknown.
"""

OnOutcomes: TypeAlias = Callable[[pa.Table], object]


@dataclass(frozen=True, slots=True)
class Stepped:
    """The rows that a step has settled: acked, replayed, and made dead letters."""

    acked: int = 0
    replayed: int = 0
    dead: int = 0

    @property
    def all(self) -> int:
        """The sum of these counts."""
        return self.acked + self.replayed + self.dead


def writer_of(spout: str) -> str:
    """The writer of a spout's commits: their numbers let one of several processes win."""
    return f"{record.SHARED}{spout}"


def step(
    core: Core,
    spout: str,
    on_outcomes: OnOutcomes | None = None,
    reading: SettleProgress | None = None,
    first: Sequence[Request] = (),
) -> Operation[Stepped]:
    """Settles a bounded number of a spout's outcomes: replays, buries, confirms. The rest waits, unconfirmed.

    One server takes four exchanges for it: the outcomes, the kept rows of their slabs, the facts that these
    need, and the commit.

    Args:
        core: The topology.
        spout: The spout.
        on_outcomes: Gets the outcomes (`OUTCOMES`) before anything changes. If it raises, or the process
            dies, they are reported again.
        reading: The progress of the step before; None begins with the oldest outcomes.
        first: Requests that go with the first look.

    Returns:
        The number of rows that were settled.

    Raises:
        DeadLettersFull: The spout has its most dead letters. Nothing has changed.
        ValidationError: `on_outcomes` has not handled the outcomes when it returned.
    """
    reading = reading or SettleProgress(core, spout)
    number, first_entries = yield from _begin(core, spout, reading, first)
    names = dict[bytes, list[bytes]]()
    told = on_outcomes is not None
    states = rereads.States()
    taken, by_slab = yield from _read(core, spout, reading, first_entries, names if told else None, states)
    if not taken:
        reading.finish(taken)
        return Stepped()
    entries = rereads.divided(taken, by_slab, states)
    wanted = any(place.roots.how.outcomes for place in by_slab.values())
    facts = yield from settle_facts.read(
        core, spout, entries, by_slab, names if told else None, wanted=wanted
    )
    unreadable = yield from facts.unreadable(spout)
    table = _table(entries, by_slab, facts) if wanted or told else None
    some = table is not None and table.num_rows > 0
    if on_outcomes is not None and some and (kind := undone(on_outcomes(table))):
        raise ValidationError(
            "on_outcomes: expected a function that has handled its outcomes when it returns, got one that "
            f"returned a {kind}. They are reported again. Run that work in the function, as by asyncio.run"
        )
    staged_replays = StagedReplays(core, facts)
    yield from staged_replays.stage(entries, by_slab)
    unreadable |= staged_replays.unreadable
    if wanted and table is not None:
        yield from staged_replays.stage_outcomes(spout, table)
    rows = facts.rows.found
    settling = yield from kept_rows.settling(core, spout, entries, unreadable, by_slab, rows, facts.expired)
    if staged_replays.staged:
        confirmations = [entry.confirmation for entry in taken]
        places = tuple((one.shard, one.id.decode(), one.digest.decode()) for one in confirmations)
        settled = Settled(spout, places, unreadable=tuple(sorted(unreadable)))
        work = Commit(tuple(staged_replays.staged), tuple(staged_replays.roots), settled=settled)
        staged = taken if wanted else [entry for entry in taken if entry.status != "acked"]
        # No other settler has confirmed the outcomes since they were read: a node of a cluster may tell of
        # them before another node tells the number of the commit.
        at_hand = staged_replays.at_hand(unconfirmed.checks(core, spout, staged), settling)
        if not (yield from commits.commit(core, writer_of(spout), number, work, at_hand=at_hand)):
            return Stepped()
    else:
        yield from settling.carry_out()
    reading.finish(taken)
    return _stepped(entries, by_slab, unreadable)


def _begin(
    core: Core, spout: str, reading: SettleProgress, first: Sequence[Request]
) -> Operation[tuple[int, list[Entry]]]:
    """The number of the next commit, and the first outcomes. A commit that was left undone is finished."""
    yield from core.register_spout(spout)
    writer = writer_of(spout)
    reading.begin()
    looks: list[Operation[Any]] = [
        settle_facts.ask(first),
        commits.last(core, writer),
        reading.read(),
    ]
    _, (number, done), entries = yield from abreast(looks)
    if not done:
        yield from commits.finish(core, writer, number)
        reading.begin()  # it has settled some of these outcomes
        entries = yield from reading.read()
    return number + 1, entries


def _read(
    core: Core,
    spout: str,
    reading: SettleProgress,
    entries: list[Entry],
    names: dict[bytes, list[bytes]] | None,
    states: rereads.States,
) -> Operation[tuple[list[Entry], dict[bytes, KeptSlab]]]:
    """The next due outcomes, as many as a step takes, and their rows by slab.

    entries: the first of them. names: gets the message ids of their slabs; None if they are not needed.
    states: gets the states of kept ids. An outcome of rows that were not read again yet waits.
    """
    taken: dict[object, Entry] = {}
    by_slab: dict[bytes, KeptSlab] = {}
    trees, bad, read_count, most = 0, 0, 0, core.config.slab_trees
    while entries:
        read_count += len(entries)
        slabs = kept_rows.slabs_of(entries)
        waits = any(entry.status != "acked" for entry in entries)
        looks: list[Operation[Any]] = [
            kept_rows.kept_slabs(core, spout, slabs),
            settle_facts.ask([Request(keys.Spout(core.config.name, spout).kept, ["TIME"])] if waits else []),
        ]
        looks += [] if names is None else [outcomes.message_ids(core, slabs)]
        places, instant, *read = yield from abreast(looks)
        for one in read:
            names |= one
        due, wait = backoff.due(entries, places, seconds(instant[0]) if waits else 0.0)
        reading.passed(len(entries) - len(due), wait)
        yield from rereads.read_states(core, due, places, states, reading.states)
        unread = rereads.unread(due, places, states)
        reading.passed(len(unread), _UNREAD_WAIT)
        due = [entry for entry in due if entry.confirmation not in unread]
        for entry in due:
            if trees >= STEP_TREES or bad >= STEP_REPLAYS:
                reading.put_back()
                break
            taken[entry.confirmation] = entry
            by_slab |= {
                outcome.slab: places[outcome.slab] for outcome in entry.slabs if outcome.slab in places
            }
            rows = (
                len(outcome.indexes_in(places[outcome.slab].count if outcome.slab in places else most))
                for outcome in entry.slabs
            )
            count = max(sum(rows), ENTRY_TREES)
            trees += count
            bad += count if entry.status != "acked" else 0
        if len(due) == len(entries) or trees >= STEP_TREES or bad >= STEP_REPLAYS or read_count >= STEP_LOOK:
            break  # only entries that wait for their time are passed over
        entries = yield from reading.read()
    reading.ended = not entries
    return list(taken.values()), by_slab


def _stepped(entries: Sequence[Entry], by_slab: dict[bytes, KeptSlab], unreadable: set[str]) -> Stepped:
    counts = {"acked": 0, "replayed": 0, "dead": 0}
    for entry in entries:
        for outcome in entry.slabs:
            if place := by_slab.get(outcome.slab):
                fate = place.fate(entry, outcome)
                if fate == "acked" or place.roots.id not in unreadable:
                    counts[fate] += len(place.rows(outcome))
    return Stepped(**counts)


def emit_recorded(
    core: Core,
    options: SpoutOptions,
    staging: Staging,
    batches: Sequence[pa.RecordBatch],
    staged_roots: StagedRoots | None = None,
    ids: Sequence[str] = (),
) -> Operation[tuple[tuple[Roots, ...], Staged]]:
    """Records the schema of the stream, then stages rows by `acker.streams.sources.roots.emit`.

    ids: the columns that are kept; () keeps rows.
    staged_roots: for a commit in one chunk (acker/streams/commits/run.py), which finds its spout noted.
    """
    schema = roots.anchored_schema(batches[0].schema, options)
    looks: list[Operation[Any]] = [
        schemas.record(core, staging.stream, schema),
        subscriptions.staged_for(core, staging.stream),
    ]
    if staged_roots is not None and core.config.ackers:
        looks.append(core.register_spouts({options.spout, *([sections.SPOUT] if options.line else [])}))
    looks += [gathers.read_line(core, options.line)] if options.line and core.config.ackers else []
    _, to, *found = yield from abreast(looks)
    line = found[-1] if options.line and core.config.ackers else None
    return (
        yield from roots.emit(
            core, options, replace(staging, to=to), batches, line=line, staged_roots=staged_roots, ids=ids
        )
    )


def _table(entries: Sequence[Entry], by_slab: dict[bytes, KeptSlab], facts: Facts) -> pa.Table:
    """Outcomes as rows."""
    columns: list[list[object]] = [[] for _ in OUTCOMES]
    for entry, outcome, place in settle_facts.placed(entries, by_slab):
        if (ids_here := facts.names.get(outcome.slab)) is None:
            continue
        indexes = outcome.indexes_in(min(place.count, len(ids_here)))
        count = len(indexes)
        final = place.fate(entry, outcome) != "replayed"
        columns[0] += [ids_here[index] for index in indexes]
        columns[1] += [ids.anchor_at(outcome.slab, index) for index in indexes]
        same = (
            entry.status,
            outcome.cause.reason or (facts.expired if entry.status == "expired" else ""),
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
