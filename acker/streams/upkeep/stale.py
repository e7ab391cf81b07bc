"""Stale rows: all their trees are over, so no tree waits for rows derived from them.

A tree has failed, or expired and is replayed, or has become a dead letter, while its row lay in a stream. To
process the row would repeat work, or put a given-up record into a sink. So readers drop such rows, and count
them. When a batch is planned, the store knows exactly which trees are over. A tree that ends while its row is
processed shows by a late ack.

Terms: an anchor is the number of a tree; a slab is the trees that one call tracked together; a segment is
some thousand rows of a stream, stored and acked as one piece; a vector has a number for each tree, the XOR of
tuple ids; a bundle is the rows that have gathered for one task of a group.
"""

import bisect
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa  # noqa: TID251 - rows travel as Arrow, from and to Spark and plain Python

from acker.ledger import ids
from acker.ledger.calls.core import Core
from acker.ledger.ids import SLAB_TREES, Ids
from acker.ledger.slabs import sections
from acker.store import keys
from acker.store.operation import Operation, Reply, abreast, command
from acker.streams.log import segments
from acker.streams.log.segments import ANCHORS, LAST, Segment
from acker.streams.staging import acks, skipped, vectors
from acker.streams.staging.skipped import Left, Skipped
from acker.streams.upkeep import scripts

Over: TypeAlias = Mapping[bytes, npt.NDArray[np.bool_]]
"""Trees of slabs that are over, by index. A slab without such trees is missing."""
COUNTED_TTL = 86400
"""Seconds for which the count of a segment's stale rows is noted: a batch may read it again."""
MOST_LEFT = 100_000
"""The most slabs of which a batch leaves trees out; rows of further slabs are read."""
_ALL = np.ones(SLAB_TREES, dtype=np.bool_)
_FIRST_OF_ONE = b"\x80"
"""Names of slabs of one tree are not below it; the names of all other slabs are."""
_ZERO = bytes(8)
_HEADER_BYTES = 27
_WAITING, _TRACKED = 1, 2
_FLIGHT = 64
_ONES = 1000


@dataclass(frozen=True, slots=True)
class Planned:
    """The segments that a batch reads.

    Attributes:
        members: Segments whose rows exist.
        skipped: The id of its note of the rows that it leaves out, for its range.
        left: The trees of the members that it leaves out, by id; None for all rows with a tree.
    """

    members: tuple[Segment, ...] = ()
    skipped: str = ""
    left: Mapping[str, Left | None] = field(default_factory=dict)


def plan(
    core: Core, stream: str, slot: int, members: Sequence[Segment], *, everything: bool = False
) -> Operation[Planned]:
    """Plans a batch of segments. It leaves out segments whose rows are gone, and rows whose trees are over.

    everything: True to read rows whose trees are over. Rows that are left out are noted in the store.
    """
    stream_keys, there = keys.Stream(core.config.name, stream), list[Segment]()
    for first in range(0, len(members), _ONES):
        part = members[first : first + _ONES]
        replies = yield [command("EXISTS", stream_keys.payload(segment.id)) for segment in part]
        there += [segment for segment, exists in zip(part, replies, strict=True) if exists]
    gone = frozenset(segment.id for segment in members) - {segment.id for segment in there}
    judged = yield from judge(core, [] if everything else there, slot)
    return (yield from planned(core, stream, members, gone, judged))


def planned(
    core: Core, stream: str, members: Sequence[Segment], gone: Collection[str], judged: Skipped
) -> Operation[Planned]:
    """The rows of segments that a batch reads: without segments that are gone, and rows that `judge` names.

    Rows that are left out are noted in the store.
    """
    over = judged.over - frozenset(gone)
    parts = {segment_id: left for segment_id, left in judged.parts.items() if segment_id not in gone}
    found = Skipped(frozenset(gone), over, parts)
    skipped_id = yield from skipped.note(core, stream, found)
    left: dict[str, Left | None] = {**dict.fromkeys(over), **parts}
    return Planned(tuple(one for one in members if one.id not in gone), skipped_id, left)


