"""Replays dead letters of one spout: they get new trees, and their rows are published, by one commit.

They are discarded by commits of the same writer. So each letter goes one way, and is counted by the process
that sends it there.

Terms: a tree is all that comes of one record; an anchor is the number of a tree; staged rows are stored, but
nobody sees them before a commit.
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
from acker.streams.sources import dead_letter_store, kept_rows, rereads
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
    """A dead letter that cannot be replayed, and the reason: it stays until it is discarded."""

    id: str
    why: str


@dataclass(frozen=True, slots=True)
class Again:
    """The result for the first `taken` of some dead letters. anchors: id -> the anchor of its new tree."""

    taken: int
    anchors: dict[str, int]
    refused: tuple[Refusal, ...] = ()


@dataclass(slots=True)
class _Group:
    """Dead letters with the same options and schema, which are emitted together."""

    letters: list[Head] = field(default_factory=list)
    batches: list[pa.RecordBatch] = field(default_factory=list)


@dataclass(slots=True)
class _Made:
    """Staged parts of a commit."""

    staged: list[Staged] = field(default_factory=list)
    roots: list[Roots] = field(default_factory=list)
    anchors: dict[str, int] = field(default_factory=dict)
    refused: list[Refusal] = field(default_factory=list)


def replay(core: Core, letters: Sequence[Head]) -> Operation[Again | None]:
    """Replays as many dead letters of one spout, from the first on, as there is room for: one at least.

    None if other replays were stored first each time. A letter that is gone is in neither part of the result.
    Raises SpoutPendingFull or TrackRejected if there is no room: nothing has changed. Several replays at the
    same moment may each find the last room, and take effect.
    """
    spout = letters[0].spout
    for _ in range(_RACES_OF_ONE if len(letters) == 1 else _RACES):  # many are staged anew each time
        # The number first: another replay of the same letters takes it meanwhile, and this commit loses.
        number = yield from commit.next_number(core, writer_of(spout))
        rows = yield from dead_letter_store.stored(core, letters)
        most, full = yield from _room(
            core, spout, [row.roots.how for row in rows if isinstance(row, StoredRow)]
        )
        taken = min(len(letters), most)
        while True:
            staged = yield from _stage(core, letters[:taken], rows[:taken])
            work = Commit(tuple(staged.staged), tuple(staged.roots), settled=_settled(spout, staged.anchors))
            if full or not (lack := (yield from _lack(core, staged.roots))):
                break
            yield from holding.discard(core, work)
            if taken == 1:
                raise lack
            taken //= 2
        if not staged.anchors or (yield from commit.commit(core, writer_of(spout), number, work)):
            return Again(taken, staged.anchors, tuple(staged.refused))
    return None


def discard(core: Core, spout: str, numbers: Sequence[str]) -> Operation[set[str]]:
    """Drops dead letters of a spout for good, up to 500; returns the numbers that this call has dropped.

    Raises CommitOrderError if other commits were stored first each time.
    """
    spout_keys = keys.Spout(core.config.name, spout)
    for _ in range(_RACES_OF_ONE):
        # The number first, as for a replay.
        number = yield from commit.next_number(core, writer_of(spout))
        replies = yield [command("XRANGE", spout_keys.dead, one, one) for one in numbers]
        there = [one for one, found in zip(numbers, replies, strict=True) if found]
        work = Commit(settled=Settled(spout, letters=tuple(there), id=segments.new_hex_id()))
        if not there or (yield from commit.commit(core, writer_of(spout), number, work)):
            return set(there)
    raise CommitOrderError(
        f"dead letters of spout {spout!r} were not discarded: other commits were stored first each of "
        f"{_RACES_OF_ONE} times. Try again"
    )


def _settled(spout: str, anchors: Iterable[str]) -> Settled:
    return Settled(spout, letters=tuple(letter.partition("@")[0] for letter in anchors))


def _stage(
    core: Core, letters: Sequence[Head], rows: Sequence[StoredRow | UnreadableRecord | None]
) -> Operation[_Made]:
    staged = _Made()
    groups: dict[tuple[SpoutOptions, str], _Group] = {}
    for letter, row in zip(letters, rows, strict=True):
        if row is None:
            continue
        try:
            options, batches = _prepared(letter, row)
        except (UnreadableRecord, ValidationError) as error:
            staged.refused.append(Refusal(letter.id, str(error)))
            continue
        group = groups.setdefault((options, batches[0].schema.to_string()), _Group())
        group.letters.append(letter)
        group.batches += batches
    for (options, _), group in groups.items():
        try:
            roots, piece = yield from emit_recorded(core, options, Staging(options.stream), group.batches)
        except SchemaMismatch as error:
            staged.refused += [Refusal(letter.id, str(error)) for letter in group.letters]
            continue
        staged.staged.append(piece)
        staged.roots += roots
        anchors = [int(anchor) for member in roots for anchor in member.anchors()]
        staged.anchors |= {letter.id: anchor for letter, anchor in zip(group.letters, anchors, strict=True)}
    return staged


def _prepared(letter: Head, row: StoredRow | UnreadableRecord) -> tuple[SpoutOptions, list[pa.RecordBatch]]:
    """The options and the row of a letter to emit again. Raises ValidationError or UnreadableRecord."""
    if isinstance(row, UnreadableRecord):
        raise row
    if row.roots.keeps_ids and letter.reason.startswith(rereads.GONE):
        raise ValidationError(
            f"dead letter {letter.id!r} cannot be replayed: its row was gone from its source, so the letter "
            "has its id only. Write the row again, and discard the letter"
        )
    # The watermark has passed it, and never goes back.
    options = replace(row.roots.how, offset="", partition="")
    batches = dead_letter_store.batches(letter, row)
    if not trackable(pa.Table.from_batches(batches), options.message_id):
        raise ValidationError(
            f"dead letter {letter.id!r} cannot be replayed: its message id is null or too long. Write its "
            "row again with another id, and discard the letter"
        )
    return options, batches


def _room(core: Core, spout: str, hows: Sequence[SpoutOptions]) -> Operation[tuple[int, bool]]:
    """The number of a spout's trees that there is room for, and True if limits do not apply.

    A spout that has its most dead letters waits for one to go before its outcomes make room: so there always
    is room.
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
    """The error for the trees of a replay, if a shard has no room for all of them."""
    wanted: dict[int, int] = {}
    for roots in members:
        shards = ids.shards_of(ids.split(roots.slabs())[0], core.config.ackers)
        for place, shard in enumerate(map(int, shards)):
            wanted[shard] = wanted.get(shard, 0) + min(roots.slab, roots.rows - place * roots.slab)
    if not wanted:
        return None
    replies = yield [command("HGET", core.shards[shard].counters, "outstanding") for shard in wanted]
    for rows, held in zip(wanted.values(), replies, strict=True):
        if int(held or 0) + rows > core.config.shard_limit:
            return TrackRejected(
                f"topology {core.config.name!r} is over its high-water mark of "
                f"{core.config.high_water_mark:,} trees"
            )
    return None
