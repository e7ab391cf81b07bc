"""The state of a function: its steps, their workers, and its calls in figures."""

from dataclasses import dataclass
from typing import Annotated

from acker.drpc import calls
from acker.drpc.registry import Description
from acker.inspect.functions.figures import Figures, figures
from acker.ledger.calls.core import Core
from acker.ledger.fields import SPREAD, Count, Name, Seconds
from acker.store.operation import Operation


@dataclass(frozen=True, slots=True)
class StepState:
    """A step of a function."""

    name: Name
    stream: Annotated[Name, "The stream that it reads."]
    gathers: Annotated[bool, "Whether it sees a request when all rows of it are there."]
    tasks: Annotated[Count, "Into how many a request is divided."]
    spark: Annotated[bool, "Whether a Spark job works on it."]
    workers: Annotated[Count | None, "Workers that are alive; null where a Spark job works on it."]


@dataclass(frozen=True, slots=True)
class FunctionState:
    """A function of the store."""

    function: Name
    topology: Name
    idempotent: Annotated[bool, "Whether a request may be worked on again."]
    attempts: Count
    timeout: Annotated[Seconds, "Seconds that a call has, where it names none."]
    keep: Annotated[Seconds, "Seconds for which an answer is kept."]
    max_pending: Annotated[Count, "Calls without answer that it may have."]
    figures: Annotated[Figures, SPREAD]
    steps: tuple[StepState, ...]


def function_state(core: Core, function: Description) -> Operation[FunctionState]:
    """The state of a function. Raises UnreadableRecord."""
    read = yield from figures(core, function)
    alive = yield from calls.workers(core, function)
    steps = tuple(
        StepState(
            step.name,
            function.stream(place),
            step.gathers,
            step.tasks,
            step.spark,
            None if step.spark else workers,
        )
        for place, (step, workers) in enumerate(zip(function.steps, alive, strict=True))
    )
    return FunctionState(
        function.name,
        function.topology,
        function.idempotent,
        function.attempts,
        function.timeout,
        function.keep,
        function.max_pending,
        read,
        steps,
    )
