"""Parses replies of the server: numbers in text, its time, and the fields of a hash or an entry.

The connections speak RESP2, so fields and values come as one list.
"""

import math

from acker.errors import UnreadableRecord
from acker.store.operation import Reply

_MOST = 1 << 63


def pairs(reply: Reply) -> dict[bytes, bytes]:
    """The fields of a hash, or of an entry of a stream. Raises ValueError if a field has no value."""
    return dict(zip(reply[::2], reply[1::2], strict=True))


def milliseconds(time: Reply) -> int:
    """The reply to TIME as Unix milliseconds."""
    return int(time[0]) * 1000 + int(time[1]) // 1000


def seconds(time: Reply) -> float:
    """The reply to TIME as Unix seconds."""
    return int(time[0]) + int(time[1]) / 1e6


def whole(value: bytes | None, label: str, default: int = 0) -> int:
    """A whole number of 64 bits; `default` where there is none. UnreadableRecord names `label`."""
    if value is None:
        return default
    try:
        number = int(value)
    except ValueError:
        number = _MOST
    if not -_MOST <= number < _MOST:
        raise UnreadableRecord(f"{label}: expected a whole number of 64 bits, got {value!r:.100}")
    return number


def positive(value: bytes | None, label: str, default: float) -> float:
    """A number from 0; `default` where there is none. Raises UnreadableRecord, which names `label`."""
    if value is None:
        return default
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not 0 <= number < math.inf:
        raise UnreadableRecord(f"{label}: expected a number from 0, got {value!r:.100}")
    return number
