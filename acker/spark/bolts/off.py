"""Bolts and jobs where acker is turned off: functions run on their batches, and nothing is tracked.

Rows of managed streams lie in the store, so a call that writes or reads them raises TurnedOff at once. Failed
records are passed over, and the log says how many.

Terms: a tree is all that comes of one record.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everyone imports it
from pyspark.sql.types import StructType

from acker.errors import AckerError, FailedException, TurnedOff
from acker.ledger.slabs.causes import Cause, said_by
from acker.spark.bolts.batch_work import with_anchors
from acker.spark.bolts.collector import EFFECTS, HORIZON, Collector
from acker.spark.external import marking, receiving
from acker.spark.external.kafka import with_stamps
from acker.spark.external.sending import SEGMENT_ROWS
from acker.spark.external.sinks import Sink, Write, sink_of
from acker.spark.records.calls import Calls, RecordFunction
from acker.spark.records.mapping import RUN, RecordMapper
from acker.spark.records.once import Key
from acker.spark.runtime.arrow import map_in_arrow
from acker.spark.runtime.scope import in_life
from acker.streams.log.segments import ANCHORS
from acker.streams.staging.external.rows.carriers import COLUMN
from acker.streams.staging.staging import FAILED

_log = logging.getLogger(__name__)


def refusal(call: str, stream: str) -> TurnedOff:
    """The error of a call that needs rows in the store."""
    return TurnedOff(
        f"{call}, stream {stream!r}: acker is turned off, by enabled=False or ACKER_OFF, and the rows of a "
        "managed stream lie in its store: nothing was done. Turn acker on, or use a source or a sink of Spark"
    )


@contextmanager
def working(collector: "OffCollector") -> Iterator["OffCollector"]:
    """Ends the block at FailedException, with a warning, and frees the rows of the collector at its end."""
    try:
        yield collector
    except FailedException as error:
        _log.warning(
            "step %r: a batch has failed, and is passed over because %s: %s",
            collector.name, collector.because, said_by(error),
        )  # fmt: skip
    finally:
        collector.release()


class OffCollector(Collector):
    """The collector of a bolt or a job where acker is turned off.

    because: the cause for which failed records are passed over.
    """

    because = "acker is turned off"
    _noted = False

    def _refusal(self, call: str, stream: str) -> AckerError:
        """The error of a call that needs rows in the store."""
        return refusal(call, stream)

    def _pass_over(self, kept: DataFrame) -> None:
        """Logs the failed records among the results of `map` and `newest`."""
        [failed] = kept.select(F.count(FAILED).alias("count"), F.first(FAILED, True).alias("cause")).collect()
        if failed["count"]:
            _log.error(
                "step %r: %d records have failed, and are passed over because %s; a first reason: %s",
                self.name, failed["count"], self.because, Cause.parse(failed["cause"]).reason,
            )  # fmt: skip

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
        """Raises TurnedOff; writes rows to a sink as they are, and returns 0."""
        if to is None:
            raise self._refusal("emit", stream)
        sink, rows = sink_of(to), rows.drop(ANCHORS, COLUMN)
        if sink.prepare is not None:
            rows = sink.prepare(rows.withColumn(COLUMN, F.lit(None).cast("string")))
        sink.function(rows.writeTo if sink.v2 else rows.write)
        return 0

    @in_life
    def receive(self, rows: DataFrame, stream: str, *, duplicates: str | None = None) -> DataFrame:
        """Returns the rows with a column `_acker` of 0; marked, each is `untracked`."""
        mark, rows = marking.check(duplicates), with_stamps(rows)
        receiving.check_column(rows, stream)
        rows = rows.withColumn(ANCHORS, F.lit(0).cast("bigint"))
        return rows.withColumn(marking.KNOWN, F.lit("untracked")) if mark else rows

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
    ) -> NoReturn:
        """Raises TurnedOff."""
        raise self._refusal("emit_map", stream)

    @in_life
    def held(self, schema: StructType | str, name: str = "held") -> NoReturn:
        """Raises TurnedOff."""
        raise self._refusal("held", self._hold(name))

    @in_life
    def take(self, stream: str, schema: StructType | None = None) -> NoReturn:
        """Raises TurnedOff."""
        raise self._refusal("take", stream)

    @in_life
    def once(
        self,
        rows: DataFrame,
        key: Key,
        *,
        sink: str = "sink",
        keep: str | None = None,
        horizon: float = HORIZON,
        limit: int = EFFECTS,
    ) -> NoReturn:
        """Raises TurnedOff: the keys of earlier batches lie in the store."""
        raise TurnedOff(
            f"once, sink {sink!r}: acker is turned off, by enabled=False or ACKER_OFF, and the keys of "
            "earlier batches lie in its store: nothing was done. Turn acker on, or use a sink that can upsert"
        )

    @in_life
    def fail(self, rows: DataFrame, reason: str | Column = "", *, retry: bool = True) -> None:
        """Passes over rows, with a warning."""
        with_anchors(rows, "fail")
        _log.warning("step %r: rows that it fails are passed over, because acker is turned off", self.name)

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
        """Runs a function on each record, once, as `Collector.map`; records that fail are passed over.

        Args:
            rows: See `Collector.map`.
            function: See `Collector.map`.
            schema: See `Collector.map`.
            concurrency: See `Collector.map`.
            timeout: See `Collector.map`.
        """
        rows = with_anchors(rows, "map")
        if isinstance(schema, str):
            schema = self.spark.createDataFrame([], schema).schema
        mapper = RecordMapper(Calls.make(function, concurrency, timeout), schema, rows.schema)
        return self._kept(map_in_arrow(rows, mapper, mapper.whole))

    def _kept(self, rows: DataFrame, **options: Any) -> DataFrame:
        """Keeps the rows of one run of each task: failed ones are passed over, the others are returned."""
        kept = rows.persist(StorageLevel.MEMORY_AND_DISK)
        self._cached.append(kept)
        self._pass_over(kept)
        return kept.filter(F.col(FAILED).isNull()).drop(FAILED, RUN)

    def reset_timeout(self, rows: DataFrame) -> int:
        """Does nothing: no tree has a timeout."""
        return 0

    @contextmanager
    def keep_alive(self, rows: DataFrame) -> Iterator[None]:
        """Does nothing: no tree has a timeout."""
        yield
