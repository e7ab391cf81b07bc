"""Exit statuses: the same numbers mean the same for all commands."""

import enum

from acker.errors import (
    AckerError,
    NotFound,
    NotInstalled,
    StoreError,
    StoreLost,
    StoreMisconfigured,
    StoreUnavailable,
    StreamKindError,
    TopologyConfigError,
    ValidationError,
)


class Status(enum.IntEnum):
    """The exit status of a command, with its meaning."""

    meaning: str

    def __new__(cls, number: int, meaning: str) -> "Status":
        """Makes a member of its number and its meaning."""
        made = int.__new__(cls, number)
        made._value_, made.meaning = number, meaning
        return made

    DONE = 0, "done, and all is well"
    TROUBLE = 1, "looked and found trouble"
    USAGE = 2, "used wrongly: nothing was done"
    STORE = 3, "the store was not reached, or refused"
    MISSING = 4, "the thing that was named is not there"
    PARTLY = 5, "done in part"
    INTERRUPTED = 130, "interrupted (Ctrl-C)"


_OF_ERRORS: tuple[tuple[type[AckerError], Status], ...] = (
    (NotFound, Status.MISSING),
    (NotInstalled, Status.USAGE),
    (ValidationError, Status.USAGE),
    (StreamKindError, Status.USAGE),
    (StoreUnavailable, Status.STORE),
    (StoreMisconfigured, Status.STORE),
    (StoreError, Status.STORE),
    (StoreLost, Status.STORE),
    (TopologyConfigError, Status.STORE),  # here always of a store that another version has written
    (AckerError, Status.TROUBLE),
)
"""The first kind that an error is of says its status."""

HELP = "Exit status: " + "; ".join(f"{one.value} {one.meaning}" for one in Status) + "."


def status_of(error: AckerError) -> Status:
    """Returns the exit status of a command that an error has ended."""
    return next(status for kind, status in _OF_ERRORS if isinstance(error, kind))
