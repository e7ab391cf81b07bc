"""Jobs: a batch job of Spark as one step, whose end commits all its work, once.

See `acker.spark.bolts.bolt`.
"""

import functools
import logging
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from pyspark.sql import SparkSession

from acker.errors import AckerError, FailedException
from acker.ledger.settings.config import check_name
from acker.ledger.steps.step_registry import Step
from acker.spark.bolts import committing, observing, off
from acker.spark.bolts.batch_end import BatchEnd
from acker.spark.bolts.collector import AT_WORK, Collector
from acker.spark.bolts.off import OffCollector
from acker.spark.options import options
from acker.spark.queries import batch_roots, microbatches
from acker.spark.queries.microbatches import MicroBatch
from acker.streams.commits import commit as commits
from acker.streams.commits import record
from acker.streams.spouts import settler

_log = logging.getLogger(__name__)


@contextmanager
def job(
    spark: SparkSession, *, url: str, topology: str, name: str, run: str | None = None, **settings: object
) -> Iterator[Collector]:
    """Runs a batch job as one step: the end of the block commits all its work, once.

        with job(spark, url=URL, topology="orders", name="nightly", run="2026-11-20") as collector:
            orders = collector.take("orders")
            collector.emit(orders.groupBy("id").agg(...), stream="totals")

    The commit acks the tuples that the job has taken, and tracks the rows of `acker.spark.track`; it waits
    for room as a bolt's commit does. FailedException fails their trees and ends at the block;
    PermanentFailure fails them for good. Any other exception leaves everything unchanged.

    Args:
        spark: The session of the job.
        url: The store.
        topology: The name of the topology.
        name: The name of the step.
        run: The name of this run, remembered for a month. A second run of that name commits nothing;
            `collector.committed` is true then, and the log names the first run.
        **settings: Options of the data source, as in `bolt`.

    Yields:
        The collector of the job.

    Raises:
        RunCommitted: An earlier run of that name emitted another number of rows, and nothing was taken or
            received from a stream, or sent to a sink.
        AckerError: The job runs in a batch that Spark may run again.
        ValidationError: An argument is invalid.
    """
    check_name(name, "name")
    _check_place(spark, name, run)
    writer = f"{name}:{check_name(run, 'run') if run is not None else secrets.token_hex(16)}"
    parsed = options.of_step(name, {"url": url, "topology": topology, **settings}, options.STEP)
    at = MicroBatch(writer, 0, secrets.token_hex(16), name)
    if parsed.off:
        with off.working(OffCollector(spark, parsed, at, writer.replace(":", "@"), job=True)) as plain:
            yield plain
            plain.life.end(wait=True)
        return
    if parsed.observe:
        with observing.working(spark, parsed, at, writer.replace(":", "@"), job=True) as recorded:
            outer = AT_WORK.set(recorded)
            try:
                yield recorded
            finally:
                AT_WORK.reset(outer)
        return
    ledger = parsed.ledger()
    collector = Collector(spark, parsed, at, writer.replace(":", "@"), job=True, ledger=ledger)
    finish = functools.partial(commits.finish, ledger.core, writer, 0)
    begun = time.monotonic()
    looking = functools.partial(record.find_run, ledger.core, writer)
    before, stored, by = committing.begin(ledger, name, at, looking, -1)
    collector.committed = stored and settler.with_room(ledger, lambda: ledger.run(finish()))
    failed = None
    with committing.discarding(ledger, collector):
        outer = AT_WORK.set(collector)
        try:
            with microbatches.of_job(spark, topology):
                yield collector
            collector.life.end()
        except FailedException as error:
            failed = committing.cause(name, error)
            collector.life.end(wait=False)
        finally:
            AT_WORK.reset(outer)
        if failed is not None:
            collector.evaluate_tracked()
        collector.look_again()
        tracked = batch_roots.registered(ledger, at)
    work, at_hand = committing.commit_of(ledger, collector, at, tracked, failed)
    work = replace(work, by=by)
    sent = [(sending.stream, segment) for sending in work.sent for segment, _ in sending.segments]
    rows = sum(segment.rows for _, segment in (*work.segments(), *sent))
    end = BatchEnd(ledger, spark, collector, Step(name, "job"), work, at_hand, begun)
    if run is not None:
        application = spark.conf.get("spark.app.id") or ""
        end.noting = lambda: [record.note_run(ledger.core, writer, application, rows)]
    ends = [batch_roots.ending(ledger.core, at)] if tracked else []
    end.forgetting = lambda: [*ends, *([commits.forget(ledger.core, writer)] if run is None else [])]
    end.commit(f"job {name!r}", writer, 0)
    sinks = sorted({staged.stream for staged in collector.sends.staged})
    if collector.committed and sinks:
        _log.warning(
            "run %r of job %r was %s: this run commits nothing, and the rows that it has written for %s "
            "belong to no record. If they replace rows that were not received yet, records expire and are "
            "replayed: leave out the write where collector.committed is true",
            run, name, "committed" if before is None else before.text(), ", ".join(sinks),
        )  # fmt: skip
    elif before is not None:
        kept = bool(collector.taken or collector.received or failed)
        record.tell_run(f"run {run!r} of job {name!r}", before, rows, kept=kept)


def _check_place(spark: SparkSession, name: str, run: str | None) -> None:
    """Raises AckerError for a job in a batch that may run again, or that a bolt acks."""
    within = microbatches.thread_within(spark)
    if within == microbatches.IN_BOLT:
        raise AckerError(
            f"job {name!r} {within} commits by itself, so a rerun of the batch would do it again, and what "
            "the bolt acks would not wait for it: use the bolt's collector, which has the same calls"
        )
    if within == microbatches.IN_FUNCTION and run is None:
        raise AckerError(
            f"job {name!r} {within} is done again when its batch runs again. Make the function a bolt; or "
            "name the job's run, the same for each run of the batch"
        )
