"""Steps of a line in plain Python: their input, in segments (pieces of a stream), and their output."""

import logging
from asyncio import Task
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from inspect import isawaitable, isclass
from itertools import zip_longest
from types import MappingProxyType
from typing import Any, Protocol, TypeAlias

import numpy as np
import pyarrow as pa  # noqa: TID251 - rows travel as Arrow, from and to Spark and plain Python

from acker.errors import (
    AckerError,
    FailedException,
    PermanentFailure,
    SchemaMismatch,
    ValidationError,
    ValueTooLong,
    is_interrupt,
)
from acker.ledger.calls.core import Core
from acker.ledger.settings.config import bounded_reason
from acker.ledger.settings.settings import check_number
from acker.ledger.slabs import sections
from acker.ledger.slabs.causes import Cause, log_error, said_by
from acker.ledger.user_functions import event_loop
from acker.ledger.user_functions.async_calls import Pace, asynchronous
from acker.ledger.user_functions.undone import check_done
from acker.store import operation
from acker.store.operation import Operation
from acker.streams.log import fairness, gathers, python_values, schemas
from acker.streams.log.gathers import FINISHED
from acker.streams.log.segments import ANCHORS, LAST, Segment
from acker.streams.staging.staging import STAGING_TTL, Staged, Staging, stage, stage_failures
from acker.workers import row_columns
from acker.workers.out import Anchor, Emitting, Out, anchor_of, trees_of
from acker.workers.poison import Careful
from acker.workers.request import Request
from acker.workers.room import CLAIM_BYTES, MOST_BYTES
from acker.workers.stream_state import Look, look, look_at

_LOST = "rows of the request are lost: the store has dropped them, or they cannot be read"
_OF_ROWS = (SchemaMismatch, ValidationError, ValueTooLong)
"""Errors of acker's that belong to some rows, and not to the store."""
_LOGGED = 100
"""Failures of a batch that are logged, with a trace each, which costs more than most steps."""
_log = logging.getLogger(__name__)


class Gatherer(Protocol):
    """The work of a gathering step on a request, for each task; it lives while its rows are read."""

    def execute(self, row: dict[str, Any]) -> object:
        """Takes a row of the request that belongs to the task."""

    def finished(self, out: Any) -> object:
        """Ends the request, when no further row will come."""


@dataclass(slots=True)
class StepOutput:
    """Output of a step for a batch: rows to emit, and trees to fail, each for a cause."""

    out: Any
    failed: dict[int, str] = field(default_factory=dict)
    logged: int = 0

    def attempt(self, anchor: Anchor, step: str, batch: int, action: Callable[[Any], object]) -> None:
        """Runs an action for a request; its exception fails that request alone. action: gets `out`."""
        out = self.out.of(anchor)
        try:
            check_done(action(out))
        except BaseException as error:  # the step is the user's: it may raise anything, SystemExit, too
            if is_interrupt(error):
                raise
            out.undo()
            self.fail(anchor, error, step, batch)
        finally:
            out.end()

    def fail(self, anchor: Anchor, error: BaseException, step: str, batch: int) -> None:
        """Fails a request for an error; all trees of a row with several."""
        said = said_by(error)
        retry = not issubclass(type(error), PermanentFailure)
        cause = Cause(bounded_reason(said), step, retry, batch).text()
        for tree in trees_of(anchor):
            self.failed.setdefault(tree, cause)
        if not issubclass(type(error), FailedException):
            self._log(error, step, said)

    def failing(self, step: str, batch: int) -> Callable[[Anchor, BaseException], None]:
        """Returns `fail` for a batch of a step."""
        return lambda anchor, error: self.fail(anchor, error, step, batch)

    def _log(self, error: BaseException, step: str, said: str) -> None:
        self.logged += 1
        if self.logged <= _LOGGED:
            log_error(_log, error, "step %s fails a record: %s", step, said)
        elif self.logged == _LOGGED + 1:
            log_error(_log, None, "step %s fails further records of this batch, which are not logged", step)

    def lives(self, anchor: Anchor) -> bool:
        """True for rows without a tree, and unless all trees of a row have failed."""
        trees = trees_of(anchor)
        return not any(trees) or not all(tree in self.failed for tree in trees)


