"""Gathering streams of a line."""

from dataclasses import dataclass
from typing import Annotated

from acker.errors import ValidationError, shown
from acker.ledger.fields import Count, Name
from acker.ledger.settings.config import check_name
from acker.ledger.settings.settings import check_number
from acker.streams.log.gathers import TASKS


@dataclass(frozen=True, slots=True)
class Gather:
    """A gathering stream: its rows wait until all rows that their request will ever have are written.

    Each task learns that it has all rows, also a task without rows.

    Attributes:
        stream: The name of the stream.
        tasks: 1 to 64. The rows of a request are divided among the tasks, by the columns `by`.
        by: Columns whose values choose the task of a row; required with several tasks.

    Raises:
        ValidationError: An attribute is invalid.
    """

    stream: Name
    tasks: Count = 1
    by: Annotated[tuple[str, ...], "Columns whose values choose the task of a row."] = ()

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
