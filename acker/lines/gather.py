"""Streams that gather, as a line names them."""

from dataclasses import dataclass
from typing import Annotated

from acker.errors import ValidationError, shown
from acker.ledger.fields import Count, Name
from acker.ledger.settings.config import check_name
from acker.ledger.settings.settings import check_number
from acker.streams.log.gathers import TASKS


@dataclass(frozen=True, slots=True)
class Gather:
    """A stream that gathers: its rows wait until all of their request that will ever come are written.

    tasks: 1 to 64; the rows of a request are divided among so many, each task with the rows that are alike in
    the columns `by`. Each task learns that it has all, also one without rows. Raises ValidationError.
    """

    stream: Name
    tasks: Count = 1
    by: Annotated[tuple[str, ...], "Columns whose values say for which task a row is."] = ()

    def __post_init__(self) -> None:
        check_name(self.stream, "stream")
        check_number(self.tasks, "tasks", 1, TASKS, int)
        by: object = self.by
        if not isinstance(by, list | tuple) or not all(isinstance(name, str) and name for name in by):
            raise ValidationError(
                f"by: expected names of columns, as a tuple or a list, got {shown(self.by)}"
            )
        object.__setattr__(self, "by", tuple(self.by))
        if self.tasks > 1 and not self.by:
            raise ValidationError(
                f"by: expected the columns by which the rows of stream {self.stream!r} are divided among "
                f"{self.tasks} tasks, got none"
            )
