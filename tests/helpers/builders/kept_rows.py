"""Spouts whose rows the store keeps, in few words."""

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from acker.ledger.client import Ledger
from acker.ledger.ids import as_ids
from acker.ledger.slabs.causes import Cause
from acker.streams import StreamReader
from acker.streams.dead_letters import dead_letters
from acker.streams.sources import kept_rows
from acker.streams.sources.spout_options import SpoutOptions

HOW = SpoutOptions("s", "lines", "id", attempts=3, attempt="attempt")


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
