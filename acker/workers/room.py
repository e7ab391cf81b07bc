"""Room for rows: the bytes of them that the workers of a process take, each in one claim.

Bytes are counted as rows have them in Arrow; Python's values take some times as much. A segment is never cut,
and one is always taken: so a larger row is taken, alone.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

CLAIM_BYTES = 64 << 20
"""Bytes that a worker takes at a time, by default."""
PROCESS_BYTES = 256 << 20
"""Bytes that all workers of a process may have at once: each may take its part of them."""
MOST_BYTES = 1 << 40


class Room:
    """The workers that share a number of bytes."""

    def __init__(self, size: int) -> None:
        self._size, self._workers, self._lock = size, 0, threading.Lock()

    @contextmanager
    def shared_by(self, workers: int) -> Iterator[None]:
        """Adds workers that take rows until the block ends."""
        self._add(workers)
        try:
            yield
        finally:
            self._add(-workers)

    def _add(self, workers: int) -> None:
        with self._lock:
            self._workers += workers

    def of_claim(self, most: int) -> int:
        """Returns the bytes that a worker may take now. most: its step's option."""
        return max(1, min(most, self._size // max(1, self._workers)))


OF_PROCESS = Room(PROCESS_BYTES)
"""The room of this process."""
