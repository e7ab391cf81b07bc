"""Spouts that keep ids, and sources that can be asked again, in few words."""

import pyarrow as pa

from acker.inspect.topology import health
from acker.ledger.client import Ledger
from acker.streams.spout import StreamSpout
from tests.helpers.builders.kept_rows import HOW, lines


class Source:
    """A source of lines that can be asked again, and what it was asked for."""

    def __init__(self, there: pa.Table) -> None:
        self.there = there
        self.asked: list[list[int]] = []
        self.bad = set[int]()
        """The ids that make it raise."""

    def __call__(self, ids: pa.Table) -> pa.Table:
        """The rows of ids."""
        self.asked.append(ids.column("id").to_pylist())
        if self.bad & set(self.asked[-1]):
            raise OSError("the source is away")
        wanted = set(self.asked[-1])
        return self.there.filter(pa.array([one in wanted for one in self.there.column("id").to_pylist()]))


def write(ledger: Ledger, count: int = 10, first: int = 0) -> None:
    StreamSpout(ledger, HOW, ids=["id"]).write(lines(count, first))


def unread(ledger: Ledger) -> list[str]:
    troubles = ledger.run(health.health(ledger.core)).troubles
    return [trouble.text for trouble in troubles if trouble.code == "unread"]
