"""Staging: puts rows and the XOR vectors of their tuples into the store, invisible until a commit.

Staged data has a time to live: task attempts that lose, fail or vanish leave nothing behind.

Terms: a tree is all that comes of one record; an anchor is the number of a tree; a segment is some thousand
rows of a stream, stored and acked as one piece; a vector has a number for each tree, the XOR of tuple ids; a
delta is the XOR of the ids that a call adds to a tree; a lane is one of the four queues of a stream that is
read fairly; a chunk is a piece of a vector, applied by one call.
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
from acker.store.records import Bounds, Count, HexId, Matching, Name, Record
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
"""A shard and an id: the place of staged failures."""
FAILED = "_acker_failed"
"""A column of causes, as text: a row with a cause is not emitted, but fails."""


@dataclass(frozen=True, slots=True)
class Staged(Record, label="the staged work of a task"):
    """The staged work of one task.

    Attributes:
        stream: The stream of its segments.
        segments: Segments to publish.
        failures: Ids of trees to fail.
        effects: Ids of effects to record, and their horizons (ms).
        released: Ids of effects whose rows failed.
        unanchored: The number of emitted rows that have lost their anchors.
        unfailed: The number of rows to fail that have lost their anchors.
        treeless: The number of rows, emitted or failed, that have only 0 for an anchor.
        results: Results of functions (`acker.streams.staging.results`).
    """

    stream: Annotated[str, Bounds(0, 64)]
    segments: tuple[Segment, ...] = ()
    failures: tuple[Placed, ...] = ()
    effects: tuple[tuple[HexId, Count], ...] = ()
    released: tuple[HexId, ...] = ()
    unanchored: Count = 0
    unfailed: Count = 0
    treeless: Count = 0
    results: tuple[tuple[Name, HexId, Count], ...] = ()

    def as_said_unanchored(self) -> "Staged":
        """A copy without faults of anchors, for a user who emits rows without anchors on purpose."""
        return replace(self, unanchored=0, treeless=0)


@dataclass(frozen=True, slots=True)
class Staging:
    """Options for staging rows of a stream.

    Attributes:
        rows, bytes: Limits of a segment (bytes before compression).
        ttl: Seconds for which staged data lives.
        failures_only: Passes over rows that did not fail.
        effects_horizon: Milliseconds for which the rows' digests are recorded as effects; None if they are
            recorded already.
        step, batch: The step and the batch to name in causes of failed rows.
        results: A function and seconds: rows are not emitted, but give results that are kept for so long.
        to: The reply of `acker.streams.log.subscriptions.staged_for`, if it was asked just now.
        into: Gets the requests that stage segments and results, so that the caller sends them with the commit
            (`AtHand` in acker/streams/commits/known.py); None: they are sent now.
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
    """Rows for the next segment."""

    batches: list[pa.RecordBatch] = field(default_factory=list)
    rows: int = 0
    bytes: int = 0

    def add(self, batch: pa.RecordBatch) -> None:
        self.batches.append(batch)
        self.rows += batch.num_rows
        self.bytes += batch.nbytes


def stage(core: Core, options: Staging, batches: Iterable[pa.RecordBatch]) -> Operation[Staged]:
    """Stages rows of a stream, with the vectors of their tuples if there is a column `_acker`.

    Rows with a cause in the column `_acker_failed` are not emitted: their trees are staged to be failed.
    """
    done: list[Segment] = []
    failures: list[str] = []
    had: list[tuple[str, int]] = []
    released: list[str] = []
    given: list[tuple[str, str, int]] = []
    unanchored = unfailed = treeless = 0
    long = list[TooLong]()
    emits = not options.failures_only and options.results is None
    for piece in pieces(options, batches):
        to = options.to
        if emits:
            to = to or (yield from subscriptions.staged_for(core, options.stream))
            if to.gathering is not None:
                piece = gathers.with_unfit(Gathering.load(to.gathering), options.stream, piece, FAILED)
        if EFFECT in piece[0].schema.names:
            piece, new, unused = effects.split(piece, FAILED)
            if new and options.effects_horizon:
                had.append(((yield from effects.stage(core, options.ttl, new)), options.effects_horizon))
            if unused and not options.effects_horizon:
                released.append((yield from effects.stage(core, options.ttl, unused)))
        kept, bad = failed_rows.split(piece, FAILED)
        if kept and not options.failures_only:
            unanchored += _count(segments.unanchored, kept)
            treeless += _count(segments.treeless, kept)
            if options.results is not None:
                function, keep = options.results
                given_results = results.of_rows(kept)
                given += yield from results.stage(
                    core, function, given_results, options.ttl, keep, options.into
                )
            else:
                one = partial(stage_segments, core, replace(options, to=to))
                done += chain.from_iterable((yield from splitting.in_halves(one, kept, options.into, long)))
                bad += failed_rows.too_long(long, FAILED)
        if bad:
            unfailed += _count(segments.unanchored, bad)
            treeless += _count(segments.treeless, bad)
            said = failed_rows.causes(bad, FAILED, options.step, options.batch)
            failures += yield from stage_failures(core, options.ttl, *said)
    counts = (unanchored, unfailed, treeless)
    made = tuple(done), tuple(failures), tuple(had), tuple(released)
    return Staged(options.stream, *made, *counts, tuple(given))


