"""Headers of slabs, read back from the store (lua/includes/shard.lua writes them)."""

import struct
from dataclasses import dataclass

from acker.ledger.ids import SLAB_TREES

WAITING, TRACKED = 1, 2
FIXED = struct.Struct("<BIHIQ")
"""What a header begins with; a digest of 8 bytes follows, which is left out where only this is told."""
_BYTES = FIXED.size + 8


@dataclass(frozen=True, slots=True)
class Header:
    """What a header says. kind: `WAITING` or `TRACKED`; entered: the rotation it entered the nursery at.

    spout: its number in the shard (acker/ledger/registries.py). count: trees, 0 while it waits. tracked_at:
        in ms by the server's clock.
    """

    kind: int
    spout: int
    count: int
    entered: int
    tracked_at: int


def read(header: bytes | None) -> Header | None:
    """A header as it is stored; None where there is none, or none that this version can read."""
    if header is None or len(header) != _BYTES:
        return None
    found = Header(*FIXED.unpack_from(header))
    if found.kind == WAITING or (found.kind == TRACKED and 1 <= found.count <= SLAB_TREES):
        return found
    return None


def is_tracked(header: bytes | None) -> bool:
    """Whether a header is of a slab that a spout owns."""
    found = read(header)
    return found is not None and found.kind == TRACKED
