"""Stamps of rows, made in tasks: the rest of a row stays in the JVM.

A task stages the vectors of its segments, and reports them when it has stamped its last row.
"""

import secrets
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.accumulators import Accumulator
from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - as everyone imports it
from pyspark.sql.types import DataType, StringType, StructField, StructType

from acker.ledger.client import Ledger
from acker.ledger.ids import Ids, distinct
from acker.spark.external import stamp_arrays
from acker.spark.external.reports import Report
from acker.spark.runtime.pickling import Shipped
from acker.spark.runtime.versions import arrow_schema
from acker.store import keys
from acker.store.operation import Operation, Request, command
from acker.store.replies import milliseconds
from acker.streams.log import segments
from acker.streams.staging.external.declaring import External
from acker.streams.staging.external.rows import sending
from acker.streams.staging.external.rows.stamps import LETTERS, Head, Seal, Stamp
from acker.streams.staging.external.segments import MOST_TREES, Stamped

_STAGED = 32
"""Segments that are staged together."""
OWN = "_acker_own"
"""The column of `tokens_of` that has the number of a partition."""
Parts = Iterator[tuple[pa.Array, pa.Array]]


class Stamper(Shipped):
    """Stamps the rows of a task: from their anchors, and the numbers of their partition."""

    def __init__(
        self, ledger: Ledger, stream: str, external: External, rows: int, call: str,
        reports: Accumulator[list[Report]],
    ) -> None:  # fmt: skip
        self.ledger, self.stream, self.external = ledger, stream, external
        self.rows, self.call, self.reports = rows, call, reports

    def __call__(self, parts: Parts) -> Iterator[pa.Array]:
        """Yields stamps; null for a row without a tree."""
        task = _Task(self)
        for anchors, own in parts:
            if len(own):
                task.own = own[0].as_py()
            yield task.stamp(anchors)
        task.end()


class _Task:
    """The work of a task: the open segment, and closed segments to stage."""

    def __init__(self, how: Stamper) -> None:
        self.how, self.core, external = how, how.ledger.core, how.external
        context: Any = TaskContext.get()
        self.context = context
        self.own = self.context.partitionId()
        self.seal = Seal(self.core.config.name, how.stream, external.stamp_keys, external.number)
        self.open: _Open | None = None
        self.requests: list[Request] = []
        self.closed: list[tuple[str, int]] = []
        self.counts = {"rows": 0, "unanchored": 0, "treeless": 0}
        self.asked = time.monotonic()
        self.slots, self.now = how.ledger.run(self._look())

    def _look(self) -> Operation[tuple[tuple[int, ...], int]]:
        stream_keys = keys.Stream(self.core.config.name, self.how.stream)
        slots, instant = yield [
            command("HGET", stream_keys.subscriptions, "slots"), Request(stream_keys.subscriptions, ["TIME"])
        ]  # fmt: skip
        return tuple(int(slot) for slot in (slots or b"").split(b",") if slot), milliseconds(instant)

    def stamp(self, column: pa.Array) -> pa.Array:
        """The stamps of rows."""
        if isinstance(column, pa.ChunkedArray):
            column = column.combine_chunks()
        self.counts["rows"] += len(column)
        self.counts["unanchored"] += segments.unanchored(column)
        self.counts["treeless"] += segments.treeless(column)
        if not self.core.config.ackers:
            return pa.nulls(len(column), pa.string())
        if pa.types.is_int64(column.type):
            anchors = (column.fill_null(0) if column.null_count else column).to_numpy(zero_copy_only=False)
            texts = self._of_one_tree(anchors[anchors != 0])
            if len(texts) == len(anchors):
                return texts
            places = np.cumsum(anchors != 0) - 1
            return texts.take(pa.array(places, mask=anchors == 0))
        return pa.array([self._of_several(one) for one in column.to_pylist()], pa.string())

    def _of_one_tree(self, anchors: Ids) -> pa.Array:
        letters, at = [np.zeros((0, LETTERS), np.uint8)], 0
        while at < len(anchors):
            sent = self._segment(1)
            room = min(self.how.rows - sent.rows, MOST_TREES - len(sent.trees))
            part = anchors[at : at + room]
            positions = np.arange(sent.rows, sent.rows + len(part))
            letters.append(self.seal.write_letters(sent.head, positions, part))
            sent.add(np.ones(len(part), np.int64), part)
            at += len(part)
        return stamp_arrays.texts(np.concatenate(letters))

    def _of_several(self, listed: list[int | None] | None) -> str | None:
        anchors = tuple(dict.fromkeys(filter(None, listed or ())))
        if not anchors:
            return None
        sent = self._segment(len(anchors))
        text = self.seal.write(Stamp(sent.token, sent.rows, sent.begun, anchors))
        sent.add(np.array([len(anchors)], np.int64), np.array(anchors, np.int64))
        return text

    def _segment(self, trees: int) -> "_Open":
        """The open segment, which has room for a row of so many trees."""
        sent = self.open
        full = sent is not None and (
            sent.rows >= self.how.rows or (sent.rows and len(sent.trees) + trees > MOST_TREES)
        )
        if sent is None or full:
            self._close()
            begun = int(self.now / 1000 + time.monotonic() - self.asked)
            sent = self.open = _Open(self.seal.head(secrets.token_hex(14), begun))
        return sent

    def _close(self) -> None:
        if self.open is not None:
            segment, requests = sending.stage(self.core, self.open.stamped(), self.slots)
            self.closed.append((segment.dump(), self.open.begun))
            self.requests += requests
            self.open = None
        if len(self.requests) >= _STAGED:
            self._send()

    def _send(self) -> None:
        if self.requests:
            self.how.ledger.run(_sent(self.requests))
            self.requests = []

    def end(self) -> None:
        """Stages the rest, and reports all."""
        self._close()
        self._send()
        report = Report(self.how.call, self.context.stageId(), self.own, tuple(self.closed), **self.counts)
        self.how.reports.add([report])


