"""A look at the stamps of rows: which positions of which segments they have, read in tasks.

Terms: a segment is the rows of an external stream that one sender stamped together; an anchor is the number
of a tree.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from acker.ledger import ids
from acker.ledger.ids import Ids
from acker.spark.external import stamp_arrays
from acker.spark.external.stamp_arrays import StampArrays
from acker.spark.runtime.arrow import map_in_arrow
from acker.spark.runtime.pickling import Shipped
from acker.streams.staging.external import bits
from acker.streams.staging.external.declaring import External
from acker.streams.staging.external.rows.carriers import COLUMN
from acker.streams.staging.external.rows.stamps import Seal

Place: TypeAlias = tuple[str, int]
"""The token of a segment, and a shard."""
_LOOK = "token string, shard int, begun bigint, rows binary, trees binary"
_TYPES = (pa.string(), pa.int32(), pa.int64(), pa.binary(), pa.binary())
_FACTS = ""
"""In place of a token: a row of counts, as `rows`."""
_KINDS = ("rows", "unstamped", "damaged", "foreign", "newer", "several", "stamps")
OWN = ("several", "stamps")
"""Kinds that the store does not count."""
_TOGETHER = 500_000
"""Stamps of a task that are sorted by place together: rows of a shuffle have each segment in all parts."""


@dataclass(slots=True)
class Look:
    """The content of the stamps of rows.

    Attributes:
        rows: Segment and shard -> bitmap of positions.
        begun: Segment -> when it was begun, in Unix seconds.
        counted: Rows by what they carry; `several`: rows with several trees; `stamps`: stamps of the stream.
        trees: Segment and shard -> the trees of its rows there.
    """

    rows: dict[Place, bytes] = field(default_factory=dict)
    begun: dict[str, int] = field(default_factory=dict)
    counted: Counter[str] = field(default_factory=Counter)
    trees: dict[Place, Ids] = field(default_factory=dict)


class Looker(Shipped):
    """Reads the stamps of a task's rows, for `mapInArrow`."""

    def __init__(self, ackers: int, topology: str, stream: str, external: External) -> None:
        self.ackers, self.topology, self.stream, self.external = ackers, topology, stream, external

    def seal(self) -> Seal:
        """The seal of the stream's stamps."""
        return Seal(self.topology, self.stream, self.external.stamp_keys, self.external.number)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yields a row for each segment and shard, and one of counts."""
        seal, counted, seen = self.seal(), Counter[str](), _Seen(self.ackers)
        for batch in batches:
            texts, rows = flat(batch.column(0))
            stamps = stamp_arrays.read(seal, texts)
            counted.update(stamps.faults)
            counted.update(rows=batch.num_rows, stamps=stamps.stamps, several=stamps.several)
            counted["unstamped"] += batch.num_rows - np.count_nonzero(np.diff(rows, prepend=-1))
            seen.add(stamps)
        facts = np.array([counted[kind] for kind in _KINDS], np.int64).tobytes()
        columns = zip(*seen.places(), (_FACTS, 0, 0, facts, b""), strict=True)
        arrays = [pa.array(column, kind) for column, kind in zip(columns, _TYPES, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, names=["token", "shard", "begun", "rows", "trees"])


class _Seen:
    """The positions and trees by segment and shard of a task's stamps."""

    def __init__(self, ackers: int) -> None:
        self.ackers = ackers
        self.begun, self.numbers = dict[str, int](), dict[str, int]()
        self.found = dict[Place, tuple[bytes, Ids]]()
        self._parts, self._size = list[tuple[Ids, Ids, Ids]](), 0

    def add(self, stamps: StampArrays) -> None:
        """Adds the stamps of some rows."""
        self.begun.update(zip(stamps.tokens, stamps.begun, strict=True))
        numbers = [self.numbers.setdefault(token, len(self.numbers)) for token in stamps.tokens]
        segments = np.array(numbers, np.int64)[stamps.segments]
        shards = ids.shards_of(ids.split(stamps.anchors)[0], self.ackers)
        self._parts.append((segments * self.ackers + shards, stamps.positions, stamps.anchors))
        self._size += len(segments)
        if self._size >= _TOGETHER:
            self._gather()

    def _gather(self) -> None:
        """Sorts what was added by place."""
        places, positions, anchors = (np.concatenate(arrays) for arrays in zip(*self._parts, strict=True))
        self._parts, self._size = [], 0
        order = np.argsort(places, kind="stable")
        places, positions, anchors = places[order], positions[order], anchors[order]
        starts, tokens = np.flatnonzero(np.diff(places, prepend=-1)), list(self.numbers)
        ends = np.append(starts[1:], len(places))
        for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
            segment, shard = divmod(int(places[start]), self.ackers)
            packed, trees = bits.pack(positions[start:end]), ids.distinct(anchors[start:end])
            before = self.found.get((tokens[segment], shard))
            if before is not None:
                packed, trees = bits.either(before[0], packed), np.union1d(before[1], trees)
            self.found[tokens[segment], shard] = packed, trees

    def places(self) -> Iterator[tuple[str, int, int, bytes, bytes]]:
        """Yields token, shard, time, bitmap of positions, and trees of each place."""
        if self._size:
            self._gather()
        for (token, shard), (packed, trees) in self.found.items():
            yield token, shard, self.begun[token], packed, trees.tobytes()


def flat(column: pa.Array) -> tuple[pa.Array, Ids]:
    """The texts of a column of texts, or of arrays of texts; and the row of each text."""
    rows = np.arange(len(column))
    if not pa.types.is_list(column.type):
        return column, rows
    lengths = pc.list_value_length(column).fill_null(0).to_numpy(zero_copy_only=False)
    return column.flatten(), np.repeat(rows, lengths)


def read_stamps(rows: DataFrame, looker: Looker) -> Look:
    """Evaluates rows, and reads their stamps; the results are of the winners of tasks."""
    look = Look()
    for row in map_in_arrow(rows.select(COLUMN), looker, _LOOK).collect():
        token, shard, begun, packed = row["token"], row["shard"], row["begun"], bytes(row["rows"])
        if token == _FACTS:
            look.counted.update(dict(zip(_KINDS, np.frombuffer(packed, np.int64).tolist(), strict=True)))
            continue
        place, trees = (token, shard), np.frombuffer(bytes(row["trees"]), np.int64)
        look.begun[token] = begun
        if place in look.rows:
            packed = bits.either(look.rows[place], packed)
            trees = np.union1d(look.trees[place], trees)
        look.rows[place], look.trees[place] = packed, trees
    return look
