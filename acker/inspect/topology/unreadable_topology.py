"""A topology that cannot be read: shown with its name and the reason, so that all others are seen as ever."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated

from acker.errors import (
    AckerError,
    MissingRights,
    StoreMisconfigured,
    StoreUnavailable,
    UnreadableRecord,
)
from acker.ledger.fields import Name

REASON = 500
"""Most characters of a reason."""
_OF_DATA = (AttributeError, LookupError, OverflowError, RecursionError, TypeError, ValueError)
"""What values raise that are not what was written. Anything else is a fault of the program."""


@dataclass(frozen=True, slots=True)
class Damaged:
    """A topology that cannot be read."""

    topology: Name
    reason: Annotated[str, "What cannot be read, in words: one line."]


def damaged(topology: str, error: Exception) -> Damaged:
    """How a topology is shown that met `error` when it was read. Raises it where it is of the whole store."""
    if isinstance(error, MissingRights | StoreMisconfigured | StoreUnavailable):
        raise error
    return Damaged(topology, _reason(error))


@contextmanager
def readable(topology: str) -> Iterator[None]:
    """Raises UnreadableRecord where what is read of a topology is not what its reader can take."""
    try:
        yield
    except AckerError:
        raise
    except _OF_DATA as error:
        raise UnreadableRecord(f"topology {topology!r} cannot be read: {_reason(error)}") from error


def _reason(error: Exception) -> str:
    said = str(error) if isinstance(error, AckerError) else f"{type(error).__name__}: {error}"
    line = " ".join(said.split())
    return line if len(line) <= REASON else line[: REASON - 1] + "…"
