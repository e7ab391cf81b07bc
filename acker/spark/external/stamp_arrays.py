"""Columns of stamps, read as arrays: a task of Spark has millions of them.

Stamps with one anchor are read together by numpy, all others one by one.

Terms: a segment is the rows of an external stream that one sender stamped together; an anchor is the number
of a tree.
"""

from collections import Counter
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from acker.ledger.ids import Ids
from acker.streams.staging.external.rows.stamps import LETTERS, Bytes, Fault, Seal, Stamp

_Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class StampArrays:
    """The stamps of a column of texts. The arrays have a member for each anchor of each stamp.

    Attributes:
        texts: The place of the stamp in the column.
        segments: The place of its segment in `tokens`.
        positions: The row's position in the segment.
        anchors: The anchor.
        tokens: The segments.
        begun: When each segment was begun, in Unix seconds.
        faults: Texts without a stamp, counted by their fault.
        stamps: The number of stamps.
        several: The number of stamps with several anchors.
    """

    texts: _Numbers
    segments: _Numbers
    positions: _Numbers
    anchors: Ids
    tokens: list[str]
    begun: list[int]
    faults: Counter[Fault]
    stamps: int
    several: int


def read(seal: Seal, column: pa.Array) -> StampArrays:
    """Reads a column of texts."""
    lengths = pc.binary_length(column).fill_null(0).to_numpy(zero_copy_only=False)
    places = np.flatnonzero(lengths == LETTERS)
    together = seal.read_letters(_letters(column, places))
    whole = slice(None) if together.sound.all() else together.sound
    quick, of_quick = places[whole], together.segments[whole]
    by_token, times = dict[str, int](), list[int]()
    of_heads = np.zeros(len(together.heads), np.int64)
    for place in np.flatnonzero(np.bincount(of_quick)).tolist():
        head = together.heads[place]
        of_heads[place] = by_token.setdefault(head.token, len(times))
        if of_heads[place] == len(times):
            times.append(head.sent)
    of_quick = of_heads[of_quick] if len(quick) else of_quick

    left = np.ones(len(column), dtype=np.bool_)
    left[quick] = left[places[together.foreign]] = False
    others = np.flatnonzero(left)
    rows, faults, several = list[tuple[int, int, int, int]](), Counter[Fault](), 0
    faults["foreign"] += int(np.count_nonzero(together.foreign))
    texts = column.take(pa.array(others)).to_pylist()
    for place, stamp in zip(others.tolist(), seal.read_many(texts), strict=True):
        if not isinstance(stamp, Stamp):
            faults[stamp] += 1
            continue
        several += len(stamp.anchors) > 1
        of = by_token.setdefault(stamp.token, len(times))
        if of == len(times):
            times.append(stamp.sent)
        rows += [(place, of, stamp.position, anchor) for anchor in stamp.anchors]
    read_alone = np.array(rows, np.int64).reshape(-1, 4).T
    quick_columns = quick, of_quick, together.positions[whole], together.anchors[whole]
    places, segments, positions, anchors = map(np.concatenate, zip(quick_columns, read_alone, strict=True))
    stamps = len(column) - sum(faults.values())
    return StampArrays(places, segments, positions, anchors, list(by_token), times, +faults, stamps, several)


def texts(letters: Bytes) -> pa.Array:
    """The texts of stamps, by their letters: a row for each."""
    offsets = np.arange(len(letters) + 1, dtype=np.int32) * letters.shape[1]
    return pa.StringArray.from_buffers(len(letters), pa.py_buffer(offsets), pa.py_buffer(letters.tobytes()))


def _letters(column: pa.Array, places: _Numbers) -> Bytes:
    """The letters of texts that have `LETTERS` bytes each, a row for each."""
    texts = column if len(places) == len(column) else column.take(pa.array(places))
    if not len(texts):
        return np.zeros((0, LETTERS), np.uint8)
    texts = texts.cast(pa.string())  # of large texts it has another offset
    [_, offsets, data] = texts.buffers()
    first = int(np.frombuffer(offsets, np.int32, 1, 4 * texts.offset)[0])
    return np.frombuffer(data, np.uint8, LETTERS * len(texts), first).reshape(-1, LETTERS)
