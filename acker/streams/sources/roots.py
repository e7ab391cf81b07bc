"""Roots: rows of which a spout makes trees. Tasks stage them, a commit keeps and tracks them (tracking.py).

The n-th row of roots has the n-th tree of their slabs, and the n-th id of their seed as its tuple; so roots
are a short record, whatever the number of rows. Their vectors are staged as applied
(lua/streams/staging/stage.lua): trees know those tuples by their track, and the commit acks them when all
that was emitted from them is applied. The rows are kept until each tree has been settled: acked, replayed, or
a dead letter (kept_rows.py).
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from itertools import chain
from typing import Annotated, TypeAlias

import numpy as np
import pyarrow as pa  # noqa: TID251 - rows travel as Arrow, from and to Spark and plain Python

from acker.errors import UnreadableRecord, ValidationError
from acker.ledger import ids
from acker.ledger.calls.core import Core
from acker.ledger.ids import Ids
from acker.ledger.outcomes import counts
from acker.ledger.slabs import sections
from acker.store import keys, records
from acker.store.flight import LEAST_VALUE_BYTES
from acker.store.operation import Operation, Request, command
from acker.store.records import Bounds, Record, Token
from acker.streams.log import gathers, segments
from acker.streams.log.gathers import Gathers
from acker.streams.log.segments import ANCHORS, Segment
from acker.streams.sources import attempts, columns
from acker.streams.sources.spout_options import MOST_ATTEMPTS, SpoutOptions
from acker.streams.staging import scripts
from acker.streams.staging.splitting import in_halves
from acker.streams.staging.staging import Staged, Staging, pieces, stage_segments, stage_vectors
from acker.streams.staging.vectors import VectorKey

MOST_SLABS = 1_000
"""Most slabs of roots: what one call of lua/streams/sources/keep.lua takes."""
KEPT_ROWS = 131_072
"""Most rows of a piece: it is kept until the last of them is settled, and read as a whole for a replay."""
_LATELY = 64
"""Roots, in each of their sections, whose shards are known without that they are worked out again."""
_SLOT = 0
"""Roots have one reader, the commit that tracks them: their vectors are as a first subscription's."""


Line: TypeAlias = tuple[int, Annotated[int, Bounds(0, sections.SECTIONS)], int]


@dataclass(frozen=True, slots=True)
class Roots(Record, what="roots"):
    """Rows that a spout tracks. token: names them. slab: trees of a slab; number: which attempt it is.

    offsets: partition of the source -> its lowest and highest offset among the rows. refused: their message
    ids are null or too long: their trees fail with their commit, and they have no tuples. origin: the
    streaming query that tracked them first, and the lowest number of its batches; None where not known.
    line: where they are requests of one, its number, how many streams of it gather, and its mark: a row has a
    tree for each section then (`acker.ledger.slabs.sections`), of which the last is the one that is settled.
    """

    token: Token
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
        """Whether the rows only go on with what has trees: no commit knows of them."""
        return self.refused and self.how.bad_message_id == "untracked"

    @property
    def sections(self) -> int:
        """How many trees each row has."""
        return 1 if self.line is None else self.line[1] + 1

    def slabs(self, section: int | None = None) -> Ids:
        """The first anchor of each slab, in a section of a line, or of the trees that are settled."""
        return _slabs(self.seed, self.rows, self.slab, self.line, section)

    def anchors(self, section: int = 1) -> Ids:
        """The tree of each row: the first that a row of a line has, or that of a section."""
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
        """Where the roots have vectors; or trees of a section."""
        return list(_shards(self.seed, self.rows, self.slab, self.line, section, ackers)) if ackers else []


