"""The collector of a bolt: its calls take effect with the batch's commit, once, or not at all.

Terms: a tree is all that comes of one record; an anchor is the number of a tree; a slab is the trees that one
call tracked together; a segment is some thousand rows of a stream; staged rows wait for a commit.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everyone imports it
from pyspark.sql.types import LongType, StructField, StructType

from acker.errors import ValidationError
from acker.ledger.client import Ledger
from acker.ledger.settings.config import check_name, check_reason
from acker.ledger.settings.settings import check_number
from acker.ledger.slabs.causes import ending
from acker.spark.bolts.batch_work import with_anchors
from acker.spark.bolts.newest_rows import NewestRows
from acker.spark.external.sending import SEGMENT_ROWS, Inputs
from acker.spark.external.sinks import Sink, Write, sink_of
from acker.spark.records import once
from acker.spark.records.anchors import named, named_type
from acker.spark.records.calls import RecordFunction
from acker.spark.records.mapping import RUN
from acker.spark.runtime.arrow import map_in_arrow
from acker.spark.runtime.scope import in_life
from acker.spark.runtime.versions import arrow_schema
from acker.spark.source.writing import record_schema
from acker.streams.log import schemas
from acker.streams.log.segments import ANCHORS
from acker.streams.log.subscriptions import DEFAULT
from acker.streams.staging.external.rows.carriers import COLUMN

HORIZON = 86400.0
EFFECTS = 10_000_000


class Collector(NewestRows):
    """The calls of a bolt on its batch, as emit, fail and map. They take effect after the bolt returns.

    Every call evaluates its DataFrame at once. If several calls share a DataFrame that is not deterministic,
    or costly, `persist` it. (If Spark reports that the query of a batch of streams is not deterministic, the
    bolt persists the batch, but not on Spark Connect.)

    The calls belong to the function, in any of its threads: after its end they raise AckerError, and the end
    waits for running calls. If a call has failed, the batch is not committed, even if the function went on.

    Attributes:
        batch_id: Spark's number of the batch, the same when it runs again; 0 in a job.
        key: A name of the batch, unique over all queries and checkpoints, and valid in a file name. It is the
            same when the batch, or a job with the same `run`, runs again. The job may take further rows then:
            unless `committed`, its sink must replace what it has under the key, not leave it as it is.
        committed: True if an earlier run of this job is committed: this run commits nothing.
        job: The job of the collector; None for a bolt.
        staged: Staged rows, for the commit.
        taken: Ranges of streams that the job has taken, for the commit.
        resumed: Ranges of held rows that the batch has taken, for the commit.
        holds: The streams of held rows.
    """

    @in_life
    def emit(
        self,
        rows: DataFrame,
        stream: str,
        *,
        anchored: bool = True,
        to: Sink | Write | None = None,
        part: str = "",
        persist: bool | None = None,
        segment_rows: int = SEGMENT_ROWS,
    ) -> int:
        """Emits rows to a stream, anchored to the trees in their column `_acker`.

        If the batch has read rows with trees, rows without anchors (null, or no such column) fail the commit,
        because their trees would be acked before the rows are processed. The anchors must belong to rows that
        the batch has read, taken or tracked. 0 means no tree, in rows that never had one; in a batch that
        read no such rows it is refused like null. `acker.spark.anchors` joins several anchors.

        Args:
            rows: The rows, with the column `_acker`.
            stream: The name of the stream.
            anchored: False allows rows without anchors; no tree waits for them.
            to: A function that writes the rows with a DataFrameWriter, once. The stream is external then:
                rows carry a stamp in the column `_acker_stamp`, and are not in the store.
            part: With `to`: the name of this call, if the batch has several for the stream.
            persist: With `to`: True keeps rows for sinks that evaluate them twice; None: by format.
            segment_rows: With `to`: most rows of a segment, 1 to 65,536. A lost row costs its segment.

        Returns:
            The number of emitted rows.

        Raises:
            SchemaMismatch: The columns differ from the stream's.
            ValidationError: An argument is invalid.
            StreamKindError: The stream is managed, and `to` is given; or external, and it is not.
            AckerError, FailedException: Nobody knows what the sink has: docs/transports.md, Spark.

        Examples:
            >>> @acker.bolt("split")
            ... def split(batch, collector):
            ...     collector.emit(batch.selectExpr("explode(split(line, ' ')) word", "_acker"), "words")
            >>> result = run_bolt(split, spark.createDataFrame([("the cow",)], "line string"))
            >>> [row.word for row in result.emitted("words")]
            ['the', 'cow']
        """
        stream, rows = check_name(stream, "stream"), named(rows, "emit")
        once.check_effects(rows, "emit", self._used_once, emits=True)
        if to is not None:
            self.sends.inputs = Inputs((*self.taken, *self.resumed), self.received, job=self.job is not None)
            return self._send(rows, stream, sink_of(to), anchored, part, persist, segment_rows)
        rows = rows.drop(COLUMN) if self.received else rows
        record_schema(self._ledger, stream, rows.schema)
        return self._stage(rows, stream=stream, anchored=anchored).rows

    @in_life
    def fail(self, rows: DataFrame, reason: str | Column = "", *, retry: bool = True) -> None:
        """Fails the trees of rows, even if the batch emits rows into them. Acks of their tuples are late.

        Args:
            rows: The rows, with the column `_acker`.
            reason: One text of at most 1 KiB, or a column of texts, which are cut to 1 KiB.
            retry: False fails for good: the records become dead letters at once, with no further attempt.

        Raises:
            ValidationError: The rows have no column `_acker`, or the reason is too long.
        """
        rows = with_anchors(rows, "fail")
        once.check_effects(rows, "fail", self._used_once, emits=False)
        if not isinstance(reason, Column):
            check_reason(reason)
            reason = F.lit(reason)
        said = F.coalesce(reason.cast("string"), F.lit(""))
        self._fail(rows, F.concat(said, F.lit(ending(retry=retry))))

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
        """Runs a Python function on each record. An exception fails that record alone.

        The reason of a failed record is the type and text of the exception, at most 1 KiB; for
        FailedException, the text alone. PermanentFailure fails it for good (see `fail`). A result that does
        not fit the schema is an exception, too. Values are converted as in Spark's UDFs (`records.values`).

        The function runs once for each record, because two runs could have two results: a record that fails
        in one run only could be neither emitted nor failed. Therefore the executors keep the rows (memory and
        disk) until the end of the batch. If Spark loses some and computes them again, reading them fails the
        batch before anything is committed. If the rows are only emitted, `emit_map` is cheaper.

        Args:
            rows: The rows, with the column `_acker`.
            function: Takes a dict of the columns without acker's. Returns a dict or a tuple for one row (a
                plain value if the schema has one column), a list of them for several, or None for no row: the
                record is acked. May be `async def`.
            schema: The columns of the result. Each row gets the `_acker` and `_acker_stamp` of its record.
            concurrency: Records of a task that an `async def` function works on at a time: 1 to 10,000,
                default 64.
            timeout: Seconds after which an `async def` call is cancelled and its record fails: up to a day,
                default 60.

        Returns:
            The rows of the records that did not fail.

        Raises:
            ValidationError: An argument is invalid.

        Examples:
            >>> @acker.bolt("halve")
            ... def halve(batch, collector):
            ...     halves = collector.map(batch, lambda row: 1 / row["n"], "half double")
            ...     collector.emit(halves, "halves")
            >>> result = run_bolt(halve, spark.createDataFrame([(0,), (2,)], "n int"))
            >>> [row.half for row in result.emitted("halves")], result.failed[0].reason
            ([0.5], 'ZeroDivisionError: division by zero')
        """
        rows = with_anchors(rows, "map")
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
        """Runs `map`, and emits the result to a stream, in one pass over the rows.

        Emitted and failed records come from the same run of each task.

        Args:
            rows: See `map`.
            function: See `map`.
            schema: See `map`.
            stream: The name of the stream.
            concurrency: See `map`.
            timeout: See `map`.
            anchored: See `emit`.

        Returns:
            The number of emitted rows.

        Raises:
            SchemaMismatch: The columns differ from the stream's.
            ValidationError: An argument is invalid.
        """
        check_name(stream, "stream")
        if self._has_places(rows):
            mapped = self.map(rows, function, schema, concurrency=concurrency, timeout=timeout)
            return self.emit(mapped, stream, anchored=anchored)
        rows = with_anchors(rows.drop(COLUMN) if self.received else rows, "emit_map")
        once.check_effects(rows, "emit_map", self._used_once, emits=True)
        mapper, whole = self._mapper(rows, function, schema, concurrency, timeout)
        record_schema(self._ledger, stream, StructType([one for one in whole if one.name != RUN]))
        return self._stage(rows, mapper, stream=stream, anchored=anchored).rows

    @in_life
    def hold(self, rows: DataFrame, name: str = "held", *, anchored: bool = True) -> int:
        """Keeps rows for a later batch, which takes them by `held`. Their trees stay pending.

        The rows are in the stream `<bolt>.<name>`, so they outlive the query.

        Args:
            rows: The rows, with the column `_acker`.
            name: The name of the held rows.
            anchored: See `emit`.

        Returns:
            The number of held rows.
        """
        stream = self._hold(name)
        self.holds.add(stream)
        return self.emit(rows, stream, anchored=anchored)

    @in_life
    def held(self, schema: StructType | str, name: str = "held") -> DataFrame:
        """Takes all rows that earlier batches hold under a name; this batch acks them.

        Rows that are to stay must be held again. If a batch does not call this, the rows stay. Only one query
        at a time should use a name.

        Args:
            schema: The columns of the rows, with or without `_acker`. A column that the held rows lack is
                null.
            name: The name of the held rows.

        Returns:
            The held rows.
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
        """Takes the present rows of a stream for the subscription: the input of a job, acked by its commit.

        The segments then belong to this step: rows that this run does not ack are taken again by the next
        run. So only one run at a time should take from a subscription under one name.

        Args:
            stream: The name of the stream.
            schema: The columns to read; by default all.

        Returns:
            The rows.

        Raises:
            UnknownStream: Nothing was written to the stream yet, and no schema is given.
        """
        schema = None if schema is None else named_type(schema, "take")
        return self._take(check_name(stream, "stream"), self._subscription, schema, self.taken)

    @in_life
    def take_replays(self, rows: DataFrame, stream: str, ledger: Ledger) -> DataFrame:
        """Adds the replays of a spout to the rows that a job tracks, once in a job.

        Args:
            rows: The tracked rows.
            stream: The stream of the spout's replays.
            ledger: The ledger of the tracked rows.

        Returns:
            The rows and the replays.

        Raises:
            ValidationError: The ledger belongs to another topology than the job's.
        """
        job_ledger, other = self._ledger, ledger
        if (job_ledger.config.name, job_ledger.store.url) != (other.config.name, other.store.url):
            raise ValidationError(
                f"track: expected the topology of the job, {job_ledger.config.name!r} in "
                f"{job_ledger.store!r}, got {other.config.name!r} in {other.store!r}"
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
        """Removes rows whose key an earlier batch has had: for a sink that cannot upsert.

        One row is left for each key, anchored to the trees of all rows with that key. A row without a key
        fails. The commit records the keys, except for rows that fail after this call: the column
        `_acker_once` marks them. After this call, `emit`, `emit_map`, `hold`, `map` and `fail` take no rows
        of the batch without that column. A batch that runs again gets the same rows, so its earlier writes
        must be found by `key` (of the collector), or be overwritten.

        A key is remembered for 1.0 to 1.5 times `horizon`, for each step and `sink`.

        Args:
            rows: The rows, with the column `_acker`.
            key: Columns that are the same in each attempt of a record.
            sink: The name of the sink.
            keep: The name of a boolean column that is added: true in the rows that the sink must take. All
                keys then keep their row, and only these rows can be emitted or held, because the others are
                missing when a record is replayed.
            horizon: Seconds, from a minute to 30 days, default a day. Another horizon starts with no keys.
            limit: Keys that the topology remembers for each horizon (one more batch may exceed it): 1 to
                10^10.

        Returns:
            The rows.

        Raises:
            EffectsFull: The topology remembers `limit` keys already.
            ValidationError: An argument is invalid.
        """
        check_name(sink, "sink")
        check_number(horizon, "horizon", 60.0, 30 * 86400.0, float)
        check_number(limit, "limit", 1, 10**10, int)
        ms, but = int(horizon) * 1000, None if self.committed else (self._batch.query, self._batch.number)
        rows = with_anchors(rows, "once")
        if keep is not None:
            once.check_keep(rows, keep)
        once.check_new(rows)
        self._used_once = True
        looked_up = once.looked_up(
            self._ledger, rows, key, step=f"{self.name}/{sink}", horizon=ms, limit=limit, keep=keep, but=but
        )
        return self._kept(looked_up, effects_horizon=ms)

    def reset_timeout(self, rows: DataFrame) -> int:
        """Gives the trees of rows, and all others of their slabs, the whole message timeout again, at once.

        For a slow step, see `keep_alive`.

        Args:
            rows: The rows, with the column `_acker`.

        Returns:
            The number of slabs.
        """
        return self._resets.reset(self._anchors(rows))

    @contextmanager
    def keep_alive(self, rows: DataFrame) -> Iterator[None]:
        """Resets the timeout of rows' trees repeatedly until the block ends, for a slow step.

        The driver holds the anchors, 8 bytes for each tree, and sends the resets: if it dies, they stop.

        Args:
            rows: The rows, with the column `_acker`.
        """
        with self._resets.keeping(self._anchors(rows)):
            yield


AT_WORK: ContextVar[Collector | None] = ContextVar("acker job at work", default=None)
"""The collector of the job whose block is running in this thread."""
