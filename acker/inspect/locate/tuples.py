"""What lies in streams of the tuples of trees, and in commits that are under way.

The vectors of a segment that are applied and not acked hold the ids of its tuples, folded by tree. So where a
tree's tuples are stands in the store already, and no write has to note it.
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
from acker.streams.log.fencing import Bound
from acker.streams.log.segments import Segment
from acker.streams.staging import vectors
from acker.streams.staging.vectors import Chunk

MOST_READERS = 1_000
"""Readers of a topology's subscriptions whose commits are looked for, at most."""
_FIELDS = ("counts", "indexes", "deltas", "ones", "lengths", "vectors")


@dataclass(frozen=True, slots=True)
class Lying:
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
    """What a segment has of a slab's trees: XOR of the tuple ids, for each tree that has some."""

    lying: Lying
    slab: bytes
    indexes: Ids
    words: Ids

    def of(self, index: int) -> int:
        """That of one tree; 0 where it has none here."""
        here = self.words[self.indexes == index]
        return int(np.bitwise_xor.reduce(here)) if len(here) else 0


def look(core: Core, lying: Sequence[Lying], slabs: Mapping[int, frozenset[bytes]]) -> Operation[list[Found]]:
    """What segments have that is applied and not acked, of slabs by their shard.

    Vectors that cannot be read are passed over, and logged: what they hold is missing in the sum.
    """
    asked = [
        (one, place)
        for one in lying
        for place in vectors.keys_of(core, one.segment, one.slot)
        if place[1] in slabs
    ]
    replies = yield [vectors.head(key) for _, (key, _) in asked]
    chunks: list[tuple[Lying, bytes, Chunk]] = []
    for (one, (key, shard)), reply in zip(asked, replies, strict=True):
        with passing_over(core.config.name):
            chunks += [(one, key, chunk) for chunk in vectors.having(key, reply, "1", slabs[shard])]
    parts = yield [
        command("HMGET", key, *(f"{name}:{chunk.number}" for name in _FIELDS)) for _, key, chunk in chunks
    ]
    found = []
    for (one, key, chunk), fields in zip(chunks, parts, strict=True):
        if None in fields:  # acked meanwhile
            continue
        with passing_over(core.config.name), reading(f"chunk {chunk.number} of {key!r}"):
            found += [Found(one, *words) for words in _words(chunk, fields)]
    return found


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
            own = np.frombuffer(indexes, "<u2", count, begin * 2).astype(np.int64)
            yield slab, own, np.frombuffer(deltas, "<i8", count, begin * 8)
        elif place < sparse + dense:
            begin, count = _part(lengths, place - sparse, ends)
            words = np.frombuffer(packed, "<i8", count, begin * 8)
            own = np.flatnonzero(words)
            yield slab, own, words[own]
        else:
            yield slab, np.zeros(1, np.int64), np.frombuffer(ones, "<i8", 1, (place - sparse - dense) * 8)


def _part(counts: bytes, place: int, ends: dict[bytes, list[int]]) -> tuple[int, int]:
    """Where a part begins, and how long it is; `ends` keeps known ones."""
    known = ends.get(counts)
    if known is None:
        known = ends[counts] = np.cumsum(np.frombuffer(counts, "<u2"), dtype=np.int64).tolist()
    begin = known[place - 1] if place else 0
    return begin, known[place] - begin


def under_way(
    core: Core, subscribed: Mapping[str, Iterable[int]], at_work: Iterable[Step]
) -> Operation[list[Lying]]:
    """What commits have applied, as far as that is known, and not published yet; and rows that they track.

    subscribed: the slots of each stream. Looked for are the commits that are registered, those
    that readers are bound to, and those of the spouts and steps that are known. One that cannot be read is
    passed over, and logged.
    """
    name, found = core.config.name, list[Lying]()
    own = [(keys.Stream(name, stream), slot) for stream, slots in subscribed.items() for slot in slots]
    known = yield [command("HGETALL", stream.readers(slot)) for stream, slot in own]
    readers = [
        (stream, slot, reader.decode("utf-8", "replace"))
        for (stream, slot), members in zip(own, known, strict=True)
        for reader in pairs(members)
    ][:MOST_READERS]
    bound = yield [command("HGETALL", stream.bound(slot, reader)) for stream, slot, reader in readers]
    writers = {Bound(field.decode("utf-8", "replace"), "").writer for one in bound for field in pairs(one)}
    writers |= {step.query_id for step in at_work} | {f"{SHARED}{spout}" for spout in core.spouts}
    asked = sorted(writers - {""})
    lasts = yield [command("HGET", keys.commits(name, writer), "last") for writer in asked]
    known_by = {
        (writer, last.decode()) for writer, last in zip(asked, lasts, strict=True) if last is not None
    }
    known_by |= {(one.writer, str(one.number)) for one in (yield from registered.all_of(core))}
    numbers = sorted(known_by)
    stored = yield [
        command("HMGET", keys.commits(name, writer), f"{number}:state", f"{number}:what")
        for writer, number in numbers
    ]
    for (writer, number), (state, what) in zip(numbers, stored, strict=True):
        if state in (None, b"done") or what is None:
            continue
        with passing_over(f"{name}: the commit of {writer}"):
            found += _lying(core, Commit.load(what), _who(writer, number))
    return found


def _lying(core: Core, what: Commit, who: str) -> Iterable[Lying]:
    for stream, segment in what.segments():
        for slot in segment.slots:
            yield Lying(stream, slot, segment, "", who)
    for one in what.roots():
        shards = tuple(one.shards(core.config.ackers))
        yield Lying("", 0, Segment(one.token, one.rows, one.seed, 0, shards, (0,)), "", who, one.how.spout)


def _who(writer: str, number: str) -> str:
    """Whose commit it is, for people."""
    if writer.startswith(SHARED):
        return f"the replays of spout {writer.removeprefix(SHARED)}"
    job, named, run = writer.partition(":")
    return f"job {job}, run {run}" if named else f"query {writer}, batch {number}"
