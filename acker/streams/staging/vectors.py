"""The staged vectors of segments, applied: once, their tuples are emitted; again, they are acked."""

import bisect
import hashlib
import itertools
import logging
import struct
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
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
from acker.streams.log.subscriptions import HOLD_TTL, Taken
from acker.streams.staging import scripts
from acker.streams.staging.skipped import Left

_CHECKED = 1_000
_PLACES = 256
"""Most places whose slabs are held in memory."""
_FEW_WORDS, _TOGETHER = 16, 48
"""Words of vectors that are applied together with others, at most, and how many slabs a call has then. So it
has at most 768 words, of what a script of the ledger may have at once (lua/ledger/includes/update.lua)."""
_MANY_WORDS = 16_384
_KNOWN, _KNOWN_SLABS = 4_096, 64
_known: dict[bytes, "StagedVectors"] = {}
"""Small vectors that this process has staged of late. They never change, and no two have one key."""
_log = logging.getLogger(__name__)

VectorKey: TypeAlias = tuple[bytes, int]
"""The key of staged vectors, and their shard."""
NOTHING_LEFT: Mapping[bytes, Left] = MappingProxyType({})
NO_HEADS: Mapping[bytes, Reply] = MappingProxyType({})


def keys_of(core: Core, segment: Segment, slot: int | None = None) -> list[VectorKey]:
    """Where a segment has vectors, for a slot or for all that it was staged for."""
    return [
        (core.shards[shard].staged(segment.token, one), shard)
        for one in (segment.slots if slot is None else (slot,))
        for shard in segment.shards
    ]


@dataclass(frozen=True, slots=True)
class StagedVectors:
    """Staged vectors: the state of each chunk, and its slabs. words: how many they have altogether."""

    chunks: list[tuple[str, list[bytes]]]
    words: int = 0

    @property
    def few(self) -> bool:
        """Whether they are applied together with others."""
        return self.words <= _FEW_WORDS


@dataclass(frozen=True, slots=True)
class Applied:
    """late: deltas for trees that were finished; unknown: for trees that nobody knew of, which wait now.

    lost: chunks that were not acked, for the store has lost what the commit made.
    """

    late: int = 0
    unknown: int = 0
    lost: int = 0

    def plus(self, other: "Applied") -> "Applied":
        """Both together."""
        return Applied(self.late + other.late, self.unknown + other.unknown, self.lost + other.lost)


@dataclass(slots=True)
class Made:
    """What a commit makes, by shard: how much of it must be there before its inputs are acked.

    commit: names it. needed: has each shard in which something may be noted, also where nothing is needed.
    by: whose it is, where that is known. elsewhere: names what was made in no shard, which some note.
    """

    commit: str
    needed: Counter[int]
    by: Mark | None = None
    elsewhere: str = ""
    noted_in: frozenset[int] = frozenset()

    @classmethod
    def of(cls, writer: str, number: int, text: str, needed: Counter[int], by: Mark | None) -> "Made":
        """Of a commit. text: it, as it is stored."""
        return cls(hashlib.sha1(f"{writer} {number} {text}".encode()).hexdigest(), needed, by)

    def key(self, core: Core, shard: int) -> bytes:
        """Where a shard notes what was made."""
        return core.shards[shard].made(self.commit)

    def note_elsewhere(self, name: str, noted_in: frozenset[int]) -> None:
        """Notes that something is made in no shard, and which note that.

        It is dropped there with the commit.
        """
        self.elsewhere, self.noted_in = name, noted_in
        for shard in noted_in:
            self.needed[shard] += 0

    def counting(self, core: Core, shard: int) -> Request:
        """A request for how much a shard has noted."""
        return command("HGET", self.key(core, shard), "made")

    def noting(self, core: Core) -> list[Request]:
        """Requests by which shards note that `elsewhere` was made.

        They go behind what makes it, in one flight: a store that forgets that has not noted it either.
        """
        return [
            scripts.note_made(core.config, self.key(core, shard), self.elsewhere, HOLD_TTL)
            for shard in self.noted_in
        ]

    def needs(self, shard: int) -> str:
        """What a shard must have noted, as lua/ledger/includes/made.lua takes it.

        "" where it needs nothing.
        """
        elsewhere = f" {self.elsewhere}" if shard in self.noted_in else ""
        return f"{self.needed[shard]}{elsewhere}" if self.needed[shard] or elsewhere else ""


def apply(
    core: Core,
    places: Sequence[VectorKey],
    to: str,
    made: Made | None = None,
    left: Mapping[bytes, Left] = NOTHING_LEFT,
) -> Operation[Applied]:
    """Brings all chunks of vectors to a state (lua/streams/staging/apply_staged.lua).

    The same again changes nothing.

    left: key of vectors -> trees that are left out of what is acked.

    Vectors that are not there were acked. Slabs whose record cannot be read are passed over, and logged. So
    is what is to be acked where the store has lost some of what its commit has made: its trees expire.
    """
    total = Applied()
    for part in parts(places):
        heads = yield from look(part)
        calls = [call for call, _ in calls_of(core, part, heads, to, made, left)]
        total = total.plus(answered(core, (yield from core.ask(calls))))
    log_lost(core, total)
    return total


def parts(places: Sequence[VectorKey]) -> Iterator[Sequence[VectorKey]]:
    """Places cut into as many as have their slabs held in memory."""
    return (places[first : first + _PLACES] for first in range(0, len(places), _PLACES))


