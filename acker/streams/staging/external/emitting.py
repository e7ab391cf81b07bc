"""Emitting segments: their vectors are staged, and applied to their trees.

A shard notes each emitted hash for the commit. One call emits all chunks of a hash, and of several hashes
where they are small.

Terms: a segment is the rows of an external stream that one sender stamped together; a slot is the random
number of a subscription; a chunk is a piece of a vector, applied by one call; staged rows are stored, but
nobody sees them before a commit.
"""

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import redis

from acker.errors import StoreError
from acker.ledger.calls.calls import Call, refusals, unreadable
from acker.ledger.calls.core import Core
from acker.ledger.ids import Ids
from acker.store.operation import Reply, Request
from acker.streams.staging import scripts as staging_scripts
from acker.streams.staging import staging
from acker.streams.staging.external import scripts
from acker.streams.staging.external.contents import ExternalCommit
from acker.streams.staging.external.declaring import expired
from acker.streams.staging.external.segments import Sent, chunks_of
from acker.streams.staging.scripts import StagedChunk
from acker.streams.staging.vectors import CommitProgress, StagedVectors, VectorKey

_TOGETHER, _TOGETHER_WORDS = 40, 700
ALONE = 0
"""The slot under which the acks of tuples that were taken over are staged."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Hash:
    """A hash of staged vectors: its chunks, and about how many words they have."""

    key: bytes
    chunks: list[StagedChunk]
    words: int


@dataclass(slots=True)
class Emits:
    """The emits of a commit, when its segments are announced, and its acks of tuples that were taken over.

    Attributes:
        progress: How many hashes each shard emits.
        places: Segments, and the slots and shards in which they have vectors.
        staging: The requests that stage vectors.
        calls: The calls that emit them, each with the places of its hashes.
        chunks, words: The chunks of each of these hashes, and how many words they have.
        alone: The calls that ack tuples that were taken over, behind all emits.
        until: The time (ms) after which nothing more is staged: the limit of the oldest segment.
    """

    core: Core
    commit: ExternalCommit
    progress: CommitProgress
    places: list[tuple[Sent, int, int]] = field(default_factory=list)
    staging: list[Request] = field(default_factory=list)
    calls: list[tuple[Call, list[VectorKey]]] = field(default_factory=list)
    chunks: dict[VectorKey, list[StagedChunk]] = field(default_factory=dict)
    words: dict[VectorKey, int] = field(default_factory=dict)
    alone: list[Call] = field(default_factory=list)
    until: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        begun = [sent.begun for out in self.commit.out.values() for sent in out.segments]
        if self.commit.taken:
            begun.append(self.commit.taken_at)
        self.until = (min(begun, default=0) + self.core.config.stamp_ttl) * 1000
        by_shard = dict[int, list[_Hash]]()
        for out in self.commit.out.values():
            for sent in out.segments:
                for slot in sent.slots or ():
                    self._stage(sent, slot, by_shard)
        self._cut(by_shard)
        self._take_over()

    def _stage(self, sent: Sent, slot: int, by_shard: dict[int, list[_Hash]]) -> None:
        here = sent.shards(self.core.config.ackers)
        for shard, chunks in sent.vectors(slot, self.core.config.ackers).items():
            key = self.core.shards[shard].staged(sent.token, slot)
            fields = staging.staged_fields(key, chunks, "0", sent.tuples())
            ttl = self.core.config.stamp_ttl
            fields |= here[shard].fields(len(sent.anchors), ttl) | {"of": self.commit.name}
            self.staging.append(scripts.send(key, ttl, self.until, fields))
            self.places.append((sent, slot, shard))
            self.progress.needed[shard] += 1
            words = sum(len(one.slabs) + len(one.singles) + len(one.deltas) // 8 for one in chunks)
            words += sum(len(vector) for one in chunks for vector in one.vectors) // 64
            staged = [StagedChunk(key, number, one.slabs, one.singles) for number, one in enumerate(chunks)]
            self.chunks[key, shard], self.words[key, shard] = staged, int(str(fields["words"]))
            by_shard.setdefault(shard, []).append(_Hash(key, staged, words))

    def _cut(self, by_shard: dict[int, list[_Hash]]) -> None:
        """Cuts hashes into what one call emits; all chunks of a hash go in one call."""
        for shard, members in by_shard.items():
            part, words = list[_Hash](), 0
            for member in members:
                if part and (words + member.words > _TOGETHER_WORDS or len(part) >= _TOGETHER):
                    self._emit(shard, part)
                    part, words = [], 0
                part.append(member)
                words += member.words
            self._emit(shard, part)

    def _emit(self, shard: int, part: Sequence[_Hash]) -> None:
        chunks = [chunk for member in part for chunk in member.chunks]
        call = staging_scripts.apply_staged(
            self.core.config, self.core.shards[shard], chunks, to="1",
            applied=self.progress.key(self.core, shard), needed="1",
        )  # fmt: skip
        self.calls.append((call, [(member.key, shard) for member in part]))

    def _take_over(self) -> None:
        """Stages the acks of tuples that were taken over: they are applied once, behind all emits."""
        anchors, staged = sorted(self.commit.taken), list[tuple[int, list[StagedChunk]]]()
        for first in range(0, len(anchors), 1000):
            part = anchors[first : first + 1000]
            deltas = _ids(self.commit.taken[anchor] for anchor in part)
            token = f"{self.commit.name[:24]}{first // 1000:04x}"
            for shard, chunks in chunks_of(_ids(part), deltas, self.core.config.ackers).items():
                key = self.core.shards[shard].staged(token, ALONE)
                ttl = self.core.config.stamp_ttl
                fields = staging.staged_fields(key, chunks, "1", 0) | {"alone": str(ttl)}
                self.staging.append(scripts.send(key, ttl, self.until, fields))
                self.progress.needed[shard] += 0
                staged += [
                    (shard, [StagedChunk(key, number, piece.slabs, piece.singles)])
                    for number, piece in enumerate(chunks)
                ]
        for shard, chunk in staged:
            needed = self.progress.needs(shard)
            applied = self.progress.key(self.core, shard) if needed else None
            self.alone.append(
                staging_scripts.apply_staged(
                    self.core.config, self.core.shards[shard], chunk, to="2", applied=applied, needed=needed
                )
            )

    def vectors(self, place: VectorKey) -> StagedVectors:
        """The vectors of a hash, when they are emitted."""
        chunks = [("1", [*chunk.slabs, *chunk.ones]) for chunk in self.chunks[place]]
        return StagedVectors(chunks, self.words[place])

    # Replies

    def check_staged(self, replies: Sequence[Reply]) -> None:
        """Raises StampsExpired where a segment was staged too late."""
        for reply in replies:
            if isinstance(reply, redis.ResponseError):
                raise StoreError(str(reply))
            if reply == -1:
                raise expired(self.core, ", ".join(self.commit.out))

    def take(self, replies: Sequence[Reply]) -> list[VectorKey]:
        """Returns places that are to be looked at again: rows of theirs were worked on before the emit."""
        refused, looked = list[int](), list[VectorKey]()
        for (_, places), reply in zip(self.calls, replies, strict=True):
            words = bytes(reply).split()
            refused += refusals(words[5:])
            if int(words[4]):
                looked += places
        if refused:
            _log.error("%s: %s", self.core.config.name, unreadable(refused))
        return looked


def _ids(values: Iterable[int]) -> Ids:
    return np.fromiter(values, dtype=np.int64)
