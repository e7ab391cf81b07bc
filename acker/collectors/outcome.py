"""Outcomes of trees.

Terms: a tree is all that comes of one record; an anchor is the number of a tree; a slab is the trees that one
call tracked together.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from acker.ledger.outcomes.outcomes import Status


class Outcome(NamedTuple):
    """The end of a tree.

    Attributes:
        message_id: The spout's name of the record.
        anchor: The tree; 0 where there was none (`ackers` 0).
        status: acked, failed, expired, or rejected (never tracked: over the high-water mark).
        reason: Reason of a fail, last place of an expired tree, or a finding of the spout itself.
        latency: Seconds from track to outcome by the store's clock; None without the store's answer.
        step: The bolt that failed the tree, or had its rows when it expired; "" if it is unknown.
        retry: False if the tree failed for good, so that another attempt is of no use.
        batch: Batch of the bolt's query; -1 if it is unknown.
    """

    message_id: bytes
    anchor: int
    status: Status
    reason: str
    latency: float | None
    step: str = ""
    retry: bool = True
    batch: int = -1


@dataclass(frozen=True, slots=True, eq=False)
class OutcomeGroup:
    """Trees of one slab that ended for one cause: an outcome for many trees.

    Attributes:
        slab: The name of their slab.
        indexes: Their places in it, in order.
        message_ids: The message ids of the whole slab.
        outcome: The outcome that each has, but for its message id and anchor, which are empty.
        entry: The inbox's note of the store's entry that says so; None if the spout's timer says so.
    """

    slab: bytes
    indexes: Sequence[int]
    message_ids: Sequence[bytes]
    outcome: Outcome
    entry: Any = field(repr=False, default=None)
