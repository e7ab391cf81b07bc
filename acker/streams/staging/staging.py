"""Staging: rows and the XOR vectors of their tuples go to the store, where nobody sees them until a commit.

What is staged has a time to live: attempts that lose, fail or vanish leave nothing behind.
"""

import struct
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from typing import Annotated

import numpy as np
import pyarrow as pa  # noqa: TID251 - rows travel as Arrow, from and to Spark and plain Python

from acker.ledger import ids
from acker.ledger.calls import encoding, traces
from acker.ledger.calls.core import Core
from acker.ledger.calls.encoding import UpdateCall
from acker.ledger.ids import Ids
from acker.store import keys
from acker.store.flight import LEAST_VALUE_BYTES
from acker.store.operation import Operation, Request, abreast, command
from acker.store.records import Bounds, Count, Matching, Name, Record, Token
from acker.streams.log import fairness, gathers, segments, subscriptions
from acker.streams.log.gathers import Gathering
from acker.streams.log.segments import ANCHORS, SEGMENT_BYTES, SEGMENT_ROWS, Segment
from acker.streams.log.subscriptions import StagedFor
from acker.streams.staging import effects, failed_rows, results, scripts, splitting, vectors
from acker.streams.staging.effects import EFFECT
from acker.streams.staging.splitting import TooLong
from acker.streams.staging.vectors import VectorKey

STAGING_TTL = 3600
"""Seconds that staged data waits for its commit, by default."""
Placed = Annotated[str, Matching(r"[0-9]{1,4}\.[0-9a-f]{1,64}")]
"""A shard and a token: where failures are staged."""
FAILED = "_acker_failed"
"""A column of rows that are not emitted but failed where it is not null: it holds the cause, as text."""


@dataclass(frozen=True, slots=True)
class Staged(Record, what="what a task has staged"):
    """What one task staged: segments of a stream, and tokens of trees to be failed.

    effects: tokens of effects to be recorded, and their horizons (ms); released: tokens of failed ones.
    unanchored: how many rows have lost their anchors; unfailed: how many that were to be failed.
    treeless: how many rows, emitted or failed, have nothing but 0 for an anchor.
    results: of functions, as `acker.streams.staging.results` stages them.
    """

    stream: Annotated[str, Bounds(0, 64)]
    segments: tuple[Segment, ...] = ()
    failures: tuple[Placed, ...] = ()
    effects: tuple[tuple[Token, Count], ...] = ()
    released: tuple[Token, ...] = ()
    unanchored: Count = 0
    unfailed: Count = 0
    treeless: Count = 0
    results: tuple[tuple[Name, Token, Count], ...] = ()

    def as_said_unanchored(self) -> "Staged":
        """The same, where the user has said that its rows are to go without anchors."""
        return replace(self, unanchored=0, treeless=0)


@dataclass(frozen=True, slots=True)
class Staging:
    """How rows of a stream are staged.

    rows, bytes: after so many of them (bytes before compression) a new segment starts. ttl: seconds.
    failures_only: rows that did not fail are passed over. effects_horizon: the digests of these are recorded
    as effects for so long (ms); None: they are recorded already. step, batch: of who fails rows. results:
    rows are not emitted but give results of a function, which are kept for so many seconds. to: what
    `acker.streams.log.subscriptions.staged_for` has said of the stream just now, where that was asked
    already. into: gets the requests that stage segments and results, for the caller to send with the commit
    (`Ready` in acker/streams/commits/run.py); None: they are sent now.
    """

    stream: str
    rows: int = SEGMENT_ROWS
    bytes: int = SEGMENT_BYTES
    compression: str = "lz4"
    ttl: int = STAGING_TTL
    failures_only: bool = False
    effects_horizon: int | None = None
    step: str = ""
    batch: int = -1
    results: tuple[str, int] | None = None
    to: StagedFor | None = None
    into: list[Request] | None = None


