"""Bolts for foreachBatch, and jobs: work on a batch with a collector, whose return acks its tuples.

All that a batch emits, fails, holds and acks is one commit (`acker.streams.commits.commit`), numbered by
Spark's batch id: it is stored when the function has returned and carried out then. A batch that runs again
finishes the stored commit and does not call the function; one that was not stored leaves nothing but what
times out.
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
from acker.ledger.steps import step_totals
from acker.ledger.steps.step_registry import Step
from acker.spark.bolts import bolt_function, committing
from acker.spark.bolts.collector import Collector
from acker.spark.options import options
from acker.spark.queries import (
    batch_inputs,
    conflicts,
    lateness,
    microbatches,
    plan_check,
    renamed,
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
from acker.streams.staging.late import Late


class Bolt(Shipped):
    """A function for `DataStreamWriter.foreachBatch`; made by `bolt`. Spark Connect ships it."""

    def __init__(
        self, function: Callable[[DataFrame, Collector], object], name: str, settings: dict[str, object]
    ) -> None:
        self.function = function
        self.name = name
        self._options = options.of_step(name, settings)
        self._root: SparkSession | None = None
        functools.update_wrapper(self, function)

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        """Runs the function on a batch, or finishes what an earlier run of the batch has stored."""
        bolt_function.check_called(batch, batch_id)
        if operator := batch_inputs.part_by(batch):
            raise AckerError(
                f"bolt {self.name!r} was called with a part of its batch ({operator}), and would ack all of "
                "it: hand it the batch as it came, and choose rows in the bolt's function"
            )
        with microbatches.of_bolt(batch.sparkSession, batch_id, self._root, self.name) as at:
            self._run(self._options.ledger(), batch, at)

    def _run(self, ledger: Ledger, batch: DataFrame, at: MicroBatch) -> None:
        core, begun = ledger.core, time.monotonic()
        _check_first(ledger, at, self.name)
        last = _last(ledger, at)
        store_loss.check_commits(ledger, at, last, self._options.after_loss)
        if last is None and at.number:
            renamed.look(ledger, at, self.name)
        reads = BatchInputs(ledger, batch, at, self._root)
        finish = functools.partial(commits.finish, core, at.query, at.number, reads.origin)
        if not settler.with_room(ledger, lambda: ledger.run(finish())):
            reads.check_topology(self.name)
            found = plan_check.of_batch(batch.sparkSession, at, self._root)
            if found is not None:
                plan_check.check(ledger, found, reads.ranges)
            collector = self._collector(batch.sparkSession, at)
            with committing.discarding(ledger, collector), reads.same_rows():
                failed = committing.failure(
                    self.name,
                    at.number,
                    lambda: bolt_function.call(self.function, self.name, batch, collector),
                )
                collector.life.end(wait=failed is None)
                inputs = reads.read(failed=failed is not None, staged=bool(collector.staged))
                plan_check.check_inputs(ledger, found, inputs, stateless=self._options.stateless)
                self._check_read(inputs)
            hint = "" if reads.anchored else _NO_COLUMN
            by = ledger.run(step_totals.mark(core, self.name, at.number))
            what = replace(
                committing.commit_of(ledger, collector, at, inputs, failed, hint), origin=reads.origin, by=by
            )
            late = list[Late]()
            commit = functools.partial(commits.commit, core, at.query, at.number, what, late.append)
            if settler.with_room(ledger, lambda: ledger.run(commit())):
                seconds = round(time.monotonic() - begun, 3)
                acks = lateness.report(ledger, f"bolt {self.name!r}, batch {at.number}", late, seconds)
                step = Step(self.name, "bolt", query_id=at.query, query=at.name, batch=at.number)
                step = replace(step, seconds=seconds, late=acks)
                committing.register(ledger, batch.sparkSession, step, what, found.others if found else ())
                if what.roots():
                    store_loss.mark(ledger, at)
                    conflicts.look_for_trackers(ledger, at, (one.how.spout for one in what.roots()))
        batch_inputs.forget(ledger, at)
        _note_done(ledger, at, self.name)

    def _collector(self, spark: SparkSession, at: MicroBatch) -> Collector:
        return Collector(spark, self._options, at)

    def _check_read(self, inputs: tuple[Range | Roots, ...]) -> None:
        """Raises AckerError where the batch is not one of the bolt's: any is."""

    @classmethod
    def _unpacked(cls, state: dict[str, Any]) -> Self:
        """On a Spark Connect server: just now the active session is the one that has started the query."""
        made = super()._unpacked(state)
        made._root = SparkSession.getActiveSession()
        return made


_MOST_QUERIES = 1_000
_done: dict[tuple[str, str, str], tuple[int, str]] = {}
"""Topology, query and run -> the last batch that a bolt of this process was done with, and which bolt."""


def _check_first(ledger: Ledger, at: MicroBatch, name: str) -> None:
    """Raises AckerError where a batch has had its bolt: Spark gives one to a run of a query once."""
    number, earlier = _done.get((ledger.config.name, at.query, at.run), (-1, ""))
    if at.run and number == at.number:
        raise AckerError(
            f"batch {number} was committed by bolt {earlier!r}, so {name!r} could do nothing: a function for "
            "foreachBatch is one bolt, called once; emit to several streams, or start a query for each bolt"
        )


def _last(ledger: Ledger, at: MicroBatch) -> int | None:
    """The last batch that this process has committed in a run of a query, if any."""
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
    """Makes a function of a batch and a `Collector` one for `DataStreamWriter.foreachBatch`.

        @bolt(url=URL, topology="wordcount", name="split")
        def split(batch, collector):
            words = batch.select(explode(split_words("line")).alias("word"), "_acker")
            collector.emit(words, stream="words")

    Returning acks the tuples of the batch, all that were read from streams. Raising FailedException fails
    their trees, and nothing is emitted; PermanentFailure fails them for good, so that their records are dead
    letters at once. Any other exception is Spark's: nothing is committed, the batch can
    run again. settings: as of the data source (`acker.spark.options.options.Options`). Raises
    ValidationError.
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
