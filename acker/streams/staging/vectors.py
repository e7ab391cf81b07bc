"""Applies the staged vectors of segments: the first time emits their tuples, the second time acks them.

Terms: a tree is all that comes of one record; a slab is the trees that one call tracked together; a segment
is some thousand rows of a stream, stored and acked as one piece; a vector has a number for each tree, the XOR
of tuple ids; a delta is the XOR of the ids that a call adds to a tree; a slot is the random number of a
subscription; a chunk is a piece of a vector, applied by one call; staged rows are stored, but nobody sees
them before a commit.
"""

import bisect
import hashlib
import itertools
import logging
import struct
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TypeAlias

import numpy as np

from acker.ledger import ids
from acker.ledger.calls.calls import Call, refusals, unreadable
from acker.ledger.calls.core import Core
from acker.ledger.calls.marks import Mark
from acker.store.operation import Operation, Reply, Request, command
from acker.store.records import reading
from acker.streams.log.segments import Segment
from acker.streams.log.subscriptions import HOLD_TTL, Delivery
from acker.streams.staging import scripts
from acker.streams.staging.skipped import Left

_CHECKED = 1_000
_PLACES = 256
"""Most keys whose slabs are held in memory."""
_FEW_WORDS, _TOGETHER = 16, 48
"""Small vectors have so many words at most, and are applied together, up to so many slabs in a call.

So a call has at most 768 words, far below the limit of a script (lua/ledger/includes/update.lua).
"""
_MANY_WORDS = 16_384
_LATE_WEIGHT, _FAILED_WEIGHT, _SMALL_WEIGHT = 2, 9, 400
"""The weight of a word, as if its tree were over; more for a tree that the commit has failed; and the weight
of a small vector (acker/streams/commits/chunks.py)."""
_KNOWN, _KNOWN_SLABS = 4_096, 64
_known: dict[bytes, "StagedVectors"] = {}
"""Small vectors that this process has staged lately. They never change, and no two have one key."""
_log = logging.getLogger(__name__)

VectorKey: TypeAlias = tuple[bytes, int]
"""The key of staged vectors, and their shard."""
NOTHING_LEFT: Mapping[bytes, Left] = MappingProxyType({})
NO_HEADS: Mapping[bytes, Reply] = MappingProxyType({})


def keys_of(core: Core, segment: Segment, slot: int | None = None) -> list[VectorKey]:
    """The keys of a segment's vectors, for a slot or for all slots that it was staged for."""
    return [
        (core.shards[shard].staged(segment.id, one), shard)
        for one in (segment.slots if slot is None else (slot,))
        for shard in segment.shards
    ]


@dataclass(frozen=True, slots=True)
class StagedVectors:
    """Staged vectors: the state and the slabs of each chunk, and the number of words in all chunks."""

    chunks: list[tuple[str, list[bytes]]]
    words: int = 0

    @property
    def few(self) -> bool:
        """True if the vectors are small, and are applied together with others."""
        return self.words <= _FEW_WORDS


@dataclass(frozen=True, slots=True)
class Applied:
    """The result of applied vectors.

    Attributes:
        late: Deltas for finished trees.
        unknown: Deltas for unknown trees, which wait now.
        lost: Chunks that were not acked, because the store has lost work of the commit.
    """

    late: int = 0
    unknown: int = 0
    lost: int = 0

    def plus(self, other: "Applied") -> "Applied":
        """The sum of both."""
        return Applied(self.late + other.late, self.unknown + other.unknown, self.lost + other.lost)


