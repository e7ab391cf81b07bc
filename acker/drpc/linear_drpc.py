"""Functions that steps work out: built, checked, registered, worked on.

The idea is Storm's LinearDRPCTopologyBuilder.
"""

import inspect
import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Protocol, TypeVar, Unpack

import pyarrow as pa  # noqa: TID251 - rows travel as Arrow, from and to Spark and plain Python

from acker.drpc import answers, registry
from acker.drpc.out import Out
from acker.drpc.registry import Description
from acker.errors import ValidationError, shown
from acker.ledger.client import Ledger
from acker.ledger.loops import Threads
from acker.ledger.settings.config import check_name
from acker.ledger.settings.settings import check_number
from acker.ledger.slabs.sections import SECTIONS
from acker.lines import Gather, Line
from acker.lines.line import check_threads
from acker.store import keys
from acker.store.operation import Operation, command
from acker.streams.log import fairness, schemas, subscriptions
from acker.streams.log.gathers import TASKS
from acker.streams.log.segments import ANCHORS
from acker.workers.steps import FunctionStep, GatherStep, Work, worked
from acker.workers.work_options import WorkOptions

MOST_STEPS = 16
MOST_TIMEOUT = 86_400.0
MOST_PENDING = 1_000_000
GRACE = 600.0
"""Seconds for which an answer is kept, and a result after its time."""
CALL = pa.schema([("request", pa.string()), ("args", pa.string())])
"""Rows of the first step's stream. args: JSON."""
F = TypeVar("F", bound=Callable[..., Any])


class HasLedger(Protocol):
    """A topology, or a line."""

    @property
    def ledger(self) -> Ledger:
        """Its ledger."""


