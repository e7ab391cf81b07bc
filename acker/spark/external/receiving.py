"""Receiving rows: their stamps are read before the function, and once more behind it.

A log that is cut loses rows between two evaluations, and a file that is written anew under its name gains
some. So a bit is sent only for a position that both looks had: the function was given its row. Files that
are as they were listed need no second look.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everyone imports it
from pyspark.sql.types import ArrayType, LongType, StringType

from acker.errors import StreamLost, ValidationError
from acker.ledger import ids
from acker.ledger.calls.core import Core
from acker.ledger.client import Ledger
from acker.ledger.ids import Ids
from acker.spark.external import stamp_arrays
from acker.spark.external.look import OWN, Look, Looker, Place, flat, read_stamps
from acker.spark.external.marking import KNOWN, Marker
from acker.spark.external.stamp_arrays import StampArrays
from acker.spark.queries.given_rows import Files, are_unchanged
from acker.spark.runtime.arrow import arrow_column
from acker.spark.runtime.pickling import Shipped
from acker.store.operation import Operation, abreast
from acker.streams.log import subscriptions
from acker.streams.log.segments import ANCHORS
from acker.streams.staging.external import bits, declaring, serving
from acker.streams.staging.external.declaring import External
from acker.streams.staging.external.rows import receipts
from acker.streams.staging.external.rows.at_once import Given
from acker.streams.staging.external.rows.carriers import COLUMN
from acker.streams.staging.external.rows.lookup import Learned, find_over, find_received
from acker.streams.staging.external.rows.receipts import Receipt
from acker.streams.staging.external.rows.stamps import Seal, Stamp

_MOST_STREAMS = 256
"""Streams that a process remembers."""
_Fails: TypeAlias = dict[int, tuple[tuple[int, ...], bytes]]
"""Positions whose rows have failed: the trees of the row in the shard, and a cause."""


class _Anchors(Shipped):
    """Reads the anchors of rows from their stamps, without trees that are over."""

    def __init__(self, looker: Looker, over: frozenset[Place], several: bool) -> None:
        self.looker, self.over, self.several = looker, over, several

    def __call__(self, columns: Iterator[pa.Array]) -> Iterator[pa.Array]:
        """Yields a bigint for each row, or an array of bigints; 0 stands for no tree."""
        seal = self.looker.seal()
        for column in columns:
            if isinstance(column, pa.ChunkedArray):
                column = column.combine_chunks()
            if self.several:
                yield self._of_lists(seal, column)
                continue
            stamps = stamp_arrays.read(seal, column)
            there, anchors = self._open(stamps), np.zeros(len(column), np.int64)
            anchors[stamps.texts[there]] = stamps.anchors[there]
            yield pa.array(anchors)

    def _open(self, stamps: StampArrays) -> npt.NDArray[np.bool_]:
        """True for each anchor whose tree is not over."""
        if not self.over:
            return np.ones(len(stamps.anchors), np.bool_)
        ackers = self.looker.ackers
        shards = ids.shards_of(ids.split(stamps.anchors)[0], ackers)
        is_open = [(token, shard) not in self.over for token in stamps.tokens for shard in range(ackers)]
        opened: npt.NDArray[np.bool_] = np.array(is_open, np.bool_)[stamps.segments * ackers + shards]
        return opened

    def _of_lists(self, seal: Seal, column: pa.Array) -> pa.Array:
        """Arrays of anchors for texts, or arrays of texts."""
        texts, rows = flat(column)
        stamps = stamp_arrays.read(seal, texts)
        there = self._open(stamps)
        of_rows = [dict[int, None]() for _ in range(len(column))]
        pairs = zip(rows[stamps.texts[there]].tolist(), stamps.anchors[there].tolist(), strict=True)
        for row, anchor in pairs:
            of_rows[row][anchor] = None
        return pa.array([[*anchors] or [0] for anchors in of_rows], pa.list_(pa.int64()))


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
        files: The files that all rows are read from, if they are known; if they did not change, one look is
            enough, too.
        known: The rows that the subscription had received before, if they are to be marked.
        learned: Facts of the look-up for the commit.
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
    files: Files | None = None
    learned: Learned = field(default_factory=Learned)
    fails: dict[Place, _Fails] = field(default_factory=dict)
    _worked: dict[Place, bytes] | None = None

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
        column, of = F.col(COLUMN), self.rows.schema[COLUMN].dataType
        rows = self.rows.withColumn(ANCHORS, arrow_column(function, kind, column, of))
        if self.known is None:
            return rows
        marker = Marker(self._looker().seal, self.ledger.config.ackers, self.over, self.known)
        return rows.withColumn(KNOWN, arrow_column(marker, StringType(), column, of))

    def fail(self, text: object, cause: bytes) -> set[int]:
        """Notes that a row has failed, and returns its trees that fail with its bit.

        These are none for a row that was not received, or without a stamp of the stream, and none that are
        over: what is left of the row's trees must fail by itself.
        """
        config, stamp = self.ledger.config, self._looker().seal().read(text)
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

    def _looker(self) -> Looker:
        config = self.ledger.config
        return Looker(config.ackers, config.name, self.stream, self.external)

    def worked(self) -> dict[Place, bytes]:
        """The positions to be acked, which both looks had. First called when the function has returned."""
        if self._worked is None:
            both = self.look.rows
            unchanged = self.files is not None and are_unchanged(self.rows.sparkSession, self.files)
            if not self.fixed and not unchanged:
                now = read_stamps(self.rows, self._looker()).rows
                both = {place: _and(before, now[place]) for place, before in both.items() if place in now}
            self._worked = {place: positions for place, positions in both.items() if place not in self.over}
        return self._worked


def given(received: Sequence[Received]) -> Given:
    """The receipts of a batch, and what is known of their segments. Called when the function has returned."""
    heads = {key: reply for one in received for key, reply in one.learned.heads.items()}
    return Given(receipts_of(received), max((one.learned.ttl for one in received), default=0), heads)


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
        counted.update({kind: count for kind, count in part.look.counted.items() if kind not in OWN})
        counted["over"] += len({token for token, _ in part.over})
    worked = receipts.packed({place: (positions, fails.get(place, {})) for place, positions in rows.items()})
    return Receipt(stream, slot, epoch.decode(), newest, dict(counted), worked)


def receive(
    ledger: Ledger,
    rows: DataFrame,
    stream: str,
    subscription: str,
    step: str,
    *,
    fixed: bool,
    mark: bool = False,
    files: Files | None = None,
    stamps: DataFrame | None = None,
) -> Received:
    """Reads the stamps of rows, and asks the store which of their trees are over.

    Args:
        ledger: The ledger.
        rows: The rows, with the column `_acker_stamp`: a text, or an array of texts.
        stream: The stream.
        subscription: The subscription.
        step: The name of the step that serves it.
        fixed: True if every evaluation gives the same rows.
        files: The files that all rows are read from, if they are known.
        stamps: The column of stamps alone, of the same rows, where that is cheaper to evaluate.
        mark: True if the rows get the column `_acker_known` (acker/spark/external/marking.py).

    Raises:
        ValidationError: The rows have no such column, or have trees of their own.
        StreamKindError: The stream is managed.
        SubscriptionInUse: A live step of another name serves the subscription.
    """
    check_column(rows, stream)
    core, config = ledger.core, ledger.config

    def looked(external: External, slot: int, *first: Operation[Any]) -> Received:
        looker, learned = Looker(config.ackers, config.name, stream, external), Learned()
        look = read_stamps(rows if stamps is None else stamps, looker)
        asked = {place: look.begun[place[0]] for place in look.rows}
        asking: list[Operation[Any]] = [
            serving.serve(core, stream, slot, subscription, step, shared=False),
            find_over(core, stream, external, slot, asked, learned),
        ]
        if mark:
            asking.append(find_received(core, slot, asked))
        _, found, *marks = ledger.run(abreast([*first, *asking]))[len(first) :]
        over = frozenset(place for place, is_over in found.items() if is_over)
        known = marks[0] if mark else None
        return Received(ledger, stream, rows, external, slot, look, over, fixed, known, files, learned)

    external = core.externals.get(stream)
    slot = _slot(external, subscription) if isinstance(external, External) else None
    if isinstance(external, External) and slot is not None:
        with suppress(_Changed, StreamLost):  # nothing was done then, so all is read again
            return looked(external, slot, _unchanged(core, stream, external, slot, subscription))
    external = ledger.run(declaring.read(core, stream))
    slot = _slot(external, subscription)
    if slot is None:
        slot = ledger.run(subscriptions.subscribe(core, stream, subscription, "external"))
    external.seen[slot] = subscription
    if len(core.externals) >= _MOST_STREAMS:
        core.externals.clear()
    core.externals[stream] = external
    return looked(external, slot)


class _Changed(Exception):
    """A stream is not the one that this process has known."""


def _unchanged(core: Core, stream: str, external: External, slot: int, subscription: str) -> Operation[None]:
    if not (yield from declaring.is_unchanged(core, stream, external, slot, subscription)):
        raise _Changed


def _slot(external: External, subscription: str) -> int | None:
    return next((slot for slot, name in external.seen.items() if name == subscription), None)


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


def _and(first: bytes, other: bytes) -> bytes:
    size = min(len(first), len(other))
    both = int.from_bytes(first[:size], "big") & int.from_bytes(other[:size], "big")
    return both.to_bytes(size, "big")


def trees(received: Sequence[Received]) -> Ids:
    """The trees, not over, of all rows that a batch has received."""
    parts = [found for one in received for place, found in one.look.trees.items() if place not in one.over]
    return np.unique(np.concatenate([np.zeros(0, np.int64), *parts]))
