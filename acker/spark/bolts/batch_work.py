"""The work on a batch below its collector: tasks that stage rows, taken streams, kept rows.

Terms: staged rows are stored, but nobody sees them before a commit.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everyone imports it
from pyspark.sql.types import StructType

from acker.errors import ValidationError
from acker.ledger.client import Ledger
from acker.ledger.ids import Ids
from acker.ledger.settings.config import check_name
from acker.spark.bolts.keep_alive import Resets
from acker.spark.options.options import Options
from acker.spark.queries import microbatches
from acker.spark.queries.microbatches import MicroBatch
from acker.spark.records import staging
from acker.spark.records.anchors import named
from acker.spark.records.calls import Calls, RecordFunction
from acker.spark.records.mapping import RUN, RecordMapper
from acker.spark.records.poison import Suspects
from acker.spark.records.staging import StagedRows
from acker.spark.runtime.arrow import Function
from acker.spark.runtime.scope import Life
from acker.spark.source.pinned import pinned
from acker.streams.log import holders, segments
from acker.streams.log.segments import ANCHORS
from acker.streams.log.subscriptions import Range
from acker.streams.staging.effects import EFFECT
from acker.streams.staging.staging import FAILED, Staged


class BatchWork:
    """The staged, taken and kept rows of a batch; `Collector` has its public calls.

    Args:
        spark: The session of the batch.
        options: The options of the step.
        batch: The batch, or the job.
        key: The key of a job.
        job: True for a job.
        ledger: The ledger of the topology, if the caller has opened it.
    """

    def __init__(
        self,
        spark: SparkSession,
        options: Options,
        batch: MicroBatch,
        key: str = "",
        *,
        job: bool = False,
        ledger: Ledger | None = None,
    ) -> None:
        self.spark = spark
        self.batch_id = batch.number
        self.key = key or f"{batch.query}-{batch.number}"
        self.job = batch if job else None
        self.life = Life(f"job {options.stream!r}" if job else f"batch {batch.number} of {options.stream!r}")
        self.committed = False
        self.name = options.stream
        self.staged: list[Staged] = []
        self.taken: list[Range] = []
        self.resumed: list[Range] = []
        self.holds: set[str] = set()
        self.tracked: list[DataFrame] = []
        self._subscription = options.subscription
        self._ledger: Ledger = options.ledger() if ledger is None else ledger
        number = -1 if job else batch.number
        self._how = replace(options.staging(), step=options.stream, batch=number)
        self._batch = batch
        self._used_once = False
        self._cached: list[DataFrame] = []
        self._resets = Resets(self._ledger, self.name, number)
        self._begin(options, batch, job=job)

    def _begin(self, options: Options, batch: MicroBatch, *, job: bool) -> None:
        """Sets what a subclass has beside."""

    def release(self) -> None:
        """Frees the rows that the executors keep for the batch, and refuses later calls."""
        self.life.end(wait=False)
        for rows in self._cached:
            rows.unpersist()
        self._cached.clear()

    def evaluate_tracked(self) -> None:
        """Evaluates the tracked rows of a job that has failed: also unread records are to be replayed."""
        for rows in self.tracked:
            rows.write.format("noop").mode("overwrite").save()

    def _hold(self, name: str) -> str:
        check_name(name, "name")
        return check_name(f"{self.name}.{name}", "held rows lie in the stream <bolt>.<name>")

    def _take(
        self, stream: str, subscription: str, schema: StructType | None, into: list[Range]
    ) -> DataFrame:
        rows, taken = pinned(self.spark, self._ledger, stream, subscription, self.name, schema)
        if taken.end > taken.start:
            into.append(taken)
            core = self._ledger.core
            self._ledger.store.send(
                [holders.note_request(core, taken, self._batch.query, self._batch.number)]
            )
        return rows

    def _mapper(
        self,
        rows: DataFrame,
        function: RecordFunction,
        schema: StructType | str,
        concurrency: int | None,
        timeout: float | None,
    ) -> tuple[RecordMapper, StructType]:
        calls = Calls.make(function, concurrency, timeout)
        if isinstance(schema, str):
            schema = self.spark.createDataFrame([], schema).schema
        suspects = Suspects.of(self._ledger, self.name, function, schema.simpleString())
        mapper = RecordMapper(calls, schema, rows.schema, suspects)
        return mapper, mapper.whole

    def _kept(self, rows: DataFrame, **options: Any) -> DataFrame:
        """Keeps the rows of one run of each task: failed rows are staged, the others are returned."""
        kept = rows.persist(StorageLevel.MEMORY_AND_DISK)
        self._cached.append(kept)
        by_place = self._has_places(kept)
        failed = F.lit(None).cast("string").alias(FAILED) if by_place else F.col(FAILED)
        staged = self._stage(kept.select(*present(kept), failed, RUN), failures_only=True, **options)
        if self.life.over:  # a thread whose batch has failed meanwhile
            kept.unpersist()
        if not staged.runs:
            return kept.filter(F.lit(False)).drop(FAILED, RUN)
        other_run = F.raise_error(F.lit("acker: mapped rows were lost and computed again")).cast("boolean")
        same = F.col(RUN).isin(sorted(staged.runs))
        if by_place:
            self._fail(
                kept.filter(F.when(same, F.col(FAILED).isNotNull()).otherwise(other_run)), F.col(FAILED)
            )
        return kept.filter(F.when(same, F.col(FAILED).isNull()).otherwise(other_run)).drop(FAILED, RUN)

    def _has_places(self, rows: DataFrame) -> bool:
        """True if rows fail by their places, as rows of an external stream."""
        return False

    def _fail(self, rows: DataFrame, why: Column) -> None:
        """Fails the trees of rows. why: the column of causes."""
        self._stage(rows.select(*present(rows), why.alias(FAILED)))

    def _stage(
        self,
        rows: DataFrame,
        mapper: Function | None = None,
        *,
        stream: str = "",
        anchored: bool = True,
        **how: Any,
    ) -> StagedRows:
        with self._of_batch():
            found = staging.stage(self._ledger, replace(self._how, stream=stream, **how), rows, mapper)
        self.staged += found.pieces if anchored else [one.as_said_unanchored() for one in found.pieces]
        return found

    def _of_batch(self) -> AbstractContextManager[None]:
        """Returns a context in which started tasks belong to the batch, also in a thread of the function."""
        return nullcontext() if self.job else microbatches.joined(self.spark, self._batch)

    def _anchors(self, rows: DataFrame) -> Ids:
        rows = with_anchors(rows, "reset_timeout")
        with self._of_batch():
            found = rows.select(ANCHORS).mapInArrow(_distinct_anchors, "anchors binary").collect()
        parts = [np.frombuffer(bytes(row["anchors"]), dtype=np.int64) for row in found]
        return np.unique(np.concatenate(parts)) if parts else np.zeros(0, dtype=np.int64)


def _distinct_anchors(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        anchors = np.unique(segments.edges(batch.column(0))[0])
        yield pa.RecordBatch.from_arrays([pa.array([anchors.tobytes()], pa.binary())], ["anchors"])


def with_anchors(rows: DataFrame, call: str) -> DataFrame:
    """Returns rows with the column `_acker` by that name. Raises ValidationError for none, or several."""
    rows = named(rows, call)
    if ANCHORS not in rows.columns:
        names = ", ".join(rows.columns)
        raise ValidationError(f"{call}: expected rows with the column {ANCHORS}, got {names}")
    return rows


def present(rows: DataFrame) -> list[str]:
    """Returns the columns that name the trees and effects of rows."""
    return [name for name in (ANCHORS, EFFECT) if name in rows.columns]
