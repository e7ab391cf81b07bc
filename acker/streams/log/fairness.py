"""Fair reading: a key with ten million rows does not delay a hundred others (Storm's KeyedFairBolt).

A reader names the column of a key, such as the request's. From then on rows written to the stream are counted
by key, and go into one of four lanes: the first rows of a key into lane 0, later ones into lane 1, after 32
times as many into lane 2, and so on. A claim serves the lanes in turn (lua/streams/includes/lanes.lua). So
keys with few rows have lane 0 nearly for themselves and are done soon, and keys with many rows go on at the
same time.

Counts are approximate, are taken when rows are staged, and last for some minutes. They only decide the order
of reading. Each row is read once, as in any stream.

Terms: a segment is some thousand rows of a stream, stored and acked as one piece; a slot is the random number
of a subscription; a lane is one of the four queues of a stream that is read fairly.
"""

import hashlib
from collections.abc import Sequence
from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa  # noqa: TID251 - rows travel as Arrow, from and to Spark and plain Python

from acker.errors import ValidationError, shown
from acker.ledger.calls.core import Core
from acker.ledger.ids import Ids
from acker.store import keys
from acker.store.operation import Operation, command
from acker.streams.log import kinds, scripts
from acker.streams.log.segments import ANCHORS
from acker.streams.types import equality

LANES = 4
LIGHT = 32_768
"""Rows of a key up to which it has lane 0; up to 32 times as many it has the next one.

See lua/streams/commits/release_bundle.lua.
"""
FACTOR = 32
SEGMENT_ROWS = 32_768
"""Rows of a segment, at most. A segment is the smallest part that a claim gives."""
COUNTED_KEYS = 256
"""Keys that are counted in a piece of rows, at most. Rarer keys are not counted."""
COUNTED_TTL = 600
"""Seconds after which counting begins anew."""
_DEPTH, _WIDTH = 4, 4_096
"""The size of the sketch (lua/streams/log/count_volumes.lua): 64 KiB for a stream, whatever is written to it.
"""
_NONE = -1


def check(column: object) -> str:
    """The name of a column for fair reading; "" for none. Raises ValidationError."""
    if not isinstance(column, str):
        raise ValidationError(f"fair_by: expected the name of a column, got {shown(column)}")
    return column


def declare(core: Core, stream: str, column: str, slot: int | None = None) -> Operation[None]:
    """Makes a stream be read fairly by the values of a column. Earlier rows are read first.

    Args:
        core: The ledger.
        stream: The stream.
        column: The column of the key.
        slot: The slot of a subscription that reads fairly, if any.

    Raises:
        ValidationError: The stream is read fairly by another column. Or it gathers, and the column is not
            `_acker`: its rows go on by request.
    """
    stream_keys = keys.Stream(core.config.name, stream)
    [gathers] = yield [command("HEXISTS", stream_keys.subscriptions, "gather")]
    if gathers and column != ANCHORS:
        raise ValidationError(
            f"fair_by: stream {stream!r} gathers, so its rows go on by request: expected {ANCHORS!r}, got "
            f"{column!r}"
        )
    made = partial(scripts.read_fairly, stream_keys, column, slot)
    other = yield from kinds.make_noted(core, stream, made)
    if other is not None:
        fair_column = other.decode("utf-8", "replace")
        raise ValidationError(
            f"fair_by: stream {stream!r} is read fairly by column {fair_column!r}, so it cannot be read by "
            f"{column!r}: a stream has one such column"
        )


def cut(
    core: Core, stream: str, column: str, batches: Sequence[pa.RecordBatch]
) -> Operation[list[tuple[int, list[pa.RecordBatch]]]]:
    """Rows by lane, in their order, in parts for segments.

    column: the column of the key. Rows without this column have one key, together with rows that have null.
    """
    rows = pa.Table.from_batches(batches)
    parts = []
    for lane, places in (yield from divide(core, stream, column, rows)):
        part = rows if len(places) == rows.num_rows else rows.take(pa.array(places))
        parts.append((lane, part.combine_chunks().to_batches()))
    return parts


