"""Functions with steps: built, checked, registered, carried out.

The idea is Storm's LinearDRPCTopologyBuilder.
"""

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
from acker.drpc.step_functions import check_class, check_function, check_given
from acker.errors import AckerError, ValidationError, shown
from acker.ledger.client import Ledger
from acker.ledger.loops import Threads
from acker.ledger.settings.config import check_name
from acker.ledger.settings.settings import check_number
from acker.ledger.settings.topologies import ATTEMPTS
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
"""Seconds for which an answer is kept, and a result after its deadline."""
CALL = pa.schema([("request", pa.string()), ("args", pa.string())])
"""Rows of the first step's stream. args: JSON."""
F = TypeVar("F", bound=Callable[..., Any])


class HasLedger(Protocol):
    """A topology, or a line."""

    @property
    def ledger(self) -> Ledger:
        """The ledger of the topology."""


class LinearDRPC:
    """A function: a row of steps, of which the last gives the result.

    The first step gets rows with `request` (text) and `args`, the caller's value.

    Args:
        name: The name of the function, unique in a store.
        idempotent: True allows steps to run again, after the death of a worker or a failure. False fails the
            requests that a worker had begun when it died.
        attempts: Attempts of an idempotent function for each request: 1 to 1,000.
        timeout: Seconds of a call, by default: 0.01 to 86,400.
        max_pending: Calls without answer: 1 to 1,000,000. More are refused with DRPCFull.

    Raises:
        ValidationError: An argument is invalid.
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
        """Adds a step that works on each row: `function(row, out)`.

        Args:
            name: The name of the step.
            function: The function, which may be `async def`. None with spark=True.
            columns: Names and types of the columns that the step emits.
            spark: True if a Spark job carries out the step (`acker.spark.SparkSteps`).
            **options: See `acker.lines.WorkOptions`.

        Returns:
            This function.

        Raises:
            ValidationError: An argument is invalid.
        """
        check_given(f"step {name!r}", function, spark)
        if function is not None:
            check_function(f"step {name!r}", function)
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
        """Adds a step that sees all rows of a request: one object of `make` for each request and task.

        The object has `execute(row)` and `finished(out)` (`acker.lines`), either may be `async def`. The last
        step gives the result by `out.result(value)`; in a Spark job, by `collector.results(rows)`.

        Args:
            name: The name of the step.
            make: The class of the objects. None with spark=True.
            tasks: Tasks among which the rows of a request are divided: 1 to 64.
            by: Columns whose values choose the task of a row.
            columns: Names and types of the columns that the step emits; None for the last step.
            spark: True if a Spark job carries out the step, with `acker.spark.gathered`.
            **options: See `acker.lines.WorkOptions`; fair_by can only be "_acker".

        Returns:
            This function.

        Raises:
            ValidationError: An argument is invalid.
        """
        label = f"step {name!r}"
        check_given(label, make, spark)
        check_number(tasks, f"{label}, tasks", 1, TASKS, int)
        check_class(label, make)
        if isinstance(by, str) or not all(by):
            raise ValidationError(f"{label}, by: expected names of columns, as a list, got {shown(by)}")
        if not self._steps:
            raise ValidationError(f"{label}: the first step cannot gather, because no step comes before it")
        given = self._columns[-1] or {}
        for column in by:
            if column not in given:
                raise ValidationError(
                    f"{label}, by: column {column!r} is not one that step {self._steps[-1].name!r} gives: "
                    f"{', '.join(given) or 'it gives none'}"
                )
        if tasks > 1 and not by:
            raise ValidationError(f"{label}: {tasks} tasks need columns by which rows are divided: by=[...]")
        step = registry.Step(name, True, tasks, tuple(by), spark=spark)
        return self._add(step, make, columns, options)

    def _add(
        self,
        step: registry.Step,
        target: Callable[..., Any] | None,
        columns: Mapping[str, pa.DataType] | None,
        options: WorkOptions,
    ) -> "LinearDRPC":
        check_name(step.name, "step")
        check_name(f"{self.name}.{step.name}", "function and step")
        if step.name in ("outcomes", "replays"):
            raise ValidationError(f"step: the name {step.name!r} is acker's own")
        if step.name in [added.name for added in self._steps]:
            raise ValidationError(
                f"step: function {self.name!r} has a step of the name {step.name!r} already"
            )
        if len(self._steps) == MOST_STEPS:
            raise ValidationError(f"step: function {self.name!r} has {MOST_STEPS} steps, its most")
        if step.gathers and sum(added.gathers for added in self._steps) == SECTIONS - 1:
            raise ValidationError(
                f"step {step.name!r}: function {self.name!r} has {SECTIONS - 1} steps that gather, its most"
            )
        if self._steps and self._columns[-1] is None:
            raise ValidationError(
                f"step {step.name!r}: step {self._steps[-1].name!r} declares no columns, so no "
                "step can read its rows: give it columns=..."
            )
        self._check_fair(step, options.get("fair_by", ""))
        types = None
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
            types = dict(columns)
            schemas.normal(pa.schema(list(types.items())))
        self._work.append(worked(target, **options))
        self._steps.append(step)
        self._columns.append(types)
        self._made.append(target)
        return self

    def _check_fair(self, step: registry.Step, column: str) -> None:
        """Raises ValidationError if the rows of a step cannot be read fairly by a column."""
        label = f"step {step.name!r}, fair_by"
        given = [*(self._columns[-1] or {})] if self._steps else CALL.names
        if fairness.check(column) in ("", ANCHORS):
            return
        if step.gathers:
            raise ValidationError(
                f"{label}: it gathers, so its rows go on by request: expected {ANCHORS!r}, got "
                f"{shown(column)}"
            )
        if column not in given:
            raise ValidationError(
                f"{label}: expected {ANCHORS!r} or one of {', '.join(given)}, got {shown(column)}"
            )

    def fair_by(self, step: str) -> str:
        """Returns the column by which the stream of a step is read fairly; "" for none.

        Args:
            step: The name of the step.
        """
        return {one.name: fair for one, (_, fair, _) in zip(self._steps, self._work, strict=True)}[step]

    def description(self, topology: str) -> Description:
        """Returns the description for the registry.

        Args:
            topology: The name of the topology.

        Raises:
            ValidationError: The function is not complete.
        """
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
                added.name,
                added.gathers,
                added.tasks,
                added.by,
                None if columns is None else tuple((name, str(kind)) for name, kind in columns.items()),
                added.spark,
            )
            for added, columns in zip(self._steps, self._columns, strict=True)
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
        """Registers the function in a topology, and so allows calls. An equal registration changes nothing.

        Args:
            topology: The topology, or a line.

        Returns:
            The line of the steps.

        Raises:
            FunctionConflict: The function is registered with other steps or options.
            LineConflict: Another line has the name of the function.
            ValidationError: The function is not complete.
        """
        return self.register_in(topology.ledger)

    def register_in(self, ledger: Ledger) -> Line:
        """Registers the function by the topology's ledger; see `register`.

        Args:
            ledger: The ledger of the topology.

        Returns:
            The line of the steps.

        Raises:
            AckerError: See `register`. Or other processes remove the function again and again.
        """
        description = self.description(ledger.config.name)
        ledger.run(registry.check(description))  # all other refusals come before callers see the function
        ledger.run(_claim(ledger, self.name))
        for _ in range(ATTEMPTS):
            line = self._make_line(ledger, description)
            if ledger.run(registry.mark(ledger.core, description, new=True)):
                ledger.run(registry.register(description))
                if ledger.run(registry.is_whole(ledger.core, description)):
                    return line
        raise AckerError(f"function {self.name!r} was removed {ATTEMPTS} times while it was registered")

    def _make_line(self, ledger: Ledger, description: Description) -> Line:
        """Makes the line and the streams of the steps."""
        gathers = [
            Gather(description.stream(place), added.tasks, added.by)
            for place, added in enumerate(self._steps)
            if added.gathers
        ]
        line = Line(ledger, self.name, gathers)
        line.once = not self.idempotent
        line.again = partial(self.register_in, line.ledger)
        line.version = description.version
        line.check = partial(self._check, line.ledger)
        for place, added in enumerate(self._steps):
            columns = CALL if place == 0 else pa.schema(list((self._columns[place - 1] or {}).items()))
            ledger.run(
                schemas.record(
                    ledger.core, description.stream(place), columns.append(pa.field(ANCHORS, pa.int64()))
                )
            )
            ledger.run(subscriptions.subscribe(ledger.core, description.stream(place), added.name))
        for place, added in enumerate(self._steps):
            to = description.stream(place + 1) if place + 1 < len(self._steps) else None
            out = partial(Out, self.name, to, self._columns[place] or {}, round(self.timeout + GRACE))
            target, work = self._made[place], (out, *self._work[place])
            if target is not None and added.gathers:
                line.add(GatherStep(added.name, description.stream(place), target, *work))
            elif target is not None:
                function = target if place else partial(_first, target)
                line.add(FunctionStep(added.name, description.stream(place), function, *work))
        return line

    def _check(self, ledger: Ledger) -> None:
        """Raises FunctionConflict if the registration differs; records a lost version again."""
        function = self.description(ledger.config.name)
        ledger.run(registry.check(function))
        ledger.run(registry.mark(ledger.core, function))

    @contextmanager
    def work(self, topology: HasLedger, threads: int = 1) -> Iterator[threading.Event]:
        """Registers the function, and works on its calls until the block ends.

        Args:
            topology: The topology, or a line.
            threads: Threads for each step: 1 to 64.

        Yields:
            An event that is set if the workers stop early, because the function was registered otherwise. The
            log names the difference.

        Raises:
            FunctionConflict: The function is registered with other steps or options.
            LineConflict: Another line has the name of the function.
            ValidationError: The function is not complete, or `threads` is out of range.
        """
        check_threads(threads)
        line = self.register(topology)
        answering = Threads()
        function = self.description(topology.ledger.config.name)
        with line.working(threads, answering.stop):
            try:
                answering.start(answers.run, line.ledger, function, answering.stop)
                yield answering.stop
            finally:
                answering.end()


def _claim(ledger: Ledger, name: str) -> Operation[None]:
    """Marks that the function's answerers, not tickers, take its outcomes."""
    yield [command("HSET", keys.Spout(ledger.config.name, name).counts, keys.Spout.CLAIMED, 1)]


def _first(function: Callable[..., object], row: dict[str, Any], out: Out) -> object:
    return function({**row, "args": json.loads(row["args"])}, out)
