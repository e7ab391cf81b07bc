"""A line in plain Python: its declaration, and the threads that work on its steps.

Terms: a bundle is the rows that have gathered for one task of a group; a group is requests of a line that
were tracked together.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar, Unpack

from acker.errors import AckerError, FunctionConflict, LineConflict, ValidationError, shown
from acker.ledger.calls.core import Core
from acker.ledger.client import Ledger, remake
from acker.ledger.loops import Threads
from acker.ledger.outcomes.outcomes import READ_ENTRIES, OutcomeReader
from acker.ledger.settings.config import check_name
from acker.ledger.settings.settings import check_number
from acker.ledger.slabs.sections import SPOUT
from acker.lines import coordinator, definition
from acker.lines.gather import Gather
from acker.store import keys, loops
from acker.store.loops import Pace
from acker.store.operation import command
from acker.streams.log import fairness
from acker.workers import leases, room, row_columns
from acker.workers.out import Out
from acker.workers.steps import FunctionStep, GatherStep, worked
from acker.workers.wakeups import Bell
from acker.workers.work_options import WorkOptions
from acker.workers.worker import Step, Worker

F = TypeVar("F", bound=Callable[..., Any])
THREADS = 64
FORGET = 1.0
"""Seconds after which the keys of released groups get a shorter time to live."""
_PAUSE = 0.2
"""Seconds between two polls without a cause: a bell rings for new rows."""
_LONGEST_PAUSE = 1.0
_AGAIN = 0.05
"""Seconds after which outcomes are read again that changed meanwhile, because another was quicker."""
_COUNT = 0.5
_log = logging.getLogger(__name__)


class Line:
    """A line of a topology: gathering streams, in the order in which rows pass through them.

    The reader of a gathering stream gets the rows of a request when no more can come, because the step
    before, and all steps before that, have seen all rows of the request.

    Args:
        ledger: The ledger of the topology.
        name: The name of the line.
        gathers: The gathering streams.

    Raises:
        LineConflict: The topology has a line of that name with other streams.
        ValidationError: An argument is invalid.

    Examples:
        >>> line = Line(topology.ledger, "counts", [Gather("words", tasks=2, by=("word",))])
        >>> @line.step("split", reads="lines")
        ... def split(row, out):
        ...     for word in row["line"].split():
        ...         out.emit("words", {"word": word})
        >>> @line.gather("distinct", reads="words")
        ... class Distinct:
        ...     def __init__(self, request):
        ...         self.words = set()
        ...     def execute(self, row):
        ...         self.words.add(row["word"])
        ...     def finished(self, out):  # all words of the request that this task gets have come
        ...         out.emit("distinct", {"words": len(self.words)})
        >>> [worker.step.name for worker in line.workers()]
        ['split', 'distinct']
    """

    def __init__(self, ledger: Ledger, name: str, gathers: Sequence[Gather]) -> None:
        self.ledger = Ledger(ledger.store, ledger.core)  # its own: it follows the topology, others do not
        self.name = check_name(name, "line")
        self._gathers = definition.check(list(gathers))
        self.definition = ledger.run(definition.declare(ledger.core, name, self._gathers))
        self.again: Callable[[], object] = self._declare
        """Declares the line, and all that belongs to it, in a store that has lost it."""
        self.check: Callable[[], object] = lambda: None
        """Raises FunctionConflict if the line's steps are no longer the registered steps."""
        self.once = False
        """True if begun work of a dead worker is not repeated: its requests fail."""
        self.version = ""
        """The version of the function that has these steps."""
        self._steps: dict[str, Step] = {}

    def step(self, name: str, *, reads: str, **options: Unpack[WorkOptions]) -> Callable[[F], F]:
        """Adds a function that works on each row of a stream: `function(row, out)`.

        Args:
            name: The name of the step.
            reads: The name of the stream.
            **options: See `acker.lines.WorkOptions`.

        Returns:
            A decorator of the function, which may be `async def` and then works on many rows at a time.

        Raises:
            ValidationError: An argument is invalid.
        """

        def add(function: F) -> F:
            work = worked(function, **options)
            self.add(FunctionStep(check_name(name, "step"), check_name(reads, "reads"), function, Out, *work))
            return function

        return add

    def gather(self, name: str, *, reads: str, **options: Unpack[WorkOptions]) -> Callable[[F], F]:
        """Adds a class that gathers a stream of the line: one object for each request and task.

        The object is made with a `Request`, and has `execute(row)` and `finished(out)`. If one of these is
        `async def`, many requests are worked on at a time, but the rows of each one after another.

        Args:
            name: The name of the step.
            reads: A gathering stream of the line.
            **options: See `acker.lines.WorkOptions`. With fair_by "_acker", large bundles do not delay small
                ones, and each is worked on as a whole.

        Returns:
            A decorator of the class.

        Raises:
            ValidationError: An argument is invalid, or the stream does not gather.
        """
        if reads not in [gather.stream for gather in self.definition.gathers]:
            raise ValidationError(
                f"reads: expected one of the streams of line {self.name!r} that gather, "
                f"{', '.join(gather.stream for gather in self.definition.gathers)}, got {shown(reads)}"
            )

        def add(make: F) -> F:
            self.add(GatherStep(check_name(name, "step"), reads, make, Out, *worked(make, **options)))
            return make

        return add

    def add(self, step: Step) -> None:
        """Adds a complete step.

        Args:
            step: The step.

        Raises:
            ValidationError: The line has a step of that name.
        """
        if step.name in self._steps:
            raise ValidationError(f"step: line {self.name!r} has a step of the name {step.name!r} already")
        if step.fair_by:
            self.ledger.run(fairness.declare(self.ledger.core, step.reads, step.fair_by))
        self._steps[step.name] = step

    def workers(self) -> list[Worker]:
        """Returns a worker for each step, for callers that run the workers themselves."""
        return [
            Worker(self.ledger, step, once=self.once, version=self.version) for step in self._steps.values()
        ]

    def _declare(self) -> None:
        self.definition = self.ledger.run(definition.declare(self.ledger.core, self.name, self._gathers))
        for step in self._steps.values():
            if step.fair_by:
                self.ledger.run(fairness.declare(self.ledger.core, step.reads, step.fair_by))

    def keep(self) -> None:
        """Follows a changed topology, and declares again the lines that the store has lost.

        Raises:
            LineConflict: The line is now declared otherwise.
            FunctionConflict: The function of the line is now registered otherwise.
        """
        ledger = self.ledger
        remade = remake(ledger)
        if remade is not ledger:
            _log.warning("line %s goes on with the topology as it is now: %s", self.name, remade.config)
            ledger.core = remade.core
        [there] = ledger.store.send([command("HEXISTS", keys.lines(ledger.config.name), self.name)])
        if not there:
            _log.warning("line %s is declared again: the store has lost it, or it was removed", self.name)
            self.again()
        self.check()

    @contextmanager
    def work(self, threads: int = 1) -> Iterator[None]:
        """Runs all steps and a coordinator in threads until the block ends.

        Args:
            threads: Threads for each step: 1 to 64.

        Raises:
            ValidationError: `threads` is out of range.
        """
        with self.working(threads, threading.Event()):
            yield

    @contextmanager
    def working(self, threads: int, stop: threading.Event) -> Iterator[None]:
        """Runs the line as `work` does.

        Args:
            threads: Threads for each step: 1 to 64.
            stop: Set when the workers stop, because the line was declared otherwise.
        """
        check_threads(threads)
        row_columns.load_pandas()
        bell = Bell(self.ledger.store, stop)
        workers = [worker for _ in range(threads) for worker in self.workers()]
        running: list[tuple[Any, ...]] = [
            (_run, worker, stop, self._listening(bell, worker)) for worker in workers
        ]
        # Where one server has all outcomes, it waits for them itself.
        outcomes = OutcomeReader(self.ledger.core, SPOUT).keys() if self.ledger.store.cluster else ()
        woken = bell.listen(outcomes)
        running += [(coordinate, self.ledger, stop, woken), (bell.run,)]
        renewals = leases.Renewals()
        for worker in workers:
            worker.renewals = renewals
        running += [(each, self, workers, renewals, stop) for each in (_look_after, _renew)]
        started = Threads(stop)
        with room.OF_PROCESS.shared_by(len(workers)):
            try:
                for one in running:
                    started.start(*one)
                yield
            finally:
                bell.end()
                started.end()

    def _listening(self, bell: Bell, worker: Worker) -> threading.Event:
        return bell.listen([keys.Stream(self.ledger.config.name, worker.step.reads).entries])


