"""The end of bolts and jobs: the work of a function becomes one commit, or is dropped.

Terms: staged rows are stored, but nobody sees them before a commit.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from pyspark.errors import PythonException
from pyspark.sql import SparkSession

from acker.errors import AckerError, FailedException, PermanentFailure, text_of
from acker.ledger.client import Ledger
from acker.ledger.slabs.causes import Cause, said_by
from acker.ledger.steps import step_registry
from acker.ledger.steps.step_registry import Step
from acker.spark.bolts.collector import Collector
from acker.spark.external import receiving
from acker.spark.queries import batch_roots
from acker.spark.queries.microbatches import MicroBatch
from acker.streams.commits import anchoring, holding
from acker.streams.commits.contents import Commit
from acker.streams.log.subscriptions import Range
from acker.streams.sources.roots import Roots


@contextmanager
def discarding(ledger: Ledger, collector: Collector) -> Iterator[None]:
    """Drops staged rows if the block raises, and frees the rows that the executors keep."""
    try:
        yield
    except BaseException as error:
        ledger.run(holding.discard(ledger.core, Commit(tuple(collector.staged))))
        named = [
            one.__name__ for one in (PermanentFailure, FailedException) if one.__name__ in text_of(error)
        ]
        if isinstance(error, PythonException) and named:
            raise AckerError(
                f"step {collector.name!r}: a function of its tasks, as a UDF, raised {named[0]}. Spark "
                "does not tell of which record, so nothing has failed and nothing is committed: "
                "collector.map, which runs a function per record, fails that record alone"
            ) from error
        raise
    finally:
        collector.release()


def failure(collector: Collector, batch: int, call: Callable[[], object]) -> str | None:
    """Returns the cause, as text, for which a batch failed as a whole; None if it did not.

    The life of the collector is over then. Raises AckerError if one of its calls has failed otherwise.
    """
    try:
        call()
        collector.life.end()
        collector.check_transactions()
    except FailedException as error:
        collector.life.end(wait=False)
        return cause(collector.name, error, batch)
    return None


def cause(step: str, error: FailedException, batch: int = -1) -> str:
    """Returns the cause, as text, of a batch that a step has failed (`acker.ledger.slabs.causes`)."""
    return Cause(said_by(error), step, not isinstance(error, PermanentFailure), batch).text()


def commit_of(
    ledger: Ledger,
    collector: Collector,
    at: MicroBatch,
    inputs: tuple[Range | Roots, ...],
    failed: str | None,
    hint: str = "",
) -> Commit:
    """Returns the commit of a batch. A failed batch emits nothing, and leaves held rows unchanged.

    Raises AckerError if its staged rows do not belong to its inputs (acker/streams/commits/anchoring.py).
    """
    inputs = (*inputs, *collector.taken)
    if failed is None:
        staged = (*collector.staged, *collector.sends.staged)
        sent, (received, _) = tuple(collector.sends.sent), collector.receipt()
        commit = Commit(staged, (*inputs, *collector.resumed), sent=sent, received=received)
        try:
            collector.life.check()  # rows staged after the end are missing in this commit
            some = batch_roots.untracked(ledger, at, commit.staged)
            some = some or any(one.untracked for one in collector.received)
            trees = receiving.trees(collector.received)
            checking = anchoring.check(
                ledger.core,
                staged,
                commit.inputs,
                hint=hint,
                untracked=some,
                sent=commit.sent,
                received=trees,
            )
            ledger.run(checking)
        except BaseException:
            ledger.run(holding.discard(ledger.core, Commit(commit.staged)))
            raise
        return commit
    ledger.run(holding.discard(ledger.core, Commit(tuple(collector.staged))))
    received, failing = collector.receipt(failed)
    return Commit(failing, inputs, failed, received=received)


def register(
    ledger: Ledger,
    spark: SparkSession,
    step: Step,
    commit: Commit,
    others: tuple[str, ...] = (),
    reads: Iterable[str] = (),
) -> None:
    """Registers a step and its spouts. others: other sources that the query reads. reads: external streams.

    See acker/ledger/steps/step_registry.py.
    """
    step = replace(
        step,
        application_id=spark.conf.get("spark.app.id") or "",
        application=spark.conf.get("spark.app.name") or "",
        reads=tuple({*(claimed.stream for claimed in commit.ranges()), *reads}),
        emits=tuple({*(stream for stream, _ in commit.segments()), *(one.stream for one in commit.sent)}),
    )
    ledger.run(step_registry.register(ledger.core, step))
    for spout in sorted({claimed.how.spout for claimed in commit.roots()}):
        own = replace(step, name=spout, kind="spout", reads=others, emits=(), seconds=0.0, late=0)
        ledger.run(step_registry.register(ledger.core, own))