@dataclass(slots=True)
class _Piece:
    """Rows gathered for the next segment."""

    batches: list[pa.RecordBatch] = field(default_factory=list)
    rows: int = 0
    bytes: int = 0

    def add(self, batch: pa.RecordBatch) -> None:
        self.batches.append(batch)
        self.rows += batch.num_rows
        self.bytes += batch.nbytes


def stage(core: Core, how: Staging, batches: Iterable[pa.RecordBatch]) -> Operation[Staged]:
    """Stages rows of a stream, with the vectors of their tuples where there is a column `_acker`.

    Rows with a reason in the column `_acker_failed` are not emitted: their trees are staged to be failed.
    """
    done: list[Segment] = []
    failures: list[str] = []
    had: list[tuple[str, int]] = []
    released: list[str] = []
    given: list[tuple[str, str, int]] = []
    unanchored = unfailed = treeless = 0
    long = list[TooLong]()
    emits = not how.failures_only and how.results is None
    for piece in pieces(how, batches):
        to = how.to
        if emits:
            to = to or (yield from subscriptions.staged_for(core, how.stream))
            if to.gathering is not None:
                piece = gathers.with_unfit(Gathering.load(to.gathering), how.stream, piece, FAILED)
        if EFFECT in piece[0].schema.names:
            piece, new, unused = effects.split(piece, FAILED)
            if new and how.effects_horizon:
                had.append(((yield from effects.stage(core, how.ttl, new)), how.effects_horizon))
            if unused and not how.effects_horizon:
                released.append((yield from effects.stage(core, how.ttl, unused)))
        kept, bad = failed_rows.split(piece, FAILED)
        if kept and not how.failures_only:
            unanchored += _count(segments.unanchored, kept)
            treeless += _count(segments.treeless, kept)
            if how.results is not None:
                function, keep = how.results
                found = results.of_rows(kept)
                given += yield from results.stage(core, function, found, how.ttl, keep, how.into)
            else:
                one = partial(stage_segments, core, replace(how, to=to))
                done += chain.from_iterable((yield from splitting.in_halves(one, kept, how.into, long)))
                bad += failed_rows.too_long(long, FAILED)
        if bad:
            unfailed += _count(segments.unanchored, bad)
            treeless += _count(segments.treeless, bad)
            said = failed_rows.causes(bad, FAILED, how.step, how.batch)
            failures += yield from stage_failures(core, how.ttl, *said)
    counts = (unanchored, unfailed, treeless)
    made = tuple(done), tuple(failures), tuple(had), tuple(released)
    return Staged(how.stream, *made, *counts, tuple(given))


def _count(of: Callable[[pa.Array], int], batches: list[pa.RecordBatch]) -> int:
    nobody_knows = pa.nulls(1, pa.int64())
    return sum(
        of(one.column(ANCHORS)) if ANCHORS in one.schema.names else one.num_rows * of(nobody_knows)
        for one in batches
    )


