"""Pauses of spouts, as each shard of a topology and the keys of a spout's kept rows have them."""

from dataclasses import dataclass
from typing import Annotated

from acker.errors import UnreadableRecord
from acker.ledger.fields import instant
from acker.store.records import Bounds, Record

FIELD = "paused:"
"""The field of a shard's counters with the record of a spout's pause begins so, and the spout follows."""
RESUMED = b"resumed"
"""The value at `keys.Spout.paused` begins so where the pause is over."""
MOST_BY = 200


@dataclass(frozen=True, slots=True)
class Pause(Record, label="a pause of a spout", most=1 << 14):
    """A pause of a spout, as it is stored. since: Unix seconds by the store's clock."""

    by: Annotated[str, Bounds(0, MOST_BY)]
    reason: Annotated[str, Bounds(0, 1_024)]
    since: Annotated[float, Bounds(0, 1e11)]


def parse(record: bytes) -> Pause | None:
    """The pause of a record; None if it cannot be read."""
    try:
        return Pause.load(record)
    except UnreadableRecord:
        return None


def refusal(topology: str, spout: str, record: bytes) -> str:
    """The reason of tracks that a pause rejects. record: of the pause; empty if it is not known."""
    text = f"spout {spout!r} of topology {topology!r} is paused"
    pause = parse(record) if record else None
    if pause is None:
        return text
    by = f" by {pause.by}" if pause.by else ""
    reason = f": {' '.join(pause.reason.split())}" if pause.reason else ""
    return f"{text}{by} since {instant(pause.since)}{reason}"
