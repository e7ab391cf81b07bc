"""Roots: rows that become trees of a spout. Tasks stage them, a commit keeps and tracks them (tracking.py).

The n-th row of roots has the n-th tree of their slabs, and the n-th id of their seed as its tuple. So roots
are a short record, whatever the number of rows. Their vectors are staged as applied
(lua/streams/staging/stage.lua): trees count those tuples by their track, and the commit acks them when all
tuples emitted from them are applied. The rows are kept until each tree has been settled: acked, replayed, or
a dead letter (kept_rows.py).

Terms: a tree is all that comes of one record; a slab is the trees that one call tracked together; a slot is
the random number of a subscription; a gate is an id that keeps a tree open until rows may come into it;
staged rows are stored, but nobody sees them before a commit.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from itertools import chain
from typing import Annotated, TypeAlias

import numpy as np
import pyarrow as pa  # noqa: TID251 - rows travel as Arrow, from and to Spark and plain Python

from acker.errors import ValidationError
from acker.ledger import ids
from acker.ledger.calls.core import Core
from acker.ledger.ids import Ids
from acker.ledger.outcomes import counts
from acker.ledger.slabs import sections
from acker.store import keys, records
from acker.store.flight import LEAST_VALUE_BYTES
from acker.store.operation import Operation, Request, command
from acker.store.records import Bounds, HexId, Record
from acker.streams.log import gathers, segments
from acker.streams.log.gathers import Gathers
from acker.streams.log.segments import ANCHORS, Segment
from acker.streams.sources import attempts, columns, kept_ids
from acker.streams.sources.spout_options import MOST_ATTEMPTS, SpoutOptions
from acker.streams.staging import scripts
from acker.streams.staging.splitting import in_halves
from acker.streams.staging.staging import Staged, Staging, pieces, stage_segments, stage_vectors
from acker.streams.staging.vectors import VectorKey

MOST_SLABS = 1_000
"""Most slabs of roots: one call of lua/streams/sources/keep_rows.lua takes them."""
KEPT_ROWS = 131_072
"""Most rows of a piece: it is kept until the last of them is settled, and read as a whole for a replay."""
_ID_DIGITS = 32
_IDS = "0"
_LATELY = 64
"""Roots, in each of their sections, whose shards are cached."""
_SLOT = 0
"""Roots have one reader, the commit that tracks them: their vectors have the slot of a first subscription."""


Line: TypeAlias = tuple[int, Annotated[int, Bounds(0, sections.SECTIONS)], int]


@dataclass(frozen=True, slots=True)
class Roots(Record, label="roots"):
    """Rows that a spout tracks.

    Attributes:
        id: Their name. Of a replay it ends in the time of the first track (`first_tracked`). A 0 before that
            says that their ids are kept, not their rows (`keeps_ids`).
        slab: The trees of a slab.
        how: The options of the spout.
        number: The number of the attempt.
        offsets: Partition of the source -> its lowest and highest offset among the rows.
        refused: True if their message ids are null or too long: their trees fail with their commit, and they
            have no tuples.
        origin: The streaming query that tracked them first, and the lowest number of its batches, if known.
        line: The line that they are requests of: its number, the number of its streams that gather, and its
            mark. A row of a line has a tree for each section (`acker.ledger.slabs.sections`). The last one is
            settled.
    """

    id: HexId
    rows: Annotated[int, Bounds(0, MOST_SLABS * ids.SLAB_TREES)]
    seed: int
    slab: Annotated[int, Bounds(1, ids.SLAB_TREES)]
    how: SpoutOptions
    number: Annotated[int, Bounds(0, MOST_ATTEMPTS)] = 1
    offsets: dict[str, tuple[int, int]] = field(default_factory=dict)
    refused: bool = False
    origin: tuple[str, int] | None = None
    line: Line | None = None

    @property
    def untracked(self) -> bool:
        """True if the rows only go on together with tracked rows: no commit has them."""
        return self.refused and self.how.bad_message_id == "untracked"

    @property
    def first_tracked(self) -> int:
        """The time of the first track of the first of the rows, in ms; 0 if the ledger alone knows it."""
        return int(self.id[_ID_DIGITS:] or "0", 16)

    @property
    def keeps_ids(self) -> bool:
        """True if the store keeps the ids of the rows, and their source is asked for them (`kept_ids`)."""
        return self.id[_ID_DIGITS : _ID_DIGITS + 1] == _IDS

    @property
    def sections(self) -> int:
        """The number of trees of each row."""
        return 1 if self.line is None else self.line[1] + 1

    def slabs(self, section: int | None = None) -> Ids:
        """The first anchor of each slab, in a section of a line; None: of the trees that are settled."""
        return _slabs(self.seed, self.rows, self.slab, self.line, section)

    def anchors(self, section: int = 1) -> Ids:
        """The tree of each row, in a section of a line."""
        places = np.arange(self.rows, dtype=np.int64)
        return self.slabs(section)[places // self.slab] + ids.STEP * (places % self.slab)

    def values(self, section: int = 1) -> Ids:
        """The ack value with which each tree begins: the tuple id of its row, or its gate."""
        if section > 1 and self.line is not None:
            return sections.gates(self.anchors(section), self.line[2])
        return ids.seeded_ids(self.seed, 0, self.rows)

    def names(self) -> bytes:
        """The names of the slabs in the store, 8 bytes each."""
        return ids.split(self.slabs())[0].astype(">u8").tobytes()

    def shards(self, ackers: int, section: int = 1) -> list[int]:
        """The shards in which the roots have vectors, or trees of a section."""
        return list(_shards(self.seed, self.rows, self.slab, self.line, section, ackers)) if ackers else []


def _slabs(seed: int, rows: int, slab: int, line: Line | None, section: int | None) -> Ids:
    numbers = ids.seeded_ids(~seed, 0, -(-rows // slab))
    if line is not None:
        return sections.firsts(line[0], line[1] + 1 if section is None else section, numbers)
    if slab == 1:
        return numbers | ids.LOWEST | 1
    return ids.firsts_of(numbers)


@lru_cache(_LATELY)
def _shards(seed: int, rows: int, slab: int, line: Line | None, section: int, ackers: int) -> tuple[int, ...]:
    """The shards of roots' trees, cached because a commit needs them repeatedly."""
    slabs = ids.split(_slabs(seed, rows, slab, line, section))[0]
    return tuple(np.unique(ids.shards_of(slabs, ackers)).tolist())


