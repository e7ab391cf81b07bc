"""Dead letters of a spout as tables with the columns of their rows, for Spark: by ranges of numbers."""

from dataclasses import asdict

import pyarrow as pa  # noqa: TID251 - rows travel as Arrow, from and to Spark and plain Python

from acker.errors import UnreadableRecord
from acker.ledger.calls.core import Core
from acker.ledger.settings.config import DEAD_LETTERS, check_name
from acker.store.operation import Operation
from acker.streams.log import segments
from acker.streams.sources import attempts, dead_letter_store

FIELDS = pa.schema(
    [
        ("id", pa.string()),
        ("spout", pa.string()),
        ("message_id", pa.binary()),
        ("anchor", pa.int64()),
        ("status", pa.string()),
        ("reason", pa.string()),
        ("step", pa.string()),
        ("batch", pa.int64()),
        ("attempts", pa.int32()),
        ("at", pa.timestamp("us", "UTC")),
        ("stream", pa.string()),
        ("history", pa.list_(attempts.FIELDS)),
    ]
)
"""A dead letter as a row of a table, beside its own row (`DeadLetter`)."""


def last(core: Core, spout: str, after: str, end: str, most: int) -> Operation[str]:
    """The number of the last of a spout's next `most` dead letters, up to `end`; `after` for none.

    The number of a letter is its id without the spout. The numbers of a spout ascend.
    """
    check_name(spout, "spout")
    if most >= DEAD_LETTERS:  # there are no more
        [newest] = yield from dead_letter_store.newest(core, [spout], end)
        return after if newest == dead_letter_store.FIRST else newest
    while most > 0:
        read = yield from dead_letter_store.heads(core, spout, after, end, min(most, dead_letter_store.READ))
        if not read.count:
            break
        after, most = read.last, most - read.count
    return after


def table(
    core: Core, spout: str, stream: str, after: str, end: str, row: pa.Schema
) -> Operation[tuple[pa.RecordBatch, str] | None]:
    """The next page of a spout's dead letters, up to number `end`, and its last number; None at the end.

    It has only letters whose replays are published in the stream. row: the columns of their rows
    (`table_schema`). Raises UnreadableRecord with the letter's id if its row cannot be read: a table that
    silently lacks a letter would be taken for complete.
    """
    read = yield from dead_letter_store.heads(
        core, check_name(spout, "spout"), after, end, dead_letter_store.READ
    )
    if not read.count:
        return None
    letters = read.found[: (yield from dead_letter_store.fitting(core, read.found))]
    columns: list[list[object]] = [[] for _ in FIELDS]
    rows: list[pa.RecordBatch] = []
    wanted = [head for head in letters if head.stream == stream]
    for letter, stored in zip(wanted, (yield from dead_letter_store.stored(core, wanted)), strict=True):
        if isinstance(stored, UnreadableRecord):
            raise stored
        if stored is None:  # replayed or discarded meanwhile
            continue
        fields = {name: getattr(letter, name, None) for name in FIELDS.names}
        tried = [asdict(attempt) | {"at": round(attempt.at * 1e6)} for attempt in stored.history]
        fields |= {"at": round(letter.at * 1e6), "history": tried}
        for column, value in zip(columns, fields.values(), strict=True):
            column.append(value)
        rows += [segments.conform(piece, row) for piece in dead_letter_store.batches(letter, stored)]
    arrays = [pa.array(column, kind.type) for column, kind in zip(columns, FIELDS, strict=True)]
    if row.names:
        parts = (
            [pa.concat_arrays([piece.column(place) for piece in rows]) for place in range(len(row))]
            if rows
            else []
        )
        empty = [pa.array([], field.type) for field in row]
        arrays.append(pa.StructArray.from_arrays(parts or empty, fields=list(row)))
    batch = pa.RecordBatch.from_arrays(arrays, schema=table_schema(row))
    return batch, letters[-1].number if len(letters) < len(read.found) else read.last


def table_schema(row: pa.Schema) -> pa.Schema:
    """The schema of dead letters as a table: `FIELDS`, and the struct `row` of these columns, if any."""
    return FIELDS.append(pa.field("row", pa.struct(list(row)))) if row.names else FIELDS
