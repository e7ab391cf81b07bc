"""Slabs: new slabs for tracks, packed message ids, and parsed headers.

lua/ledger/includes/shard.lua writes the headers, lua/ledger/includes/id_pieces.lua the message ids.

Terms: a tree is all that comes of one record; the nursery is the first of three time buckets, through which a
tree goes until it expires.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import overload

import numpy as np

from acker.errors import ValidationError
from acker.ledger import ids
from acker.ledger.ids import SLAB_TREES, Ids
from acker.ledger.settings.config import MESSAGE_ID_BYTES

WAITING, TRACKED = 1, 2
FIXED = struct.Struct("<BIHIQ")
"""The fixed begin of a header; a digest of 8 bytes follows in the store."""
_BYTES = FIXED.size + 8
PIECE_TREES = 256
"""Number of trees of a piece of a slab's message ids."""
WHOLE_BYTES = PIECE_TREES * (MESSAGE_ID_BYTES + 2)
"""Most bytes of message ids in one value; more are kept in pieces of at most so many bytes."""


@dataclass(frozen=True, slots=True)
class NewSlab:
    """Trees to be tracked: anchors of one slab, index 0 first, with an ack value and a message id each."""

    anchors: Ids
    values: Ids
    message_ids: Sequence[bytes]

    def check(self) -> None:
        """Raises ValidationError for a malformed slab."""
        count = len(self.anchors)
        if not 1 <= count <= ids.SLAB_TREES:
            raise ValidationError(f"anchors: expected 1 to {ids.SLAB_TREES} trees, got {count}")
        if len(self.values) != count or len(self.message_ids) != count:
            raise ValidationError(
                f"expected one value and one message id for each of {count} anchors, "
                f"got {len(self.values)} and {len(self.message_ids)}"
            )
        first = int(self.anchors[0])
        if count > 1 or not first & 1:
            ids.check_anchors(self.anchors)
        if count > 1 and first < 0:
            raise ValidationError(
                f"anchors: a negative one names a tree tracked alone, got {count} trees from {first} on; "
                "take anchors from acker.ledger.ids.new_anchors, or track each tree alone"
            )
        in_order = count == 1 or bool((np.diff(self.anchors) == ids.STEP).all())
        if ids.index_of(first) != 0 or not in_order:
            raise ValidationError(
                "anchors: expected the anchors of one slab from index 0 on (acker.ledger.ids.new_anchors), "
                f"got {first}..."
            )


@dataclass(frozen=True, slots=True)
class Header:
    """A parsed header. kind: `WAITING` or `TRACKED`; entered: the rotation of its entry into the nursery.

    spout: its number in the shard (acker/ledger/slabs/registries.py). count: trees, 0 while it waits.
    tracked_at: in ms by the server's clock.
    """

    kind: int
    spout: int
    count: int
    entered: int
    tracked_at: int


def read(header: bytes | None) -> Header | None:
    """Parses a stored header; None if there is none, or none of this version."""
    if header is None or len(header) != _BYTES:
        return None
    found = Header(*FIXED.unpack_from(header))
    if found.kind == WAITING or (found.kind == TRACKED and 1 <= found.count <= SLAB_TREES):
        return found
    return None


def is_tracked(header: bytes | None) -> bool:
    """True if the header's slab has a spout."""
    found = read(header)
    return found is not None and found.kind == TRACKED


class PackedIds(Sequence[bytes]):
    """Message ids packed from columns, so that no id becomes a Python object."""

    def __init__(self, packed: bytes, count: int) -> None:
        self.packed = packed
        self._count = count

    @classmethod
    def empty(cls, count: int) -> "PackedIds":
        """Empty message ids: these trees go by another tree's message id."""
        return cls(bytes(2 * count), count)

    def __len__(self) -> int:
        return self._count

    def part(self, first: int, last: int) -> "PackedIds":
        """The ids from one place up to another."""
        last = min(last, self._count)
        ends = np.cumsum(np.frombuffer(self.packed, "<u2", self._count), dtype=np.int64) + 2 * self._count
        begin = int(ends[first - 1]) if first else 2 * self._count
        end = int(ends[last - 1]) if last > first else begin
        return PackedIds(self.packed[2 * first : 2 * last] + self.packed[begin:end], last - first)

    @overload
    def __getitem__(self, place: int) -> bytes: ...

    @overload
    def __getitem__(self, place: slice) -> list[bytes]: ...

    def __getitem__(self, place: int | slice) -> bytes | list[bytes]:
        return unpack_message_ids(self.packed, self._count)[place]


def pack_message_ids(message_ids: Sequence[bytes]) -> bytes:
    """Message ids of a slab as the store keeps them: their lengths (u16), then their bytes."""
    if isinstance(message_ids, PackedIds):
        return message_ids.packed
    if len(message_ids) == 1:
        return len(message_ids[0]).to_bytes(2, "little") + message_ids[0]
    return np.fromiter(map(len, message_ids), dtype="<u2", count=len(message_ids)).tobytes() + b"".join(
        message_ids
    )


def pieces(packed: bytes, count: int) -> list[bytes]:
    """The packed message ids of a slab of `count` trees, in pieces; empty if they are few bytes."""
    if len(packed) <= WHOLE_BYTES:
        return []
    ends = np.cumsum(np.frombuffer(packed, dtype="<u2", count=count).astype(np.int64)) + 2 * count
    edges = [2 * count, *ends[PIECE_TREES - 1 :: PIECE_TREES].tolist(), len(packed)]
    return [
        packed[2 * first : 2 * min(count, first + PIECE_TREES)] + packed[edges[number] : edges[number + 1]]
        for number, first in enumerate(range(0, count, PIECE_TREES))
    ]


def piece_fields(slab: bytes, count: int) -> list[bytes]:
    """The fields of the pieces of a slab's message ids."""
    return [slab + bytes([number]) for number in range(-(-count // PIECE_TREES))]


def piece_trees(count: int, number: int) -> int:
    """The number of trees of a piece."""
    return min(PIECE_TREES, count - PIECE_TREES * number)


def unpack_message_ids(packed: bytes, count: int) -> list[bytes]:
    """The message ids of a slab of `count` trees; the inverse of `pack_message_ids`."""
    if len(packed) < 2 * count:
        raise ValidationError(f"message ids: expected {count} lengths, got {len(packed)} bytes")
    ends = np.cumsum(np.frombuffer(packed, dtype="<u2", count=count, offset=0).astype(np.int64)) + 2 * count
    if count and ends[-1] != len(packed):
        raise ValidationError(f"message ids: expected {ends[-1]} bytes, got {len(packed)}")
    starts = [2 * count, *ends[:-1].tolist()] if count else []
    return [packed[start:end] for start, end in zip(starts, ends.tolist(), strict=True)]
