"""Bolts for foreachBatch: a function works on a batch with a collector, and its return acks the tuples.

All emits, fails, holds and acks of a batch are one commit (`acker.streams.commits.commit`), numbered by
Spark's batch id. It is stored after the function has returned, and carried out then. A batch that runs again
finishes the stored commit and does not call the function. If no commit was stored, only staged rows are left,
and they time out.
"""

import functools
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Self

from pyspark.sql import DataFrame, SparkSession

from acker.errors import AckerError
from acker.ledger.client import Ledger
from acker.ledger.settings.config import check_name
from acker.ledger.steps.step_registry import Step
from acker.spark.bolts import bolt_function, committing, observing, off, plain_writes
from acker.spark.bolts.batch_end import BatchEnd
from acker.spark.bolts.collector import Collector
from acker.spark.bolts.off import OffCollector
from acker.spark.options import options
from acker.spark.queries import (
    batch_inputs,
    conflicts,
    microbatches,
    plan_check,
    stopping,
    store_loss,
)
from acker.spark.queries.batch_inputs import BatchInputs
from acker.spark.queries.microbatches import MicroBatch
from acker.spark.runtime.pickling import Shipped
from acker.streams.commits import commit as commits
from acker.streams.log.segments import ANCHORS
from acker.streams.log.subscriptions import Range
from acker.streams.sources.roots import Roots
from acker.streams.spouts import settler


class Bolt(Shipped):
    """A function for `DataStreamWriter.foreachBatch`, made by `bolt`. Spark Connect can pickle it.

    Args:
        function: The function of a batch and a collector.
        name: The name of the step.
        settings: The options of the data source.
    """

    def __init__(
        self, function: Callable[[DataFrame, Collector], object], name: str, settings: dict[str, object]
    ) -> None:
        self.function = function
        self.receives = bolt_function.check_receives(settings.pop("receives", None))
        self.name = name
        self._options = options.of_step(name, settings, options.STEP)
        self._root: SparkSession | None = None
        functools.update_wrapper(self, function)

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        """Runs the function on a batch, or finishes the stored commit of an earlier run of the batch.

        Args:
            batch: The micro-batch, unchanged, as Spark passes it.
            batch_id: Spark's number of the batch.

        Raises:
            AckerError: The batch is a part of a micro-batch, or another bolt has already committed it.
        """
        bolt_function.check_called(batch, batch_id)
        if operator := batch_inputs.part_by(batch):
            raise AckerError(
                f"bolt {self.name!r} was called with a part of its batch ({operator}), and would ack all of "
                "it: hand it the batch as it came, and choose rows in the bolt's function"
            )
        with microbatches.of_bolt(batch.sparkSession, batch_id, self._root, self.name) as at:
            if self._options.off:
                with off.working(OffCollector(batch.sparkSession, self._options, at)) as collector:
                    bolt_function.call(self.work, self.name, batch, collector)
                    collector.life.end(wait=True)
                return
            if self._options.observe:
                with observing.working(batch.sparkSession, self._options, at, batch=batch) as collector:
                    bolt_function.call(self.work, self.name, batch, collector)
                return
            self._run(self._options.ledger(), batch, at)

    def _run(self, ledger: Ledger, batch: DataFrame, at: MicroBatch) -> None:
        core, begun = ledger.core, time.monotonic()
        _check_first(ledger, at, self.name)
        last = _last(ledger, at)
        checking = functools.partial(store_loss.checking, core, at, last, self._options.after_loss)
        _, stored, by = committing.begin(ledger, self.name, at, checking, at.number)
        if last is None and at.number:
            conflicts.warn_of_renamed_bolt(ledger, at, self.name)
        reads = BatchInputs(ledger, batch, at, self._root)
        finish = functools.partial(commits.finish, core, at.query, at.number, reads.origin)
        sleep = stopping.sleep_of(batch.sparkSession, at, self._root)
        if not stored or not settler.with_room(ledger, lambda: ledger.run(finish()), sleep=sleep):
            reads.check_topology(self.name)
            verdict = plan_check.of_batch(batch.sparkSession, at, self._root)
            if verdict is not None:
                plan_check.check(ledger, verdict, reads.ranges)
            plain_writes.watch(batch.sparkSession, at.run, self.name)
            collector = self._collector(batch.sparkSession, at, ledger)
            with committing.discarding(ledger, collector), reads.same_rows():
                failed = committing.failure(
                    collector,
                    at.number,
                    lambda: bolt_function.call(self.work, self.name, batch, collector),
                )
                inputs = reads.read(
                    failed=failed is not None,
                    staged=bool(collector.staged),
                    looked=any(rows is batch for rows in collector.given),
                )
                if inputs and failed is None:
                    collector.check_given()
                collector.look_again()
                plan_check.check_inputs(ledger, verdict, inputs, stateless=self._options.stateless)
                self._check_read(inputs)
            hint = "" if reads.anchored else _NO_COLUMN
            work, at_hand = committing.commit_of(ledger, collector, at, inputs, failed, hint)
            work = replace(work, origin=reads.origin, by=by)
            step = Step(self.name, "bolt", query_id=at.query, query=at.name, batch=at.number)
            end = BatchEnd(ledger, batch.sparkSession, collector, step, work, at_hand, begun)
            end.others, end.sleep = verdict.others if verdict else (), sleep
            if not work.roots():  # else the notes of the batch are used once more
                end.forgetting = lambda: [batch_inputs.forgetting(core, at)]
            mine = end.commit(f"bolt {self.name!r}, batch {at.number}", at.query, at.number)
            if work.roots():
                if mine:
                    spouts = (roots.how.spout for roots in work.roots())
                    store_loss.mark(ledger, at)
                    conflicts.warn_of_tracking_queries(ledger, at, spouts)
                batch_inputs.forget(ledger, at)
        else:
            batch_inputs.forget(ledger, at)
        _note_done(ledger, at, self.name)

    def work(self, batch: DataFrame, collector: Collector) -> object:
        """Calls the function, with received rows if the bolt receives a stream; returns its result.

        Args:
            batch: The batch.
            collector: The collector of the batch.
        """
        rows = collector.receive(batch, self.receives) if self.receives else batch
        return self.function(rows, collector)

    def _collector(self, spark: SparkSession, at: MicroBatch, ledger: Ledger) -> Collector:
        return Collector(spark, self._options, at, ledger=ledger)

    def _check_read(self, inputs: tuple[Range | Roots, ...]) -> None:
        """Raises AckerError if the batch has other rows than the bolt takes: a plain bolt takes any."""

    @classmethod
    def _unpacked(cls, state: dict[str, Any]) -> Self:
        """Restores a bolt on a Spark Connect server; the active session started the query."""
        made = super()._unpacked(state)
        made._root = SparkSession.getActiveSession()
        return made


