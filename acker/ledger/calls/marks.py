"""Marks: which step has acked tuples of which slabs, when and in which batch.

See lua/ledger/includes/marks.lua.
"""

import hashlib
import struct
from dataclasses import dataclass
from typing import Annotated, Self

from acker.ledger.settings.settings import check_number
from acker.store.records import Bounds

MOST_STEPS = 255
"""Steps of a topology that have a number of their own; later ones share 0."""
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
    """Who acks or fails tuples, as the store notes it.

    step: the number of the step, 0 to 2^32 - 1 (`number_of`). batch: of its query, -1 for none;
    0 to 2^32 - 2 are distinct.
    """

    step: Annotated[int, Bounds(0, MOST_NUMBER)] = 0
    batch: Annotated[int, Bounds(-1, (1 << 63) - 1)] = -1

    def __post_init__(self) -> None:
        check_number(self.step, "step of a mark", 0, MOST_NUMBER, int)
        check_number(self.batch, "batch of a mark", -1, 2**63 - 1, int)

    def packed(self) -> bytes:
        """What lua/ledger/includes/marks.lua takes: 8 bytes."""
        return _BY.pack(self.step, min(self.batch, _NO_BATCH - 1) if self.batch >= 0 else _NO_BATCH)


@dataclass(frozen=True, slots=True)
class Marked:
    """A mark as it was found. at: Unix seconds by the server's clock. batch: -1 for none."""

    at: float
    batch: int

    @classmethod
    def parse(cls, value: bytes | None) -> Self | None:
        """A mark of a slab; None where there is none, or none that can be read."""
        if value is None or len(value) != _MARK.size:
            return None
        ms, batch = _MARK.unpack(value)
        return cls(ms / 1000, -1 if batch == _NO_BATCH else batch)
