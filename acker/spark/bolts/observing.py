"""Bolts and jobs that observe: their batch's trees are acked or failed when the function has returned.

The function runs once, whatever becomes of the store. The driver gathers the fails, and then sends them and
the acks itself: nothing is staged, and no commit is stored. So a batch that runs again acks again, and a
driver that dies in between leaves its trees to expire. Nothing is replayed.

Terms: a tree is all that comes of one record; a slab is up to 4,096 trees stored as one record.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everyone imports it
from pyspark.sql.types import ArrayType

from acker.collectors.modes.observing import ObservedLedger
from acker.errors import AckerError, FailedException, ValidationError
from acker.ledger.ids import Ids
from acker.ledger.settings.config import check_reason
from acker.ledger.slabs.causes import Cause, ending
from acker.ledger.steps import step_registry, step_totals
from acker.ledger.steps.step_registry import Step
from acker.spark.bolts import committing
from acker.spark.bolts.batch_work import with_anchors
from acker.spark.bolts.off import OffCollector
from acker.spark.options.options import Options
from acker.spark.queries import observed_rows
from acker.spark.queries.microbatches import MicroBatch
from acker.spark.runtime.scope import in_life
from acker.streams.log.segments import ANCHORS
from acker.streams.staging.staging import FAILED

MOST_FAILS = 65_536
"""Fails of a batch that are recorded, at most: the driver has them in memory."""
_log = logging.getLogger("acker")


class ObservingCollector(OffCollector):
    """The collector of a bolt or a job that observes: rows of managed streams are refused.

    fails: The cause of each tree that is to be failed, by anchor.
    """

    because = "the step only observes"

    def __init__(
        self, spark: SparkSession, options: Options, batch: MicroBatch, key: str = "", *, job: bool = False
    ) -> None:
        super().__init__(spark, options, batch, key, job=job)
        self.fails: dict[int, bytes] = {}

    def _refusal(self, call: str, stream: str) -> AckerError:
        return ValidationError(
            f"{call}, stream {stream!r}: step {self.name!r} has observe=True, and rows of a managed stream "
            "lie in the store, without which it must go on: nothing was done. Leave observe out, or use a "
            "source or a sink of Spark"
        )

    def _pass_over(self, kept: DataFrame) -> None:
        super()._pass_over(kept)
        self._gather(kept.filter(F.col(FAILED).isNotNull()), F.col(FAILED))

    @in_life
    def fail(self, rows: DataFrame, reason: str | Column = "", *, retry: bool = True) -> None:
        """Fails the trees of rows, of up to 65,536 in a batch.

        Args:
            rows: See `Collector.fail`.
            reason: See `Collector.fail`.
            retry: See `Collector.fail`; no record is tried again.
        """
        rows = with_anchors(rows, "fail")
        if not isinstance(reason, Column):
            check_reason(reason)
            reason = F.lit(reason)
        cause = F.concat(F.coalesce(reason.cast("string"), F.lit("")), F.lit(ending(retry=retry)))
        self._gather(rows, cause)

    def _gather(self, rows: DataFrame, cause: Column) -> None:
        anchors = (
            F.explode(ANCHORS) if isinstance(rows.schema[ANCHORS].dataType, ArrayType) else F.col(ANCHORS)
        )
        left = MOST_FAILS - len(self.fails)
        named = rows.select(anchors.alias("anchor"), cause.alias("cause")).filter("anchor != 0")
        failed_rows = named.limit(left + 1).collect() if left else []
        if len(failed_rows) > left or not left:
            _log.warning(
                "step %r: of batch %d, %d fails are recorded, and the trees of others expire",
                self.name, self.batch_id, MOST_FAILS,
            )  # fmt: skip
        for row in failed_rows[:left]:
            whole = Cause.parse(row["cause"])
            text = replace(whole, step=self.name, batch=self._how.batch).text().encode()
            self.fails.setdefault(row["anchor"], text)  # the first one wins


@contextmanager
def working(
    spark: SparkSession,
    options: Options,
    at: MicroBatch,
    key: str = "",
    *,
    batch: DataFrame | None = None,
    job: bool = False,
) -> Iterator[ObservingCollector]:
    """Runs the function of a batch, or the block of a job, and records its end."""
    collector = ObservingCollector(spark, options, at, key, job=job)
    ledger, failed = options.observed_ledger(), None
    try:
        yield collector
        collector.life.end()
    except FailedException as error:
        failed = committing.cause(collector.name, error, -1 if job else at.number)
        _log.warning(
            "step %r: a batch has failed, and is passed over because %s: %s",
            collector.name, collector.because, Cause.parse(failed).reason,
        )  # fmt: skip
    finally:
        collector.release()
    step = Step(
        collector.name, "job" if job else "bolt", query_id="" if job else at.query,
        query="" if job else at.name, batch=-1 if job else at.number,
        application_id=spark.conf.get("spark.app.id") or "",
        application=spark.conf.get("spark.app.name") or "",
    )  # fmt: skip
    observed_rows.attempt(
        ledger,
        f"the end of batch {at.number} of step {collector.name!r} is not recorded",
        lambda: _record(ledger, at, step, collector.fails, failed, batch),
    )


def _record(
    ledger: ObservedLedger,
    at: MicroBatch,
    step: Step,
    fails: dict[int, bytes],
    failed: str | None,
    batch: DataFrame | None,
) -> None:
    """Fails and acks the observed trees of a batch. A failed one is evaluated if its function did not."""
    core = ledger.core
    pieces = observed_rows.noted(ledger, at) if core.config.ackers else []
    if failed is not None and batch is not None and core.config.ackers and not pieces:
        batch.write.format("noop").mode("overwrite").save()
        pieces = observed_rows.noted(ledger, at)
    if not pieces:
        return
    by = ledger.run(step_totals.mark(core, step.name, step.batch))
    gone: Ids = np.array(list(fails), np.int64)
    if len(gone) and failed is None:
        ledger.send(core.fail_each(gone, list(fails.values()), by))
    for piece in pieces:
        anchors, values = piece.anchors(at), piece.values(at)
        if failed is not None:
            ledger.send(core.fail(anchors, failed.encode(), by))
            continue
        done = ~np.isin(anchors, gone)
        if done.any():
            ledger.send(core.update(anchors[done], values[done], by=by, acked=int(done.sum())))
    ledger.run(step_registry.register(core, step))
    for spout in sorted({piece.spout for piece in pieces}):
        ledger.run(step_registry.register(core, replace(step, name=spout, kind="spout")))
    observed_rows.forget(ledger, at)
