"""Spouts whose rows, or whose ids, the store keeps, in few words."""

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from acker.ledger.client import Ledger
from acker.ledger.ids import as_ids
from acker.ledger.slabs.causes import Cause
from acker.streams import StreamReader
from acker.streams.dead_letters import dead_letters
from acker.streams.sources import kept_rows
from acker.streams.sources.roots import Roots
from acker.streams.sources.spout_options import SpoutOptions
from acker.streams.spout import StreamSpout
from acker.streams.spouts import replays, settler
from acker.streams.spouts.replays import Stepped
from acker.streams.spouts.rereading import Rereader
from acker.streams.staging.staging import Staged, Staging

HOW = SpoutOptions("s", "lines", "id", attempts=3, attempt="attempt")


class Keeping:
    """Spouts of a kind, for tests of what both kinds promise: their source has all rows that they wrote.

    Args:
        kind: "rows", or "ids": then rows that have failed are read again before they are settled.
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.source: list[pa.Table] = []
        self.asked: list[Any] = []

    def ids(self, how: SpoutOptions) -> tuple[str, ...]:
        """The columns that the store keeps of rows; () for all."""
        return (how.message_id,) if self.kind == "ids" else ()

    def write(
        self, ledger: Ledger, table: pa.Table, how: SpoutOptions = HOW, **more: Any
    ) -> tuple[Roots, ...]:
        """Writes rows by a spout."""
        self.source.append(table)
        return StreamSpout(ledger, how, ids=self.ids(how)).write(table, **more)

    def emit(
        self, ledger: Ledger, table: pa.Table, how: SpoutOptions = HOW
    ) -> tuple[tuple[Roots, ...], Staged]:
        """Stages rows, for a commit."""
        self.source.append(table)
        batches = table.to_batches()
        return ledger.run(
            replays.emit_recorded(ledger.core, how, Staging(how.stream), batches, ids=self.ids(how))
        )

    def reread(self, ledger: Ledger, spout: str = "s") -> None:
        """Asks the source for all rows that have failed and are due."""
        reader = Rereader(ledger, spout, self._rows)
        while self.kind == "ids" and reader.step():
            pass

    def settle(self, ledger: Ledger, spout: str | None = None, *how: Any, **more: Any) -> Stepped:
        """Settles what is due."""
        self.reread(ledger, spout or "s")
        return settler.settle(ledger, spout, *how, **more)

    def _rows(self, ids: pa.Table) -> pa.Table:
        [name] = ids.column_names
        wanted = set(ids.column(name).to_pylist())
        self.asked += wanted
        parts = [
            table.filter(pa.array([one in wanted for one in table.column(name).to_pylist()]))
            for table in self.source
        ]
        return pa.concat_tables(parts, promote_options="default")


def lines(count: int, first: int = 0) -> pa.Table:
    numbers = range(first, first + count)
    return pa.table({"id": list(numbers), "line": [f"line {n}" for n in numbers], "offset": list(numbers)})


def rows(ledger: Ledger, stream: str = "lines") -> list[dict[str, Any]]:
    return list(StreamReader(ledger, stream).rows())


def consume(ledger: Ledger, stream: str = "lines") -> int:
    return StreamReader(ledger, stream).ack_all()


def fail(
    ledger: Ledger,
    wanted: Callable[[dict[str, Any]], bool],
    reason: str = "bad",
    by: str = "",
    batch: int = -1,
) -> None:
    """A bolt: fails some rows of the stream, acks the others."""
    bad = [row["_acker"] for row in rows(ledger) if wanted(row)]
    if bad:
        ledger.send(ledger.core.fail(as_ids(bad), Cause(reason, by, batch=batch).encode()))
    consume(ledger)


def pending(ledger: Ledger) -> dict[str, int]:
    return ledger.run(kept_rows.pending(ledger.core, "s"))


def letters(
    ledger: Ledger, asked: dead_letters.Filter | None = None, **how: Any
) -> list[dead_letters.DeadLetter]:
    return list(ledger.run(dead_letters.page(ledger.core, asked, **how)).letters)