@dataclass(slots=True)
class CommitProgress:
    """The work of a commit by shard, and how much of it must be there before the inputs are acked.

    Attributes:
        commit: The name of the commit.
        needed: The needed work of each shard that may note some, also 0.
        by: The step of the commit, if known.
        elsewhere: The name of work that lies in no shard; the shards of `noted_in` note it.
        failed: The number of trees of each shard that the commit fails.
        stay: Milliseconds for which its emits and fails wait for their track; 0 for three rotations.
    """

    commit: str
    needed: Counter[int]
    by: Mark | None = None
    elsewhere: str = ""
    noted_in: frozenset[int] = frozenset()
    failed: Counter[int] = field(default_factory=Counter)
    stay: int = 0

    @classmethod
    def of_commit(
        cls, writer: str, number: int, text: str, needed: Counter[int], by: Mark | None, stay: int = 0
    ) -> "CommitProgress":
        """The progress of a commit, which is stored as `text`."""
        return cls(hashlib.sha1(f"{writer} {number} {text}".encode()).hexdigest(), needed, by, stay=stay)

    def key(self, core: Core, shard: int) -> bytes:
        """The key at which a shard notes the commit's work."""
        return core.shards[shard].applied(self.commit)

    def note_elsewhere(self, name: str, noted_in: frozenset[int]) -> None:
        """Notes work that lies in no shard, and the shards that note it.

        They drop the note with the commit.
        """
        self.elsewhere, self.noted_in = name, noted_in
        for shard in noted_in:
            self.needed[shard] += 0

    def counting(self, core: Core, shard: int) -> Request:
        """A request for the amount of work that a shard has noted."""
        return command("HGET", self.key(core, shard), "applied")

    def noting(self, core: Core) -> list[Request]:
        """Requests by which shards note the work named by `elsewhere`.

        They follow that work in one flight: a store that loses the work has not noted it either.
        """
        return [
            scripts.note_applied(core.config, self.key(core, shard), self.elsewhere, HOLD_TTL)
            for shard in self.noted_in
        ]

    def needs(self, shard: int) -> str:
        """The work that a shard must have noted, as text for lua/ledger/includes/applied.lua; "" if none."""
        elsewhere = f" {self.elsewhere}" if shard in self.noted_in else ""
        return f"{self.needed[shard]}{elsewhere}" if self.needed[shard] or elsewhere else ""


def apply(
    core: Core,
    places: Sequence[VectorKey],
    to: str,
    progress: CommitProgress | None = None,
    left: Mapping[bytes, Left] = NOTHING_LEFT,
) -> Operation[Applied]:
    """Brings all chunks of vectors to a state (lua/streams/staging/apply_staged.lua).

    The same call again changes nothing. Vectors that are gone were acked. Slabs whose record cannot be read
    are passed over, and logged. So are acks if the store has lost work of their commit: the trees expire.

    Args:
        core: The ledger.
        places: The keys of the vectors.
        to: The state: "1" for emitted, "2" for acked.
        progress: The work that the commit needs.
        left: The trees that are not acked, by key.
    """
    total = Applied()
    for part in parts(places):
        heads = yield from read_staged(part)
        calls = [call for call, _ in calls_of(core, part, heads, to, progress, left)]
        total = total.plus(add_replies(core, (yield from core.ask(calls))))
    log_lost(core, total)
    return total


def parts(places: Sequence[VectorKey]) -> Iterator[Sequence[VectorKey]]:
    """Keys, cut into parts whose slabs fit into memory."""
    return (places[first : first + _PLACES] for first in range(0, len(places), _PLACES))


def read_staged(
    places: Sequence[VectorKey], heads: Mapping[bytes, Reply] = NO_HEADS, *, ours: bool = False
) -> Operation[dict[bytes, StagedVectors]]:
    """The chunks of vectors, by key.

    heads: replies to `head` that were read just now. ours: True if the commit at hand has staged the vectors.
    They exist then, and have not been in the next state, so the memory of this process is right about them.
    """
    staged_vectors, asked = dict[bytes, StagedVectors](), list[bytes]()
    for key, _ in places:
        if key in heads:
            staged_vectors[key] = staged_of(key, heads[key])
        elif ours and (noted := _known.get(key)) is not None:
            staged_vectors[key] = noted
        else:
            asked.append(key)
    read = (yield [head(key) for key in asked]) if asked else []
    return staged_vectors | {key: staged_of(key, reply) for key, reply in zip(asked, read, strict=True)}