def judge(
    core: Core, members: Sequence[Segment], slot: int, heads: dict[bytes, Reply] | None = None
) -> Operation[Skipped]:
    """The trees that are over, though a subscription has still to ack tuples of segments for them.

    heads: gets the heads of the segments' vectors (`acker.streams.staging.vectors.head`).
    """
    named: dict[str, list[bytes]] = {one.id: [] for one in members}
    by_shard: dict[int, set[bytes]] = {}
    places = [(one.id, key, shard) for one in members for key, shard in vectors.keys_of(core, one, slot)]
    # Slabs of vectors that this process has staged are read along with the heads; other slabs are read later.
    guessed: dict[int, set[bytes]] = {}
    for _, key, shard in places:
        guessed.setdefault(shard, set()).update(vectors.noted(key))
    ended: dict[bytes, npt.NDArray[np.bool_]] = {}
    for first in range(0, len(places), _FLIGHT):
        part = places[first : first + _FLIGHT]
        looks: list[Operation[Any]] = [_heads(part)]
        looks += [] if first else [_look_at_slabs(core, guessed, ended)]
        replies, *_ = yield from abreast(looks)
        for (segment_id, key, shard), reply in zip(part, replies, strict=True):
            names = [slab for _, chunk in vectors.chunks(key, reply) for slab in chunk]
            named[segment_id] += names
            by_shard.setdefault(shard, set()).update(names)
            if heads is not None:
                heads[key] = reply
    rest = {shard: names - guessed[shard] for shard, names in by_shard.items()}
    yield from _look_at_slabs(core, rest, ended)
    return _judged(named, ended)


def judge_seen(
    core: Core, members: Sequence[Segment], slot: int, looks: Sequence[Reply], heads: dict[bytes, Reply]
) -> Skipped:
    """Judges like `judge`, by replies that were read with a claim (`Claimed`)."""
    named: dict[str, list[bytes]] = {}
    ended: dict[bytes, npt.NDArray[np.bool_]] = {}
    for segment, (_, *shards) in zip(members, looks, strict=True):
        named[segment.id] = []
        for (key, _), head, trees in zip(
            vectors.keys_of(core, segment, slot), shards[::2], shards[1::2], strict=True
        ):
            heads[key] = head
            names = [slab for _, chunk in vectors.chunks(key, head) for slab in chunk]
            named[segment.id] += names
            for slab, header, word in zip(names, trees[::2], trees[1::2], strict=True):
                _note(slab, header, word, ended)
    return _judged(named, ended)


def _judged(named: Mapping[str, Sequence[bytes]], ended: Mapping[bytes, npt.NDArray[np.bool_]]) -> Skipped:
    packed = {slab: skipped.ALL if done is _ALL else _packed(done) for slab, done in ended.items()}
    over, parts, count = set[str](), dict[str, Left](), 0
    for segment_id, slabs in named.items():
        left = {slab: packed[slab] for slab in slabs if slab in packed}
        if left and len(left) == len(set(slabs)) and all(one == skipped.ALL for one in left.values()):
            over.add(segment_id)
        elif left and count + len(left) <= MOST_LEFT:
            parts[segment_id], count = left, count + len(left)
    return Skipped(over=frozenset(over), parts=parts)


def _heads(places: Sequence[tuple[str, bytes, int]]) -> Operation[list[Reply]]:
    return (yield [vectors.head(key) for _, key, _ in places])


def _look_at_slabs(
    core: Core, slabs: Mapping[int, Collection[bytes]], ended: dict[bytes, npt.NDArray[np.bool_]]
) -> Operation[None]:
    """Reads slabs, by shard. ended: gets the trees that are over, for each slab that has some."""
    for shard, waiting in slabs.items():
        names = sorted(waiting)
        many = bisect.bisect_left(names, _FIRST_OF_ONE)
        for at in range(0, many, _FLIGHT):
            yield from _look_at_many(core, shard, names[at : min(many, at + _FLIGHT)], ended)
        for at in range(many, len(names), _ONES):
            yield from _look_at_ones(core, shard, names[at : at + _ONES], ended)


def _packed(done: npt.NDArray[np.bool_]) -> bytes:
    return np.flatnonzero(done).astype("<u2").tobytes()


def rows(
    core: Core, stream: str, segment: Segment, slot: int, payload: bytes, left: Mapping[str, Left | None]
) -> Operation[list[pa.RecordBatch]]:
    """The rows of a segment (`acker.streams.staging.acks.rows`) without the stale ones, which are counted.

    left: from `Planned`. A row is stale if it has trees, and all of them are left out. A tree that cannot be
    read does not count as over. Rows that end a bundle (`acker.streams.log.gathers.FINISHED`) are only in
    `fresh`.
    """
    if segment.to.startswith(LAST):
        return []
    found = yield from acks.rows(core, stream, segment, slot, payload)
    return (yield from fresh(core, stream, segment, slot, found, left))


