"""Reports: the callbacks by which a client says that a row was delivered, or was not."""

from asyncio import isfuture
from collections.abc import Callable
from typing import Any


class Report(bytes):
    """The callback for the delivery of one row: the bytes of its stamp.

    Thousands of rows wait for their delivery at a time. Plain bytes cost Python's garbage collector nothing,
    where a closure costs it five objects to visit for each row.
    """

    __slots__ = ()

    def __call__(self, error: Any, _: Any = None) -> None:
        """Takes an error, or None, and the message; or a future."""
        if error is None:
            return
        if isfuture(error):
            error = "cancelled" if error.cancelled() else error.exception()
        if error is not None:
            self.fail(error)

    def fail(self, error: object) -> None:
        """Fails the records of the row."""
        raise NotImplementedError


def reporting(fail: Callable[[bytes, object], None]) -> type[Report]:
    """Makes the reports of one sender.

    fail: Takes the bytes of the stamp of a row that was not delivered, and an error.
    """

    class OwnReport(Report):
        __slots__ = ()

        def fail(self, error: object) -> None:
            fail(bytes(self), error)

    return OwnReport
