"""Replaying dead letters of one spout: they get new trees, and their rows are published, by one commit.

They are discarded by commits of the same writer, so each goes one way, and whoever sends it there counts it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa  # noqa: TID251 - rows travel as Arrow, from and to Spark and plain Python

from acker.errors import (
    AckerError,
    CommitOrderError,
    SchemaMismatch,
    SpoutPendingFull,
    TrackRejected,
    UnreadableRecord,
    ValidationError,
)
from acker.ledger import ids
from acker.ledger.calls.core import Core
from acker.ledger.settings import config
from acker.store import keys
from acker.store.operation import Operation, command
from acker.streams.commits import commit, holding
from acker.streams.commits.contents import Commit
from acker.streams.log import segments
from acker.streams.sources import dead_letter_store, kept_rows
from acker.streams.sources.columns import trackable
from acker.streams.sources.dead_letter_store import Head, StoredRow
from acker.streams.sources.kept_rows import Settled
from acker.streams.sources.roots import Roots
from acker.streams.sources.spout_options import SpoutOptions
from acker.streams.spouts.replays import emit_recorded, writer_of
from acker.streams.staging.staging import Staged, Staging

_RACES = 5
_RACES_OF_ONE = 100


@dataclass(frozen=True, slots=True)
class Refusal:
    """A dead letter that cannot be replayed, and why: it stays until it is discarded."""

    id: str
    why: str


@dataclass(frozen=True, slots=True)
class Again:
    """What became of the first `taken` of some dead letters. anchors: id -> the anchor of its new tree."""

    taken: int
    anchors: dict[str, int]
    refused: tuple[Refusal, ...] = ()


@dataclass(slots=True)
class _Group:
    """Dead letters that are emitted in one way."""

    letters: list[Head] = field(default_factory=list)
    batches: list[pa.RecordBatch] = field(default_factory=list)


@dataclass(slots=True)
class _Made:
    """Staged parts of a commit."""

    staged: list[Staged] = field(default_factory=list)
    roots: list[Roots] = field(default_factory=list)
    anchors: dict[str, int] = field(default_factory=dict)
    refused: list[Refusal] = field(default_factory=list)


def replay(core: Core, found: Sequence[Head]) -> Operation[Again | None]:
    """Replays as many dead letters of one spout, from the first on, as there is room for: one at least.

    None where others have replayed each time that this was to be stored. One that is gone is in neither of
    the answer's parts. Raises SpoutPendingFull or TrackRejected where there is no room: nothing has changed.
    Each of several at the same moment may find the last room, and is replayed.
    """
    spout = found[0].spout
    for _ in range(_RACES_OF_ONE if len(found) == 1 else _RACES):  # many are staged anew each time
        # The number first: whoever replays the same letters meanwhile takes it, and this commit loses.
        number = yield from commit.next_number(core, writer_of(spout))
        rows = yield from dead_letter_store.stored(core, found)
        most, full = yield from _room(
            core, spout, [row.roots.how for row in rows if isinstance(row, StoredRow)]
        )
        taken = min(len(found), most)
        while True:
            made = yield from _stage(core, found[:taken], rows[:taken])
            what = Commit(tuple(made.staged), tuple(made.roots), settled=_settled(spout, made.anchors))
            if full or not (lack := (yield from _lack(core, made.roots))):
                break
            yield from holding.discard(core, what)
            if taken == 1:
                raise lack
            taken //= 2
        if not made.anchors or (yield from commit.commit(core, writer_of(spout), number, what)):
            return Again(taken, made.anchors, tuple(made.refused))
    return None


def discard(core: Core, spout: str, numbers: Sequence[str]) -> Operation[set[str]]:
    """Drops dead letters of a spout for good, up to 500; returns which ones it has dropped itself.

    Raises CommitOrderError where others have settled or replayed each time that this was to be stored.
    """
    own = keys.Spout(core.config.name, spout)
    for _ in range(_RACES_OF_ONE):
        # The number first, as for a replay.
        number = yield from commit.next_number(core, writer_of(spout))
        replies = yield [command("XRANGE", own.dead, one, one) for one in numbers]
        there = [one for one, found in zip(numbers, replies, strict=True) if found]
        what = Commit(settled=Settled(spout, letters=tuple(there), token=segments.new_token()))
        if not there or (yield from commit.commit(core, writer_of(spout), number, what)):
            return set(there)
    raise CommitOrderError(
        f"dead letters of spout {spout!r}: others have gone on each of the {_RACES_OF_ONE} times that some "
        "were to be discarded; try again"
    )


def _settled(spout: str, anchors: Iterable[str]) -> Settled:
    return Settled(spout, letters=tuple(letter.partition("@")[0] for letter in anchors))


def _stage(
    core: Core, found: Sequence[Head], rows: Sequence[StoredRow | UnreadableRecord | None]
) -> Operation[_Made]:
    made = _Made()
    groups: dict[tuple[SpoutOptions, str], _Group] = {}
    for one, row in zip(found, rows, strict=True):
        if row is None:
            continue
        try:
            how, batches = _prepared(one, row)
        except (UnreadableRecord, ValidationError) as error:
            made.refused.append(Refusal(one.id, str(error)))
            continue
        group = groups.setdefault((how, batches[0].schema.to_string()), _Group())
        group.letters.append(one)
        group.batches += batches
    for (how, _), group in groups.items():
        try:
            roots, piece = yield from emit_recorded(core, how, Staging(how.stream), group.batches)
        except SchemaMismatch as error:
            made.refused += [Refusal(one.id, str(error)) for one in group.letters]
            continue
        made.staged.append(piece)
        made.roots += roots
        anchors = [int(anchor) for one in roots for anchor in one.anchors()]
        made.anchors |= {one.id: anchor for one, anchor in zip(group.letters, anchors, strict=True)}
    return made


def _prepared(one: Head, row: StoredRow | UnreadableRecord) -> tuple[SpoutOptions, list[pa.RecordBatch]]:
    """How a row is emitted again; ValidationError or UnreadableRecord where it cannot be."""
    if isinstance(row, UnreadableRecord):
        raise row
    # The watermark has passed it, and never goes back.
    how = replace(row.roots.how, offset="", partition="")
    batches = dead_letter_store.batches(one, row)
    if not trackable(pa.Table.from_batches(batches), how.message_id):
        raise ValidationError(
            f"dead letter {one.id!r} cannot be replayed: its message id is null or too long; write its "
            "row again with another, and discard it"
        )
    return how, batches


def _room(core: Core, spout: str, hows: Sequence[SpoutOptions]) -> Operation[tuple[int, bool]]:
    """How many trees of a spout there is room for, and whether it is given room over any limit.

    A spout that has all its dead letters waits for one to go before its outcomes make room: there always is.
    """
    limits = [how.max_spout_pending for how in hows if how.max_spout_pending is not None]
    most = core.config.high_water_mark
    [there] = yield [command("XLEN", keys.Spout(core.config.name, spout).dead)]
    full = int(there) >= config.DEAD_LETTERS
    if limits:
        pending = 0 if full else (yield from kept_rows.pending(core, spout))["pending"]
        if (most := min(most, min(limits) - pending)) <= 0:
            raise SpoutPendingFull(
                f"spout {spout!r} has {pending:,} rows without outcome: max_spout_pending is {min(limits):,}"
            )
    return most, full


def _lack(core: Core, members: Iterable[Roots]) -> Operation[AckerError | None]:
    """What hinders the trees of a replay, where a shard has no room for all of them."""
    wanted: dict[int, int] = {}
    for one in members:
        shards = ids.shards_of(ids.split(one.slabs())[0], core.config.ackers)
        for place, shard in enumerate(map(int, shards)):
            wanted[shard] = wanted.get(shard, 0) + min(one.slab, one.rows - place * one.slab)
    if not wanted:
        return None
    replies = yield [command("HGET", core.shards[shard].counters, "held") for shard in wanted]
    for rows, held in zip(wanted.values(), replies, strict=True):
        if int(held or 0) + rows > core.config.shard_limit:
            return TrackRejected(
                f"topology {core.config.name!r} is over its high-water mark of "
                f"{core.config.high_water_mark:,} trees"
            )
    return None