def readable(record: bytes | None) -> Roots | None:
    """Roots, parsed from their record; None if there are none, or if they cannot be read, which is logged."""
    return records.readable(Roots.load, record, "kept rows")


def most_rows(core: Core, options: SpoutOptions) -> int:
    """The most rows of roots: `MOST_SLABS` full slabs."""
    return MOST_SLABS * _slab(core, options)


def _slab(core: Core, options: SpoutOptions) -> int:
    """The number of trees that a slab of roots has."""
    return options.group or core.config.slab_trees


def stage(
    core: Core,
    options: SpoutOptions,
    staging: Staging,
    batches: Iterable[pa.RecordBatch],
    ids: Sequence[str] = (),
) -> Operation[tuple[Roots, ...]]:
    """Stages rows as roots, in pieces; none if tracking is off. Raises ValidationError.

    They include rows that go on untracked (`Roots.untracked`). ids: the columns that are kept; () keeps rows.
    """
    staged: list[Roots] = []
    for piece in _cut(core, options, staging, batches):
        good, bad = _prepared(options, piece, 1)
        for rows, refused in ((good, False), (bad, True)):
            if core.config.ackers and rows.num_rows:
                one = partial(_stage_rows, core, options, staging, 1, refused, ids=ids, twice=True)
                staged += yield from in_halves(one, rows.to_batches())
    return tuple(staged)


@dataclass(slots=True)
class StagedRoots:
    """Goes with roots whose requests are sent with their commit (`Staging.into`).

    free: requests that are answered 1 where no others have their groups. rows: theirs, by id.
    """

    free: list[Request] = field(default_factory=list)
    rows: dict[str, pa.Table] = field(default_factory=dict)


