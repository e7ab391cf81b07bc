"""Batches of rows that plain Python publishes."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa  # noqa: TID251 - rows travel as Arrow, from and to Spark and plain Python

from acker.ledger.ids import Ids
from acker.streams.log import segments


@dataclass(frozen=True, slots=True)
class Part:
    """Rows of a batch that become one segment. seed: of their tuple ids. token: names the segment.

    lane: where the stream is read fairly (`acker.streams.log.fairness`). places: which rows, from 0; None:
    all.
    """

    seed: int
    token: str
    lane: int = 0
    places: Ids | None = None


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows to be published: as one segment, or some where the stream is read fairly.

    Publishing the same batch again changes nothing.
    """

    rows: pa.Table
    slots: tuple[int, ...]
    parts: tuple[Part, ...]

    def ids(self) -> Ids:
        """What the trees of the rows are tracked with: XOR of the tuple ids that each subscription gets."""
        found = np.zeros(self.rows.num_rows, dtype=np.int64)
        for part in self.parts:
            own = slice(None) if part.places is None else part.places
            places = np.arange(len(found[own]), dtype=np.int64)
            for slot in self.slots:
                found[own] ^= segments.edge_ids(part.seed, slot, places)
        return found