@dataclass(frozen=True, slots=True)
class Read:
    """A segment, and the rows to work on. lost: True if all its rows are gone, or unreadable.

    incomplete: for a segment that ends a bundle, the trees whose rows are not all in the bundle.
    """

    segment: Segment
    rows: list[pa.RecordBatch]
    lost: bool = False
    incomplete: Collection[int] = ()


class FunctionStep:
    """A step that is a function of a row and its output.

    pace: the pace of an asynchronous function. fair_by: the column by which its stream is read fairly
    (`acker.streams.log.fairness`), or "". max_bytes: bytes of rows that a worker takes at a time
    (`acker.workers.room`). rows: about the number of rows that it takes at a time; None for all, until a
    worker has learnt their duration.
    """

    def __init__(
        self,
        name: str,
        reads: str,
        function: Callable[..., object],
        out: Callable[[], Emitting] = Out,
        pace: Pace | None = None,
        fair_by: str = "",
        max_bytes: int = CLAIM_BYTES,
    ) -> None:
        self.name, self.reads, self._function, self._out, self.pace = name, reads, function, out, pace
        self.rows: int | None = None
        self.fair_by, self.max_bytes = fairness.check(fair_by), max_bytes

    def run(self, batch: int, members: Sequence[Read], careful: Careful | None = None) -> StepOutput:
        """Works on the rows of segments."""
        output = StepOutput(self._out())
        read = [member for member in members if not member.segment.to.startswith(LAST)]
        if careful is None:
            rows = [part for member in read for part in member.rows]
            self._work(self._calls(rows, output, batch), output, batch)
            return output
        for member in read:
            calls = self._calls(member.rows, output, batch)
            for part in careful.parts(member.segment.id, calls, output.failing(self.name, batch)):
                self._work(part, output, batch)
        return output

    def _calls(
        self, batches: Sequence[pa.RecordBatch], output: StepOutput, batch: int
    ) -> list[tuple[Anchor, dict[str, Any]]]:
        rows = _rows(batches, output, self.name, batch, self.fair_by)
        return [(anchor_of(row.pop(ANCHORS, None)), row) for row in rows]

    def _work(self, calls: Sequence[tuple[Anchor, dict[str, Any]]], output: StepOutput, batch: int) -> None:
        if self.pace is not None:
            made_of = [(anchor, [partial(self._function, row)]) for anchor, row in calls]
            _together(self.pace, self._out, made_of, output, self.name, batch)
            return
        for anchor, row in calls:
            output.attempt(anchor, self.name, batch, partial(self._function, row))


