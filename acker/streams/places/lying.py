"""What lies in streams of the tuples of trees, and in commits that are under way.

The vectors of a segment that are applied and not acked hold the ids of its tuples, folded by tree. So where a
tree's tuples are stands in the store already, and no write has to note it.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from acker.errors import UnreadableRecord
from acker.inspect.steps import Step
from acker.ledger.core import Core
from acker.ledger.ids import Ids
from acker.store import keys
from acker.store.operation import Operation, command
from acker.store.replies import pairs
from acker.streams.commits import vectors
from acker.streams.commits.commit import SHARED, Commit
from acker.streams.commits.vectors import VectorPlace
from acker.streams.segments import Segment
from acker.streams.subscriptions import Bound

MOST_READERS = 1_000
"""Readers of a topology's subscriptions whose commits are looked for, at most."""
_FIELDS = ("counts", "indexes", "deltas", "ones", "lengths", "vectors")
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Lying:
    """A segment that lies in a stream for a subscription, or is about to.

    entry: the id of its entry, "" before it is published. commit: whose commit will publish it, as text.
    spout: where these are rows that the commit tracks, and lie in no stream.
    """

    stream: str
    slot: int
    segment: Segment
    entry: str
    commit: str = ""
    spout: str = ""


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
        for place in vectors.places(core, one.segment, one.slot)
        if place[1] in slabs
    ]
    replies = yield [vectors.head(key) for _, (key, _) in asked]
    chunks: list[tuple[Lying, VectorPlace, int, list[bytes]]] = []
    for (one, place), reply in zip(asked, replies, strict=True):
        wanted = slabs[place[1]]
        try:
            for number, (state, members) in enumerate(vectors.chunks(place[0], reply)):
                if state == "1" and not wanted.isdisjoint(members):
                    chunks.append((one, place, number, members))
        except UnreadableRecord as error:
            _log.error("%s: %s", core.config.name, error)
    parts = yield [
        command("HMGET", key, *(f"{name}:{number}" for name in _FIELDS)) for _, (key, _), number, _ in chunks
    ]
    found = []
    for (one, (key, shard), number, members), fields in zip(chunks, parts, strict=True):
        if None in fields:  # acked meanwhile
            continue
        try:
            found += [Found(one, *words) for words in _words(members, fields, slabs[shard])]
        except (ValueError, IndexError) as error:
            _log.error("%s: chunk %d of %r cannot be read: %s", core.config.name, number, key, error)
    return found


def _words(
    members: Sequence[bytes], fields: Sequence[bytes], wanted: frozenset[bytes]
) -> Iterable[tuple[bytes, Ids, Ids]]:
    """The wanted slabs of a chunk (lua/stage.lua), with the indexes and words of their trees."""
    counts, indexes, deltas, ones, lengths, packed = (
        np.frombuffer(part, dtype).astype(np.int64)
        for part, dtype in zip(fields, ("<u2", "<u2", "<i8", "<i8", "<u2", "<i8"), strict=True)
    )
    if len(members) != len(counts) + len(lengths) + len(ones):
        raise ValueError(f"{len(members)} slabs")
    starts, dense = np.concatenate(([0], np.cumsum(counts))), np.concatenate(([0], np.cumsum(lengths)))
    for place, slab in enumerate(members):
        if slab not in wanted:
            continue
        if place < len(counts):
            part = slice(starts[place], starts[place + 1])
            yield slab, indexes[part], deltas[part]
        elif place < len(counts) + len(lengths):
            own = packed[dense[place - len(counts)] : dense[place - len(counts) + 1]]
            yield slab, np.flatnonzero(own).astype(np.int64), own[own != 0]
        else:
            at = place - len(counts) - len(lengths)
            yield slab, np.zeros(1, dtype=np.int64), ones[at : at + 1]


def under_way(
    core: Core, subscribed: Mapping[str, Iterable[int]], at_work: Iterable[Step]
) -> Operation[list[Lying]]:
    """What commits have applied, as far as that is known, and not published yet; and rows that they track.

    subscribed: the slots of each stream. Looked for are the commits that readers are bound to, and those of
    the spouts and steps that are known. One that cannot be read is passed over, and logged.
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
    numbers = [(writer, last.decode()) for writer, last in zip(asked, lasts, strict=True) if last is not None]
    stored = yield [
        command("HMGET", keys.commits(name, writer), f"{number}:state", f"{number}:what")
        for writer, number in numbers
    ]
    for (writer, number), (state, what) in zip(numbers, stored, strict=True):
        if state in (None, b"done") or what is None:
            continue
        try:
            found += _lying(core, Commit.load(what), _who(writer, number))
        except UnreadableRecord as error:
            _log.error("%s: the commit of %s: %s", name, writer, error)
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
