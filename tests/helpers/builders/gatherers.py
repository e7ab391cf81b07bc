"""Classes that gather, for tests of lines, and what is seen of them."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

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


def counting_ends(monkeypatch: pytest.MonkeyPatch, step: Any) -> Counter[Request]:
    """How often a step that gathers has finished each request and task."""
    finished, make = Counter[Request](), step._make

    def made(request: Request) -> Any:
        one = make(request)
        end = one.finished
        one.finished = lambda out: (finished.update([request]), end(out))[1]
        return one

    monkeypatch.setattr(step, "_make", made)
    return finished
