"""Writing: tasks stage, the commit that Spark runs for the winners publishes.

See acker/streams/commits/commit.py.

Terms: roots are rows of a spout that were staged together, and get a tree each; staged rows are stored, but
nobody sees them before a commit.
"""

import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from socket import gethostname
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from acker.errors import AckerError, UnsafePlan
from acker.ledger.calls.marks import Mark
from acker.ledger.client import Ledger
from acker.ledger.steps import step_registry, step_totals
from acker.ledger.steps.step_registry import Step
from acker.spark.options.options import Options
from acker.spark.queries import (
    batch_inputs,
    batch_roots,
    conflicts,
    lateness,
    microbatches,
    plan_check,
    stopping,
    store_loss,
)
from acker.spark.queries.microbatches import MicroBatch
from acker.spark.queries.plan_check import Verdict
from acker.spark.records.anchors import check_names, named_schema
from acker.spark.runtime.arrow import sound
from acker.spark.runtime.pickling import Shipped
from acker.spark.runtime.versions import DataSourceStreamArrowWriter, arrow_schema
from acker.streams.commits import anchoring, holding, record
from acker.streams.commits import commit as commits
from acker.streams.commits.contents import Commit
from acker.streams.commits.origins import Origin
from acker.streams.log import schemas
from acker.streams.log.subscriptions import Range
from acker.streams.sources import roots
from acker.streams.sources.roots import Roots
from acker.streams.spouts import settler
from acker.streams.staging import staging
from acker.streams.staging.effects import EFFECT
from acker.streams.staging.late import Late
from acker.streams.staging.staging import FAILED, Staged, Staging
from acker.streams.upkeep import retention

_HINT = (
    " (an option of the write). A query that was started before its stream had trees reads rows without "
    "that column: then start it again"
)


@dataclass
class StagedMessage(WriterCommitMessage):
    """The staged pieces of a task, and its batch of a query, if any; and roots, if it writes as a spout.

    within: the place of the write of a DataFrame that is not streaming (`microbatches.task_within`).
    """

    staged: Staged
    batch: MicroBatch | None = None
    roots: tuple[Roots, ...] = ()
    within: str = ""


def record_schema(ledger: Ledger, stream: str, schema: StructType) -> None:
    """Records the schema of a stream or compares with it; raises SchemaMismatch."""
    columns = named_schema(arrow_schema(schema), f"rows for stream {stream!r}")
    for name in (FAILED, EFFECT):
        if name in columns.names:
            columns = columns.remove(columns.get_field_index(name))
    ledger.run(schemas.record(ledger.core, stream, columns))


