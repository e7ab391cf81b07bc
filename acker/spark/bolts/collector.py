"""What a bolt does with a batch. All of it takes effect with the batch's commit, once, or not at all."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everyone imports it
from pyspark.sql.types import LongType, StructField, StructType

from acker.errors import ValidationError
from acker.ledger.client import Ledger
from acker.ledger.ids import Ids
from acker.ledger.settings.config import check_name, check_reason
from acker.ledger.settings.settings import check_number
from acker.ledger.slabs.causes import ending
from acker.spark.bolts.keep_alive import Resets
from acker.spark.options.options import Options
from acker.spark.queries import microbatches
from acker.spark.queries.microbatches import MicroBatch
from acker.spark.records import once, staging
from acker.spark.records.anchors import named, named_type
from acker.spark.records.calls import Calls, RecordFunction
from acker.spark.records.mapping import CARRIED, RUN, RecordMapper
from acker.spark.records.poison import Suspects
from acker.spark.records.staging import StagedRows
from acker.spark.runtime.arrow import Function, map_in_arrow
from acker.spark.runtime.scope import Life, in_life
from acker.spark.runtime.versions import arrow_schema
from acker.spark.source.pinned import pinned
from acker.spark.source.writing import record_schema
from acker.streams.log import holders, schemas, segments
from acker.streams.log.segments import ANCHORS
from acker.streams.log.subscriptions import DEFAULT, Range
from acker.streams.staging.staging import FAILED, Staged

HORIZON = 86400.0
EFFECTS = 10_000_000


class Collector:
    """What a bolt does with a batch: emit, fail, map, hold, once. It takes effect when the bolt has returned.

    Every call evaluates its DataFrame at once. Where the way from the batch to several calls is not
    deterministic, or costly, `persist` what they share. (A batch of streams whose query Spark knows
    not to be deterministic is persisted by the bolt, but not on Spark Connect.)

    Its calls belong to the function, in any of its threads: they raise AckerError afterwards, and the end
    waits for calls that are under way. A batch in which one has failed is not committed, also where the
    function went on after that.

    batch_id: Spark's number of the batch, the same when it runs again; 0 in a job. key: names the batch over
    all queries and checkpoints, as a part of a file's name may; the same when it runs again, and in a job
    with the same `run`. committed: an earlier run of this job is committed, so nothing of this one will be.
    staged, taken, resumed: for the commit. job: which one this is of, if any. holds: streams of held rows.
    """

    def __init__(
        self, spark: SparkSession, options: Options, batch: MicroBatch, key: str = "", *, job: bool = False
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
        self._subscription = options.subscription
        self._ledger: Ledger = options.ledger()
        number = -1 if job else batch.number
        self._how = replace(options.staging(), step=options.stream, batch=number)
        self._batch = batch
        self._used_once = False
        self._cached: list[DataFrame] = []
        self._resets = Resets(self._ledger, self.name, number)

    @in_life
    def emit(self, rows: DataFrame, stream: str, *, anchored: bool = True) -> int:
        """Emits rows to a stream, anchored to the trees in their column `_acker`; returns how many.

        Where rows have null there, or no such column, and the batch has read rows with trees, it is not
        committed: these would be acked before the rows are processed. anchored=False: rows may do without,
        and nothing waits for them. (0 stands for no tree in rows that never had one: in a
        batch that has read no such row, it is refused as null is.) The anchors must be of
        what the batch has read, taken or tracked. `acker.spark.anchors` puts several together. Raises
        SchemaMismatch and ValidationError.
        """
        check_name(stream, "stream")
        rows = named(rows, "emit")
        once.check_effects(rows, "emit", self._used_once, emits=True)
        record_schema(self._ledger, stream, rows.schema)
        return self._stage(rows, stream=stream, anchored=anchored).rows

    @in_life
    def fail(self, rows: DataFrame, reason: str | Column = "", *, retry: bool = True) -> None:
        """Fails the trees of rows, for one reason (at most 1 KiB) or each for that in a column (cut to that).

        retry=False: for good. Their records become dead letters at once, whatever attempts they have left.
        They fail even if the batch emits rows into them; the ack of their tuples counts as late.
        """
        rows = _anchored(rows, "fail")
        once.check_effects(rows, "fail", self._used_once, emits=False)
        if not isinstance(reason, Column):
            check_reason(reason)
            reason = F.lit(reason)
        said = F.coalesce(reason.cast("string"), F.lit(""))
        why = F.concat(said, F.lit(ending(retry=retry))).alias(FAILED)
        self._stage(rows.select(*_present(rows), why))

    @in_life
    def map(
        self,
        rows: DataFrame,
        function: RecordFunction,
        schema: StructType | str,
        *,
        concurrency: int | None = None,
        timeout: float | None = None,
    ) -> DataFrame:
        """Runs a Python function on each record; an exception fails that record alone, the others go on.

        The function gets a dict, without `_acker`. It returns a dict or a tuple for one row (a plain value
        where the schema has one column), a list of them for several, None for none (the record is acked).
        What it raises becomes the reason of the fail: type and text, at most 1 KiB; of FailedException, the
        text. PermanentFailure fails the record for good (`fail`). A result that does not fit the schema is an
        exception, too: values are converted as by Spark's UDFs (`records.values`). `schema` is that
        of the result, without `_acker`: each row gets the anchors of its record.

        It may be `async def`: then up to `concurrency` records of a task (1 to 10,000, default 64) are under
        way at a time, and one that takes longer than `timeout` seconds (up to a day, default 60) is cancelled
        and failed.

        The function may give other results when it runs again, so it must not: a record that fails in one run
        and not in the other could be neither emitted nor failed. Therefore the rows are kept (memory and disk
        of the executors) until the batch is over. Should Spark lose some and compute them again, they carry
        the number of another run, and reading them fails the batch before anything of it is committed.
        Where the rows are only to be emitted, `emit_map` is cheaper.
        """
        rows = _anchored(rows, "map")
        once.check_effects(rows, "map", self._used_once, emits=False)
        mapper, whole = self._mapper(rows, function, schema, concurrency, timeout)
        return self._kept(map_in_arrow(rows, mapper, whole))

    @in_life
    def emit_map(
        self,
        rows: DataFrame,
        function: RecordFunction,
        schema: StructType | str,
        stream: str,
        *,
        concurrency: int | None = None,
        timeout: float | None = None,
        anchored: bool = True,
    ) -> int:
        """As `map`, and emits the result to a stream; returns how many rows. anchored: as of `emit`.

        What is emitted and what is failed come from one run of each task, in one pass over the rows.
        """
        check_name(stream, "stream")
        rows = _anchored(rows, "emit_map")
        once.check_effects(rows, "emit_map", self._used_once, emits=True)
        mapper, whole = self._mapper(rows, function, schema, concurrency, timeout)
        record_schema(self._ledger, stream, StructType([one for one in whole if one.name != RUN]))
        return self._stage(rows, mapper, stream=stream, anchored=anchored).rows

    @in_life
    def hold(self, rows: DataFrame, name: str = "held", *, anchored: bool = True) -> int:
        """Keeps rows for a later batch, where `held` takes them; returns how many. anchored: as of `emit`.

        Their trees wait for them. The rows lie in the stream `<bolt>.<name>`, so they outlive the query.
        """
        stream = self._hold(name)
        self.holds.add(stream)
        return self.emit(rows, stream, anchored=anchored)

    @in_life
    def held(self, schema: StructType | str, name: str = "held") -> DataFrame:
        """Takes all rows that earlier batches hold under a name: with this batch they are acked.

        What is to stay is held again. A batch that does not ask leaves them. `schema`: of the rows, with or
        without `_acker`; a column that it has in addition to what is held is null there. One query at a time
        should use a name.
        """
        if isinstance(schema, str):
            schema = self.spark.createDataFrame([], schema).schema
        schema = named_type(schema, "held")
        if ANCHORS not in schema.fieldNames():
            schema = StructType([*schema.fields, StructField(ANCHORS, LongType())])
        stream = self._hold(name)
        self._ledger.run(schemas.add(self._ledger.core, stream, arrow_schema(schema)))
        return self._take(stream, DEFAULT, schema, self.resumed)

    @in_life
    def take(self, stream: str, schema: StructType | None = None) -> DataFrame:
        """What a stream holds now for the subscription, to be acked with this batch: the input of a job.

        The segments are this step's from now on; what a run of it did not ack, the next one takes again. So
        one run at a time should take from a subscription under one name. Raises UnknownStream where nothing
        was written yet and no schema is given.
        """
        schema = None if schema is None else named_type(schema, "take")
        return self._take(check_name(stream, "stream"), self._subscription, schema, self.taken)

    @in_life
    def take_replays(self, rows: DataFrame, stream: str, ledger: Ledger) -> DataFrame:
        """Rows that a job tracks, with the replays that their spout has in a stream: once in a job.

        Raises ValidationError where the ledger is not that of the job's topology.
        """
        own, other = self._ledger, ledger
        if (own.config.name, own.store.url) != (other.config.name, other.store.url):
            raise ValidationError(
                f"track: expected the topology of the job, {own.config.name!r} in {own.store!r}, got "
                f"{other.config.name!r} in {other.store!r}"
            )
        if any(one.stream == stream for one in self.taken):
            return rows
        return rows.unionByName(self._take(stream, DEFAULT, rows.schema, self.taken))

    @in_life
    def once(
        self,
        rows: DataFrame,
        key: once.Key,
        *,
        sink: str = "sink",
        keep: str | None = None,
        horizon: float = HORIZON,
        limit: int = EFFECTS,
    ) -> DataFrame:
        """The rows whose key no earlier batch has had here: for a sink that cannot upsert.

        key: columns that are the same for each attempt of a record. One row is left for each key, anchored to
        the trees of all rows with it; one without a key fails. keep: the name of a boolean column that is
        added, true where the effect is to happen: then all keys have their row, and only such rows can be
        emitted or held, for the others are not there when a record is replayed. The commit records the keys,
        but for rows that fail after this: they have the column `_acker_once` for that, and once this was
        called, `emit`, `emit_map`, `hold`, `map` and `fail` take no rows of the batch without it. A batch
        that runs again gets the same rows again, so what it has written before must be found by `key` (of the
        collector), or be overwritten.

        A key is remembered for 1.0 to 1.5 times `horizon` seconds (a minute to 30 days, default a day), for
        each step and `sink`. A topology remembers up to `limit` keys for each horizon, and one batch more;
        then EffectsFull is raised. Another horizon starts with no keys.
        """
        check_name(sink, "sink")
        check_number(horizon, "horizon", 60.0, 30 * 86400.0, float)
        check_number(limit, "limit", 1, 10**10, int)
        ms = int(horizon) * 1000
        rows = _anchored(rows, "once")
        if keep is not None:
            once.check_keep(rows, keep)
        once.check_new(rows)
        self._used_once = True
        found = once.looked_up(
            self._ledger, rows, key, step=f"{self.name}/{sink}", horizon=ms, limit=limit, keep=keep
        )
        return self._kept(found, effects_horizon=ms)

    def reset_timeout(self, rows: DataFrame) -> int:
        """Gives the trees of rows, and all others of their slabs, the whole message timeout again, at once.

        Returns how many slabs. For a slow step: see `keep_alive`.
        """
        return self._resets.reset(self._anchors(rows))

    @contextmanager
    def keep_alive(self, rows: DataFrame) -> Iterator[None]:
        """Resets the timeout of rows' trees now and again until the block ends, for a step that takes longer.

        Their anchors are gathered here, 8 bytes for each tree. A driver that dies does no resets.
        """
        with self._resets.keeping(self._anchors(rows)):
            yield

    def release(self) -> None:
        """Lets go of what the executors keep for the batch. Calls are refused from now on."""
        self.life.end(wait=False)
        for rows in self._cached:
            rows.unpersist()
        self._cached.clear()

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
            self._ledger.store.send([holders.noting(core, taken, self._batch.query, self._batch.number)])
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

    def _kept(self, rows: DataFrame, **how: Any) -> DataFrame:
        """Keeps what one run of each task made: rows to fail are staged, the others can be used."""
        kept = rows.persist(StorageLevel.MEMORY_AND_DISK)
        self._cached.append(kept)
        staged = self._stage(kept.select(*_present(kept), FAILED, RUN), failures_only=True, **how)
        if self.life.over:  # a thread whose batch has failed meanwhile
            kept.unpersist()
        if not staged.runs:
            return kept.filter(F.lit(False)).drop(FAILED, RUN)
        other_run = F.raise_error(F.lit("acker: mapped rows were lost and computed again")).cast("boolean")
        good = F.when(F.col(RUN).isin(sorted(staged.runs)), F.col(FAILED).isNull()).otherwise(other_run)
        return kept.filter(good).drop(FAILED, RUN)

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
        """Around what starts tasks: in a thread of the function's own they are the batch's, too."""
        return nullcontext() if self.job else microbatches.joined(self.spark, self._batch)

    def _anchors(self, rows: DataFrame) -> Ids:
        rows = _anchored(rows, "reset_timeout")
        with self._of_batch():
            found = rows.select(ANCHORS).mapInArrow(_distinct_anchors, "anchors binary").collect()
        parts = [np.frombuffer(bytes(row["anchors"]), dtype=np.int64) for row in found]
        return np.unique(np.concatenate(parts)) if parts else np.zeros(0, dtype=np.int64)


AT_WORK: ContextVar[Collector | None] = ContextVar("acker job at work", default=None)
"""The collector of the job whose block this is."""


def _distinct_anchors(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        anchors = np.unique(segments.edges(batch.column(0))[0])
        yield pa.RecordBatch.from_arrays([pa.array([anchors.tobytes()], pa.binary())], ["anchors"])


def _anchored(rows: DataFrame, what: str) -> DataFrame:
    """Rows with the column `_acker`, by that name; ValidationError where they have none, or several."""
    rows = named(rows, what)
    if ANCHORS not in rows.columns:
        names = ", ".join(rows.columns)
        raise ValidationError(f"{what}: expected rows with the column {ANCHORS}, got {names}")
    return rows


def _present(rows: DataFrame) -> list[str]:
    """The columns of rows that tell what they are about."""
    return [name for name in CARRIED if name in rows.columns]
