"""Classes that gather, for tests of lines."""

from collections.abc import Callable
from typing import Any

from acker.lines import Out, Request
from acker.workers.steps import Gatherer


def noting(tell: Callable[[list[str]], object]) -> Callable[[Request], Gatherer]:
    """A class that tells the `id` of all its rows, when no further one will come."""

    class Note:
        def __init__(self, _: Request) -> None:
            self.rows: list[str] = []

        def execute(self, row: dict[str, Any]) -> None:
            self.rows.append(row["id"])

        def finished(self, _: Out) -> None:
            tell(self.rows)

    return Note