class _Stager:
    """Stages the rows of a task. Pickled to executors, so it holds no connection."""

    def __init__(self, options: Options, schema: StructType) -> None:
        self.ledger = options.ledger()
        self.how: Staging = options.staging()
        self.of_spout = options.of_spout()
        self.anchored = options.anchored
        self.stateless = options.stateless
        self.after_loss = options.after_loss
        if self.of_spout is None:
            record_schema(self.ledger, options.stream, schema)
        else:
            found = named_schema(arrow_schema(schema), f"rows for stream {options.stream!r}")
            found = roots.anchored_schema(found, self.of_spout)
            self.ledger.run(schemas.record(self.ledger.core, options.stream, found))
        limits = retention.limit(
            self.ledger.core,
            options.stream,
            max_age=options.stream_max_age,
            max_bytes=options.stream_max_bytes,
        )
        self.ledger.run(limits)

    def stage(self, rows: Iterator[pa.RecordBatch]) -> StagedMessage:
        batch = microbatches.of_task()
        rows = (sound(one.rename_columns(check_names(one.schema.names, "rows"))) for one in rows)
        if self.of_spout is None:
            staged = self.ledger.run(staging.stage(self.ledger.core, self.how, rows))
            return StagedMessage(staged, batch)
        made, staged = self.ledger.run(roots.emit(self.ledger.core, self.of_spout, self.how, rows))
        return StagedMessage(staged, batch, made)

    def within(self) -> str:
        """Returns the place in which the DataFrame of this task is written, or "" for none."""
        return microbatches.task_within(self.ledger.config.name)

    def commit(self, writer: str, messages: list[Any], named: bool) -> None:
        """Publishes the staged rows of a batch write. Raises RunCommitted; AckerError within another step."""
        self._check_place(messages, named)
        work = self._work_of(messages, ())
        rows = sum(segment.rows for _, segment in work.segments())
        before = self.ledger.run(record.find_run(self.ledger.core, writer))
        self._commit(writer, 0, work)
        if before is not None:
            record.tell_run(f"run {writer.partition('/')[2]!r} of stream {self.how.stream!r}", before, rows)
        elif named:
            self.ledger.run(record.note_run(self.ledger.core, writer, gethostname(), rows))
        if not named:
            self.ledger.run(commits.forget(self.ledger.core, writer))

    def _check_place(self, messages: list[Any], named: bool) -> None:
        """Raises AckerError for a write in a batch that may run again, or that a bolt acks."""
        within, batch = next(((one.within, one.batch) for one in messages if one is not None), ("", None))
        write = f"a write to stream {self.how.stream!r} {within}"
        read = batch_inputs.noted(self.ledger, batch) if within and batch is not None else ()
        if within == microbatches.IN_JOB or (within == microbatches.IN_BOLT and read):
            raise AckerError(
                f"{write} commits by itself, so a rerun would write its rows again, and the step's acks "
                "would not wait for them: use collector.emit, which takes effect with the step's commit"
            )
        if within and not named:
            raise AckerError(
                f"{write} is done again when that runs again: use collector.emit, of a bolt, or name the "
                "write by the option run, the same for each run of the batch (as collector.key is)"
            )
        if read:
            raise AckerError(
                f"{write} is of a batch that has read streams, or tracked rows, and acks nothing of them: "
                "make the function a bolt, whose return acks, and use collector.emit"
            )

    def commit_batch(self, batch: MicroBatch, messages: list[Any]) -> None:
        """Publishes the staged rows of a micro-batch, and acks its inputs."""
        store_loss.check_commits(self.ledger, batch, None, self.after_loss, self.of_spout is not None)
        read = batch_inputs.noted(self.ledger, batch)
        work = self._work_of(messages, read)
        if not work.inputs and any(segment.shards for _, segment in work.segments()):
            raise AckerError(batch_inputs.unread(self.ledger, batch))
        verdict = self.ledger.run(plan_check.read(self.ledger.core, batch))
        origin = self._check_plan(batch, read, work, verdict)
        self._check(work, read, batch_roots.untracked(self.ledger, batch, work.staged))
        work = replace(work, origin=origin, by=self._mark(batch))
        late = list[Late]()
        sleep = stopping.sleep_of_writer(self.ledger, batch, verdict)
        self._commit(batch.query, batch.number, work, late.append, sleep)
        step = self._step(batch, work, verdict)
        acks = lateness.report(self.ledger, f"{step.kind} {step.name!r}, batch {batch.number}", late)
        self.ledger.run(step_registry.register(self.ledger.core, replace(step, late=acks)))
        if work.roots():
            store_loss.mark(self.ledger, batch)
            conflicts.warn_of_tracking_queries(self.ledger, batch, (one.how.spout for one in work.roots()))
        batch_inputs.forget(self.ledger, batch)

    def _check(self, work: Commit, inputs: tuple[Range | Roots, ...], untracked: bool) -> None:
        """Raises AckerError if rows do not belong to the inputs.

        See acker/streams/commits/anchoring.py.
        """
        staged = work.staged
        if not self.anchored or (self.of_spout is not None and not inputs):
            staged = tuple(one.as_said_unanchored() for one in staged)
        checking = anchoring.check(self.ledger.core, staged, work.inputs, hint=_HINT, untracked=untracked)
        self.ledger.run(checking)

    def _check_plan(
        self, batch: MicroBatch, read: Sequence[Range | Roots], work: Commit, verdict: Verdict | None
    ) -> Origin:
        """Returns the origin of a batch. Raises UnsafePlan if its inputs may not be acked with it."""
        core, origin = self.ledger.core, Origin.from_ranges(work.ranges())
        if work.roots():
            others = batch_roots.time_of(self.ledger, batch) or (verdict.planned(batch) if verdict else "")
            origin = replace(origin, others=others)
        try:
            plan_check.check_inputs(self.ledger, verdict, read, stateless=self.stateless)
        except UnsafePlan:
            if not self.ledger.run(record.is_stored(core, batch.query, batch.number)):
                raise
        return origin

    def _commit(
        self,
        writer: str,
        number: int,
        work: Commit,
        on_late: Callable[[Late], object] | None = None,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        commit = partial(commits.commit, self.ledger.core, writer, number, work, on_late)
        settler.with_room(self.ledger, lambda: self.ledger.run(commit()), sleep=sleep)

    def _mark(self, batch: MicroBatch) -> Mark | None:
        """Returns the mark that acks. A spout acks nothing but the rows that it tracks."""
        if self.of_spout:
            return None
        return self.ledger.run(step_totals.mark(self.ledger.core, self.how.stream, batch.number))

    def _step(self, batch: MicroBatch, work: Commit, verdict: Verdict | None) -> Step:
        """Returns the step of this writer: without a bolt its name is its stream's, or its spout's."""
        verdict = verdict or Verdict()
        name, kind = (self.of_spout.spout, "spout") if self.of_spout else (self.how.stream, "writer")
        reads = (*(one.stream for one in work.ranges()), *(verdict.others if self.of_spout else ()))
        step = Step(
            name,
            kind,
            query_id=batch.query,
            batch=batch.number,
            reads=reads,
            emits=(self.how.stream,),
        )
        return replace(step, application_id=verdict.application_id, application=verdict.application)

    @staticmethod
    def _work_of(messages: list[Any], inputs: tuple[Range | Roots, ...]) -> Commit:
        done = [message for message in messages if message is not None]
        made = tuple(one for message in done for one in message.roots)
        return Commit(tuple(message.staged for message in done), (*inputs, *made))

    def abort(self, writer: str, number: int, messages: list[Any]) -> None:
        """Discards staged rows, unless a stored commit may have them.

        A completed and forgotten commit has published them: that stays.
        """
        core = self.ledger.core
        if self.ledger.run(record.is_stored(core, writer, number)):
            return
        self.ledger.run(holding.discard(core, self._work_of(messages, ())))


class BatchWriter(Shipped, DataSourceArrowWriter):
    """Writes a DataFrame: published when all tasks are done, all or nothing; a named run of it, once."""

    def __init__(self, options: Options, schema: StructType) -> None:
        self._stager = _Stager(options, schema)
        # No job has such a writer: a name has no "/".
        self._named = bool(options.run)
        self._writer = f"{options.stream}/{options.run or secrets.token_hex(16)}"

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Stages the rows of a task."""
        return replace(self._stager.stage(iterator), within=self._stager.within())

    def commit(self, messages: list[Any]) -> None:
        """Publishes the staged rows of the winning tasks."""
        self._stager.commit(self._writer, messages, self._named)

    def abort(self, messages: list[Any]) -> None:
        """Discards the staged rows of the tasks."""
        self._stager.abort(self._writer, 0, messages)


class StreamingWriter(Shipped, DataSourceStreamArrowWriter):
    """Writes a streaming query: each micro-batch once, and acks the rows that the batch has read."""

    def __init__(self, options: Options, schema: StructType) -> None:
        self._stager = _Stager(options, schema)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Stages the rows of a task."""
        return self._stager.stage(iterator)

    def commit(self, messages: list[Any], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Publishes the staged rows of the winning tasks, then acks the batch's inputs."""
        batch = _batch(messages)
        if batch is not None:
            self._stager.commit_batch(batch, messages)

    def abort(self, messages: list[Any], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Discards the staged rows of the tasks."""
        batch = _batch(messages)
        if batch is not None:
            self._stager.abort(batch.query, batch.number, messages)


def _batch(messages: list[Any]) -> MicroBatch | None:
    return next((message.batch for message in messages if message is not None), None)
