"""Marks: the last ack of each step in each slab, with its time and batch.

See lua/ledger/includes/marks.lua.

Terms: a slab is the trees that one call tracked together.
"""

import hashlib
import struct
from dataclasses import dataclass
from typing import Annotated, Self

from acker.ledger.settings.settings import check_number
from acker.store.records import Bounds

MOST_STEPS = 255
"""Most steps of a topology with a number; later steps share 0."""
MOST_NUMBER = (1 << 32) - 1
_NO_BATCH = (1 << 32) - 1
_BY = struct.Struct("<II")
_MARK = struct.Struct("<QI")


def number_of(name: str) -> int:
    """The number of a step, from 1: the same in every store."""
    digest = hashlib.sha1(name.encode("utf-8", "replace"), usedforsecurity=False).digest()
    return int.from_bytes(digest[:4], "big") or 1


@dataclass(frozen=True, slots=True)
class Mark:
    """A step that acks or fails tuples, as the store notes it.

    step: the number of the step, 0 to 2^32 - 1 (`number_of`). batch: the batch of its query, -1 for none;
    0 to 2^32 - 2 are distinct.
    """

    step: Annotated[int, Bounds(0, MOST_NUMBER)] = 0
    batch: Annotated[int, Bounds(-1, (1 << 63) - 1)] = -1

    def __post_init__(self) -> None:
        check_number(self.step, "step of a mark", 0, MOST_NUMBER, int)
        check_number(self.batch, "batch of a mark", -1, 2**63 - 1, int)

    def packed(self) -> bytes:
        """The mark as lua/ledger/includes/marks.lua takes it: 8 bytes."""
        return _BY.pack(self.step, min(self.batch, _NO_BATCH - 1) if self.batch >= 0 else _NO_BATCH)


@dataclass(frozen=True, slots=True)
class Marked:
    """A stored mark. at: Unix seconds by the server's clock. batch: -1 for none."""

    at: float
    batch: int

    @classmethod
    def parse(cls, value: bytes | None) -> Self | None:
        """Parses a mark of a slab; None if there is none, or it cannot be read."""
        if value is None or len(value) != _MARK.size:
            return None
        ms, batch = _MARK.unpack(value)
        return cls(ms / 1000, -1 if batch == _NO_BATCH else batch)
