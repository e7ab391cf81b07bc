"""Stamps with one anchor each, read together: most rows have such a stamp.

Terms: an anchor is the number of a tree; a segment is the rows of an external stream that one sender stamped
together.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from acker.ledger import ids
from acker.streams.staging.external.rows.stamps import LETTERS, Head, Seal


class OneTreeStamps(NamedTuple):
    """Sound stamps with one anchor each, in order.

    Attributes:
        runs: Stamps of one segment behind each other: their common part, and their places.
        positions: The position of each row in its segment.
        anchors: The anchor of each row.
        shards: Its shard.
    """

    runs: list[tuple[Head, int, int]]
    positions: list[int]
    anchors: list[int]
    shards: list[int]


def read(seal: Seal, values: Sequence[object], ackers: int) -> OneTreeStamps | None:
    """Reads stamps; None where one is no text of a sound stamp with one anchor. No value raises an error."""
    if not values or not all(type(value) is bytes and len(value) == LETTERS for value in values):
        return None
    letters = np.frombuffer(b"".join(values), dtype=np.uint8)  # type: ignore[arg-type]
    columns = seal.read_letters(letters.reshape(-1, LETTERS))
    if not columns.sound.all():
        return None
    segments, anchors = columns.segments, columns.anchors
    bounds = [0, *(np.flatnonzero(np.diff(segments)) + 1).tolist(), len(segments)]
    runs = [(columns.heads[segments[first]], first, last) for first, last in pairwise(bounds)]
    shards = ids.shards_of(ids.split(anchors)[0], ackers)
    return OneTreeStamps(runs, columns.positions.tolist(), anchors.tolist(), shards.tolist())
