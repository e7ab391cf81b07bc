"""Writers: who sends calls that take effect once. Each numbers its calls for a shard 1, 2, 3 ...

The idea is Kafka's idempotent producer. A writer has one call under way for a shard; who sends several side
by side takes several writers. A writer is given back when its calls are answered, and discarded when they are
not: what became of them is unknown then, and the next call must not depend on it.
"""

import os
import secrets
import time
from collections import deque

HORIZON = 3600.0
"""Seconds for which the store remembers a silent writer, at least."""

_KEPT = 64


class Writer:
    """A writer: 16 random bytes, and the number of its last call for each shard."""

    __slots__ = ("id", "last_used", "process", "sequences")

    def __init__(self) -> None:
        self.id = secrets.token_bytes(16)
        self.sequences: dict[int, int] = {}
        self.process = os.getpid()
        self.last_used = time.monotonic()

    def next(self, shard: int) -> int:
        """The number of the next call for a shard, from 1."""
        number = self.sequences[shard] = self.sequences.get(shard, 0) + 1
        return number


class Writers:
    """The idle writers of this process, for any thread; a forked child and a pickled copy start with none.

    It has no lock, which a thread could hold at the moment of a fork: a deque's own methods are atomic.
    """

    def __init__(self) -> None:
        self._idle: deque[Writer] = deque(maxlen=_KEPT)

    def take(self) -> Writer:
        """An idle writer that the store remembers, or a new one."""
        while True:
            try:
                writer = self._idle.pop()
            except IndexError:
                return Writer()
            if writer.process == os.getpid() and time.monotonic() - writer.last_used < HORIZON / 2:
                return writer

    def give(self, writer: Writer) -> None:
        """Takes a writer back whose calls are all answered."""
        writer.last_used = time.monotonic()
        self._idle.append(writer)

    def __getstate__(self) -> dict[str, object]:
        return {}

    def __setstate__(self, _: dict[str, object]) -> None:
        self.__init__()  # type: ignore[misc]
