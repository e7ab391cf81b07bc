"""Finds the tuples of trees: the segments of streams that hold them, and the commits in progress.

The store keeps a vector for each segment that was emitted and not acked: for each tree the XOR of the ids of
its tuples in that segment. A tree that appears in a vector has tuples in that segment, so no write has to
record their places.

Terms: a tree is all that comes of one record; a slab is the trees that one call tracked together; a segment
is some thousand rows of a stream, stored and acked as one piece; a slot is the random number of a
subscription; a chunk is a piece of a vector, applied by one call.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from acker.ledger.calls.core import Core
from acker.ledger.ids import Ids
from acker.ledger.steps.step_registry import Step
from acker.store import keys
from acker.store.operation import Operation, command
from acker.store.records import passing_over, reading
from acker.store.replies import pairs
from acker.streams.commits import under_way as registered
from acker.streams.commits.contents import Commit
from acker.streams.commits.record import SHARED
from acker.streams.log.fencing import Fence
from acker.streams.log.segments import Segment
from acker.streams.staging import vectors
from acker.streams.staging.vectors import Chunk

MOST_READERS = 1_000
"""Readers of a topology's subscriptions whose commits are looked for, at most."""
_FIELDS = ("counts", "indexes", "deltas", "ones", "lengths", "vectors")


@dataclass(frozen=True, slots=True)
class Location:
    """A segment that lies in a stream for a subscription, or is about to.

    entry: the id of its entry, "" before it is published. commit: whose commit will publish it, as text.
    spout: where these are rows that the commit tracks, and lie in no stream. gathers: it waits for the others
    of its request.
    """

    stream: str
    slot: int
    segment: Segment
    entry: str
    commit: str = ""
    spout: str = ""
    gathers: bool = False


@dataclass(frozen=True, slots=True)
class Found:
    """A segment's part of a slab's trees: the XOR of the tuple ids, for each tree that has some."""

    location: Location
    slab: bytes
    indexes: Ids
    words: Ids

    def of(self, index: int) -> int:
        """Returns the XOR of a tree's tuple ids; 0 if it has none here."""
        here = self.words[self.indexes == index]
        return int(np.bitwise_xor.reduce(here)) if len(here) else 0


def look(
    core: Core, locations: Sequence[Location], slabs: Mapping[int, frozenset[bytes]]
) -> Operation[list[Found]]:
    """Finds the segments with applied and unacked tuples of slabs, by their shard.

    Unreadable vectors are passed over, and logged: their tuples are missing in the sum.
    """
    asked = [
        (segment, place)
        for segment in locations
        for place in vectors.keys_of(core, segment.segment, segment.slot)
        if place[1] in slabs
    ]
    replies = yield [vectors.head(key) for _, (key, _) in asked]
    chunks: list[tuple[Location, bytes, Chunk]] = []
    for (segment, (key, shard)), reply in zip(asked, replies, strict=True):
        with passing_over(core.config.name):
            chunks += [(segment, key, chunk) for chunk in vectors.having(key, reply, "1", slabs[shard])]
    parts = yield [
        command("HMGET", key, *(f"{name}:{chunk.number}" for name in _FIELDS)) for _, key, chunk in chunks
    ]
    located = []
    for (segment, key, chunk), fields in zip(chunks, parts, strict=True):
        if not any(fields):  # acked meanwhile
            continue
        with passing_over(core.config.name), reading(f"chunk {chunk.number} of {key!r}"):
            located += [Found(segment, *words) for words in _words(chunk, [part or b"" for part in fields])]
    return located


