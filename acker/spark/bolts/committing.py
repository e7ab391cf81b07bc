"""The end of bolts and jobs: the work of a function becomes one commit, or is dropped.

Terms: staged rows are stored, but nobody sees them before a commit.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from pyspark.errors import PythonException

from acker.errors import (
    AckerError,
    FailedException,
    PermanentFailure,
    StoreError,
    StoreUnavailable,
    text_of,
)
from acker.ledger.calls.marks import Mark
from acker.ledger.client import Ledger
from acker.ledger.slabs.causes import Cause, said_by
from acker.ledger.steps import step_totals
from acker.spark.bolts.collector import Collector
from acker.spark.external import receiving
from acker.spark.queries import batch_roots
from acker.spark.queries.microbatches import MicroBatch
from acker.store.operation import Operation, abreast
from acker.streams.commits import anchoring, holding, record
from acker.streams.commits.contents import Commit
from acker.streams.commits.known import AtHand
from acker.streams.log.subscriptions import Range
from acker.streams.sources.roots import Roots
from acker.streams.staging import vectors

T = TypeVar("T")


def begin(
    ledger: Ledger, step: str, at: MicroBatch, looking: Callable[[], Operation[T]], batch: int
) -> tuple[T, bool, Mark | None]:
    """Looks at a batch before its function, by one exchange with the store.

    Args:
        ledger: The ledger.
        step: The name of the step.
        at: The batch, or the job.
        looking: Makes an operation whose error comes before all others.
        batch: The number for the step's mark, -1 for none.

    Returns:
        The result of that operation, True if a commit of the batch is stored, and the mark of its step.
    """
    core = ledger.core

    def asked() -> list[Operation[Any]]:
        marking = step_totals.mark(core, step, batch)
        return [looking(), record.is_stored(core, at.query, at.number), marking]

    try:
        looked, stored, by = ledger.run(abreast(asked()))
    except StoreUnavailable:
        raise
    except StoreError:  # alone a mark that the store refuses is None: the work matters more
        looked, stored, by = [ledger.run(one) for one in asked()]
    return looked, stored, by


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
) -> tuple[Commit, AtHand]:
    """Returns the commit of a batch, and what is at hand for it.

    A failed batch emits nothing, and leaves held rows unchanged.

    Raises AckerError if its staged rows do not belong to its inputs (acker/streams/commits/anchoring.py).
    """
    inputs = (*inputs, *collector.taken)
    if failed is None:
        staged = (*collector.staged, *collector.sends.staged)
        receipt, at_hand = collector.receipt()
        sent = tuple(collector.sends.sent)
        commit = Commit(staged, (*inputs, *collector.resumed), sent=sent, received=receipt.received)
        looks = collector.sends.looks
        at_hand.heads = {key: reply[: len(vectors.HEAD)] for key, reply in looks.items()}
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
                looks=looks,
            )
            ledger.run(checking)
        except BaseException:
            ledger.run(holding.discard(ledger.core, Commit(commit.staged)))
            raise
        return commit, _sent_ahead(ledger, commit, at_hand)
    ledger.run(holding.discard(ledger.core, Commit(tuple(collector.staged))))
    receipt, at_hand = collector.receipt(failed)
    commit = Commit(receipt.staged, inputs, failed, received=receipt.received)
    return commit, _sent_ahead(ledger, commit, at_hand)


def _sent_ahead(ledger: Ledger, commit: Commit, at_hand: AtHand) -> AtHand:
    """Sends receipts ahead of a commit that has to look at staged data in any case."""
    looks = commit.segments() or commit.results() or commit.roots() or ledger.config.traces
    if looks and at_hand.staging:
        ledger.store.send(at_hand.staging)
        at_hand.staging = ()
    return at_hand
