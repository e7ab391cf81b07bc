"""Batches of rows that plain Python publishes.

Terms: a segment is some thousand rows of a stream, stored and acked as one piece; a slot is the random number
of a subscription; a lane is one of the four queues of a stream that is read fairly.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa  # noqa: TID251 - rows travel as Arrow, from and to Spark and plain Python

from acker.ledger.ids import Ids
from acker.streams.log import segments


@dataclass(frozen=True, slots=True)
class Part:
    """Rows of a batch that become one segment.

    Attributes:
        seed: The seed of their tuple ids.
        id: The name of the segment.
        lane: The lane, in a stream that is read fairly (`acker.streams.log.fairness`).
        places: The rows of the batch, from 0; None for all.
    """

    seed: int
    id: str
    lane: int = 0
    places: Ids | None = None


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows to be published: as one segment, or several if the stream is read fairly.

    Publishing the same batch again changes nothing.

    Attributes:
        rows: The rows, without anchors.
        slots: The slots of the subscriptions that get them.
        parts: The rows of each segment.
    """

    rows: pa.Table
    slots: tuple[int, ...]
    parts: tuple[Part, ...]

    def ids(self) -> Ids:
        """The first ack value of each row's tree: the XOR of the tuple ids that each subscription gets."""
        values = np.zeros(self.rows.num_rows, dtype=np.int64)
        for part in self.parts:
            rows = slice(None) if part.places is None else part.places
            places = np.arange(len(values[rows]), dtype=np.int64)
            for slot in self.slots:
                values[rows] ^= segments.edge_ids(part.seed, slot, places)
        return values