class GatherStep:
    """A step that gathers: an object for each request and task, which lives within one bundle.

    pace: the pace of a class with asynchronous methods. fair_by: "_acker" if its stream is read fairly
    (`acker.streams.log.fairness`), otherwise "". max_bytes, rows: see `FunctionStep`.
    """

    def __init__(
        self,
        name: str,
        reads: str,
        make: Callable[[Request], Gatherer],
        out: Callable[[], Emitting] = Out,
        pace: Pace | None = None,
        fair_by: str = "",
        max_bytes: int = CLAIM_BYTES,
    ) -> None:
        self.name, self.reads, self._make, self._out, self.pace = name, reads, make, out, pace
        self.rows: int | None = None
        self.fair_by, self.max_bytes = fairness.check(fair_by), max_bytes

    def run(self, batch: int, members: Sequence[Read], careful: Careful | None = None) -> StepOutput:
        """Works on the rows of segments: whole bundles, each ended by its last rows."""
        output, living, lost = StepOutput(self._out()), dict[int, Gatherer](), False
        for member in members:
            _, task, _, last = gathers.parse_destination(member.segment.to)
            lost = lost or member.lost
            rows = [(row.pop(ANCHORS), row) for row in _rows(member.rows, output, self.name, batch)]
            parts: Iterable[Sequence[tuple[Any, dict[str, Any]]]] = [rows]
            if careful is not None:
                parts = careful.parts(member.segment.id, rows, output.failing(self.name, batch))
            for part in parts:
                calls: dict[int, list[Callable[[Any], object]]] = {}
                for anchor, row in part:
                    row.pop(FINISHED, None)
                    if (lost or anchor in member.incomplete) and last:
                        output.fail(anchor, FailedException(_LOST), self.name, batch)
                    elif anchor not in output.failed:
                        work = partial(self._work, living, anchor, task, None if last else row)
                        if self.pace is not None:
                            calls.setdefault(anchor, []).append(work)
                        else:
                            output.attempt(anchor, self.name, batch, work)
                if self.pace is not None:
                    _together(self.pace, self._out, list(calls.items()), output, self.name, batch)
            if last:
                living, lost = {}, False
        return output

    def _work(
        self, living: dict[int, Gatherer], anchor: int, task: int, row: dict[str, Any] | None, out: Any
    ) -> object:
        """Gives the object of a request a row, or, for None, its end."""
        gatherer = living.get(anchor)
        if gatherer is None:
            request = int(sections.within(np.array([anchor], np.int64), 1)[0])
            gatherer = self._make(Request(request, task))
            if isawaitable(gatherer):
                check_done(gatherer)
            living[anchor] = gatherer
        return gatherer.finished(out) if row is None else gatherer.execute(row)


Work: TypeAlias = tuple[Pace | None, str, int]
"""The pace of a step (None for a plain one), `fair_by` and `max_bytes`."""


def worked(
    step: object,
    *,
    concurrency: int | None = None,
    timeout: float | None = None,
    fair_by: str = "",
    max_bytes: int = CLAIM_BYTES,
) -> Work:
    """Returns the options of work on a function, or on a class with execute and finished.

    The keywords are `WorkOptions`. Raises ValidationError for bad values, and for a pace of a plain function.
    """
    check_number(max_bytes, "max_bytes", 1, MOST_BYTES, int)
    while isinstance(step, partial):
        step = step.func
    methods = [getattr(step, name, None) for name in ("execute", "finished")] if isclass(step) else [step]
    pace = Pace.make(any(map(asynchronous, methods)), concurrency, timeout)
    return pace, fairness.check(fair_by), max_bytes


def _together(
    pace: Pace,
    out: Callable[[], Emitting],
    calls: Sequence[tuple[Anchor, Sequence[Callable[[Any], object]]]],
    output: StepOutput,
    step: str,
    batch: int,
) -> None:
    """Makes asynchronous calls for requests: the calls of an entry in their order, entries side by side."""

    async def work(
        entry: tuple[Anchor, Sequence[Callable[[Any], object]]], whole: "Task[Any] | None"
    ) -> tuple[Emitting, BaseException | None]:
        output_of_call = out().of(entry[0])
        try:
            for call in entry[1]:
                _, error = await pace.outcome(partial(_done, call, output_of_call), whole)
                if error is not None:
                    return output_of_call, error
            return output_of_call, None
        finally:
            output_of_call.end()

    found = event_loop.run(pace.each(calls, work))
    for (anchor, _), (output_of_call, error) in zip(calls, found, strict=True):
        if error is None:
            output.out.add(output_of_call)
        else:
            output.fail(anchor, error, step, batch)


async def _done(call: Callable[[Any], object], out: Any) -> None:
    result = call(out)
    check_done(await result if isawaitable(result) else result)


def _in_turn(rows: Sequence[dict[str, Any]], keys: Sequence[bytes]) -> list[dict[str, Any]]:
    """Returns rows with one of each key in turn; the rows of a key stay in their order."""
    by_key: dict[bytes, list[dict[str, Any]]] = {}
    for row, key in zip(rows, keys, strict=True):
        by_key.setdefault(key, []).append(row)
    return [row for turn in zip_longest(*by_key.values()) for row in turn if row is not None]


