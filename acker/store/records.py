"""Records that the store holds as JSON: how they are written, and read as one of them or refused."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from acker.errors import UnreadableRecord

UNREADABLE = (AttributeError, LookupError, OverflowError, RecursionError, TypeError, ValueError)
"""What JSON that is not what was written raises, somewhere."""


def dump(value: object) -> str:
    """A value as JSON without spaces."""
    return json.dumps(value, separators=(",", ":"))


@contextmanager
def reading(record: str | bytes, what: str) -> Iterator[Any]:
    """Gives the value of a record. What is wrong with it, or found wrong inside, becomes an UnreadableRecord.

    what: what it should be, for the error.
    """
    try:
        yield json.loads(record)
    except UNREADABLE as error:
        raise UnreadableRecord(f"not {what}: {record!r:.200}") from error