class _Open:
    """An open segment: its stamps are given, and their anchors noted."""

    def __init__(self, head: Head) -> None:
        self.head, self.token, self.begun = head, head.token, head.sent
        self.rows, self.trees = 0, set[int]()
        self._lengths, self._anchors = list[Ids](), list[Ids]()

    def add(self, lengths: Ids, anchors: Ids) -> None:
        """Adds rows: the number of anchors of each, and all anchors."""
        self._lengths.append(lengths)
        self._anchors.append(anchors)
        self.rows += len(lengths)
        self.trees.update(distinct(anchors).tolist())

    def stamped(self) -> Stamped:
        """The whole segment."""
        lengths, anchors = np.concatenate(self._lengths), np.concatenate(self._anchors)
        return Stamped(self.token, segments.new_seed(), self.begun, lengths, anchors)


def _sent(requests: list[Request]) -> Operation[None]:
    for reply in (yield requests):
        if isinstance(reply, Exception):
            raise reply


class Rereader(Shipped):
    """Reports which segments the stamps of kept rows are of."""

    def __init__(self, call: str, reports: Accumulator[list[Report]] | None) -> None:
        self.call, self.reports = call, reports

    def __call__(self, parts: Parts) -> Iterator[pa.Array]:
        """Yields the stamps as they are. A task without rows cannot tell its own partition: no report."""
        context: Any = TaskContext.get()
        partition, tokens, rows = -1, dict[str, int](), 0
        for stamps, numbers in parts:
            if len(numbers):
                partition = numbers[0].as_py()
            rows += len(stamps)
            count_tokens(stamps, tokens)
            yield stamps
        if self.reports is not None and rows:
            listed = tuple(sorted(tokens.items()))
            self.reports.add([Report(self.call, context.stageId(), partition, listed, rows, 0, 0)])


def count_tokens(stamps: pa.Array, tokens: dict[str, int]) -> None:
    """Counts the rows of stamps by the letters of their segment's token, which lie at one place."""
    # of the token alone, whatever the number of anchors is
    letters = pc.utf8_slice_codeunits(stamps.drop_null(), 5, 23)
    for counted in letters.value_counts().to_pylist():
        tokens[counted["values"]] = tokens.get(counted["values"], 0) + counted["counts"]


def tokens_of(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yields the number of a partition, and the tokens of its stamps; nothing for one without rows."""
    partition, tokens = -1, dict[str, int]()
    for batch in batches:
        if batch.num_rows:
            partition = batch.column(1)[0].as_py()
        count_tokens(batch.column(0), tokens)
    if partition < 0:
        return
    yield pa.RecordBatch.from_pydict(
        {OWN: pa.array([partition], pa.int32()), "tokens": [repr(sorted(tokens.items()))]}
    )


def arrow_column(
    function: Callable[[Parts], Iterator[pa.Array]], kinds: list[DataType], *of: Column
) -> Column:
    """A column of texts that a function makes of others, in one pass over the rows of a task."""
    if hasattr(F, "arrow_udf"):

        def call(parts: Iterator[tuple[pa.Array, pa.Array]]) -> Iterator[pa.Array]:
            yield from function(parts)

        udf: Any = F.arrow_udf(call, StringType())
        return udf.asNondeterministic()(*of)  # type: ignore[no-any-return]
    fields = StructType([StructField(f"c{at}", kind) for at, kind in enumerate(kinds)])
    types = arrow_schema(fields).types

    def call_pandas(parts: Iterator[tuple[pd.Series, pd.Series]]) -> Iterator[pd.Series]:
        taken = (tuple(pa.array(one, kind) for one, kind in zip(part, types, strict=True)) for part in parts)
        for texts in function(taken):
            yield texts.to_pandas()

    functions: Any = F
    udf = functions.pandas_udf(call_pandas, StringType())
    return udf.asNondeterministic()(*of)  # type: ignore[no-any-return]