def _rows(
    batches: Sequence[pa.RecordBatch], output: StepOutput, step: str, batch: int, fair_by: str = ""
) -> list[dict[str, Any]]:
    """Returns rows as Python's values, in turn by a column. A row without such values fails its request."""
    values: list[dict[str, Any]] = []
    keys: list[bytes] = []
    for batch_rows in batches:
        rows, unfit = python_values.of_rows(batch_rows)
        for place, why in unfit.items():
            output.fail(anchor_of(rows[place].get(ANCHORS)), why, step, batch)
        turns = fairness.keys_of(batch_rows, fair_by) if fair_by else []
        if unfit:
            rows = [row for place, row in enumerate(rows) if place not in unfit]
            turns = [key for place, key in enumerate(turns) if place not in unfit]
        values += rows
        keys += turns
    return _in_turn(values, keys) if fair_by else values


def stage_output(
    core: Core,
    output: StepOutput,
    step: str,
    batch: int,
    into: list[operation.Request],
    looks: Mapping[str, Look] = MappingProxyType({}),
) -> Operation[tuple[Staged, ...]]:
    """Stages the output of a step. A row that its stream cannot have fails its request.

    into: gets requests to be sent with the commit. looks: states of streams, which hold if the streams are
    unchanged (`unchanged`); other streams are read now.
    """
    staged: list[Staged] = []
    others = [stream for stream in output.out.rows if stream not in looks]
    own = {**looks, **(yield from look_at(core, others))}
    for stream, rows in output.out.rows.items():
        staged += yield from _stage_rows(core, stream, own[stream], rows, output, step, batch, into)
    staged += yield from output.out.stage(core, output.failed, into)
    if output.failed:
        anchors = np.array([anchor for anchor in output.failed if anchor], dtype=np.int64)
        causes = [cause for anchor, cause in output.failed.items() if anchor]
        staged_ids = yield from stage_failures(core, STAGING_TTL, anchors, causes)
        staged.append(Staged("", (), tuple(staged_ids)))
    return tuple(staged)


def _stage_rows(
    core: Core,
    stream: str,
    seen: Look,
    rows: Sequence[dict[str, Any]],
    output: StepOutput,
    step: str,
    batch: int,
    into: list[operation.Request],
) -> Operation[list[Staged]]:
    """Stages rows for a stream. Rows that it cannot have are found by halving, and fail their requests."""
    rows = [row for row in rows if output.lives(row[ANCHORS])]
    while rows:
        begun = len(into)
        stored, to = seen
        known = None if stored is None else schemas.parse(stored)
        try:
            table, unfit = row_columns.table(rows, known)
            if unfit:
                for place, why in unfit.items():
                    output.fail(rows[place][ANCHORS], why, step, batch)
                rows = [
                    row
                    for place, row in enumerate(rows)
                    if place not in unfit and not (row[ANCHORS] and row[ANCHORS] in output.failed)
                ]
                continue
            yield from schemas.record_over(core, stream, table.schema, stored)
            if table.schema != (normal := schemas.normal(table.schema)):
                table = table.cast(normal)
            return [(yield from stage(core, Staging(stream, to=to, into=into), table.to_batches()))]
        except BaseException as error:  # the rows are the user's: anything may come of them
            if is_interrupt(error) or isinstance(error, GeneratorExit):
                raise
            if isinstance(error, AckerError) and not isinstance(error, _OF_ROWS):
                raise
            del into[begun:]
            seen = yield from look(core, stream)
            if seen[0] != stored:
                continue  # another worker has given the stream a column meanwhile
            if len(rows) == 1:
                output.fail(rows[0][ANCHORS], error, step, batch)
                return []
        half = len(rows) // 2
        found = yield from _stage_rows(core, stream, seen, rows[:half], output, step, batch, into)
        return found + (yield from _stage_rows(core, stream, seen, rows[half:], output, step, batch, into))
    return []
