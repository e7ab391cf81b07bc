"""A loop over the rows of a stream, as its exchange knows it."""

from typing import Any, Protocol


class Loop(Protocol):
    """A ready-made loop over the rows of a stream, as a consumer reads them."""

    stream: str
    consumer: Any

    @property
    def has_given(self) -> bool:
        """True while the loop does nothing, because its caller works on a row of it."""

    def end(self) -> None:
        """Ends a loop that was left: its row in work comes again."""
