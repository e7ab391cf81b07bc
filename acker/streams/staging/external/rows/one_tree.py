"""Stamps with one anchor each, read together: most rows have such a stamp.

Terms: an anchor is the number of a tree; a segment is the rows of an external stream that one sender stamped
together.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from acker.ledger import ids
from acker.ledger.ids import Ids
from acker.streams.staging.external.rows.stamps import LETTERS, Head, Seal


class Run(NamedTuple):
    """Stamps of one segment behind each other.

    Attributes:
        head: Their common part.
        first, last: Their places; `last` is behind them.
        shards: The shards of their anchors, each once.
    """

    head: Head
    first: int
    last: int
    shards: list[int]


class OneTreeStamps(NamedTuple):
    """Sound stamps with one anchor each, in order.

    Attributes:
        runs: Their segments.
        positions: The position of each row in its segment.
        anchors: The anchor of each row.
        shards: Its shard.
    """

    runs: list[Run]
    positions: Ids
    anchors: Ids
    shards: Ids


def read(seal: Seal, values: Sequence[object], ackers: int) -> OneTreeStamps | None:
    """Reads stamps; None where one is no text of a sound stamp with one anchor. No value raises an error."""
    if set(map(type, values)) != {bytes} or set(map(len, values)) != {LETTERS}:  # type: ignore[arg-type]
        return None
    letters = np.frombuffer(b"".join(values), dtype=np.uint8)  # type: ignore[arg-type]
    columns = seal.read_letters(letters.reshape(-1, LETTERS))
    if not columns.sound.all():
        return None
    segments, anchors = columns.segments, columns.anchors
    shards = ids.shards_of(ids.split(anchors)[0], ackers)
    bounds = [0, *(np.flatnonzero(np.diff(segments)) + 1).tolist(), len(segments)]
    runs = [
        Run(
            columns.heads[segments[first]],
            first,
            last,
            np.flatnonzero(np.bincount(shards[first:last])).tolist(),
        )
        for first, last in pairwise(bounds)
    ]
    return OneTreeStamps(runs, columns.positions, anchors, shards)
