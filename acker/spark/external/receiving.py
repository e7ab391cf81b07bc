"""Receiving rows: their stamps are read before the function, and once more behind it.

A log that is cut loses rows between two evaluations, and a file that is written anew under its name gains
some. So a bit is sent only for a position that both looks had: the function was given its row.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everyone imports it
from pyspark.sql.types import ArrayType, LongType, StringType

from acker.errors import ValidationError
from acker.ledger import ids
from acker.ledger.client import Ledger
from acker.ledger.ids import Ids
from acker.spark.external.marking import KNOWN, Marker
from acker.spark.runtime.arrow import arrow_column, map_in_arrow
from acker.spark.runtime.pickling import Shipped
from acker.streams.log import subscriptions
from acker.streams.log.segments import ANCHORS
from acker.streams.staging.external import bits, declaring
from acker.streams.staging.external.declaring import External
from acker.streams.staging.external.rows import receipts
from acker.streams.staging.external.rows.carriers import COLUMN
from acker.streams.staging.external.rows.lookup import find_over, find_received
from acker.streams.staging.external.rows.receipts import Receipt
from acker.streams.staging.external.rows.stamps import Seal, Stamp

Place: TypeAlias = tuple[str, int]
"""The token of a segment, and a shard."""
_Fails: TypeAlias = dict[int, tuple[tuple[int, ...], bytes]]
"""Positions whose rows have failed: the trees of the row in the shard, and a cause."""
_LOOK = "token string, shard int, begun bigint, rows binary, trees binary"
_FACTS = ""
"""In place of a token: a row of counts, as `rows`."""
_KINDS = ("rows", "unstamped", "damaged", "foreign", "newer", "several", "stamps")
_OWN = ("several", "stamps")
"""Kinds that the store does not count."""


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


class _Looker(Shipped):
    """Reads the stamps of a task's rows, for `mapInArrow`."""

    def __init__(self, ackers: int, topology: str, stream: str, external: External) -> None:
        self.ackers, self.topology, self.stream, self.external = ackers, topology, stream, external

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yields a row for each segment and shard, and one of counts."""
        seal = _seal(self.topology, self.stream, self.external)
        positions, begun = dict[Place, list[int]](), dict[str, int]()
        counted, trees = dict.fromkeys(_KINDS, 0), dict[Place, set[int]]()
        for batch in batches:
            column = batch.column(0)
            counted["rows"] += len(column)
            for stamp in seal.read_many(_flat(column)):
                if not isinstance(stamp, Stamp):
                    counted[stamp] += 1
                    continue
                counted["stamps"] += 1
                counted["several"] += len(stamp.anchors) > 1
                begun[stamp.token] = stamp.sent
                for anchor in stamp.anchors:
                    place = stamp.token, ids.shard_of_anchor(anchor, self.ackers)
                    positions.setdefault(place, []).append(stamp.position)
                    trees.setdefault(place, set()).add(anchor)
        tokens = [*(token for token, _ in positions), _FACTS]
        shards = [*(shard for _, shard in positions), 0]
        times = [*(begun[token] for token, _ in positions), 0]
        facts = np.array([counted[kind] for kind in _KINDS], np.int64).tobytes()
        rows = [*map(bits.pack, positions.values()), facts]
        listed = [np.fromiter(anchors, np.int64, len(anchors)).tobytes() for anchors in trees.values()]
        arrays = [pa.array(tokens, pa.string()), pa.array(shards, pa.int32()), pa.array(times, pa.int64())]
        yield pa.RecordBatch.from_arrays(
            [*arrays, pa.array(rows, pa.binary()), pa.array([*listed, b""], pa.binary())],
            names=["token", "shard", "begun", "rows", "trees"],
        )


def _flat(column: pa.Array) -> list[Any]:
    """The stamps of a column of texts, or of arrays of texts."""
    if pa.types.is_list(column.type):
        listed: list[Any] = []
        for one in column.to_pylist():
            listed += one or [None]
        return listed
    return column.to_pylist()  # type: ignore[no-any-return]


def _seal(topology: str, stream: str, external: External) -> Seal:
    return Seal(topology, stream, external.stamp_keys, external.number)


class _Anchors(Shipped):
    """Reads the anchors of rows from their stamps, without trees that are over."""

    def __init__(self, looker: _Looker, over: frozenset[Place], several: bool) -> None:
        self.looker, self.over, self.several = looker, over, several

    def __call__(self, columns: Iterator[pa.Array]) -> Iterator[pa.Array]:
        """Yields a bigint for each row, or an array of bigints; 0 stands for no tree."""
        looker = self.looker
        seal = _seal(looker.topology, looker.stream, looker.external)
        for column in columns:
            if isinstance(column, pa.ChunkedArray):
                column = column.combine_chunks()
            if pa.types.is_list(column.type):
                yield self._of_lists(seal, column)
                continue
            open_anchors = [self._open(stamp) for stamp in seal.read_many(column.to_pylist())]
            if self.several:
                yield pa.array([list(anchors) or [0] for anchors in open_anchors], pa.list_(pa.int64()))
            else:
                yield pa.array([anchors[0] if anchors else 0 for anchors in open_anchors], pa.int64())

    def _of_lists(self, seal: Seal, column: pa.Array) -> pa.Array:
        rows = list[list[int]]()
        for texts in column.to_pylist():
            anchors = [anchor for one in seal.read_many(texts or []) for anchor in self._open(one)]
            rows.append(list(dict.fromkeys(anchors)) or [0])
        return pa.array(rows, pa.list_(pa.int64()))

    def _open(self, stamp: Any) -> tuple[int, ...]:
        if not isinstance(stamp, Stamp):
            return ()
        if not self.over:
            return stamp.anchors
        ackers = self.looker.ackers
        return tuple(
            anchor
            for anchor in stamp.anchors
            if (stamp.token, ids.shard_of_anchor(anchor, ackers)) not in self.over
        )


@dataclass(slots=True)
class Received:
    """The rows of an external stream that a batch receives, for a subscription.

    Attributes:
        rows: The rows as they came, with the column `_acker_stamp`.
        external: The stream.
        slot: The subscription.
        look: What their stamps said before the function.
        over: Where trees of their segments are over.
        fixed: True if every evaluation gives the same rows: one look is enough.
        known: The rows that the subscription had received before, if they are to be marked.
    """

    ledger: Ledger
    stream: str
    rows: DataFrame
    external: External
    slot: int
    look: Look
    over: frozenset[Place]
    fixed: bool
    known: dict[Place, bytes] | None = None
    fails: dict[Place, _Fails] = field(default_factory=dict)

    @property
    def tracked(self) -> bool:
        """True if a row has a tree that is not over."""
        return any(place not in self.over for place in self.look.rows)

    @property
    def untracked(self) -> bool:
        """True if there may be a row without a tree."""
        counted = self.look.counted
        return bool(self.over) or any(counted[kind] for kind in ("unstamped", "damaged", "foreign", "newer"))

    def given(self) -> DataFrame:
        """The rows with the column `_acker`, as the function gets them."""
        several = bool(self.look.counted["several"]) or _is_list(self.rows)
        function = _Anchors(self._looker(), self.over, several)
        kind = ArrayType(LongType()) if several else LongType()
        rows = self.rows.withColumn(ANCHORS, arrow_column(function, kind, F.col(COLUMN)))
        if self.known is None:
            return rows
        seal = partial(_seal, self.ledger.config.name, self.stream, self.external)
        marker = Marker(seal, self.ledger.config.ackers, self.over, self.known)
        return rows.withColumn(KNOWN, arrow_column(marker, StringType(), F.col(COLUMN)))

    def fail(self, text: object, cause: bytes) -> set[int]:
        """Notes that a row has failed, and returns its trees that fail with its bit.

        These are none for a row that was not received, or without a stamp of the stream, and none that are
        over: what is left of the row's trees must fail by itself.
        """
        config = self.ledger.config
        stamp = _seal(config.name, self.stream, self.external).read(text)
        if not isinstance(stamp, Stamp):
            return set()
        by_shard = dict[int, tuple[int, ...]]()
        for anchor in dict.fromkeys(stamp.anchors):
            shard = ids.shard_of_anchor(anchor, config.ackers)
            by_shard[shard] = (*by_shard.get(shard, ()), anchor)
        noted = set[int]()
        for shard, anchors in by_shard.items():
            place = stamp.token, shard
            if place not in self.over and bits.has(self.look.rows.get(place, b""), stamp.position):
                self.fails.setdefault(place, {}).setdefault(stamp.position, (anchors, cause))
                noted.update(anchors)
        return noted

    def _looker(self) -> _Looker:
        config = self.ledger.config
        return _Looker(config.ackers, config.name, self.stream, self.external)

    def worked(self) -> dict[Place, bytes]:
        """The positions to be acked, which both looks had. Called when the function has returned."""
        both = self.look.rows
        if not self.fixed:
            now = _read(self.rows, self._looker()).rows
            both = {place: _and(before, now[place]) for place, before in both.items() if place in now}
        return {place: positions for place, positions in both.items() if place not in self.over}


def receipts_of(received: Sequence[Received]) -> list[Receipt]:
    """The rows to be acked, of each stream once. Called when the function has returned."""
    parts = dict[tuple[str, int, bytes], list[Received]]()
    for one in received:
        parts.setdefault((one.stream, one.slot, one.external.epoch), []).append(one)
    return [_receipt(*place, part) for place, part in parts.items()]


def _receipt(stream: str, slot: int, epoch: bytes, received: Sequence[Received]) -> Receipt:
    rows, fails = dict[Place, bytes](), dict[Place, _Fails]()
    newest, counted = 0, Counter[str]()
    for part in received:
        for place, positions in part.worked().items():
            rows[place] = bits.either(rows.get(place, b""), positions)
            newest = max(newest, part.look.begun[place[0]])
            for at, why in part.fails.get(place, {}).items():
                if bits.has(positions, at):
                    fails.setdefault(place, {}).setdefault(at, why)
        counted.update({kind: count for kind, count in part.look.counted.items() if kind not in _OWN})
        counted["over"] += len({token for token, _ in part.over})
    worked = receipts.packed({place: (positions, fails.get(place, {})) for place, positions in rows.items()})
    return Receipt(stream, slot, epoch.decode(), newest, dict(counted), worked)


def receive(
    ledger: Ledger, rows: DataFrame, stream: str, subscription: str, *, fixed: bool, mark: bool = False
) -> Received:
    """Reads the stamps of rows, and asks the store which of their trees are over.

    Args:
        ledger: The ledger.
        rows: The rows, with the column `_acker_stamp`: a text, or an array of texts.
        stream: The stream.
        subscription: The subscription.
        fixed: True if every evaluation gives the same rows.
        mark: True if the rows get the column `_acker_known` (acker/spark/external/marking.py).

    Raises:
        ValidationError: The rows have no such column, or have trees of their own.
        StreamKindError: The stream is managed.
    """
    check_column(rows, stream)
    core = ledger.core
    external = ledger.run(declaring.declare(core, stream))
    slot = ledger.run(subscriptions.subscribe(core, stream, subscription, "external"))
    external.seen[slot] = subscription
    config = ledger.config
    look = _read(rows, _Looker(config.ackers, config.name, stream, external))
    asked = {place: look.begun[place[0]] for place in look.rows}
    found = ledger.run(find_over(core, stream, external, slot, asked)) if asked else {}
    over = frozenset(place for place, is_over in found.items() if is_over)
    known = ledger.run(find_received(core, slot, asked)) if mark else None
    return Received(ledger, stream, rows, external, slot, look, over, fixed, known)


def check_column(rows: DataFrame, stream: str) -> None:
    """Raises ValidationError if rows have no place for a stamp, or trees of their own."""
    kind = rows.schema[COLUMN].dataType if COLUMN in rows.columns else None
    if not isinstance(kind, StringType) and not (
        isinstance(kind, ArrayType) and isinstance(kind.elementType, StringType)
    ):
        raise ValidationError(
            f"receive, stream {stream!r}: expected the column {COLUMN}, a text or an array of texts, among "
            f"{', '.join(rows.columns)}. Select it in the query; from Kafka it comes by the option "
            "includeHeaders and the header acker-stamp"
        )
    if any(name.lower() == ANCHORS for name in rows.columns):
        raise ValidationError(
            f"receive, stream {stream!r}: the rows have trees of their own in the column {ANCHORS}, as of "
            "acker.track or of a managed stream: what is made of them would be anchored to the trees of "
            "their stamps alone, and their own would be acked before it is processed. Expected rows as they "
            "were read, with one of the two: give the bolt the rows without receiving them, or stamp them "
            "anew by collector.emit(..., to=...)"
        )


def _is_list(rows: DataFrame) -> bool:
    return isinstance(rows.schema[COLUMN].dataType, ArrayType)


def _read(rows: DataFrame, looker: _Looker) -> Look:
    """Evaluates rows, and reads their stamps; the results are of the winners of tasks."""
    look = Look()
    for row in map_in_arrow(rows.select(COLUMN), looker, _LOOK).collect():
        token, shard, begun, packed = row["token"], row["shard"], row["begun"], bytes(row["rows"])
        if token == _FACTS:
            look.counted.update(dict(zip(_KINDS, np.frombuffer(packed, np.int64).tolist(), strict=True)))
            continue
        place, of_trees = (token, shard), np.frombuffer(bytes(row["trees"]), np.int64)
        look.begun[token] = begun
        look.rows[place] = bits.either(look.rows.get(place, b""), packed)
        look.trees[place] = np.union1d(look.trees.get(place, of_trees), of_trees)
    return look


def _and(first: bytes, other: bytes) -> bytes:
    size = min(len(first), len(other))
    both = int.from_bytes(first[:size], "big") & int.from_bytes(other[:size], "big")
    return both.to_bytes(size, "big")


def trees(received: Sequence[Received]) -> Ids:
    """The trees, not over, of all rows that a batch has received."""
    parts = [found for one in received for place, found in one.look.trees.items() if place not in one.over]
    return np.unique(np.concatenate([np.zeros(0, np.int64), *parts]))
