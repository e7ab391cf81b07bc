"""Kept ids: for a source that can be asked again, the store keeps the names and places of rows only.

A table of kept ids has the id columns, the attempts of each row, and its state. A row is unread until a
process has read it again from its source (acker/streams/spouts/rereading.py). Then the table has the row,
too, or the mark that the source has it no longer. A state changes once: so all processes that settle the
row's outcome give it the same end.

Terms: roots are rows of a spout that were staged together, and get a tree each.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa  # noqa: TID251 - rows travel as Arrow, from and to Spark and plain Python

from acker.errors import ValidationError
from acker.streams.log import segments
from acker.streams.log.segments import ANCHORS
from acker.streams.sources import attempts

STATE = "_acker_state"
ROW = "_acker_row"
UNREAD, READ, GONE = 0, 1, 2
"""The states of a row: not read again yet; read again; gone from its source."""
MOST_COLUMNS = 16
"""Most id columns."""
TAIL = 16
"""Last bytes of stored ids. They differ after each answer of their source."""
_OWN = (STATE, ROW, attempts.COLUMN, ANCHORS)


def check_columns(schema: pa.Schema, ids: Sequence[str]) -> None:
    """Raises ValidationError if rows of a schema cannot be named by their columns `ids`."""
    if not 1 <= len(ids) <= MOST_COLUMNS or len(set(ids)) < len(ids):
        raise ValidationError(
            f"place: expected 1 to {MOST_COLUMNS} different columns with message_id, got {', '.join(ids)}"
        )
    for name in ids:
        if name not in schema.names or name in _OWN:
            raise ValidationError(
                f"place: expected some of the columns {', '.join(schema.names)}, got {name!r}"
            )
        if pa.types.is_nested(kind := schema.field(name).type):
            raise ValidationError(f"place: expected a column of plain values, got {name!r} of {kind}")


def of_rows(rows: pa.Table, ids: Sequence[str]) -> pa.Table:
    """Ids to keep in place of rows, all unread."""
    names = [*ids, *(name for name in (attempts.COLUMN,) if name in rows.column_names)]
    return rows.select(names).append_column(STATE, pa.array(np.zeros(rows.num_rows, np.int8)))


def id_columns(kept: pa.Table) -> list[str]:
    """The names of the columns that name a row and its place."""
    return [name for name in kept.column_names if name not in _OWN]


def states(kept: pa.Table) -> np.ndarray:
    """The state of each row."""
    state: np.ndarray = kept.column(STATE).to_numpy()
    return state


def whole(kept: pa.Table, attempt: str = "", number: int = 0) -> pa.Table:
    """Rows as the spout had them, with their attempts; an unread or a gone row has its id columns only.

    attempt, number: the column of the number of the attempt, and its value.
    """
    ids = id_columns(kept)
    table = kept.select(ids)
    if ROW in kept.column_names:
        fields = kept.schema.field(ROW).type
        columns = kept.column(ROW).flatten()
        names = [fields.field(place).name for place in range(fields.num_fields)]
        table = pa.table(
            {
                name: kept.column(name) if name in ids else column
                for name, column in zip(names, columns, strict=True)
            }
        )
    if attempt and attempt not in table.column_names:
        table = table.append_column(attempt, pa.array(np.full(kept.num_rows, number, dtype=np.int32)))
    if attempts.COLUMN in kept.column_names:
        table = table.append_column(attempts.COLUMN, kept.column(attempts.COLUMN))
    return table


def filled(kept: pa.Table, answers: Mapping[int, int | None], read: pa.Table) -> pa.Table:
    """Kept ids with answers of their source, for unread rows.

    Args:
        kept: The kept ids.
        answers: Place of a row -> the place of its row in `read`; None if its source has it no longer.
        read: Rows, with all columns of the spout.
    """
    count, state = kept.num_rows, states(kept).copy()
    taken = np.arange(count)
    for place, at in answers.items():
        state[place] = GONE if at is None else READ
        if at is not None:
            taken[place] = count + at
    fields = pa.struct([pa.field(column.name, column.type) for column in read.schema])
    before = pa.nulls(count, fields)
    if ROW in kept.column_names:
        rows = kept.column(ROW).combine_chunks()
        there = pa.RecordBatch.from_arrays(rows.flatten(), names=[column.name for column in rows.type])
        before = _structs(segments.conform(there, pa.schema(list(fields))), fields, rows.is_null())
        kept = kept.drop_columns([ROW])
    batches = read.combine_chunks().to_batches()
    added = [_structs(batch, fields) for batch in batches]
    row = pa.concat_arrays([before, *added]).take(pa.array(taken))
    place = kept.schema.get_field_index(STATE)
    return kept.set_column(place, STATE, pa.array(state)).append_column(ROW, row)


def _structs(batch: pa.RecordBatch, kind: pa.StructType, mask: pa.Array | None = None) -> pa.StructArray:
    return pa.StructArray.from_arrays(batch.columns, fields=list(kind), mask=mask)
