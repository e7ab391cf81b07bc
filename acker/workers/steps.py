"""Steps of a line in plain Python: what they are given, and what becomes of what they emit."""

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
from acker.streams.log.segments import ANCHORS, Segment
from acker.streams.staging.staging import STAGING_TTL, Staged, Staging, stage, stage_failures
from acker.workers import row_columns
from acker.workers.out import Anchor, Emitting, Out, anchor_of, trees_of
from acker.workers.poison import Careful
from acker.workers.request import Request
from acker.workers.room import CLAIM_BYTES, MOST_BYTES
from acker.workers.stream_state import Look, look, look_at

_LOST = "rows of the request are lost: the store has dropped them, or they cannot be read"
_OF_ROWS = (SchemaMismatch, ValidationError, ValueTooLong)
"""Errors of ours that are of some rows, and not of the store."""
_LOGGED = 100
"""Failures of a batch that are logged, with a trace each, which costs more than most steps."""
_log = logging.getLogger(__name__)


class Gatherer(Protocol):
    """What a step that gathers makes of a request, for each task; it lives while its rows are read."""

    def execute(self, row: dict[str, Any]) -> object:
        """Is called with each row of the request that is for the task."""

    def finished(self, out: Any) -> object:
        """Is called when no further row will come: with the last word on the request."""


@dataclass(slots=True)
class Made:
    """What a step has made of a batch: rows to emit, and trees to fail, each for a cause."""

    out: Any
    failed: dict[int, str] = field(default_factory=dict)
    logged: int = 0

    def attempt(self, anchor: Anchor, step: str, batch: int, action: Callable[[Any], object]) -> None:
        """Does something for a request; what it raises fails that request alone. action: is given `out`."""
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
        """Has a request fail for an error; of a row with several trees, all of them."""
        said = said_by(error)
        retry = not issubclass(type(error), PermanentFailure)
        cause = Cause(bounded_reason(said), step, retry, batch).text()
        for tree in trees_of(anchor):
            self.failed.setdefault(tree, cause)
        if not issubclass(type(error), FailedException):
            self._log(error, step, said)

    def failing(self, step: str, batch: int) -> Callable[[Anchor, BaseException], None]:
        """`fail` for a batch of a step."""
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
    """A segment, and its rows that are worked on. lost: all that it had is gone, or cannot be read.

    incomplete: of a segment that ends a bundle, the trees of which the bundle has not all rows.
    """

    segment: Segment
    rows: list[pa.RecordBatch]
    lost: bool = False
    incomplete: Collection[int] = ()


