"""Splitting: rows that are together too long for a value of the store are staged in halves.

Terms: a tree is all that comes of one record; staged rows are stored, but nobody sees them before a commit.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa  # noqa: TID251 - rows travel as Arrow, from and to Spark and plain Python

from acker.errors import ValueTooLong
from acker.store.flight import LEAST_VALUE_BYTES
from acker.store.operation import Operation
from acker.streams.log import segments
from acker.streams.log.segments import ANCHORS

T = TypeVar("T")
TooLong: TypeAlias = tuple[list[pa.RecordBatch], ValueTooLong]
"""A row that is too long by itself, and the error of the store."""
_CAUSE_BYTES = LEAST_VALUE_BYTES // 2


def in_halves(
    stage: Callable[[list[pa.RecordBatch]], Operation[T]],
    rows: list[pa.RecordBatch],
    into: list[Any] | None = None,
    long: list[TooLong] | None = None,
) -> Operation[list[T]]:
    """Stages rows, in as few parts as the store takes; returns the result of each part.

    Args:
        stage: Stages rows as one part.
        rows: The rows.
        into: Gets requests of `stage`. Requests for rows that are staged in halves are removed.
        long: Gets rows with trees that are too long by themselves; None makes them an error.

    Raises:
        ValueTooLong: A row is too long by itself.
    """
    begun = len(into or ())
    try:
        return [(yield from stage(rows))]
    except ValueTooLong as error:
        if into is not None:
            del into[begun:]
        table = pa.Table.from_batches(rows)
        half = table.num_rows // 2
        if not half:
            if long is None or not _has_tree(table):
                raise
            long.append((rows, error))
            return []
    parts = [part.combine_chunks().to_batches() for part in (table.slice(0, half), table.slice(half))]
    found = yield from in_halves(stage, parts[0], into, long)
    return found + (yield from in_halves(stage, parts[1], into, long))


def _has_tree(row: pa.Table) -> bool:
    return ANCHORS in row.column_names and len(segments.edges(row.column(ANCHORS))[0]) > 0


def by_bytes(places: npt.NDArray[np.int64], causes: Sequence[str]) -> Iterator[npt.NDArray[np.int64]]:
    """Failing trees, by their places among `causes`, cut into parts that any store takes as a value."""
    sizes = np.array([4 * len(causes[place]) + 16 for place in places.tolist()], np.int64)
    number = np.cumsum(sizes) // _CAUSE_BYTES
    for part in np.unique(number):
        yield places[number == part]
