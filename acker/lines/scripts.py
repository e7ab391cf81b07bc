"""The scripts of lines as functions (as in acker/streams/log/scripts.py)."""

from collections.abc import Sequence

from acker.ledger.settings.config import TopologyConfig
from acker.store import keys
from acker.store.operation import Request, script


def declare_line(
    topology: str, name: str, record: str, most: int, own: int, others: Sequence[int]
) -> Request:
    """Declares a line. own: the number that its streams gather by, or 0; others: those of other streams."""
    return script("declare_line", [keys.lines(topology)], [name, record, most, own, *others])


def note_arrivals(
    config: TopologyConfig, progress: bytes, requests: int, over: bytes, acked: bytes, ttl: int
) -> Request:
    """Notes which requests of a group are over."""
    return script("note_arrivals", [progress], [requests, over, acked, ttl], config.wait)


def check_noted(progress: bytes, over: bytes, acked: bytes) -> Request:
    """Tells whether it is noted of a group that these requests are over, and that these were acked."""
    return script("check_noted", [progress], [over, acked])
