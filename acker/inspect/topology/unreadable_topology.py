"""A topology that cannot be read: shown with its name and the reason, so that all others are seen as ever."""

from dataclasses import dataclass
from typing import Annotated

from acker.errors import AckerError, MissingRights, StoreMisconfigured, StoreUnavailable
from acker.ledger.fields import Name

REASON = 500
"""Most characters of a reason."""


@dataclass(frozen=True, slots=True)
class Damaged:
    """A topology that cannot be read."""

    topology: Name
    reason: Annotated[str, "What cannot be read, in words: one line."]


@dataclass(frozen=True, slots=True)
class Unreachable(Damaged):
    """A topology on a server that does not answer."""


def damaged(topology: str, error: Exception) -> Damaged:
    """Returns the view of a topology whose reading met `error`. Raises it if it concerns the whole store."""
    if isinstance(error, MissingRights | StoreMisconfigured | StoreUnavailable):
        raise error
    return Damaged(topology, _reason(error))


def unreachable(topology: str, error: Exception) -> Unreachable:
    """Returns the view of a topology on a server that does not answer, where others of the store do."""
    return Unreachable(topology, _reason(error) if str(error) else "its server did not answer in time")


def _reason(error: Exception) -> str:
    said = str(error) if isinstance(error, AckerError) else f"{type(error).__name__}: {error}"
    line = " ".join(said.split())
    return line if len(line) <= REASON else line[: REASON - 1] + "…"