class LinearDRPC:
    """A function: steps in a row, of which the last one gives the result.

    name: unique in a store. idempotent: steps may run again, where a worker died, or one failed a request:
    that is tried `attempts` times (1 to 1,000). Else what a worker had begun when it died fails at once.
    timeout: seconds of a call, where it gives none (0.01 to 86,400). max_pending: calls without answer (1 to
    1,000,000); more are refused with DRPCFull.

    The first step is called with rows of `request` (text) and `args`, as the caller gave them. Each method
    returns the function itself, and raises ValidationError.
    """

    def __init__(
        self,
        name: str,
        *,
        idempotent: bool = False,
        attempts: int = 3,
        timeout: float = 600.0,
        max_pending: int = 10_000,
    ) -> None:
        self.name = check_name(name, "function")
        self.idempotent = idempotent
        check_number(attempts, "attempts", 1, 1_000, int)
        check_number(timeout, "timeout", 0.01, MOST_TIMEOUT, float)
        check_number(max_pending, "max_pending", 1, MOST_PENDING, int)
        self.attempts = attempts if idempotent else 1
        self.timeout = float(timeout)
        self.max_pending = max_pending
        self._steps: list[registry.Step] = []
        self._columns: list[dict[str, pa.DataType] | None] = []
        self._made: list[Callable[..., Any] | None] = []
        self._work: list[Work] = []

    def step(
        self,
        name: str,
        function: Callable[..., object] | None = None,
        *,
        columns: Mapping[str, pa.DataType],
        spark: bool = False,
        **options: Unpack[WorkOptions],
    ) -> "LinearDRPC":
        """Adds a step that works on each row: `function(row, out)`. columns: of the rows that it emits.

        It may be `async def`. options: concurrency, timeout, fair_by, max_bytes, see
        `acker.lines.WorkOptions`.

        spark: a Spark job works on it (`acker.spark.SparkSteps`); there is no function then.
        """
        _check_made(f"step {name!r}", function, spark)
        if function is not None:
            _check_function(f"step {name!r}", function)
        step = registry.Step(name, spark=spark)
        return self._add(step, function, columns, options)

    def gather(
        self,
        name: str,
        make: Callable[..., Any] | None = None,
        *,
        tasks: int = 1,
        by: Sequence[str] = (),
        columns: Mapping[str, pa.DataType] | None = None,
        spark: bool = False,
        **options: Unpack[WorkOptions],
    ) -> "LinearDRPC":
        """Adds a step that sees all rows of a request: an object of `make` for each request and task.

        It has `execute(row)` and `finished(out)` (`acker.lines`). The last one has no columns: it gives the
        result by `out.result(value)`. Its methods may be `async def`. options: as in `step`; fair_by is
        "_acker" here.

        spark: as in `step`; the job has `acker.spark.gathered`, and gives the result, where it is the last,
        by `collector.results(rows)`.
        """
        what = f"step {name!r}"
        _check_made(what, make, spark)
        check_number(tasks, f"{what}, tasks", 1, TASKS, int)
        for method in ("execute", "finished"):
            if inspect.isclass(make):
                if not callable(getattr(make, method, None)):
                    raise ValidationError(f"{what}: expected a class with {method}, got {shown(make)}")
                _check_function(f"{what}, {method}", getattr(make, method))
        if make is not None and not callable(make):
            raise ValidationError(f"{what}: expected a class with execute and finished, got {shown(make)}")
        if isinstance(by, str) or not all(by):
            raise ValidationError(f"{what}, by: expected names of columns, as a list, got {shown(by)}")
        if not self._steps:
            raise ValidationError(f"{what}: the first step cannot gather, for nothing comes before it")
        given = self._columns[-1] or {}
        for column in by:
            if column not in given:
                raise ValidationError(
                    f"{what}, by: column {column!r} is not one that step {self._steps[-1].name!r} gives: "
                    f"{', '.join(given) or 'it gives none'}"
                )
        if tasks > 1 and not by:
            raise ValidationError(f"{what}: {tasks} tasks need columns by which rows are divided: by=[...]")
        step = registry.Step(name, True, tasks, tuple(by), spark=spark)
        return self._add(step, make, columns, options)

    def _add(
        self,
        step: registry.Step,
        made: Callable[..., Any] | None,
        columns: Mapping[str, pa.DataType] | None,
        options: WorkOptions,
    ) -> "LinearDRPC":
        check_name(step.name, "step")
        check_name(f"{self.name}.{step.name}", "function and step")
        if step.name in ("outcomes", "replays"):
            raise ValidationError(f"step: the name {step.name!r} is acker's own")
        if step.name in [one.name for one in self._steps]:
            raise ValidationError(f"step: function {self.name!r} has one of the name {step.name!r} already")
        if len(self._steps) == MOST_STEPS:
            raise ValidationError(f"step: function {self.name!r} has {MOST_STEPS} steps, its most")
        if step.gathers and sum(one.gathers for one in self._steps) == SECTIONS - 1:
            raise ValidationError(
                f"step {step.name!r}: function {self.name!r} has {SECTIONS - 1} steps that gather, its most"
            )
        if self._steps and self._columns[-1] is None:
            raise ValidationError(
                f"step {step.name!r}: step {self._steps[-1].name!r} has no columns, so it is the last"
            )
        self._check_fair(step, options.get("fair_by", ""))
        found = None
        if columns is not None:
            for column, kind in columns.items():
                if not column or not isinstance(kind, pa.DataType):
                    raise ValidationError(
                        f"step {step.name!r}, columns: expected names and types of pyarrow, got "
                        f"{column!r:.100}: {kind!r:.100}"
                    )
                if column.lower().startswith("_acker"):
                    raise ValidationError(f"step {step.name!r}, columns: {column!r} is acker's own")
            if not columns:
                raise ValidationError(f"step {step.name!r}, columns: expected one or more, got none")
            found = dict(columns)
            schemas.normal(pa.schema(list(found.items())))
        self._work.append(worked(made, **options))
        self._steps.append(step)
        self._columns.append(found)
        self._made.append(made)
        return self

    def _check_fair(self, step: registry.Step, column: str) -> None:
        """Raises ValidationError where the rows of a step cannot be read fairly by a column."""
        what = f"step {step.name!r}, fair_by"
        given = [*(self._columns[-1] or {})] if self._steps else CALL.names
        if fairness.check(column) in ("", ANCHORS):
            return
        if step.gathers:
            raise ValidationError(
                f"{what}: it gathers, so its rows go on by request: expected {ANCHORS!r}, got {shown(column)}"
            )
        if column not in given:
            raise ValidationError(
                f"{what}: expected {ANCHORS!r} or one of {', '.join(given)}, got {shown(column)}"
            )

    def fair_by(self, step: str) -> str:
        """The column by which the stream of a step is read fairly; "": it is not."""
        return {one.name: fair for one, (_, fair, _) in zip(self._steps, self._work, strict=True)}[step]

    def description(self, topology: str) -> Description:
        """The function, as it is registered. Raises ValidationError where it is not whole."""
        if not self._steps:
            raise ValidationError(f"function {self.name!r} has no step")
        last = self._steps[-1]
        if not last.gathers or last.tasks != 1 or self._columns[-1] is not None:
            raise ValidationError(
                f"function {self.name!r}: expected a last step that gathers, with one task and no columns, "
                f"got {shown(last.name)}: the result is what it gives when it has seen all"
            )
        steps = [
            registry.Step(
                one.name,
                one.gathers,
                one.tasks,
                one.by,
                None if columns is None else tuple((name, str(kind)) for name, kind in columns.items()),
                one.spark,
            )
            for one, columns in zip(self._steps, self._columns, strict=True)
        ]
        return Description(
            self.name,
            topology,
            tuple(steps),
            self.idempotent,
            self.attempts,
            self.timeout,
            GRACE,
            self.max_pending,
        )

    def register(self, topology: HasLedger) -> Line:
        """Registers the function in a topology; the same again changes nothing. Calls may come from now on.

        Raises FunctionConflict, LineConflict and ValidationError.
        """
        return self.register_in(topology.ledger)

    def register_in(self, ledger: Ledger) -> Line:
        """As `register`, by the topology's ledger."""
        what = self.description(ledger.config.name)
        ledger.run(registry.check(what))  # all else that is refused is refused before it is there for callers
        ledger.run(_claim(ledger, self.name))
        gathers = [
            Gather(what.stream(place), one.tasks, one.by)
            for place, one in enumerate(self._steps)
            if one.gathers
        ]
        line = Line(ledger, self.name, gathers)
        line.once = not self.idempotent
        line.again = partial(self.register_in, line.ledger)
        line.version = what.version
        line.check = partial(self._check, line.ledger)
        for place, one in enumerate(self._steps):
            columns = CALL if place == 0 else pa.schema(list((self._columns[place - 1] or {}).items()))
            ledger.run(
                schemas.record(ledger.core, what.stream(place), columns.append(pa.field(ANCHORS, pa.int64())))
            )
            ledger.run(subscriptions.subscribe(ledger.core, what.stream(place), one.name))
        for place, one in enumerate(self._steps):
            to = what.stream(place + 1) if place + 1 < len(self._steps) else None
            out = partial(Out, self.name, to, self._columns[place] or {}, round(self.timeout + GRACE))
            made, how = self._made[place], (out, *self._work[place])
            if made is not None and one.gathers:
                line.add(GatherStep(one.name, what.stream(place), made, *how))
            elif made is not None:
                function = made if place else partial(_first, made)
                line.add(FunctionStep(one.name, what.stream(place), function, *how))
        ledger.run(registry.mark(ledger.core, what, new=True))
        ledger.run(registry.register(what))
        return line

    def _check(self, ledger: Ledger) -> None:
        """Raises FunctionConflict where it is registered otherwise; notes its version where that is lost."""
        what = self.description(ledger.config.name)
        ledger.run(registry.check(what))
        ledger.run(registry.mark(ledger.core, what))

    @contextmanager
    def work(self, topology: HasLedger, threads: int = 1) -> Iterator[threading.Event]:
        """Registers the function, and works on its calls, each step in `threads`, until it is left.

        Gives an event that is set where its workers stop before: somebody has registered the function
        otherwise. The log says how. Raises ValidationError, and what `register` does.
        """
        check_threads(threads)
        line = self.register(topology)
        answering = Threads()
        what = self.description(topology.ledger.config.name)
        with line.working(threads, answering.stop):
            try:
                answering.start(answers.run, line.ledger, what, answering.stop)
                yield answering.stop
            finally:
                answering.end()


def _claim(ledger: Ledger, name: str) -> Operation[None]:
    """Has tickers leave the outcomes to who answers."""
    yield [command("HSET", keys.Spout(ledger.config.name, name).counts, keys.Spout.TAKEN, 1)]


def _first(function: Callable[..., object], row: dict[str, Any], out: Out) -> object:
    return function({**row, "args": json.loads(row["args"])}, out)


def _check_made(what: str, made: object, spark: bool) -> None:
    if spark and made is not None:
        raise ValidationError(f"{what}: a Spark job works on it, so it has no {shown(made)} here")
    if not spark and made is None:
        raise ValidationError(f"{what}: expected what works on it, or spark=True where a Spark job does")


def _check_function(what: str, function: object) -> None:
    if not callable(function):
        raise ValidationError(f"{what}: expected a function, got {shown(function)}")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise ValidationError(
            f"{what}: expected one that emits by out.emit, got the generator function {shown(function)}"
        )
