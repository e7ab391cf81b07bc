"""Numbers that the store holds as text: read, or named in an error with what they are instead."""

import math

from acker.errors import UnreadableRecord

_MOST = 1 << 63


def whole(value: bytes | None, what: str, default: int = 0) -> int:
    """A whole number of 64 bits; `default` where there is none. UnreadableRecord that names it as `what`."""
    if value is None:
        return default
    try:
        number = int(value)
    except ValueError:
        number = _MOST
    if not -_MOST <= number < _MOST:
        raise UnreadableRecord(f"{what}: expected a whole number of 64 bits, got {value!r:.100}")
    return number


def positive(value: bytes | None, what: str, default: float) -> float:
    """A number from 0; `default` where there is none. UnreadableRecord that names it as `what`."""
    if value is None:
        return default
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not 0 <= number < math.inf:
        raise UnreadableRecord(f"{what}: expected a number from 0, got {value!r:.100}")
    return number