def divide(core: Core, stream: str, column: str, rows: pa.Table) -> Operation[list[tuple[int, Ids]]]:
    """Divides rows like `cut`, but returns their places, from 0."""
    codes, names = _keys(rows, column)
    lanes = np.zeros(rows.num_rows, dtype=np.int64)
    if names:
        counts = np.bincount(codes[codes >= 0], minlength=len(names)).tolist()
        counted = [(count, _places(name)) for count, name in zip(counts, names, strict=True)]
        stream_keys = keys.Stream(core.config.name, stream)
        [before] = yield [scripts.count_volumes(stream_keys, COUNTED_TTL, counted)]
        lanes = _lanes(codes, np.array(before, dtype=np.int64))
    return _parts(lanes)


def divide_unknown(count: int) -> list[tuple[int, Ids]]:
    """Divides rows with unknown keys like `divide`: all have lane 0."""
    return _parts(np.zeros(count, dtype=np.int64))


def _parts(lanes: Ids) -> list[tuple[int, Ids]]:
    parts = []
    for lane in range(LANES):
        places = np.flatnonzero(lanes == lane)
        parts += [(lane, places[at : at + SEGMENT_ROWS]) for at in range(0, len(places), SEGMENT_ROWS)]
    return parts


def _lanes(codes: npt.NDArray[np.int16], before: Ids) -> Ids:
    """The lane of each row. codes: the rows' keys, `_NONE` for lane 0. before: rows of each key so far."""
    lanes = np.zeros(len(codes), dtype=np.int64)
    counted = np.flatnonzero(codes >= 0)
    order = counted[np.argsort(codes[counted], kind="stable")]
    ordered = codes[order]
    counts = np.bincount(ordered, minlength=len(before))
    starts = np.cumsum(counts) - counts
    so_far = before[ordered] + np.arange(len(order)) - starts[ordered]
    lanes[order] = np.searchsorted([LIGHT * FACTOR**lane for lane in range(LANES - 1)], so_far, side="right")
    return lanes


def _keys(rows: pa.Table, column: str) -> tuple[npt.NDArray[np.int16], list[bytes]]:
    """The number of each row's key among the counted keys, or `_NONE`; and the names of these keys."""
    numbers, key_names = _encoded(rows, column)
    counts = np.bincount(numbers, minlength=len(key_names) + 1)
    much = np.flatnonzero(counts * COUNTED_KEYS >= rows.num_rows)
    much = much[np.argsort(-counts[much], kind="stable")][:COUNTED_KEYS]
    codes = np.full(len(key_names) + 1, _NONE, dtype=np.int16)
    codes[much] = np.arange(len(much), dtype=np.int16)
    return codes[numbers], [key_names[place] if place < len(key_names) else b"" for place in much.tolist()]


def keys_of(rows: pa.RecordBatch, column: str) -> list[bytes]:
    """The key of each row in the column for fair reading; b"" for none."""
    numbers, known = _encoded(pa.Table.from_batches([rows]), column)
    return [known[place] if place < len(known) else b"" for place in numbers.tolist()]


def _encoded(rows: pa.Table, column: str) -> tuple[Ids, list[bytes]]:
    """The place of each row's key among the distinct keys, after the last for none; and the distinct keys."""
    if column not in rows.column_names:
        return np.zeros(rows.num_rows, dtype=np.int64), []
    values = rows.column(column)
    if column == ANCHORS and not pa.types.is_int64(values.type):  # the first anchor of a row counts
        values = pa.array([anchors[0] if anchors else None for anchors in values.to_pylist()], pa.int64())
    return equality.encoded(values)


def _places(name: bytes) -> list[int]:
    """The places of a key's counts in the sketch."""
    digest = hashlib.sha1(name, usedforsecurity=False).digest()
    return [
        row * _WIDTH + int.from_bytes(digest[4 * row : 4 * row + 4], "big") % _WIDTH for row in range(_DEPTH)
    ]