def log_lost(core: Core, applied: Applied) -> None:
    """Logs an error if inputs are not acked."""
    if applied.lost:
        _log.error(
            "topology %s: the store has lost work of a commit: inputs of the commit are not acked, and their "
            "trees expire",
            core.config.name,
        )


def add_replies(core: Core, replies: Iterable[Reply]) -> Applied:
    """The sum of the replies to the calls of `apply`."""
    answers = [bytes(reply).split() for reply in replies]
    refused = [slab for words in answers for slab in refusals(words[5:])]
    if refused:  # their spouts report their trees; the commit goes on
        _log.error("%s: %s", core.config.name, unreadable(refused))
    late, orphaned, unknown, lost = (sum(int(words[place]) for words in answers) for place in range(4))
    return Applied(late + orphaned, unknown, lost)


def calls_of(
    core: Core,
    places: Sequence[VectorKey],
    staged_by_key: Mapping[bytes, StagedVectors],
    to: str,
    progress: CommitProgress | None,
    left: Mapping[bytes, Left] = NOTHING_LEFT,
) -> list[tuple[Call, int]]:
    """Calls for the chunks of vectors that are not in a state yet, each with its weight.

    Small ones of a shard go together.
    """
    calls, small = list[tuple[Call, int]](), dict[int, list[scripts.StagedChunk]]()
    for key, shard in places:
        staged = staged_by_key[key]
        for number, (state, slabs) in enumerate(staged.chunks):
            if state >= to:
                continue
            many = [slab for slab in slabs if not ids.is_one(slab)]
            ones = [slab for slab in slabs if ids.is_one(slab)]
            chunk = scripts.StagedChunk(key, number, many, ones, left.get(key))
            if not staged.few:
                words = staged.words // len(staged.chunks)
                weight = _LATE_WEIGHT * max(words, len(slabs))
                if progress is not None and to == "2":
                    weight += _FAILED_WEIGHT * min(words, progress.failed[shard])
                calls.append((_call(core, shard, [chunk], to, progress), weight))
                continue
            together = small.setdefault(shard, [])
            if sum(max(1, len(one.slabs) + len(one.ones)) for one in (*together, chunk)) > _TOGETHER:
                calls.append((_call(core, shard, together, to, progress), _SMALL_WEIGHT * len(together)))
                together = small[shard] = []
            together.append(chunk)
    return calls + [
        (_call(core, shard, together, to, progress), _SMALL_WEIGHT * len(together))
        for shard, together in small.items()
    ]


def _call(
    core: Core, shard: int, chunks: Sequence[scripts.StagedChunk], to: str, progress: CommitProgress | None
) -> Call:
    needed = progress.needs(shard) if progress is not None else ""
    noted = progress.key(core, shard) if progress is not None and needed else None
    by = progress.by if progress is not None and to == "2" else None
    return scripts.apply_staged(
        core.config, core.shards[shard], chunks, to=to, applied=noted, needed=needed, by=by,
        stay=0 if progress is None else progress.stay,
    )  # fmt: skip


HEAD = ("state", "layout", "slabs", "words")
"""The fields of staged vectors that `chunks` needs."""


def head(key: bytes) -> Request:
    """A request for the fields `HEAD` of staged vectors."""
    return command("HMGET", key, *HEAD)


@dataclass(frozen=True, slots=True)
class Chunk:
    """A chunk of staged vectors with wanted slabs: their places in it, and the number of all its slabs."""

    number: int
    slabs: int
    wanted: list[tuple[int, bytes]]