class FunctionStep:
    """A step that is a function of a row, and of where it emits to. pace: of one that is asynchronous.

    fair_by: the column by which its stream is read fairly (`acker.streams.log.fairness`); "": it is not.
    max_bytes: of rows that a worker takes at a time (`acker.workers.room`). rows: that it takes at a time,
    about; None: all, for no worker has learnt yet how long they take.
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

    def run(self, batch: int, members: Sequence[Read], careful: Careful | None = None) -> Made:
        """Works on the rows of segments."""
        made = Made(self._out())
        read = [one for one in members if not one.segment.to.startswith(gathers.LAST)]
        if careful is None:
            self._work(self._calls([part for one in read for part in one.rows], made, batch), made, batch)
            return made
        for one in read:
            calls = self._calls(one.rows, made, batch)
            for part in careful.parts(one.segment.token, calls, made.failing(self.name, batch)):
                self._work(part, made, batch)
        return made

    def _calls(
        self, batches: Sequence[pa.RecordBatch], made: Made, batch: int
    ) -> list[tuple[Anchor, dict[str, Any]]]:
        rows = _rows(batches, made, self.name, batch, self.fair_by)
        return [(anchor_of(row.pop(ANCHORS, None)), row) for row in rows]

    def _work(self, calls: Sequence[tuple[Anchor, dict[str, Any]]], made: Made, batch: int) -> None:
        if self.pace is not None:
            made_of = [(anchor, [partial(self._function, row)]) for anchor, row in calls]
            _together(self.pace, self._out, made_of, made, self.name, batch)
            return
        for anchor, row in calls:
            made.attempt(anchor, self.name, batch, partial(self._function, row))


class GatherStep:
    """A step that gathers: an object for each request and task, which lives within one bundle.

    pace: of a class that has asynchronous methods. fair_by: "_acker" where its stream is read fairly
    (`acker.streams.log.fairness`); "": it is not. max_bytes, rows: as of a function.
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

    def run(self, batch: int, members: Sequence[Read], careful: Careful | None = None) -> Made:
        """Works on the rows of segments: whole bundles, each ended by the rows that say so."""
        made, living, lost = Made(self._out()), dict[int, Gatherer](), False
        for one in members:
            _, task, _, last = gathers.parse_destination(one.segment.to)
            lost = lost or one.lost
            rows = [(row.pop(ANCHORS), row) for row in _rows(one.rows, made, self.name, batch)]
            parts: Iterable[Sequence[tuple[Any, dict[str, Any]]]] = [rows]
            if careful is not None:
                parts = careful.parts(one.segment.token, rows, made.failing(self.name, batch))
            for part in parts:
                calls: dict[int, list[Callable[[Any], object]]] = {}
                for anchor, row in part:
                    row.pop(FINISHED, None)
                    if (lost or anchor in one.incomplete) and last:
                        made.fail(anchor, FailedException(_LOST), self.name, batch)
                    elif anchor not in made.failed:
                        work = partial(self._work, living, anchor, task, None if last else row)
                        if self.pace is not None:
                            calls.setdefault(anchor, []).append(work)
                        else:
                            made.attempt(anchor, self.name, batch, work)
                if self.pace is not None:
                    _together(self.pace, self._out, list(calls.items()), made, self.name, batch)
            if last:
                living, lost = {}, False
        return made

    def _work(
        self, living: dict[int, Gatherer], anchor: int, task: int, row: dict[str, Any] | None, out: Any
    ) -> object:
        """Gives the object of a request a row, or, for None, its end."""
        one = living.get(anchor)
        if one is None:
            request = int(sections.within(np.array([anchor], np.int64), 1)[0])
            one = self._make(Request(request, task))
            if isawaitable(one):
                check_done(one)
            living[anchor] = one
        return one.finished(out) if row is None else one.execute(row)


Work: TypeAlias = tuple[Pace | None, str, int]
"""The pace of a step (None: it is plain), `fair_by` and `max_bytes`."""


def worked(
    made: object,
    *,
    concurrency: int | None = None,
    timeout: float | None = None,
    fair_by: str = "",
    max_bytes: int = CLAIM_BYTES,
) -> Work:
    """How a function is worked on, or a class with execute and finished.

    The keywords are `WorkOptions`. Raises ValidationError for bad values, and for a pace where it is plain.
    """
    check_number(max_bytes, "max_bytes", 1, MOST_BYTES, int)
    while isinstance(made, partial):
        made = made.func
    methods = [getattr(made, name, None) for name in ("execute", "finished")] if isclass(made) else [made]
    pace = Pace.make(any(map(asynchronous, methods)), concurrency, timeout)
    return pace, fairness.check(fair_by), max_bytes


def _together(
    pace: Pace,
    out: Callable[[], Emitting],
    calls: Sequence[tuple[Anchor, Sequence[Callable[[Any], object]]]],
    made: Made,
    step: str,
    batch: int,
) -> None:
    """Makes asynchronous calls for requests: those of one entry in their order, the entries side by side."""

    async def work(
        entry: tuple[Anchor, Sequence[Callable[[Any], object]]], whole: "Task[Any] | None"
    ) -> tuple[Emitting, BaseException | None]:
        own = out().of(entry[0])
        try:
            for call in entry[1]:
                _, error = await pace.outcome(partial(_done, call, own), whole)
                if error is not None:
                    return own, error
            return own, None
        finally:
            own.end()

    found = event_loop.run(pace.each(calls, work))
    for (anchor, _), (own, error) in zip(calls, found, strict=True):
        if error is None:
            made.out.add(own)
        else:
            made.fail(anchor, error, step, batch)


