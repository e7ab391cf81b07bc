"""Rows of external segments that subscriptions have worked on.

Terms: a segment is some thousand rows of a stream, stored and acked as one piece; a slot is the random number
of a subscription.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from acker.ledger.calls.core import Core
from acker.store.operation import Operation, command
from acker.store.records import passing_over
from acker.store.replies import whole
from acker.streams.log.segments import Segment
from acker.streams.staging import vectors


@dataclass(frozen=True, slots=True)
class Received:
    """Progress of a subscription in a segment. missing: rows without a bit, in the shard with the most."""

    missing: int
    acked: bool


def received(core: Core, asked: Sequence[tuple[Segment, int]]) -> Operation[list[Received]]:
    """The progress of a subscription, by its slot, in each segment.

    A number of rows that cannot be read is logged: the segment counts with all its rows then.
    """
    places = [
        (at, key) for at, (one, slot) in enumerate(asked) for key, _ in vectors.keys_of(core, one, slot)
    ]
    replies = yield [command("HMGET", key, "state", "rows", "bits", "full", "void") for _, key in places]
    missing, acked = [0] * len(asked), [True] * len(asked)
    for (at, key), (state, rows, bits, full, void) in zip(places, replies, strict=True):
        acked[at] &= state is not None and void is None and not state.strip(b"2")
        if full is None and rows is not None:
            here = asked[at][0].rows
            with passing_over(core.config.name):
                here = whole(rows.partition(b" ")[0], f"the number of rows of {key!r}")
            left = here - int.from_bytes(bits or b"", "big").bit_count()
            missing[at] = max(missing[at], left)
    return [Received(*pair) for pair in zip(missing, acked, strict=True)]


def texts(segments: Iterable[Segment], progress: Iterable[Received]) -> list[str]:
    """Progress in words."""
    return [
        f"{segment.rows - of_segment.missing:,} of {segment.rows:,} rows received"
        for segment, of_segment in zip(segments, progress, strict=True)
    ]
