"""Carriers: the place of a stamp among the headers of a row. Other headers stay unchanged."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeAlias

from acker.errors import ValidationError, shown

HEADER = "acker-stamp"
"""The name of the header that holds a stamp."""
COLUMN = "_acker_stamp"
"""The name of the column that holds a stamp, in files, tables and JSON."""

Headers: TypeAlias = Mapping[str, Any] | Iterable[tuple[Any, Any]] | None
"""Headers as clients have them: pairs of a name and a value, or a mapping; None for no headers."""
_NAMES = (HEADER, HEADER.encode())


def find(headers: Any) -> Any:
    """Finds the value in the place of the stamp; None where there is none. No headers are an error.

    If there are several, the last one counts, because a producer of Kafka adds its header at the end.
    """
    try:
        if headers is None:
            return None
        if type(headers) is list and len(headers) == 1:  # most rows have no other
            [(name, stamp)] = headers
            return stamp if name == HEADER or name in _NAMES else None
        if type(headers) is not list and isinstance(headers, Mapping):
            stamp = headers.get(HEADER)
            return headers.get(HEADER.encode()) if stamp is None else stamp
        stamp = None
        for name, value in headers:
            if name in _NAMES:
                stamp = value
    except Exception:  # noqa: BLE001 - headers of others must not fail the caller
        return b""  # it is no stamp: a damaged one
    return stamp


def find_many(many: Sequence[Any]) -> list[Any]:
    """Finds the stamps of several messages, as `find` does for each."""
    try:
        if all(type(headers) is list and len(headers) == 1 for headers in many):  # most have no other
            return [value if name == HEADER else find([(name, value)]) for [(name, value)] in many]
    except Exception:  # noqa: BLE001 - headers of others must not fail the caller
        pass
    return [find(headers) for headers in many]


def put(headers: Headers, stamp: bytes | None) -> Any:
    """New headers of the same kind with a stamp in place of any earlier one; None only removes it.

    Returns:
        A dict for a mapping, otherwise a list of pairs.

    Raises:
        ValidationError: The headers are none that a client takes.
    """
    return add(without(headers), stamp)


def without(headers: Any) -> Any:
    """New headers of the same kind without a stamp; see `put`."""
    if headers is None:
        return []
    if isinstance(headers, Mapping):
        return {name: value for name, value in headers.items() if name not in _NAMES}
    with suppress(TypeError, LookupError):
        if not isinstance(headers, str | bytes):
            return [pair for pair in headers if pair[0] not in _NAMES]
    raise ValidationError(
        f"headers: expected pairs of a name and a value, or a mapping, got {shown(headers)}"
    )


def add(headers: Any, stamp: bytes | None) -> Any:
    """Adds a stamp to headers without one, of `without`, and returns them."""
    if stamp is not None:
        if isinstance(headers, dict):
            headers[HEADER] = stamp
        else:
            headers.append((HEADER, stamp))
    return headers