def emit(
    core: Core,
    options: SpoutOptions,
    staging: Staging,
    batches: Iterable[pa.RecordBatch],
    number: int = 1,
    line: Gathers | None = None,
    staged_roots: StagedRoots | None = None,
    first_tracked: int = 0,
    ids: Sequence[str] = (),
) -> Operation[tuple[tuple[Roots, ...], Staged]]:
    """Stages rows as roots, and as tuples of a stream that are anchored only to these.

    line: the line of the rows, if it was read. staged_roots: gets the data for `Staging.into`. first_tracked:
    of a replay, see `Roots`. ids: the columns that are kept; () keeps rows.
    """
    all_roots: list[Roots] = []
    done: list[Segment] = []
    for piece in _cut(core, options, staging, batches):
        good, bad = _prepared(options, piece, number)
        parts = []
        if good.num_rows:
            anchors = pa.nulls(good.num_rows, pa.int64())
            if core.config.ackers:
                tracked = partial(
                    _stage_rows, core, options, staging, number, False,
                    known_line=line, gathered=staged_roots, first_tracked=first_tracked, ids=ids,
                )  # fmt: skip
                new = yield from in_halves(tracked, good.to_batches(), staging.into)
                anchors = pa.array(np.concatenate([roots.anchors() for roots in new]))
                all_roots += new
            parts.append(attempts.without(good).append_column(ANCHORS, anchors))
        if bad.num_rows and core.config.ackers and options.bad_message_id == "dead_letter":
            refused = partial(_stage_rows, core, options, staging, number, True)
            all_roots += yield from in_halves(refused, bad.to_batches())
        elif bad.num_rows:
            parts.append(attempts.without(bad).append_column(ANCHORS, pa.nulls(bad.num_rows, pa.int64())))
        if parts:
            rows = pa.concat_tables(parts).combine_chunks()
            stage_piece = partial(stage_segments, core, staging)
            done += chain.from_iterable((yield from in_halves(stage_piece, rows.to_batches(), staging.into)))
    return tuple(all_roots), Staged(
        staging.stream, tuple(done), unanchored=sum(segment.rows for segment in done)
    )


def anchored_schema(schema: pa.Schema, options: SpoutOptions) -> pa.Schema:
    """The schema of rows that are roots."""
    if ANCHORS in schema.names:
        raise ValidationError(f"rows with the column {ANCHORS} have trees: they cannot be tracked again")
    if attempts.COLUMN in schema.names:
        raise ValidationError(f"rows must not have the column {attempts.COLUMN}: it is added to kept rows")
    if options.attempt:
        if options.attempt in schema.names:
            schema = schema.remove(schema.get_field_index(options.attempt))
        schema = schema.append(pa.field(options.attempt, pa.int32()))
    return schema.append(pa.field(ANCHORS, pa.int64()))


def _cut(
    core: Core, options: SpoutOptions, staging: Staging, batches: Iterable[pa.RecordBatch]
) -> Iterator[list[pa.RecordBatch]]:
    return pieces(replace(staging, rows=min(staging.rows, KEPT_ROWS, most_rows(core, options))), batches)


def _prepared(
    options: SpoutOptions, piece: Sequence[pa.RecordBatch], number: int
) -> tuple[pa.Table, pa.Table]:
    """Rows, with the number of their attempt if it is wanted: rows with a message id, and the others."""
    rows = pa.Table.from_batches(piece)
    anchored_schema(attempts.visible(rows.schema), options)
    named = columns.message_id_column(rows, options.message_id)
    if options.attempt:
        column = pa.array(np.full(rows.num_rows, number, dtype=np.int32))
        rows = rows.drop_columns([options.attempt]) if options.attempt in rows.column_names else rows
        rows = rows.append_column(options.attempt, column)
    if columns.sound(named):
        return rows.combine_chunks(), rows.slice(0, 0)
    places = columns.bad(named).to_numpy()
    good, other = np.flatnonzero(~places), np.flatnonzero(places)
    return rows.take(pa.array(good)).combine_chunks(), rows.take(pa.array(other)).combine_chunks()