def _slabs(seed: int, rows: int, slab: int, line: Line | None, section: int | None) -> Ids:
    made = ids.seeded_ids(~seed, 0, -(-rows // slab))
    if line is not None:
        return sections.firsts(line[0], line[1] + 1 if section is None else section, made)
    if slab == 1:
        return made | ids.LOWEST | 1
    return ids.firsts_of(made)


@lru_cache(_LATELY)
def _shards(seed: int, rows: int, slab: int, line: Line | None, section: int, ackers: int) -> tuple[int, ...]:
    """Where roots have trees: a commit asks for it again and again."""
    slabs = ids.split(_slabs(seed, rows, slab, line, section))[0]
    return tuple(np.unique(ids.shards_of(slabs, ackers)).tolist())


def readable(record: bytes | None) -> Roots | None:
    """Roots as they are stored; None where there are none, or where they cannot be read, which is logged."""
    return records.readable(Roots.load, record, "kept rows")


def most_rows(core: Core, how: SpoutOptions) -> int:
    """Most rows of roots: as many as have room in `MOST_SLABS`."""
    return MOST_SLABS * _slab(core, how)


def _slab(core: Core, how: SpoutOptions) -> int:
    """How many trees of roots a slab has."""
    return how.group or core.config.slab_trees


def stage(
    core: Core, how: SpoutOptions, staging: Staging, batches: Iterable[pa.RecordBatch]
) -> Operation[tuple[Roots, ...]]:
    """Stages rows as roots, in pieces; none where tracking is off. Raises ValidationError.

    Rows that go on untracked are among them (`Roots.untracked`).
    """
    made: list[Roots] = []
    for piece in _cut(core, how, staging, batches):
        good, bad = _prepared(how, piece, 1)
        for rows, refused in ((good, False), (bad, True)):
            if core.config.ackers and rows.num_rows:
                one = partial(_stage_rows, core, how, staging, 1, refused)
                made += yield from in_halves(one, rows.to_batches())
    return tuple(made)


@dataclass(slots=True)
class Drawn:
    """Goes with roots whose requests are sent with their commit (`Staging.into`).

    free: requests that are answered 1 where no others have their groups. rows: theirs, by token.
    """

    free: list[Request] = field(default_factory=list)
    rows: dict[str, pa.Table] = field(default_factory=dict)


def emit(
    core: Core,
    how: SpoutOptions,
    staging: Staging,
    batches: Iterable[pa.RecordBatch],
    number: int = 1,
    line: Gathers | None = None,
    drawn: Drawn | None = None,
) -> Operation[tuple[tuple[Roots, ...], Staged]]:
    """Stages rows as roots, and as tuples of a stream that are anchored to them, and to nothing else.

    line: that of the rows, where it has been read already. drawn: gets what belongs to `Staging.into`.
    """
    made: list[Roots] = []
    done: list[Segment] = []
    for piece in _cut(core, how, staging, batches):
        good, bad = _prepared(how, piece, number)
        parts = []
        if good.num_rows:
            anchors = pa.nulls(good.num_rows, pa.int64())
            if core.config.ackers:
                tracked = partial(_stage_rows, core, how, staging, number, False, known=line, found=drawn)
                new = yield from in_halves(tracked, good.to_batches(), staging.into)
                anchors = pa.array(np.concatenate([one.anchors() for one in new]))
                made += new
            parts.append(attempts.without(good).append_column(ANCHORS, anchors))
        if bad.num_rows and core.config.ackers and how.bad_message_id == "dead_letter":
            refused = partial(_stage_rows, core, how, staging, number, True)
            made += yield from in_halves(refused, bad.to_batches())
        elif bad.num_rows:
            parts.append(attempts.without(bad).append_column(ANCHORS, pa.nulls(bad.num_rows, pa.int64())))
        if parts:
            rows = pa.concat_tables(parts).combine_chunks()
            one = partial(stage_segments, core, staging)
            done += chain.from_iterable((yield from in_halves(one, rows.to_batches(), staging.into)))
    return tuple(made), Staged(staging.stream, tuple(done), unanchored=sum(one.rows for one in done))


def anchored_schema(schema: pa.Schema, how: SpoutOptions) -> pa.Schema:
    """The schema of rows when they are roots."""
    if ANCHORS in schema.names:
        raise ValidationError(f"rows with the column {ANCHORS} have trees: they cannot be tracked again")
    if attempts.COLUMN in schema.names:
        raise ValidationError(f"rows must not have the column {attempts.COLUMN}: it is added to kept rows")
    if how.attempt:
        if how.attempt in schema.names:
            schema = schema.remove(schema.get_field_index(how.attempt))
        schema = schema.append(pa.field(how.attempt, pa.int32()))
    return schema.append(pa.field(ANCHORS, pa.int64()))


def _cut(
    core: Core, how: SpoutOptions, staging: Staging, batches: Iterable[pa.RecordBatch]
) -> Iterator[list[pa.RecordBatch]]:
    return pieces(replace(staging, rows=min(staging.rows, KEPT_ROWS, most_rows(core, how))), batches)


def _prepared(how: SpoutOptions, piece: Sequence[pa.RecordBatch], number: int) -> tuple[pa.Table, pa.Table]:
    """Rows, with the number of their attempt where it is wanted: those with a message id, and the others."""
    rows = pa.Table.from_batches(piece)
    anchored_schema(attempts.visible(rows.schema), how)
    named = columns.named(rows, how.message_id)
    if how.attempt:
        column = pa.array(np.full(rows.num_rows, number, dtype=np.int32))
        rows = rows.drop_columns([how.attempt]) if how.attempt in rows.column_names else rows
        rows = rows.append_column(how.attempt, column)
    if columns.sound(named):
        return rows.combine_chunks(), rows.slice(0, 0)
    places = columns.bad(named).to_numpy()
    good, other = np.flatnonzero(~places), np.flatnonzero(places)
    return rows.take(pa.array(good)).combine_chunks(), rows.take(pa.array(other)).combine_chunks()


def _stage_rows(
    core: Core,
    how: SpoutOptions,
    staging: Staging,
    number: int,
    refused: bool,
    batches: Sequence[pa.RecordBatch],
    known: Gathers | None = None,
    found: Drawn | None = None,
) -> Operation[Roots]:
    """Stages rows as roots, with their vectors, which also note what was tracked and failed of them.

    Requests of a line whose group is that of others draw another one: 40 random bits are few where millions
    come in a day, and a track that is answered with a conflict waits for these others to expire.
    """
    rows = pa.Table.from_batches(batches)
    line: Line | None = None
    gathering = tuple[str, ...]()
    if how.line and not refused:
        of_line, gathering, mark = known or (yield from gathers.line(core, how.line))
        line = of_line, len(gathering), mark
    payload = segments.encode(batches, staging.compression)
    offsets = columns.offsets(rows, how.offset, how.partition)
    while True:
        roots = Roots(
            segments.new_token(), rows.num_rows, segments.new_seed(), _slab(core, how), how, number,
            offsets, refused, line=line,
        )  # fmt: skip
        anchored = rows.append_column(ANCHORS, pa.array(roots.anchors())).to_batches()
        requests, _ = stage_vectors(core, staging.ttl, anchored, roots.token, roots.seed, (_SLOT,), "1")
        key = keys.Spout(core.config.name, how.spout).rows(roots.token)
        kept = scripts.stage_rows(key, staging.ttl, payload)
        requests += [scripts.stage(key, staging.ttl, {"section": "1"}) for _, key, _ in further(core, roots)]
        drawn = [roots.slabs(section) for section in range(1, roots.sections + 1)] if line else []
        if drawn and not gathers.apart(drawn[0]):
            continue
        free = gathers.looks(core, drawn, gathering)
        if found is not None and staging.into is not None:
            if len(payload) > LEAST_VALUE_BYTES:  # it may be more than the store takes
                yield [kept]
            else:
                requests.append(kept)
            staging.into.extend(requests)
            found.free += free
            found.rows[roots.token] = rows
            return roots
        replies = yield [kept, *requests, *free]
        if all(replies[1 + len(requests) :]):
            return roots
        yield [command("UNLINK", key) for key in staged_keys(core, roots)]


def rows_of(core: Core, roots: Roots) -> Operation[pa.Table | None]:
    """The rows of roots, in the order of their trees; None where they are gone. Raises UnreadableRecord."""
    [payload] = yield [command("GET", keys.Spout(core.config.name, roots.how.spout).rows(roots.token))]
    return None if payload is None else _decode(payload, roots)


def kept_rows(core: Core, roots: Roots) -> Operation[pa.Table | None]:
    """As `rows_of`; None also where they cannot be read: they stay, for they are the last there is of them.

    Raises UnreadableRecord where memory did not suffice.
    """
    [payload] = yield [command("GET", keys.Spout(core.config.name, roots.how.spout).rows(roots.token))]
    if payload is None:
        return None
    try:
        return _decode(payload, roots)
    except UnreadableRecord as error:
        if isinstance(error.__cause__, MemoryError):
            raise
        spout, name = roots.how.spout, f"unreadable:{roots.token}"
        [new] = yield [command("HSETNX", keys.Spout(core.config.name, spout).counts, name, 1)]
        yield from counts.pass_over(core, f"rows {roots.token} that spout {spout} keeps", new)
        return None


def _decode(payload: bytes, roots: Roots) -> pa.Table:
    found = list(segments.decode(payload))
    count = sum(batch.num_rows for batch in found)
    if count != roots.rows or not found:  # Arrow takes what is cut between two batches for a whole stream
        raise UnreadableRecord(f"{count:,} rows of roots, not {roots.rows:,}")
    rows = pa.Table.from_batches(found).combine_chunks()
    attempts.check(rows)
    return rows


def staged_keys(core: Core, roots: Roots) -> list[bytes]:
    """Keys of staged roots."""
    found = [keys.Spout(core.config.name, roots.how.spout).rows(roots.token)]
    return found + [key for key, _ in vector_keys(core, roots)] + [key for _, key, _ in further(core, roots)]


def further(core: Core, roots: Roots) -> list[tuple[int, bytes, int]]:
    """The sections after the first, and in each shard of theirs where it is noted what was tracked."""
    return [
        (section, core.shards[shard].staged(roots.token, section), shard)
        for section in range(2, roots.sections + 1)
        for shard in roots.shards(core.config.ackers, section)
    ]


def vector_keys(core: Core, roots: Roots) -> list[VectorKey]:
    """Where roots have vectors."""
    shards = roots.shards(core.config.ackers)
    return [(core.shards[shard].staged(roots.token, _SLOT), shard) for shard in shards]
