"""A function that counts, for tests of functions."""

import threading
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from acker.drpc import LinearDRPC, Out
from acker.errors import FailedException

N = {"n": pa.int64()}


def fan(row: dict[str, Any], out: Out) -> None:
    if row["args"] == "bad":
        raise FailedException("bad arguments")
    for n in range(row["args"]):
        out.emit({"n": n})


class Count:
    def __init__(self, _: object) -> None:
        self.n = 0

    def execute(self, _: dict[str, Any]) -> None:
        self.n += 1

    def finished(self, out: Out) -> None:
        out.result(self.n)


def counting(**how: Any) -> LinearDRPC:
    """A function that counts rows: its first step makes as many of a number as it says."""
    return LinearDRPC("count", **how).step("fan", fan, columns=N).gather("count", Count)


def of_result(give: Callable[[Out], object]) -> LinearDRPC:
    """A function whose last step gives what `give` does."""

    class Last(Count):
        def finished(self, out: Out) -> None:
            give(out)

    return LinearDRPC("count").step("fan", fan, columns=N).gather("last", Last)


class Held:
    """A function whose first step waits until it is let go."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.function = LinearDRPC("count", idempotent=True).step("fan", self._fan, columns=N)
        self.function.gather("count", Count)

    def _fan(self, row: dict[str, Any], out: Out) -> None:
        self.go.wait(60)
        fan(row, out)
