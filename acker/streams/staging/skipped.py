"""Skipped rows: the part of a batch's range that the batch does not get, and must not ack.

They are decided once, when the batch is planned. They are noted in the store under an id that the range
carries to its commit, because the store may lose its latest moments between the two. Then a tree that had
expired is in flight again, and a segment whose rows were gone has them again. Without the note, rows would be
acked that no reader was given.

Terms: a tree is all that comes of one record; a slab is the trees that one call tracked together; a segment
is some thousand rows of a stream, stored and acked as one piece.
"""

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from acker.ledger.calls.core import Core
from acker.store import keys, records
from acker.store.operation import Operation, command
from acker.store.records import Codec, HexId
from acker.store.replies import pairs
from acker.streams.log import segments
from acker.streams.log.subscriptions import RERUN_TTL, Range
from acker.streams.staging import scripts

Left: TypeAlias = Mapping[bytes, bytes]
"""Slabs, and their trees that are left out: packed indexes (u16), or `ALL`."""
ALL = b"\xff\xff"
"""A mark for all trees of a slab: no index is as high."""
_PART = struct.Struct("<8sI")
_PART_OF = b"part:"
_SEGMENT_IDS: Codec[frozenset[str]] = Codec(frozenset[HexId], "ids of segments")


@dataclass(frozen=True, slots=True)
class Skipped:
    """Segments that are left out.

    Attributes:
        gone: Ids of segments without rows.
        over: Ids of segments whose trees are over.
        parts: Ids of segments of which some trees are over, and these trees.
    """

    gone: frozenset[str] = frozenset()
    over: frozenset[str] = frozenset()
    parts: Mapping[str, Left] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.gone or self.over or self.parts)

    def whole(self, staged_id: str) -> bool:
        """Return True if no row of a segment is acked."""
        return staged_id in self.gone or staged_id in self.over

    def fields(self) -> dict[str, bytes | str]:
        """The skipped segments as the fields of a hash."""
        packed = {
            f"{_PART_OF.decode()}{staged_id}": b"".join(
                _PART.pack(slab, len(indexes)) + indexes for slab, indexes in sorted(left.items())
            )
            for staged_id, left in self.parts.items()
        }
        return {"gone": _SEGMENT_IDS.dump(self.gone), "over": _SEGMENT_IDS.dump(self.over), **packed}

    @classmethod
    def parse(cls, fields: Mapping[bytes, bytes]) -> "Skipped":
        """The inverse of `fields`; UnreadableRecord for anything else."""
        with records.reading("the skipped rows of a batch"):
            parts = {
                name.removeprefix(_PART_OF).decode(): _parsed(packed)
                for name, packed in fields.items()
                if name.startswith(_PART_OF)
            }
            gone, over = (_SEGMENT_IDS.load(fields[name]) for name in (b"gone", b"over"))
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
    """Notes the rows that a batch leaves out; returns the id for its range, "" if there are none."""
    if not skipped:
        return ""
    staged_id = segments.new_hex_id()
    yield [
        scripts.stage(keys.Stream(core.config.name, stream).skipped(staged_id), RERUN_TTL, skipped.fields())
    ]
    return staged_id


def keys_of(core: Core, ranges: Sequence[Range]) -> list[bytes]:
    """The keys of the notes that belong to ranges."""
    return [
        keys.Stream(core.config.name, one.stream).skipped(staged_id)
        for one in ranges
        for staged_id in one.skipped.split()
    ]


def read(core: Core, read_range: Range) -> Operation[Skipped | None]:
    """The rows that a range leaves out.

    None, which is logged, if the store has lost the note, or it cannot be read.
    """
    skipped = Skipped()
    for key in keys_of(core, [read_range]):
        [reply] = yield [command("HGETALL", key)]
        note = records.readable(Skipped.parse, pairs(reply), key.decode())
        if note is None:
            return None
        parts = {
            staged_id: _united(skipped.parts.get(staged_id, {}), note.parts.get(staged_id, {}))
            for staged_id in (*skipped.parts, *note.parts)
        }
        skipped = Skipped(skipped.gone | note.gone, skipped.over | note.over, parts)
    return skipped


def _united(left: Left, other: Left) -> Left:
    return {
        slab: ALL if ALL in (left.get(slab), other.get(slab)) else left.get(slab, b"") + other.get(slab, b"")
        for slab in {**left, **other}
    }