def _stage_rows(
    core: Core,
    options: SpoutOptions,
    staging: Staging,
    number: int,
    refused: bool,
    batches: Sequence[pa.RecordBatch],
    known_line: Gathers | None = None,
    gathered: StagedRoots | None = None,
    first_tracked: int = 0,
    ids: Sequence[str] = (),
    twice: bool = False,
) -> Operation[Roots]:
    """Stages rows as roots, with their vectors, which also note the tracked and failed slabs.

    twice: with `ids`, stages the rows as well, for the tasks before the commit.

    Requests of a line draw another group if theirs is in use. 40 random bits are few for millions of groups a
    day, and a track that conflicts with a group waits until its trees expire.
    """
    rows = pa.Table.from_batches(batches)
    line: Line | None = None
    gathering = tuple[str, ...]()
    if options.line and not refused:
        of_line, gathering, mark = known_line or (yield from gathers.read_line(core, options.line))
        line = of_line, len(gathering), mark
    keeps_ids = bool(ids) and not refused  # a source cannot be asked for a null
    whole = segments.encode(batches, staging.compression) if twice or not keeps_ids else b""
    kept_table = kept_ids.of_rows(rows, ids) if keeps_ids else None
    payload = whole if kept_table is None else segments.encode(kept_table.to_batches(), staging.compression)
    offsets = columns.offsets(rows, options.offset, options.partition)
    first = (_IDS if keeps_ids else "") + (f"{first_tracked:x}" if first_tracked else "")
    while True:
        roots = Roots(
            segments.new_hex_id() + first, rows.num_rows, segments.new_seed(), _slab(core, options), options,
            number, offsets, refused, line=line,
        )  # fmt: skip
        anchored = rows.append_column(ANCHORS, pa.array(roots.anchors())).to_batches()
        requests, _ = stage_vectors(core, staging.ttl, anchored, roots.id, roots.seed, (_SLOT,), "1")
        spout_keys = keys.Spout(core.config.name, options.spout)
        kept = scripts.stage_rows(spout_keys.rows(roots.id), staging.ttl, payload)
        if keeps_ids and twice:
            requests.append(scripts.stage_rows(spout_keys.rows(roots.id, "staged_rows"), staging.ttl, whole))
        requests += [scripts.stage(key, staging.ttl, {"section": "1"}) for _, key, _ in further(core, roots)]
        staged_roots = [roots.slabs(section) for section in range(1, roots.sections + 1)] if line else []
        if staged_roots and not gathers.all_differ(staged_roots[0]):
            continue
        free = gathers.free_checks(core, staged_roots, gathering)
        if gathered is not None and staging.into is not None:
            if len(payload) > LEAST_VALUE_BYTES:  # the store may refuse it
                yield [kept]
            else:
                requests.append(kept)
            staging.into.extend(requests)
            gathered.free += free
            gathered.rows[roots.id] = rows
            return roots
        replies = yield [kept, *requests, *free]
        if all(replies[1 + len(requests) :]):
            return roots
        yield [command("UNLINK", key) for key in staged_keys(core, roots)]


def rows_of(core: Core, roots: Roots) -> Operation[pa.Table | None]:
    """The rows, or ids, of roots, in the order of their trees; None if gone. Raises UnreadableRecord."""
    [payload] = yield [command("GET", keys.Spout(core.config.name, roots.how.spout).rows(roots.id))]
    return None if payload is None else decode(payload, roots)


def staged_rows(core: Core, roots: Roots) -> Operation[pa.Table | None]:
    """The rows of roots before their commit; None if their time has run out. Raises UnreadableRecord."""
    if not roots.keeps_ids:
        return (yield from rows_of(core, roots))
    spout_keys = keys.Spout(core.config.name, roots.how.spout)
    [payload] = yield [command("GET", spout_keys.rows(roots.id, "staged_rows"))]
    return None if payload is None else decode(payload, roots)


def kept_rows(core: Core, roots: Roots, tails: dict[str, bytes] | None = None) -> Operation[pa.Table | None]:
    """The rows, or ids, of roots, in the order of their trees; None if they are gone, or cannot be read.

    tails: gets the last bytes of what was read (`kept_ids.TAIL`), by id. Unreadable rows stay in the store,
    because there is no other copy. Raises UnreadableRecord if memory did not suffice.
    """
    [payload] = yield [command("GET", keys.Spout(core.config.name, roots.how.spout).rows(roots.id))]
    if payload is None:
        return None
    spout = roots.how.spout
    with records.passing_over(core.config.name, f"rows {roots.id} that spout {spout} keeps"):
        rows = decode(payload, roots)
        if tails is not None:
            tails[roots.id] = payload[-kept_ids.TAIL :]
        return rows
    [new] = yield [command("HSETNX", keys.Spout(core.config.name, spout).counts, f"unreadable:{roots.id}", 1)]
    yield from counts.count_missing(core, new)
    return None


def decode(payload: bytes, roots: Roots) -> pa.Table:
    """Rows, or ids, as they are stored. Raises UnreadableRecord."""
    rows = pa.Table.from_batches(segments.decode_all(payload, roots.rows)).combine_chunks()
    attempts.check(rows)
    return rows


def staged_keys(core: Core, roots: Roots) -> list[bytes]:
    """Keys of staged roots that a commit needs."""
    found = [keys.Spout(core.config.name, roots.how.spout).rows(roots.id)]
    return found + [key for key, _ in vector_keys(core, roots)] + [key for _, key, _ in further(core, roots)]


def further(core: Core, roots: Roots) -> list[tuple[int, bytes, int]]:
    """The sections after the first, and the key in each of their shards that notes the tracked slabs."""
    return [
        (section, core.shards[shard].staged(roots.id, section), shard)
        for section in range(2, roots.sections + 1)
        for shard in roots.shards(core.config.ackers, section)
    ]


def vector_keys(core: Core, roots: Roots) -> list[VectorKey]:
    """The keys of the roots' vectors."""
    return [(core.shards[one].staged(roots.id, _SLOT), one) for one in roots.shards(core.config.ackers)]