def look(
    places: Sequence[VectorKey], known: Mapping[bytes, Reply] = NO_HEADS, *, ours: bool = False
) -> Operation[dict[bytes, StagedVectors]]:
    """The chunks of vectors, by key.

    known: what `head` was answered of some just now. ours: the commit at hand has staged them, so they are
    there, and have not been in a state that it brings them to: what this process remembers of them holds.
    """
    found, asked = dict[bytes, StagedVectors](), list[bytes]()
    for key, _ in places:
        if key in known:
            found[key] = _staged(key, known[key])
        elif ours and (noted := _known.get(key)) is not None:
            found[key] = noted
        else:
            asked.append(key)
    read = (yield [head(key) for key in asked]) if asked else []
    return found | {key: _staged(key, reply) for key, reply in zip(asked, read, strict=True)}


def log_lost(core: Core, applied: Applied) -> None:
    """Logs that inputs are not acked, where there are some."""
    if applied.lost:
        _log.error(
            "%s: the store has lost some of what a commit had made: inputs of it are not acked, and their "
            "trees expire",
            core.config.name,
        )


def answered(core: Core, replies: Iterable[Reply]) -> Applied:
    """The answers to the calls of `apply`, put together."""
    answers = [bytes(reply).split() for reply in replies]
    refused = [slab for words in answers for slab in refusals(words[4:])]
    if refused:  # their spouts report their trees; the commit goes on
        _log.error("%s: %s", core.config.name, unreadable(refused))
    late, orphaned, unknown, lost = (sum(int(words[place]) for words in answers) for place in range(4))
    return Applied(late + orphaned, unknown, lost)


def calls_of(
    core: Core,
    places: Sequence[VectorKey],
    known: Mapping[bytes, StagedVectors],
    to: str,
    made: Made | None,
    left: Mapping[bytes, Left] = NOTHING_LEFT,
) -> list[tuple[Call, int]]:
    """Calls for the chunks of vectors that are not in a state yet, and about how many words each is for.

    Small ones of a shard go together.
    """
    calls, small = list[tuple[Call, int]](), dict[int, list[scripts.StagedChunk]]()
    for key, shard in places:
        staged = known[key]
        for number, (state, slabs) in enumerate(staged.chunks):
            if state >= to:
                continue
            many = [slab for slab in slabs if not ids.is_one(slab)]
            ones = [slab for slab in slabs if ids.is_one(slab)]
            chunk = scripts.StagedChunk(key, number, many, ones, left.get(key))
            if not staged.few:
                words = staged.words // len(staged.chunks)
                calls.append((_call(core, shard, [chunk], to, made), max(words, len(slabs))))
                continue
            together = small.setdefault(shard, [])
            if sum(max(1, len(one.slabs) + len(one.ones)) for one in (*together, chunk)) > _TOGETHER:
                calls.append((_call(core, shard, together, to, made), _TOGETHER * _FEW_WORDS))
                together = small[shard] = []
            together.append(chunk)
    return calls + [
        (_call(core, shard, together, to, made), len(together) * _FEW_WORDS)
        for shard, together in small.items()
    ]


def _call(core: Core, shard: int, chunks: Sequence[scripts.StagedChunk], to: str, made: Made | None) -> Call:
    needed = made.needs(shard) if made is not None else ""
    noted = made.key(core, shard) if made is not None and needed else None
    by = made.by if made is not None and to == "2" else None
    return scripts.apply_staged(
        core.config, core.shards[shard], chunks, to=to, made=noted, needed=needed, by=by
    )


def head(key: bytes) -> Request:
    """Reads what `chunks` takes of staged vectors."""
    return command("HMGET", key, "state", "layout", "slabs", "words")


@dataclass(frozen=True, slots=True)
class Chunk:
    """A chunk of staged vectors that has wanted slabs: `slabs` of them all, some at these places of it."""

    number: int
    slabs: int
    wanted: list[tuple[int, bytes]]


def having(key: bytes, reply: Reply, to: str, wanted: frozenset[bytes]) -> list[Chunk]:
    """The chunks in a state that have some of the wanted slabs. UnreadableRecord."""
    states, layout, names, _ = reply
    if states is None:
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
    """The state of each chunk, and the names of its slabs; none where they were acked. UnreadableRecord."""
    states, layout, names, _ = reply
    if states is None:
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


def _staged(key: bytes, reply: Reply) -> StagedVectors:
    words = reply[3] or b""
    return StagedVectors(chunks(key, reply), int(words) if words.isdigit() else _MANY_WORDS)


def noted_of(places: Sequence[VectorKey]) -> dict[bytes, StagedVectors]:
    """What this process remembers of vectors that it has staged of late, by key."""
    return {key: found for key, _ in places if (found := _known.get(key)) is not None}


def noted(key: bytes) -> list[bytes]:
    """The slabs of staged vectors, where this process has staged them of late; else none."""
    staged = _known.get(key)
    return [] if staged is None else [slab for _, slabs in staged.chunks for slab in slabs]


def note(key: bytes, slabs: list[list[bytes]], words: int) -> None:
    """Notes the slabs of each chunk of staged vectors, for `apply`; they have so many words."""
    if len(_known) >= _KNOWN:
        _known.clear()
    if sum(map(len, slabs)) <= _KNOWN_SLABS:
        _known[key] = StagedVectors([("", own) for own in slabs], words)


def still_staged(
    core: Core, slot: int, found: Sequence[Taken], heads: Mapping[bytes, Reply]
) -> list[Request]:
    """Requests that are answered 1 where the vectors are still staged that were when segments were taken.

    A node of a cluster may have lost them, and with them that their tuples are in any tree: what was made of
    these would be acked, and they never.
    """
    by_shard: dict[int, list[bytes]] = {}
    for one in found:
        for key, shard in keys_of(core, one.segment, slot):
            if key in heads and heads[key][0] is not None:
                by_shard.setdefault(shard, []).append(key)
    return [
        scripts.check_staged(its[first : first + _CHECKED])
        for its in by_shard.values()
        for first in range(0, len(its), _CHECKED)
    ]