async def _done(call: Callable[[Any], object], out: Any) -> None:
    result = call(out)
    check_done(await result if isawaitable(result) else result)


def _in_turn(rows: Sequence[dict[str, Any]], keys: Sequence[bytes]) -> list[dict[str, Any]]:
    """Rows, one of each key after the other, and again; those of a key in their order."""
    by_key: dict[bytes, list[dict[str, Any]]] = {}
    for row, key in zip(rows, keys, strict=True):
        by_key.setdefault(key, []).append(row)
    return [row for turn in zip_longest(*by_key.values()) for row in turn if row is not None]


def _rows(
    batches: Sequence[pa.RecordBatch], made: Made, step: str, batch: int, fair_by: str = ""
) -> list[dict[str, Any]]:
    """Rows as Python's values, in turn by a column. One that Python cannot have fails its request."""
    found: list[dict[str, Any]] = []
    keys: list[bytes] = []
    for one in batches:
        rows, unfit = python_values.of_rows(one)
        for place, why in unfit.items():
            made.fail(anchor_of(rows[place].get(ANCHORS)), why, step, batch)
        own = fairness.keys_of(one, fair_by) if fair_by else []
        if unfit:
            rows = [row for place, row in enumerate(rows) if place not in unfit]
            own = [key for place, key in enumerate(own) if place not in unfit]
        found += rows
        keys += own
    return _in_turn(found, keys) if fair_by else found


def stage_made(
    core: Core,
    made: Made,
    step: str,
    batch: int,
    into: list[operation.Request],
    looks: Mapping[str, Look] = MappingProxyType({}),
) -> Operation[tuple[Staged, ...]]:
    """Stages what a step has made. A row that its stream cannot have fails its request.

    into: gets requests that are to be sent with the commit. looks: at streams, which holds where they are
    as they were then (`unchanged`); at others it looks now.
    """
    staged: list[Staged] = []
    others = [stream for stream in made.out.rows if stream not in looks]
    own = {**looks, **(yield from look_at(core, others))}
    for stream, rows in made.out.rows.items():
        staged += yield from _stage_rows(core, stream, own[stream], rows, made, step, batch, into)
    staged += yield from made.out.stage(core, made.failed, into)
    if made.failed:
        anchors = np.array([anchor for anchor in made.failed if anchor], dtype=np.int64)
        causes = [cause for anchor, cause in made.failed.items() if anchor]
        tokens = yield from stage_failures(core, STAGING_TTL, anchors, causes)
        staged.append(Staged("", (), tuple(tokens)))
    return tuple(staged)


def _stage_rows(
    core: Core,
    stream: str,
    seen: Look,
    rows: Sequence[dict[str, Any]],
    made: Made,
    step: str,
    batch: int,
    into: list[operation.Request],
) -> Operation[list[Staged]]:
    """Stages rows for a stream. Rows that it cannot have, found by halves, fail their requests."""
    rows = [row for row in rows if made.lives(row[ANCHORS])]
    while rows:
        begun = len(into)
        stored, to = seen
        known = None if stored is None else schemas.parse(stored)
        try:
            table, unfit = row_columns.table(rows, known)
            if unfit:
                for place, why in unfit.items():
                    made.fail(rows[place][ANCHORS], why, step, batch)
                rows = [
                    row
                    for place, row in enumerate(rows)
                    if place not in unfit and not (row[ANCHORS] and row[ANCHORS] in made.failed)
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
                made.fail(rows[0][ANCHORS], error, step, batch)
                return []
        half = len(rows) // 2
        found = yield from _stage_rows(core, stream, seen, rows[:half], made, step, batch, into)
        return found + (yield from _stage_rows(core, stream, seen, rows[half:], made, step, batch, into))
    return []