def _words(chunk: Chunk, fields: Sequence[bytes]) -> Iterable[tuple[bytes, Ids, Ids]]:
    """The wanted slabs of a chunk, with the indexes and words of their trees.

    See lua/streams/staging/stage.lua.
    """
    counts, indexes, deltas, ones, lengths, packed = fields
    sparse, alone, dense = len(counts) // 2, len(ones) // 8, len(lengths) // 2
    if chunk.slabs != sparse + dense + alone:
        raise ValueError(f"{chunk.slabs} slabs")
    ends: dict[bytes, list[int]] = {}
    for place, slab in chunk.wanted:
        if place < sparse:
            begin, count = _part(counts, place, ends)
            positions = np.frombuffer(indexes, "<u2", count, begin * 2).astype(np.int64)
            yield slab, positions, np.frombuffer(deltas, "<i8", count, begin * 8)
        elif place < sparse + dense:
            begin, count = _part(lengths, place - sparse, ends)
            words = np.frombuffer(packed, "<i8", count, begin * 8)
            positions = np.flatnonzero(words)
            yield slab, positions, words[positions]
        else:
            yield slab, np.zeros(1, np.int64), np.frombuffer(ones, "<i8", 1, (place - sparse - dense) * 8)


def _part(counts: bytes, place: int, ends: dict[bytes, list[int]]) -> tuple[int, int]:
    """Returns the beginning of a part, and its length; `ends` keeps known ones."""
    end = ends.get(counts)
    if end is None:
        end = ends[counts] = np.cumsum(np.frombuffer(counts, "<u2"), dtype=np.int64).tolist()
    begin = end[place - 1] if place else 0
    return begin, end[place] - begin


def under_way(
    core: Core, subscribed: Mapping[str, Iterable[int]], at_work: Iterable[Step]
) -> Operation[list[Location]]:
    """Finds the rows that running commits have applied, and not published yet, and rows that they track.

    subscribed: the slots of each stream. Searches the registered commits, the commits that fence readers, and
    the commits of the known spouts and steps. An unreadable commit is passed over, and logged.
    """
    name, locations = core.config.name, list[Location]()
    subscriptions = [
        (keys.Stream(name, stream), slot) for stream, slots in subscribed.items() for slot in slots
    ]
    reader_replies = yield [command("HGETALL", stream.readers(slot)) for stream, slot in subscriptions]
    readers = [
        (stream, slot, reader.decode("utf-8", "replace"))
        for (stream, slot), members in zip(subscriptions, reader_replies, strict=True)
        for reader in pairs(members)
    ][:MOST_READERS]
    fences = yield [command("HGETALL", stream.fences(slot, reader)) for stream, slot, reader in readers]
    writers = {
        Fence(field.decode("utf-8", "replace"), "").writer for fence in fences for field in pairs(fence)
    }
    writers |= {step.query_id for step in at_work} | {f"{SHARED}{spout}" for spout in core.spouts}
    asked = sorted(writers - {""})
    lasts = yield [command("HGET", keys.commits(name, writer), "last") for writer in asked]
    known_by = {
        (writer, last.decode()) for writer, last in zip(asked, lasts, strict=True) if last is not None
    }
    known_by |= {(fence.writer, str(fence.number)) for fence in (yield from registered.all_of(core))}
    numbers = sorted(known_by)
    stored = yield [
        command("HMGET", keys.commits(name, writer), f"{number}:state", f"{number}:what")
        for writer, number in numbers
    ]
    for (writer, number), (state, record) in zip(numbers, stored, strict=True):
        if state in (None, b"complete") or record is None:
            continue
        with passing_over(f"{name}: the commit of {writer}"):
            locations += _locations(core, Commit.load(record), _who(writer, number))
    return locations


def _locations(core: Core, commit: Commit, who: str) -> Iterable[Location]:
    for stream, segment in commit.segments():
        for slot in segment.slots:
            yield Location(stream, slot, segment, "", who)
    for one in commit.roots():
        shards = tuple(one.shards(core.config.ackers))
        yield Location("", 0, Segment(one.id, one.rows, one.seed, 0, shards, (0,)), "", who, one.how.spout)


def _who(writer: str, number: str) -> str:
    """Returns the owner of a commit, for people."""
    if writer.startswith(SHARED):
        return f"the replays of spout {writer.removeprefix(SHARED)}"
    job, named, run = writer.partition(":")
    return f"job {job}, run {run}" if named else f"query {writer}, batch {number}"
