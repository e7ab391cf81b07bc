"""Heartbeats: their period, and the time after which a silent process is taken for dead."""

from typing import NamedTuple

from acker.ledger.calls.core import Core

MISSED = 3
"""Heartbeats that a query, a worker, or a commit misses until it counts as ended."""


def period(core: Core) -> float:
    """Seconds between two heartbeats: a twentieth of the message timeout, but 0.1 to 5."""
    return min(5.0, max(0.1, core.config.message_timeout / 20))


class Lease(NamedTuple):
    """The time for which a worker counts as alive: its end by the store's clock (ms), and its length (ms)."""

    until: int
    length: int

    @property
    def begun(self) -> int:
        """The worker's last sign of life (ms)."""
        return self.until - self.length

    @classmethod
    def parse(cls, stored: bytes | None) -> "Lease | None":
        """A lease, parsed from the store (lua/workers/lease.lua); None for anything else."""
        words = (stored or b"").split(b" ")
        if len(words) != 2 or not words[0].isdigit() or not words[1].isdigit():
            return None
        return cls(int(words[0]), int(words[1]))
