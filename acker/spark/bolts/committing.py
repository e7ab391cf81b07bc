"""What bolts and jobs have in common: what a function came to is one commit, or is dropped."""

from collections.abc import Callable, Iterator
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
from acker.spark.queries import batch_roots
from acker.spark.queries.microbatches import MicroBatch
from acker.streams.commits import anchoring, holding
from acker.streams.commits.contents import Commit
from acker.streams.log.subscriptions import Range
from acker.streams.sources.roots import Roots


@contextmanager
def discarding(ledger: Ledger, collector: Collector) -> Iterator[None]:
    """Drops what was staged if the block raises, and lets go of what the executors keep."""
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


def failure(step: str, batch: int, call: Callable[[], object]) -> str | None:
    """The cause, as text, for which a batch failed as a whole, or None."""
    try:
        call()
    except FailedException as error:
        return cause(step, error, batch)
    return None


def cause(step: str, error: FailedException, batch: int = -1) -> str:
    """Why a step has failed its batch, as text (`acker.ledger.slabs.causes`)."""
    return Cause(said_by(error), step, not isinstance(error, PermanentFailure), batch).text()


def commit_of(
    ledger: Ledger,
    collector: Collector,
    at: MicroBatch,
    inputs: tuple[Range | Roots, ...],
    failed: str | None,
    hint: str = "",
) -> Commit:
    """What a batch has come to. One that failed has emitted nothing, and leaves held rows as they are.

    Raises AckerError where what it stages does not belong to what it has read
    (acker/streams/commits/anchoring.py).
    """
    inputs = (*inputs, *collector.taken)
    if failed is None:
        what = Commit(tuple(collector.staged), (*inputs, *collector.resumed))
        try:
            collector.life.check()  # what came after the end is missing in what is committed now
            some = batch_roots.untracked(ledger, at, what.staged)
            ledger.run(anchoring.check(ledger.core, what.staged, what.inputs, hint=hint, untracked=some))
        except BaseException:
            ledger.run(holding.discard(ledger.core, Commit(what.staged)))
            raise
        return what
    ledger.run(holding.discard(ledger.core, Commit(tuple(collector.staged))))
    return Commit(inputs=inputs, failed=failed)


def register(
    ledger: Ledger, spark: SparkSession, step: Step, what: Commit, others: tuple[str, ...] = ()
) -> None:
    """Notes who did what, and for which spouts. others: what else the query reads.

    See acker/ledger/steps/step_registry.py.
    """
    step = replace(
        step,
        application_id=spark.conf.get("spark.app.id") or "",
        application=spark.conf.get("spark.app.name") or "",
        reads=tuple({one.stream for one in what.ranges()}),
        emits=tuple({stream for stream, _ in what.segments()}),
    )
    ledger.run(step_registry.register(ledger.core, step))
    for spout in sorted({one.how.spout for one in what.roots()}):
        own = replace(step, name=spout, kind="spout", reads=others, emits=(), seconds=0.0, late=0)
        ledger.run(step_registry.register(ledger.core, own))
