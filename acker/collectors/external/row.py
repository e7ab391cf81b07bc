"""Rows of an external stream, as a step has them.

Terms: a tree is all that comes of one record.
"""

from collections.abc import Sequence
from typing import Any, NoReturn

from acker.errors import AckerError, TupleError, shown


def named(rows: "Sequence[Row]") -> str:
    """The first rows of some, for an error message."""
    return ", ".join(row.named() for row in rows[:5]) + (", ..." if len(rows) > 5 else "")


ELSEWHERE = (
    "a row can be neither copied nor sent to another process: it is acked where it was extracted; "
    "send the message, and extract it there"
)


class Row:
    """A row that a step has received, made by `Incoming.extract`.

    Attributes:
        anchors: The trees that the row belongs to, as far as they are not over; none where it is untracked.
        where: The caller's name for it, as "items/3@1204".
        ended: acked, failed or given up; empty while the step is at work on it.
        shard: The shard of its tree, if it has one; otherwise -1.
        message: The transport's message, if `Incoming.consume` has read it.
    """

    __slots__ = ("anchors", "ended", "incoming", "message", "position", "sent", "shard", "token", "where")

    def __init__(
        self,
        incoming: Any,
        token: str = "",
        position: int = 0,
        sent: int = 0,
        anchors: tuple[int, ...] = (),
        where: str = "",
        shard: int = -1,
    ) -> None:
        self.incoming, self.token, self.position, self.sent = incoming, token, position, sent
        self.anchors, self.where, self.shard, self.ended = anchors, where, shard, ""
        self.message: Any = None

    def __reduce__(self) -> NoReturn:
        raise TupleError(ELSEWHERE)

    @property
    def tracked(self) -> bool:
        """True if some tree waits for the row."""
        return bool(self.anchors)

    def __repr__(self) -> str:
        name = f" {self.where}" if self.where else ""
        if not self.anchors:
            return f"<untracked row{name}>"
        return f"<row{name}: position {self.position} of segment {self.token}>"

    def named(self) -> str:
        """The row for an error message."""
        return shown(self.where) if self.where else f"position {self.position} of segment {self.token}"

    def check_ended(self) -> None:
        """Raises AckerError if the row is neither acked nor failed, in a loop that commits its offset."""
        if self.tracked and not self.ended:
            raise AckerError(
                f"row {self.named()} is neither acked nor failed: expected one of both before the next row. "
                "Its offset is not committed"
            )