def fresh(
    core: Core,
    stream: str,
    segment: Segment,
    slot: int,
    batches: list[pa.RecordBatch],
    left: Mapping[str, Left | None],
) -> Operation[list[pa.RecordBatch]]:
    """The rows of a segment without the stale ones, which are counted: see `rows`."""
    if not batches or ANCHORS not in batches[0].schema.names or segment.id not in left:
        return batches
    of = left[segment.id]
    ended = None if of is None else _ended(of)
    kept = [batch.filter(pa.array(~_stale(batch.column(ANCHORS), ended))) for batch in batches]
    dropped = sum(one.num_rows for one in batches) - sum(one.num_rows for one in kept)
    if dropped and segment.counted:
        stream_keys = keys.Stream(core.config.name, stream)
        yield [scripts.count_stale(stream_keys, segment.id, slot, dropped, COUNTED_TTL)]
    return kept


def _ended(left: Left) -> Over:
    """The trees that are over, unpacked from a note of skipped rows."""
    ended = {}
    for slab, packed in left.items():
        if packed == skipped.ALL:
            ended[slab] = _ALL
        else:
            indexes = np.frombuffer(packed, dtype="<u2")
            ended[slab] = np.zeros(int(indexes.max()) + 1, dtype=np.bool_)
            ended[slab][indexes] = True
    return ended


def _look_at_many(
    core: Core, shard: int, slabs: Sequence[bytes], ended: dict[bytes, npt.NDArray[np.bool_]]
) -> Operation[None]:
    shard_keys = core.shards[shard]
    headers, *words = yield [
        command("HMGET", shard_keys.slabs, *slabs),
        *(command("GET", shard_keys.vector(slab)) for slab in slabs),
    ]
    for slab, header, vector in zip(slabs, headers, words, strict=True):
        _note(slab, header, vector, ended)


def _note(slab: bytes, header: Reply, vector: Reply, ended: dict[bytes, npt.NDArray[np.bool_]]) -> None:
    """Notes the trees of a slab that are over. A slab of one tree has none if its word exists."""
    if ids.is_one(slab):
        if vector is None and (header is None or _tracked(header)):
            ended[slab] = _ALL
    elif header is None or (_tracked(header) and vector is None) or _came_late(slab, header):
        ended[slab] = _ALL
    elif _tracked(header) and _ZERO in vector and len(vector) % 8 == 0:
        done = np.frombuffer(vector, dtype="<u8") == 0
        if done.any():
            ended[slab] = done


def _look_at_ones(
    core: Core, shard: int, slabs: Sequence[bytes], ended: dict[bytes, npt.NDArray[np.bool_]]
) -> Operation[None]:
    shard_keys = core.shards[shard]
    [words] = yield [command("HMGET", shard_keys.ones, *slabs)]
    gone = [slab for slab, word in zip(slabs, words, strict=True) if word is None]
    if gone:
        [headers] = yield [command("HMGET", shard_keys.slabs, *gone)]
        for slab, header in zip(gone, headers, strict=True):
            _note(slab, header, None, ended)


def _came_late(slab: bytes, header: Reply) -> bool:
    """Return True if a slab waits for a track that it had.

    Trees of lines are tracked before they have rows.
    """
    return sections.of_line(slab) and len(header) == _HEADER_BYTES and header[0] == _WAITING


def _tracked(header: Reply) -> bool:
    """Return True if a readable header (lua/ledger/includes/shard.lua) says that its slab is tracked."""
    return len(header) == _HEADER_BYTES and header[0] == _TRACKED


def _stale(column: pa.Array, ended: Over | None) -> npt.NDArray[np.bool_]:
    """True for each stale row, by its anchors. ended: None if all trees are over."""
    anchors, places = segments.edges(column)
    if pa.types.is_int64(column.type):
        row_of = places
    else:
        lengths = column.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
        row_of = np.repeat(np.arange(len(column)), lengths)[places]
    over_here = np.ones(len(anchors), dtype=np.bool_) if ended is None else _over(anchors, ended)
    stale = np.zeros(len(column), dtype=np.bool_)
    stale[row_of[over_here]] = True
    stale[row_of[~over_here]] = False
    return stale


def _over(anchors: Ids, ended: Over) -> npt.NDArray[np.bool_]:
    """True for each anchor whose tree is over."""
    numbers, indexes = ids.split(anchors)
    names = sorted(ended)
    numbers_over = np.array([int.from_bytes(name, "big") for name in names], dtype=np.uint64)
    lengths = np.array([len(ended[name]) for name in names], dtype=np.int64)
    starts = np.concatenate(([0], np.cumsum(lengths)))
    flags = np.concatenate([ended[name] for name in names])
    at = np.minimum(np.searchsorted(numbers_over, numbers), len(numbers_over) - 1)
    within = (numbers_over[at] == numbers) & (indexes < lengths[at])
    found = np.zeros(len(anchors), dtype=np.bool_)
    found[within] = flags[starts[at[within]] + indexes[within]]
    return found
