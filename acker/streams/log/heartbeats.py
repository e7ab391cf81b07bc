"""How often what is alive says so, and after how long it is taken for dead."""

from acker.ledger.calls.core import Core

MISSED = 3
"""Heartbeats that a query, a worker, or a commit misses until it is taken for one that has ended."""


def period(core: Core) -> float:
    """Seconds between two heartbeats: a twentieth of the message timeout, but 0.1 to 5."""
    return min(5.0, max(0.1, core.config.message_timeout / 20))
