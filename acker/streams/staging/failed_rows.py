"""Failed rows of a batch, with their trees and causes.

Terms: a tree is all that comes of one record; an anchor is the number of a tree.
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa  # noqa: TID251 - rows travel as Arrow, from and to Spark and plain Python

from acker.ledger.ids import Ids
from acker.ledger.slabs.causes import said_by, texts
from acker.streams.log import segments
from acker.streams.log.segments import ANCHORS
from acker.streams.staging.splitting import TooLong


def split(batches: list[pa.RecordBatch], column: str) -> tuple[list[pa.RecordBatch], list[pa.RecordBatch]]:
    """Divides rows: rows to emit, without the column of causes; failed rows, with it."""
    if column not in batches[0].schema.names:
        return batches, []
    kept, bad = [], []
    for batch in batches:
        place = batch.schema.get_field_index(column)
        failed, rest = batch.column(place).is_valid(), batch.remove_column(place)
        those = batch.filter(failed)
        if those.num_rows:
            bad.append(those)
            rest = rest.filter(batch.column(place).is_null())
        if rest.num_rows:
            kept.append(rest)
    return kept, bad


def causes(rows: list[pa.RecordBatch], column: str, step: str, batch: int) -> tuple[Ids, list[str]]:
    """The anchors and causes of failed rows."""
    failures = [rows_failures(one.column(ANCHORS), one.column(column), step, batch) for one in rows]
    return np.concatenate([anchors for anchors, _ in failures]), [why for _, whys in failures for why in whys]


def too_long(rows: Sequence[TooLong], column: str) -> list[pa.RecordBatch]:
    """Rows that fail because the store does not take values of their length, with the column of causes."""
    return [
        one.append_column(column, pa.array([said_by(error)] * one.num_rows, pa.string()))
        for found, error in rows
        for one in found
    ]


def rows_failures(
    anchors: pa.Array, reasons: pa.Array, step: str = "", batch: int = -1
) -> tuple[Ids, list[str]]:
    """Anchors of rows and a cause for each, from a column of anchors and one of causes.

    See `acker.ledger.slabs.causes`.
    """
    trees, places = segments.edges(anchors)
    whys = texts(segments.texts(reasons), step, batch)
    if len(trees) == len(whys) and pa.types.is_int64(anchors.type):
        return trees, whys
    if pa.types.is_int64(anchors.type):
        return trees, [whys[place] for place in places.tolist()]
    lengths = anchors.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
    rows = np.repeat(np.arange(len(whys)), lengths)[places]
    return trees, [whys[row] for row in rows.tolist()]
