"""Outcomes: how a tree ended."""

from typing import NamedTuple

from acker.ledger.outcomes.outcomes import Status


class Outcome(NamedTuple):
    """The end of a tree.

    status: acked, failed, expired, or rejected (never tracked: over the high-water mark). reason: of a fail,
    where an expired tree was, or what the spout found out by itself. latency: seconds from track to outcome
    by the store's clock; None where the store has not said it. anchor: 0 where there was no tree (`ackers`
    0). step: the bolt that has failed it, where known; batch: of its query, -1 where not known. retry: False
    where that was for good, so that another attempt is of no use.
    """

    message_id: bytes
    anchor: int
    status: Status
    reason: str
    latency: float | None
    step: str = ""
    retry: bool = True
    batch: int = -1
