"""What a batch leaves out of the range that it reads, and so must not ack.

That is decided once, when the batch is planned, and noted in the store under a token that the range carries
to its commit. For the store may lose its latest moments between the two: a tree that had expired is in flight
again then, a segment whose rows were gone has them again. What nobody was given would be acked.
"""

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from acker.ledger.calls.core import Core
from acker.store import keys, records
from acker.store.operation import Operation, command
from acker.store.records import Codec, Token
from acker.store.replies import pairs
from acker.streams.log import segments
from acker.streams.log.subscriptions import RERUN_TTL, Range
from acker.streams.staging import scripts

Left: TypeAlias = Mapping[bytes, bytes]
"""Slabs, and which of their trees are left out: packed indexes (u16), or `ALL`."""
ALL = b"\xff\xff"
"""All trees of a slab: no index is as high."""
_PART = struct.Struct("<8sI")
_PART_OF = b"part:"
_TOKENS: Codec[frozenset[str]] = Codec(frozenset[Token], "tokens of segments")


@dataclass(frozen=True, slots=True)
class Skipped:
    """Segments that are left out. gone: tokens of those without rows; over: of those whose trees are over.

    parts: tokens of segments of which some trees are over, and which.
    """

    gone: frozenset[str] = frozenset()
    over: frozenset[str] = frozenset()
    parts: Mapping[str, Left] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.gone or self.over or self.parts)

    def whole(self, token: str) -> bool:
        """Whether nothing of a segment is acked."""
        return token in self.gone or token in self.over

    def fields(self) -> dict[str, bytes | str]:
        """As the fields of a hash."""
        packed = {
            f"{_PART_OF.decode()}{token}": b"".join(
                _PART.pack(slab, len(indexes)) + indexes for slab, indexes in sorted(left.items())
            )
            for token, left in self.parts.items()
        }
        return {"gone": _TOKENS.dump(self.gone), "over": _TOKENS.dump(self.over), **packed}

    @classmethod
    def parse(cls, fields: Mapping[bytes, bytes]) -> "Skipped":
        """The inverse of `fields`; UnreadableRecord for anything else."""
        with records.reading("what a batch left out"):
            parts = {
                name.removeprefix(_PART_OF).decode(): _parsed(packed)
                for name, packed in fields.items()
                if name.startswith(_PART_OF)
            }
            gone, over = (_TOKENS.load(fields[name]) for name in (b"gone", b"over"))
            return cls(gone, over, parts)


NOTHING = Skipped()
"""Nothing is left out."""


def _parsed(packed: bytes) -> Left:
    left, at = {}, 0
    while at < len(packed):
        slab, size = _PART.unpack_from(packed, at)
        at += _PART.size + size
        if at > len(packed) or size % 2:
            raise ValueError(f"{size} bytes of indexes up to {at}, of {len(packed)}")
        left[slab] = packed[at - size : at]
    return left


def note(core: Core, stream: str, skipped: Skipped) -> Operation[str]:
    """Notes what a batch leaves out; returns the token for its range, "" where that is nothing."""
    if not skipped:
        return ""
    token = segments.new_token()
    yield [scripts.stage(keys.Stream(core.config.name, stream).skipped(token), RERUN_TTL, skipped.fields())]
    return token


def keys_of(core: Core, ranges: Sequence[Range]) -> list[bytes]:
    """The keys under which it is noted what ranges leave out."""
    return [
        keys.Stream(core.config.name, one.stream).skipped(token)
        for one in ranges
        for token in one.skipped.split()
    ]


def read(core: Core, what: Range) -> Operation[Skipped | None]:
    """What a range leaves out; None where the store has lost that, or it cannot be read, which is logged."""
    found = Skipped()
    for key in keys_of(core, [what]):
        [reply] = yield [command("HGETALL", key)]
        one = records.readable(Skipped.parse, pairs(reply), key.decode())
        if one is None:
            return None
        parts = {
            token: _united(found.parts.get(token, {}), one.parts.get(token, {}))
            for token in (*found.parts, *one.parts)
        }
        found = Skipped(found.gone | one.gone, found.over | one.over, parts)
    return found


def _united(one: Left, other: Left) -> Left:
    return {
        slab: ALL if ALL in (one.get(slab), other.get(slab)) else one.get(slab, b"") + other.get(slab, b"")
        for slab in {**one, **other}
    }
