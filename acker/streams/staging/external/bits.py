"""Positions of a segment as bitmaps. Bit 0 is the highest of the first byte, as Redis counts bits.

Terms: a segment is the rows of an external stream that one sender stamped together.
"""

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from acker.errors import ValidationError, shown

MOST_POSITIONS = 65_536
"""Rows of a segment at most, so a bitmap has 8 KiB at most."""
_RUNS = {b"": 0} | {bytes([256 - (1 << (8 - count))]): count for count in range(1, 8)}
"""Last bytes of bitmaps without a gap, and the positions of each."""


def pack(positions: Iterable[int] | npt.NDArray[np.int64]) -> bytes:
    """Packs positions into a bitmap without trailing zero bytes.

    Args:
        positions: 0 to 65,535 each, in any order; a position that comes twice counts once.

    Returns:
        The bitmap, of 8 KiB at most; empty without positions.

    Raises:
        ValidationError: A position is out of range.
    """
    places = np.fromiter(positions, np.int64) if not isinstance(positions, np.ndarray) else positions
    if not len(places):
        return b""
    if places.min() < 0 or places.max() >= MOST_POSITIONS:
        strange = int(places.min() if places.min() < 0 else places.max())
        raise ValidationError(f"position: expected 0 to {MOST_POSITIONS - 1:,}, got {shown(strange)}")
    flags = np.zeros(int(places.max()) + 1, dtype=np.uint8)
    flags[places] = 1
    return np.packbits(flags).tobytes()


def first(bitmap: bytes) -> int:
    """Returns n if a bitmap is of positions 0 to n - 1; 0 if it has a gap, or a zero byte at its end."""
    rest = bitmap.lstrip(b"\xff")
    if len(rest) > 1:
        return 0
    count = _RUNS.get(rest)
    return 0 if count is None else 8 * (len(bitmap) - len(rest)) + count


def unpack(bitmap: bytes) -> list[int]:
    """Lists the positions of a bitmap, ascending.

    Raises:
        ValidationError: The bitmap is longer than 8 KiB.
    """
    if len(bitmap) > MOST_POSITIONS // 8:
        raise ValidationError(f"bitmap: expected at most {MOST_POSITIONS // 8:,} bytes, got {len(bitmap):,}")
    found: list[int] = np.flatnonzero(np.unpackbits(np.frombuffer(bitmap, dtype=np.uint8))).tolist()
    return found


def either(first: bytes, other: bytes) -> bytes:
    """ORs two bitmaps."""
    if not first or not other:
        return first or other
    size = max(len(first), len(other))
    both = [int.from_bytes(bitmap.ljust(size, b"\0"), "big") for bitmap in (first, other)]
    return (both[0] | both[1]).to_bytes(size, "big")


def count(bitmap: bytes) -> int:
    """Counts the positions of a bitmap."""
    return int.from_bytes(bitmap, "big").bit_count()


def has(bitmap: bytes, position: int) -> bool:
    """True if a bitmap has a position."""
    return position >> 3 < len(bitmap) and bool(bitmap[position >> 3] & 0x80 >> (position & 7))