_MOST_QUERIES = 1_000
_done: dict[tuple[str, str, str], tuple[int, str]] = {}
"""The last committed batch of this process, and its bolt, by topology, query and run."""


def _check_first(ledger: Ledger, at: MicroBatch, name: str) -> None:
    """Raises AckerError if a bolt has already committed the batch: Spark gives a batch to one bolt, once."""
    number, earlier = _done.get((ledger.config.name, at.query, at.run), (-1, ""))
    if at.run and number == at.number:
        raise AckerError(
            f"batch {number} was committed by bolt {earlier!r}, so {name!r} could do nothing: a function for "
            "foreachBatch is one bolt, called once; emit to several streams, or start a query for each bolt"
        )


def _last(ledger: Ledger, at: MicroBatch) -> int | None:
    """Returns the last batch that this process has committed in a run of a query; None if there is none."""
    number, _ = _done.get((ledger.config.name, at.query, at.run), (-1, ""))
    return number if at.run and number >= 0 else None


def _note_done(ledger: Ledger, at: MicroBatch, name: str) -> None:
    key = ledger.config.name, at.query, at.run
    _done.pop(key, None)
    _done[key] = at.number, name
    if len(_done) > _MOST_QUERIES:
        del _done[next(iter(_done))]


def bolt(
    *given: object, url: str = "", topology: str = "", name: str = "", **settings: object
) -> Callable[[Callable[[DataFrame, Collector], object]], Bolt]:
    """Makes a function of a batch and a `Collector` a bolt for `DataStreamWriter.foreachBatch`.

        @bolt(url=URL, topology="wordcount", name="split")
        def split(batch, collector):
            words = batch.select(explode(split_words("line")).alias("word"), "_acker")
            collector.emit(words, stream="words")

    If the function returns, the batch's tuples from streams are acked. The exception FailedException fails
    their trees, and nothing is emitted. PermanentFailure fails them for good: their records become dead
    letters at once. Any other exception goes to Spark: nothing is committed, and the batch can run again.

    Args:
        *given: Not used: catches `@bolt` without arguments.
        url: The store.
        topology: The name of the topology.
        name: The name of the step.
        **settings: Options of the data source (`acker.spark.options.options.Options`).

    Returns:
        A decorator of the function.

    Raises:
        ValidationError: An argument is missing or invalid, or the function does not take two arguments.
    """

    def decorate(*functions_given: Callable[[DataFrame, Collector], object]) -> Bolt:
        function = bolt_function.check_function(functions_given)
        return Bolt(function, name, {"url": url, "topology": topology, **settings})

    bolt_function.check_given(given, {"url": url, "topology": topology, "name": name})
    check_name(name, "name")
    return decorate


_NO_COLUMN = (
    f". The batch itself has no column {ANCHORS}: its query names a schema without it, or was started before "
    "its stream had trees; then start it again"
)
