"""Unreadable segments of a stream, for tests."""

from collections.abc import Callable

import pyarrow as pa

from acker.ledger.client import Ledger
from acker.streams.log import segments


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
