"""The scripts of lines as functions (as in acker/streams/log/scripts.py).

Terms: a group is requests of a line that were tracked together.
"""

from collections.abc import Sequence

from acker.ledger.settings.config import TopologyConfig
from acker.store import function_keys, keys
from acker.store.operation import Request, Word, script


def declare_line(
    topology: str, name: str, record: str, most: int, number: int, others: Sequence[int], seen: bytes
) -> Request:
    """Declares a line.

    number: the one that its streams gather by, or 0; others: numbers of other streams; seen: the removals of
    the topology.
    """
    args: list[Word] = [name, record, most, keys.config(topology), keys.removals(topology), seen]
    args += [function_keys.named(topology), number, *others]
    return script("declare_line", [keys.lines(topology)], args)


def forget_names(
    topology: str, line: str, streams: Sequence[str], seen: tuple[bytes, int], ttl: int
) -> Request:
    """Takes a line and streams off the lists of their topology.

    seen: `keys.named` as the caller has read it, and the time (ms) until which the call counts.
    """
    own = [keys.streams(topology), keys.lines(topology)]
    marks = function_keys.named(topology), keys.removals(topology)
    return script("forget_names", own, [*seen, *marks, ttl, line, *streams])


def note_arrivals(
    config: TopologyConfig, progress: bytes, requests: int, over: bytes, acked: bytes, ttl: int
) -> Request:
    """Records the requests of a group that are over."""
    return script("note_arrivals", [progress], [requests, over, acked, ttl], config.wait)


def check_noted(progress: bytes, over: bytes, acked: bytes) -> Request:
    """Checks that these requests of a group are recorded as over, and these as acked."""
    return script("check_noted", [progress], [over, acked])