def _count(of: Callable[[pa.Array], int], batches: list[pa.RecordBatch]) -> int:
    unknown_anchor = pa.nulls(1, pa.int64())
    return sum(
        of(one.column(ANCHORS)) if ANCHORS in one.schema.names else one.num_rows * of(unknown_anchor)
        for one in batches
    )


def pieces(options: Staging, batches: Iterable[pa.RecordBatch]) -> Iterator[list[pa.RecordBatch]]:
    """Cuts rows, and puts them together, to the size of segments."""
    piece = _Piece()
    for batch in batches:
        at, most = 0, options.rows
        if batch.nbytes > options.bytes:
            most = max(1, min(most, options.bytes * batch.num_rows // batch.nbytes))
        while at < batch.num_rows:
            part = batch.slice(at, min(most, options.rows - piece.rows))
            piece.add(part)
            at += part.num_rows
            if piece.rows >= options.rows or piece.bytes >= options.bytes:
                yield piece.batches
                piece = _Piece()
    if piece.rows:
        yield piece.batches


def stage_failures(core: Core, ttl: int, anchors: Ids, causes: list[str]) -> Operation[list[str]]:
    """Stages trees to be failed; returns one or more ids for each shard.

    Raises ValidationError for a number that is no anchor.
    """
    ids.check_anchors(anchors)
    if not core.config.ackers:
        return []
    shards = ids.shards_of(ids.split(anchors)[0], core.config.ackers)
    staged_ids, requests = [], []
    for shard in np.unique(shards).tolist():
        for here in splitting.by_bytes(np.flatnonzero(shards == shard), causes):
            columns = [pa.array(anchors[here]), pa.array([causes[row] for row in here.tolist()], pa.string())]
            rows = segments.encode([pa.RecordBatch.from_arrays(columns, [ANCHORS, FAILED])], "lz4")
            staged_ids.append(f"{shard}.{segments.new_hex_id()}")
            key, _ = failing_key(core, staged_ids[-1])
            names = np.unique(ids.split(anchors[here])[0]).astype(">u8").tobytes()
            requests.append(scripts.stage(key, ttl, {"rows": rows, "slabs": names}))
    yield requests
    return staged_ids


def failing_key(core: Core, staged_id: str) -> VectorKey:
    """The key and the shard of trees that were staged to be failed."""
    shard = int(staged_id.partition(".")[0])
    return core.shards[shard].failing(staged_id), shard


def failures(core: Core, staged_id: str) -> Operation[pa.Table | None]:
    """Trees that were staged to be failed (`ANCHORS`), and their causes (`FAILED`); None if they are gone."""
    [rows] = yield [command("HGET", failing_key(core, staged_id)[0], "rows")]
    return None if rows is None else pa.Table.from_batches(segments.decode(rows))


def stage_segments(core: Core, options: Staging, batches: list[pa.RecordBatch]) -> Operation[list[Segment]]:
    """Stages rows as one segment.

    If their stream gathers, they become a segment for each place where rows wait. If it is read fairly, they
    become one or more for each lane.
    """
    slots, gathering, fair = options.to or (yield from subscriptions.staged_for(core, options.stream))
    if gathering is not None:
        places = gathers.cut(Gathering.load(gathering), options.stream, batches)
        return (yield from abreast([_stage_segment(core, options, part, slots, to) for to, part in places]))
    if fair is None:
        return [(yield from _stage_segment(core, options, batches, slots))]
    lanes = yield from fairness.cut(core, options.stream, fair.decode("utf-8", "replace"), batches)
    operations = [_stage_segment(core, options, part, slots, lane=lane) for lane, part in lanes]
    return (yield from abreast(operations))


def stage_segment(
    core: Core, options: Staging, batches: list[pa.RecordBatch], to: str = ""
) -> Operation[Segment]:
    """Stages one segment: its payload, and its vectors in each shard for each subscription."""
    slots, *_ = options.to or (yield from subscriptions.staged_for(core, options.stream))
    return (yield from _stage_segment(core, options, batches, slots, to))


def _stage_segment(
    core: Core,
    options: Staging,
    batches: list[pa.RecordBatch],
    slots: tuple[int, ...],
    to: str = "",
    lane: int = 0,
) -> Operation[Segment]:
    staged_id, seed = segments.new_hex_id(), segments.new_seed()
    payload = segments.encode(batches, options.compression)
    stream_keys = keys.Stream(core.config.name, options.stream)
    requests, shards = stage_vectors(core, options.ttl, batches, staged_id, seed, slots, "0")
    rows_first = scripts.stage_rows(stream_keys.payload(staged_id), options.ttl, payload)
    if options.into is None:
        yield [rows_first, *requests]
    elif len(payload) > LEAST_VALUE_BYTES:  # the store may refuse it: its writer learns that now
        yield [rows_first]
        options.into.extend(requests)
    else:
        options.into.extend([rows_first, *requests])
    rows, size = sum(batch.num_rows for batch in batches), sum(batch.nbytes for batch in batches)
    return Segment(staged_id, rows, seed, len(payload), shards, slots, to, lane, size)


def stage_vectors(
    core: Core,
    ttl: int,
    batches: list[pa.RecordBatch],
    staged_id: str,
    seed: int,
    slots: tuple[int, ...],
    state: str,
) -> tuple[list[Request], tuple[int, ...]]:
    """The requests that stage a segment's vectors in a state, and their shards.

    See lua/streams/staging/stage.lua.
    """
    if not core.config.ackers or ANCHORS not in batches[0].schema.names:
        return [], ()
    table = pa.Table.from_batches(batches, schema=batches[0].schema)
    column = table.column(ANCHORS)
    anchors, positions = segments.edges(column)
    width = segments.width(column)
    requests = []
    by_shard: dict[int, list[UpdateCall]] = {}
    for slot in slots:
        by_shard = {}
        deltas = segments.edge_ids(seed, slot, positions)
        # If a row has 0 among its anchors, rows differ in length here.
        whole = width > 1 and len(anchors) == width * table.num_rows
        folded = ids.fold_rows(anchors, deltas, width) if whole else (anchors, deltas)
        for call in encoding.update_calls(*folded, core.config.ackers):
            by_shard.setdefault(call.shard, []).append(call)
        tuples = len(anchors)  # of the segment: its first chunk says so
        traced = _traced(core, anchors)
        for shard, chunks in by_shard.items():
            key = core.shards[shard].staged(staged_id, slot)
            fields = staged_fields(key, chunks, state, tuples)
            if shard in traced:
                fields["traced"] = traced[shard]
            requests.append(scripts.stage(key, ttl, fields))
            tuples = 0
    return requests, tuple(sorted(by_shard))


def stage_deltas(
    core: Core, ttl: int, anchors: Ids, deltas: Ids, staged_id: str, slot: int, state: str
) -> tuple[list[Request], tuple[int, ...]]:
    """The requests that stage deltas of trees like vectors, and their shards.

    See lua/streams/staging/stage.lua.
    """
    by_shard: dict[int, list[UpdateCall]] = {}
    for call in encoding.update_calls(anchors, deltas, core.config.ackers):
        by_shard.setdefault(call.shard, []).append(call)
    places = {shard: core.shards[shard].staged(staged_id, slot) for shard in by_shard}
    requests = [
        scripts.stage(places[shard], ttl, staged_fields(places[shard], chunks, state, 0))
        for shard, chunks in by_shard.items()
    ]
    return requests, tuple(sorted(by_shard))


def _traced(core: Core, anchors: Ids) -> dict[int, bytes]:
    """The anchors of traced trees, by shard, with the number of tuples of each."""
    traced = traces.select(core, anchors)
    if not len(traced):
        return {}
    counts = np.searchsorted(np.sort(anchors), traced, side="right")
    counts = counts - np.searchsorted(np.sort(anchors), traced, side="left")
    shards = ids.shards_of(ids.split(traced)[0], core.config.ackers)
    return {
        shard: traces.pack(traced[shards == shard], counts[shards == shard])
        for shard in np.unique(shards).tolist()
    }


def staged_fields(key: bytes, chunks: list[UpdateCall], state: str, tuples: int) -> dict[str, bytes | str]:
    """The fields of a staged hash (lua/streams/staging/stage.lua). An empty one would take 40 bytes, too."""
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
        parts = {
            "counts": chunk.counts, "indexes": chunk.indexes, "deltas": chunk.deltas, "ones": chunk.ones,
            "lengths": lengths, "vectors": b"".join(chunk.vectors), "trees": chunk.trees,
        }  # fmt: skip
        fields |= {f"{name}:{number}": part for name, part in parts.items() if part}
    return fields
