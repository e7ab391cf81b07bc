"""Jobs: a batch job of Spark as one step, whose end commits all that it did, once.

See `acker.spark.bolts.bolt`.
"""

import functools
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from pyspark.sql import SparkSession

from acker.errors import AckerError, FailedException
from acker.ledger.settings.config import check_name
from acker.ledger.steps import step_totals
from acker.ledger.steps.step_registry import Step
from acker.spark.bolts import committing
from acker.spark.bolts.collector import AT_WORK, Collector
from acker.spark.options import options
from acker.spark.queries import batch_roots, lateness, microbatches
from acker.spark.queries.microbatches import MicroBatch
from acker.streams.commits import commit as commits
from acker.streams.commits import record
from acker.streams.spouts import settler
from acker.streams.staging.late import Late


@contextmanager
def job(
    spark: SparkSession, *, url: str, topology: str, name: str, run: str | None = None, **settings: object
) -> Iterator[Collector]:
    """A batch job as one step: its end commits all that it did, once.

        with job(spark, url=URL, topology="orders", name="nightly", run="2026-11-20") as collector:
            orders = collector.take("orders")
            collector.emit(orders.groupBy("id").agg(...), stream="totals")

    The tuples that it takes are acked at the end of the block. FailedException fails their trees and ends
    there, PermanentFailure for good; any other exception leaves everything as it was. run: names this run,
    so that the same one again commits nothing, and the log says who did and when (`collector.committed`
    tells, too): it is known for a month. With another number of rows emitted, and nothing taken from a
    stream, that is RunCommitted. Rows of `acker.spark.track` are tracked by the commit, which waits for room
    as a bolt's does. settings: as of `bolt`.
    """
    check_name(name, "name")
    _check_place(spark, name, run)
    writer = f"{name}:{check_name(run, 'run') if run is not None else secrets.token_hex(16)}"
    parsed = options.of_step(name, {"url": url, "topology": topology, **settings})
    ledger = parsed.ledger()
    at = MicroBatch(writer, 0, secrets.token_hex(16), name)
    collector = Collector(spark, parsed, at, writer.replace(":", "@"), job=True)
    finish = functools.partial(commits.finish, ledger.core, writer, 0)
    begun = time.monotonic()
    before = ledger.run(record.find_run(ledger.core, writer))
    collector.committed = settler.with_room(ledger, lambda: ledger.run(finish()))
    failed = None
    with committing.discarding(ledger, collector):
        outer = AT_WORK.set(collector)
        try:
            with microbatches.of_job(spark, topology):
                yield collector
        except FailedException as error:
            failed = committing.cause(name, error)
        finally:
            AT_WORK.reset(outer)
        collector.life.end(wait=failed is None)
        tracked = batch_roots.registered(ledger, at)
    what = replace(
        committing.commit_of(ledger, collector, at, tracked, failed),
        by=ledger.run(step_totals.mark(ledger.core, name)),
    )
    rows = sum(segment.rows for _, segment in what.segments())
    late = list[Late]()
    commit = functools.partial(commits.commit, ledger.core, writer, 0, what, late.append)
    if settler.with_room(ledger, lambda: ledger.run(commit())):
        seconds = round(time.monotonic() - begun, 3)
        acks = lateness.report(ledger, f"job {name!r}", late, seconds)
        committing.register(ledger, spark, Step(name, "job", seconds=seconds, late=acks), what)
        if run is not None:
            ledger.run(record.note_run(ledger.core, writer, spark.conf.get("spark.app.id") or "", rows))
    if tracked:
        batch_roots.end(ledger, at)
    if before is not None:
        record.tell_run(
            f"run {run!r} of job {name!r}", before, rows, kept=bool(collector.taken) or bool(failed)
        )
    if run is None:
        ledger.run(commits.forget(ledger.core, writer))


def _check_place(spark: SparkSession, name: str, run: str | None) -> None:
    """Raises AckerError for a job in a batch that is run again, or acked, by itself."""
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
