"""The end of a batch or a job: its commit, and the work that follows it, in one exchange if it can be."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pyspark.sql import SparkSession

from acker.ledger.client import Ledger
from acker.ledger.steps import step_registry
from acker.ledger.steps.step_registry import Step
from acker.spark.bolts.collector import Collector
from acker.spark.queries import lateness
from acker.store.operation import Operation, abreast
from acker.streams.commits import commit as commits
from acker.streams.commits.contents import Commit
from acker.streams.commits.known import AtHand
from acker.streams.spouts import settler
from acker.streams.staging.late import Late


@dataclass(slots=True)
class BatchEnd:
    """The end of a batch or a job.

    Attributes:
        ledger: The ledger.
        spark: The session of the batch.
        collector: Its collector.
        step: The step, to be registered.
        work: The commit.
        at_hand: What is at hand for it.
        begun: When the batch was begun, on the monotonic clock.
        others: Other sources that its query reads.
        sleep: Waits for some seconds, where there is no room for its roots; its error ends the batch.
        forgetting: Makes operations that end the batch, also if another run was committed.
        noting: Makes operations that note this commit.
    """

    ledger: Ledger
    spark: SparkSession
    collector: Collector
    step: Step
    work: Commit
    at_hand: AtHand
    begun: float
    others: tuple[str, ...] = ()
    sleep: Callable[[float], object] = time.sleep
    forgetting: Callable[[], Sequence[Operation[Any]]] = tuple
    noting: Callable[[], Sequence[Operation[Any]]] = tuple
    _late: list[Late] = field(default_factory=list)
    _done: bool = False

    def commit(self, who: str, writer: str, number: int) -> bool:
        """Commits the batch; returns False if another run of it was committed. who: the batch, for the log.

        Raises the errors of `acker.streams.commits.commit.commit`.
        """
        core, at_hand = self.ledger.core, self.at_hand
        at_hand.afterwards = (self._follow(who, mine=True),)

        def commit() -> bool:
            committing = commits.commit(core, writer, number, self.work, self._late.append, at_hand)
            return self.ledger.run(committing)

        mine = settler.with_room(self.ledger, commit, sleep=self.sleep)
        if not self._done:
            self.ledger.run(self._follow(who, mine=mine))
        return mine

    def _follow(self, who: str, *, mine: bool) -> Operation[None]:
        left = [
            *self.forgetting(),
            self.collector.sends.forgetting(),
            self.collector.transactions.forgetting(),
        ]
        if mine:
            seconds = round(time.monotonic() - self.begun, 3)
            acks = lateness.report(self.ledger, who, self._late, seconds)
            left += self._registrations(replace(self.step, seconds=seconds, late=acks))
            left += self.noting()
        yield from abreast(left)
        self._done = True

    def _registrations(self, step: Step) -> list[Operation[None]]:
        """Operations that register the step and its spouts (acker/ledger/steps/step_registry.py)."""
        work, received = self.work, {rows.stream for rows in self.collector.received}
        sent = {sending.stream for sending in work.sent}
        step = replace(
            step,
            application_id=self.spark.conf.get("spark.app.id") or "",
            application=self.spark.conf.get("spark.app.name") or "",
            reads=tuple({*(claimed.stream for claimed in work.ranges()), *received}),
            emits=tuple({*(stream for stream, _ in work.segments()), *sent}),
        )
        spouts = [
            replace(step, name=spout, kind="spout", reads=self.others, emits=(), seconds=0.0, late=0)
            for spout in sorted({claimed.how.spout for claimed in work.roots()})
        ]
        return [step_registry.register(self.ledger.core, member) for member in (step, *spouts)]
