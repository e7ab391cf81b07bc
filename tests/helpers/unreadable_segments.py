"""What tests share with tests/streams/test_unreadable_segments.py."""

from collections.abc import Callable

import pyarrow as pa

from acker.inspect.totals import unreadable
from acker.ledger import counts
from acker.ledger.client import Ledger
from acker.streams import segments


def without_rows(payload: bytes) -> bytes:
    schema = pa.ipc.open_stream(payload).schema
    return segments.encode([pa.RecordBatch.from_pylist([], schema=schema)], "none")


BROKEN: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda payload: b"",
    "cut": lambda payload: payload[:-100],
    "without rows": without_rows,
    "other": lambda payload: b"x" * len(payload),
    "torn": lambda payload: payload[: len(payload) // 2] + b"\xff" * 1000,
}


def counted(ledger: Ledger) -> dict[str, int]:
    """The counters of trees that are not zero, when all that still pends has expired."""
    for _ in range(3):
        ledger.tick(force=True)
    return {name: n for name, n in ledger.counters().items() if n and name not in ("rotations", "duplicates")}


def put_away(ledger: Ledger) -> list[str]:
    """What is in quarantine; as much was counted."""
    found = sorted(name.decode() for name in ledger.run(counts.quarantined(ledger.core)))
    assert ledger.run(unreadable(ledger.core)) == len(found)
    return found