def having(key: bytes, reply: Reply, to: str, wanted: frozenset[bytes]) -> list[Chunk]:
    """The chunks in a state that have some of the wanted slabs. Raises UnreadableRecord."""
    states, layout, names, _ = reply
    if states is None or (layout is None and not states.strip(b"2")):  # a tombstone (external.lua)
        return []
    with _reading(key):
        layout, names = layout or b"", names or b""
        counts = np.frombuffer(layout, dtype="<u2").tolist()
        if len(counts) != len(states) or sum(counts) * 8 != len(names):
            raise ValueError(f"{len(names)} bytes of names")
    ends, states = list(itertools.accumulate(counts)), states.decode("utf-8", "replace")
    chunks: dict[int, Chunk] = {}
    for at, slab in _found(names, wanted):
        number = bisect.bisect_right(ends, at)
        if states[number] == to:
            chunk = chunks.setdefault(number, Chunk(number, counts[number], []))
            chunk.wanted.append((at - ends[number] + counts[number], slab))
    return list(chunks.values())


def _found(names: bytes, wanted: frozenset[bytes]) -> list[tuple[int, bytes]]:
    if len(wanted) == 1:
        [slab] = wanted
        [number] = np.frombuffer(slab, dtype="<i8")
        return [(at, slab) for at in np.flatnonzero(np.frombuffer(names, dtype="<i8") == number).tolist()]
    cut = (names[at : at + 8] for at in range(0, len(names), 8))
    return [(at, slab) for at, slab in enumerate(cut) if slab in wanted]


def _reading(key: bytes) -> reading:
    return reading(f"the staged vectors {key!r}")


def chunks(key: bytes, reply: Reply) -> list[tuple[str, list[bytes]]]:
    """The state and the slabs of each chunk; none if they were acked. Raises UnreadableRecord."""
    states, layout, names, _ = reply
    if states is None or (layout is None and not states.strip(b"2")):  # a tombstone (external.lua)
        return []
    with _reading(key):
        layout, names = layout or b"", names or b""
        ends = list(
            itertools.accumulate(8 * count for count in struct.unpack(f"<{len(layout) // 2}H", layout))
        )
        slabs = [
            [names[at : at + 8] for at in range(start, end, 8)]
            for start, end in zip([0, *ends[:-1]], ends, strict=True)
        ]
        if sum(map(len, slabs)) * 8 != len(names):
            raise ValueError(f"{len(names)} bytes of names")
        return list(zip(states.decode(), slabs, strict=True))


def staged_of(key: bytes, reply: Reply) -> StagedVectors:
    """Staged vectors by the reply to `head`. Raises UnreadableRecord."""
    words = reply[3] or b""
    return StagedVectors(chunks(key, reply), int(words) if words.isdigit() else _MANY_WORDS)


def noted_of(places: Sequence[VectorKey]) -> dict[bytes, StagedVectors]:
    """The vectors that this process has staged lately and remembers, by key."""
    return {key: found for key, _ in places if (found := _known.get(key)) is not None}


def noted(key: bytes) -> list[bytes]:
    """The slabs of staged vectors if this process has staged them lately; else none."""
    staged = _known.get(key)
    return [] if staged is None else [slab for _, slabs in staged.chunks for slab in slabs]


def note(key: bytes, slabs: list[list[bytes]], words: int) -> None:
    """Remembers the slabs of each chunk of staged vectors, and their number of words, for `apply`."""
    if len(_known) >= _KNOWN:
        _known.clear()
    if sum(map(len, slabs)) <= _KNOWN_SLABS:
        _known[key] = StagedVectors([("", own) for own in slabs], words)


def still_staged(
    core: Core, slot: int, members: Sequence[Delivery], heads: Mapping[bytes, Reply]
) -> list[Request]:
    """Requests that reply 1 if vectors are still staged that were staged when their segments were taken.

    A node of a cluster may have lost them, and with them their tuples in all trees. Rows derived from these
    would be acked, and the tuples themselves never.
    """
    by_shard: dict[int, list[bytes]] = {}
    for one in members:
        for key, shard in keys_of(core, one.segment, slot):
            if key in heads and heads[key][0] is not None:
                by_shard.setdefault(shard, []).append(key)
    return [
        scripts.check_staged(its[first : first + _CHECKED])
        for its in by_shard.values()
        for first in range(0, len(its), _CHECKED)
    ]
