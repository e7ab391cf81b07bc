"""Records that the store holds as JSON: how they are written, and read as one of them or refused."""

import json
from types import TracebackType
from typing import Any

from acker.errors import UnreadableRecord

UNREADABLE = (AttributeError, LookupError, OverflowError, RecursionError, TypeError, ValueError)
"""What JSON that is not what was written raises, somewhere."""


_ENCODER = json.JSONEncoder(separators=(",", ":"))


def dump(value: object) -> str:
    """A value as JSON without spaces."""
    return _ENCODER.encode(value)


class reading:  # noqa: N801 - it is used as a function
    """Gives the value of a record. A fault in it, also one that is found inside, becomes an UnreadableRecord.

    what: what it should be, for the error.
    """

    __slots__ = ("_record", "_what")

    def __init__(self, record: str | bytes, what: str) -> None:
        self._record, self._what = record, what

    def __enter__(self) -> Any:
        try:
            return json.loads(self._record)
        except UNREADABLE as error:
            raise self._unreadable() from error

    def __exit__(self, _: object, error: BaseException | None, __: TracebackType | None) -> None:
        if isinstance(error, UNREADABLE):
            raise self._unreadable() from error

    def _unreadable(self) -> UnreadableRecord:
        return UnreadableRecord(f"not {self._what}: {self._record!r:.200}")