def pieces(how: Staging, batches: Iterable[pa.RecordBatch]) -> Iterator[list[pa.RecordBatch]]:
    """Rows cut and put together to what a segment holds."""
    piece = _Piece()
    for batch in batches:
        at, most = 0, how.rows
        if batch.nbytes > how.bytes:
            most = max(1, min(most, how.bytes * batch.num_rows // batch.nbytes))
        while at < batch.num_rows:
            part = batch.slice(at, min(most, how.rows - piece.rows))
            piece.add(part)
            at += part.num_rows
            if piece.rows >= how.rows or piece.bytes >= how.bytes:
                yield piece.batches
                piece = _Piece()
    if piece.rows:
        yield piece.batches


def stage_failures(core: Core, ttl: int, anchors: Ids, causes: list[str]) -> Operation[list[str]]:
    """Stages trees to be failed; returns a token for each shard, or some. ValidationError for no anchor."""
    ids.check_anchors(anchors)
    if not core.config.ackers:
        return []
    shards = ids.shards_of(ids.split(anchors)[0], core.config.ackers)
    tokens, requests = [], []
    for shard in np.unique(shards).tolist():
        for here in splitting.by_bytes(np.flatnonzero(shards == shard), causes):
            columns = [pa.array(anchors[here]), pa.array([causes[row] for row in here.tolist()], pa.string())]
            rows = segments.encode([pa.RecordBatch.from_arrays(columns, [ANCHORS, FAILED])], "lz4")
            tokens.append(f"{shard}.{segments.new_token()}")
            key, _ = failing(core, tokens[-1])
            names = np.unique(ids.split(anchors[here])[0]).astype(">u8").tobytes()
            requests.append(scripts.stage(key, ttl, {"rows": rows, "slabs": names}))
    yield requests
    return tokens


def failing(core: Core, token: str) -> VectorKey:
    """Where trees are that were staged to be failed."""
    shard = int(token.partition(".")[0])
    return core.shards[shard].failing(token), shard


def failures(core: Core, token: str) -> Operation[pa.Table | None]:
    """Trees that were staged to be failed (`ANCHORS`), and why (`FAILED`); None where they are gone."""
    [rows] = yield [command("HGET", failing(core, token)[0], "rows")]
    return None if rows is None else pa.Table.from_batches(segments.decode(rows))


def stage_segments(core: Core, how: Staging, batches: list[pa.RecordBatch]) -> Operation[list[Segment]]:
    """Stages rows as one segment; where their stream gathers, as one for each place where rows wait.

    Where it is read fairly, as some for each lane.
    """
    slots, gathering, fair = how.to or (yield from subscriptions.staged_for(core, how.stream))
    if gathering is not None:
        places = gathers.cut(Gathering.load(gathering), how.stream, batches)
        return (yield from abreast([_stage_segment(core, how, part, slots, to) for to, part in places]))
    if fair is None:
        return [(yield from _stage_segment(core, how, batches, slots))]
    lanes = yield from fairness.cut(core, how.stream, fair.decode("utf-8", "replace"), batches)
    made = [_stage_segment(core, how, part, slots, lane=lane) for lane, part in lanes]
    return (yield from abreast(made))


def stage_segment(
    core: Core, how: Staging, batches: list[pa.RecordBatch], to: str = ""
) -> Operation[Segment]:
    """Stages one segment: its payload, and its vectors in each shard for each subscription there is."""
    slots, *_ = how.to or (yield from subscriptions.staged_for(core, how.stream))
    return (yield from _stage_segment(core, how, batches, slots, to))


def _stage_segment(
    core: Core,
    how: Staging,
    batches: list[pa.RecordBatch],
    slots: tuple[int, ...],
    to: str = "",
    lane: int = 0,
) -> Operation[Segment]:
    token, seed = segments.new_token(), segments.new_seed()
    payload = segments.encode(batches, how.compression)
    own = keys.Stream(core.config.name, how.stream)
    requests, shards = stage_vectors(core, how.ttl, batches, token, seed, slots, "0")
    rows_first = scripts.stage_rows(own.payload(token), how.ttl, payload)
    if how.into is None:
        yield [rows_first, *requests]
    elif len(payload) > LEAST_VALUE_BYTES:  # it may be more than the store takes: who has made it is told now
        yield [rows_first]
        how.into.extend(requests)
    else:
        how.into.extend([rows_first, *requests])
    rows, size = sum(batch.num_rows for batch in batches), sum(batch.nbytes for batch in batches)
    return Segment(token, rows, seed, len(payload), shards, slots, to, lane, size)


def stage_vectors(
    core: Core,
    ttl: int,
    batches: list[pa.RecordBatch],
    token: str,
    seed: int,
    slots: tuple[int, ...],
    state: str,
) -> tuple[list[Request], tuple[int, ...]]:
    """The requests that stage a segment's vectors, as being in a state, and their shards.

    See lua/streams/staging/stage.lua.
    """
    if not core.config.ackers or ANCHORS not in batches[0].schema.names:
        return [], ()
    table = pa.Table.from_batches(batches, schema=batches[0].schema)
    column = table.column(ANCHORS)
    anchors, places = segments.edges(column)
    width = segments.width(column)
    requests = []
    by_shard: dict[int, list[UpdateCall]] = {}
    for slot in slots:
        by_shard = {}
        deltas = segments.edge_ids(seed, slot, places)
        # Where a row has 0 among its anchors, rows are not of one length here.
        whole = width > 1 and len(anchors) == width * table.num_rows
        folded = ids.fold_rows(anchors, deltas, width) if whole else (anchors, deltas)
        for call in encoding.update_calls(*folded, core.config.ackers):
            by_shard.setdefault(call.shard, []).append(call)
        tuples = len(anchors)  # of a segment: whichever of its chunks says so
        traced = _traced(core, anchors)
        for shard, chunks in by_shard.items():
            key = core.shards[shard].staged(token, slot)
            fields = _staged_fields(key, chunks, state, tuples)
            if shard in traced:
                fields["traced"] = traced[shard]
            requests.append(scripts.stage(key, ttl, fields))
            tuples = 0
    return requests, tuple(sorted(by_shard))


def stage_deltas(
    core: Core, ttl: int, anchors: Ids, deltas: Ids, token: str, slot: int, state: str
) -> tuple[list[Request], tuple[int, ...]]:
    """The requests that stage deltas of trees as vectors are staged, and their shards.

    See lua/streams/staging/stage.lua.
    """
    by_shard: dict[int, list[UpdateCall]] = {}
    for call in encoding.update_calls(anchors, deltas, core.config.ackers):
        by_shard.setdefault(call.shard, []).append(call)
    places = {shard: core.shards[shard].staged(token, slot) for shard in by_shard}
    requests = [
        scripts.stage(places[shard], ttl, _staged_fields(places[shard], chunks, state, 0))
        for shard, chunks in by_shard.items()
    ]
    return requests, tuple(sorted(by_shard))


def _traced(core: Core, anchors: Ids) -> dict[int, bytes]:
    """By shard, the anchors of trees that are traced, and how many tuples each has."""
    picked = traces.picked(core, anchors)
    if not len(picked):
        return {}
    counts = np.searchsorted(np.sort(anchors), picked, side="right")
    counts = counts - np.searchsorted(np.sort(anchors), picked, side="left")
    shards = ids.shards_of(ids.split(picked)[0], core.config.ackers)
    return {
        shard: traces.pack(picked[shards == shard], counts[shards == shard])
        for shard in np.unique(shards).tolist()
    }


def _staged_fields(key: bytes, chunks: list[UpdateCall], state: str, tuples: int) -> dict[str, bytes | str]:
    """The fields of a staged hash (lua/streams/staging/stage.lua)."""
    slabs = [[*chunk.slabs, *chunk.singles] for chunk in chunks]
    words = sum(len(chunk.deltas) + len(chunk.ones) + sum(map(len, chunk.vectors)) for chunk in chunks) // 8
    vectors.note(key, slabs, words)
    fields: dict[str, bytes | str] = {
        "state": state * len(chunks),
        "words": str(words),
        "tuples:0": str(tuples),
        "layout": struct.pack(f"<{len(slabs)}H", *map(len, slabs)),
        "slabs": b"".join(name for names in slabs for name in names),
    }
    for number, chunk in enumerate(chunks):
        lengths = struct.pack(f"<{len(chunk.vectors)}H", *(len(vector) // 8 for vector in chunk.vectors))
        fields |= {
            f"counts:{number}": chunk.counts, f"indexes:{number}": chunk.indexes,
            f"deltas:{number}": chunk.deltas, f"ones:{number}": chunk.ones,
            f"lengths:{number}": lengths, f"vectors:{number}": b"".join(chunk.vectors),
            f"trees:{number}": chunk.trees,
        }  # fmt: skip
    return fields