def check_threads(threads: int) -> None:
    """Raises ValidationError if the number of threads for a step is out of range."""
    check_number(threads, "threads", 1, THREADS, int)


def coordinate(ledger: Ledger, stop: threading.Event, woken: threading.Event) -> None:
    """Releases gathered groups until `stop` is set. If the store is unavailable, it waits for it.

    woken: set to stop, and, in a cluster, when there may be work. Otherwise it polls five times a second.
    """
    waits = f"lines of topology {ledger.config.name}: gathered groups wait"
    pace = Pace(_log, waits, _PAUSE, _LONGEST_PAUSE)
    loops.run(stop, _Coordination(ledger).step, pace, first=0, woken=woken)


class _Coordination:
    """The state of a loop that releases gathered groups, of the present core of a ledger."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._forgot, self._retained, self._counted = time.monotonic(), -coordinator.RETAIN, -_COUNT
        self._begin(ledger.core)

    def _begin(self, core: Core) -> None:
        self._core, self._gone = core, list[bytes]()
        self._read_anew()

    def _read_anew(self) -> None:
        self._reader, self._memory = OutcomeReader(self._core, SPOUT), coordinator.Memory()

    def step(self) -> float:
        """Releases what has gathered; returns seconds until the next step."""
        try:
            return self._step()
        except BaseException:
            self._read_anew()
            raise

    def _step(self) -> float:
        ledger, come = self._ledger, None
        if ledger.core is not self._core:  # the topology has changed
            self._begin(ledger.core)
        if not ledger.store.cluster:  # the one server has all outcomes
            patience = round(min(_PAUSE, ledger.store.timeout / 4) * 1000)
            [come] = ledger.store.send([self._reader.blocking(patience)])
        # All are counted now and then, because new outcomes do not reveal a store that was rolled back.
        if time.monotonic() - self._counted >= _COUNT:
            self._counted, come = time.monotonic(), None
        elif come is None and not ledger.store.cluster:
            return 0
        before = self._reader.offset
        count = ledger.run(coordinator.step(self._core, self._reader, self._gone, self._memory, come))
        if self._gone and time.monotonic() - self._forgot >= FORGET:
            self._forgot, self._memory.number = time.monotonic(), None
            ledger.run(coordinator.forget(self._core, self._gone))
        if time.monotonic() - self._retained >= coordinator.RETAIN:
            self._retained = time.monotonic()
            ledger.run(coordinator.retain(self._core))
            ledger.run(coordinator.sweep(self._core))
        pause = 0 if count >= READ_ENTRIES or not ledger.store.cluster else _PAUSE
        return max(pause, _AGAIN) if count and self._reader.offset == before else pause


def _run(worker: Worker, stop: threading.Event, woken: threading.Event) -> None:
    def step() -> float:
        found = worker.work(again=True)
        # As for outcomes. A worker that has taken all rows leaves the store to the busy ones.
        return 0.0 if found and worker.more else _PAUSE

    waits = f"step {worker.step.name} waits"
    loops.run(stop, step, Pace(_log, waits, _PAUSE, _LONGEST_PAUSE), woken=woken)
    try:
        worker.end()
    except AckerError as error:  # its lease ends
        _log.warning("step %s: %s", worker.step.name, error)


def _look_after(
    line: Line, workers: Sequence[Worker], renewals: leases.Renewals, stop: threading.Event
) -> None:
    def step() -> None:
        # First: after a step that held the interpreter, the workers of this process are not to count as dead.
        loops.call_all(
            lambda: renew(line, workers, renewals),
            lambda: look_after(line, workers, stop),
        )

    loops.run(stop, step, Pace(_log, f"line {line.name}", leases.LEASE / 4, leases.LEASE / 4))


def _renew(line: Line, workers: Sequence[Worker], renewals: leases.Renewals, stop: threading.Event) -> None:
    """Renews the leases of workers, in a thread of its own: no other work delays it."""

    def step() -> float:
        renew(line, workers, renewals)
        return renewals.period(line.ledger.core)

    period = renewals.period(line.ledger.core)
    loops.run(stop, step, Pace(_log, f"line {line.name}: leases are not renewed", period, period))


def renew(line: Line, workers: Sequence[Worker], renewals: leases.Renewals) -> None:
    """Renews the leases of workers."""
    living = [one for worker in workers if (one := worker.living) is not None]
    renewals.renew(line.ledger, living)


def look_after(line: Line, workers: Sequence[Worker], stop: threading.Event) -> None:
    """Follows the topology, and recovers the claims of dead workers. Sets `stop` if the workers must stop."""

    def keep() -> None:
        try:
            line.keep()
        except (FunctionConflict, LineConflict) as error:
            _log.error("line %s: its workers stop: %s", line.name, error)
            stop.set()

    def recover(worker: Worker) -> None:
        if not stop.is_set():
            worker.recover()

    of_steps = {worker.step.name: worker for worker in workers}  # one worker for each step
    loops.call_all(keep, *(partial(recover, worker) for worker in of_steps.values()))
