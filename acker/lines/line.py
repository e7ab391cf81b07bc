"""A line in plain Python: declared, and worked on by threads."""

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar, Unpack

from acker.errors import AckerError, FunctionConflict, LineConflict, ValidationError, shown
from acker.ledger import loops
from acker.ledger.client import Ledger, remake
from acker.ledger.loops import Threads
from acker.ledger.outcomes.outcomes import READ_ENTRIES, OutcomeReader
from acker.ledger.settings.config import check_name
from acker.ledger.settings.settings import check_number
from acker.ledger.slabs.sections import SPOUT
from acker.lines import coordinator, definition
from acker.lines.gather import Gather
from acker.store import keys
from acker.store.operation import Reply, command
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
"""Seconds after which it is seen to that what is known of groups that have gone is not kept for long."""
_PAUSE = 0.2
"""Seconds between two looks that nothing has called for: a bell rings for what comes."""
_LONGEST_PAUSE = 1.0
_AGAIN = 0.05
"""Seconds after which outcomes are looked at again that were not as they were read: another was quicker."""
_COUNT = 0.5
_log = logging.getLogger(__name__)


class Line:
    """A line of a topology: streams that gather, in the order in which rows go through them.

    Of a stream that gathers a reader gets the rows of a request when all that will ever come are written: the
    step before, and all before that, have seen everything of the request. Declared at the first use; raises
    LineConflict where the topology has one of that name with other streams, and ValidationError.
    """

    def __init__(self, ledger: Ledger, name: str, gathers: Sequence[Gather]) -> None:
        self.ledger = Ledger(ledger.store, ledger.core)  # its own: it follows the topology, others do not
        self.name = check_name(name, "line")
        self._gathers = definition.check(list(gathers))
        self.definition = ledger.run(definition.declare(ledger.core, name, self._gathers))
        self.again: Callable[[], object] = self._declare
        """Declares the line, and what belongs to it, in a store that has lost it."""
        self.check: Callable[[], object] = lambda: None
        """Raises FunctionConflict where the line's steps are not the ones that are wanted any more."""
        self.once = False
        """Whether what a worker had begun when it died is not worked on again: its requests fail."""
        self.version = ""
        """The version of the function whose steps these are."""
        self._steps: dict[str, Step] = {}

    def step(self, name: str, *, reads: str, **options: Unpack[WorkOptions]) -> Callable[[F], F]:
        """Has a function work on each row of a stream: `function(row, out)`. See `acker.workers.steps.Out`.

        It may be `async def`: many of its rows are under way at a time then. options: concurrency, timeout,
        fair_by, max_bytes, see `acker.lines.WorkOptions`. Raises ValidationError.
        """

        def add(function: F) -> F:
            work = worked(function, **options)
            self.add(FunctionStep(check_name(name, "step"), check_name(reads, "reads"), function, Out, *work))
            return function

        return add

    def gather(self, name: str, *, reads: str, **options: Unpack[WorkOptions]) -> Callable[[F], F]:
        """Has a class gather a stream of the line: an object of it for each request and task.

        It is made with a `Request`, and has `execute(row)` and `finished(out)`. Where one of these is `async
        def`, many requests are under way at a time: the rows of each come one after another. options: as in
        `step`; with fair_by "_acker" large bundles keep no small ones waiting, and each is worked on as a
        whole. Raises ValidationError, also where the stream does not gather.
        """
        if reads not in [one.stream for one in self.definition.gathers]:
            raise ValidationError(
                f"reads: expected one of the streams of line {self.name!r} that gather, "
                f"{', '.join(one.stream for one in self.definition.gathers)}, got {shown(reads)}"
            )

        def add(make: F) -> F:
            self.add(GatherStep(check_name(name, "step"), reads, make, Out, *worked(make, **options)))
            return make

        return add

    def add(self, step: Step) -> None:
        """Adds a step that is made already. Raises ValidationError."""
        if step.name in self._steps:
            raise ValidationError(f"step: line {self.name!r} has one of the name {step.name!r} already")
        if step.fair_by:
            self.ledger.run(fairness.declare(self.ledger.core, step.reads, step.fair_by))
        self._steps[step.name] = step

    def workers(self) -> list[Worker]:
        """A worker for each step, for who runs them himself."""
        return [
            Worker(self.ledger, step, once=self.once, version=self.version) for step in self._steps.values()
        ]

    def _declare(self) -> None:
        self.definition = self.ledger.run(definition.declare(self.ledger.core, self.name, self._gathers))
        for step in self._steps.values():
            if step.fair_by:
                self.ledger.run(fairness.declare(self.ledger.core, step.reads, step.fair_by))

    def keep(self) -> None:
        """Follows the topology where it was configured or made anew; declares what the store has lost.

        Raises LineConflict or FunctionConflict where it was declared otherwise since.
        """
        ledger = self.ledger
        found = remake(ledger)
        if found is not ledger:
            _log.warning("line %s goes on with the topology as it is now: %s", self.name, found.config)
            ledger.core = found.core
        [there] = ledger.store.send([command("HEXISTS", keys.lines(ledger.config.name), self.name)])
        if not there:
            _log.warning("line %s is declared again: the store has lost it, or it was removed", self.name)
            self.again()
        self.check()

    @contextmanager
    def work(self, threads: int = 1) -> Iterator[None]:
        """Runs all steps, each in so many threads (1 to 64), and a coordinator, until the context is left."""
        with self.working(threads, threading.Event()):
            yield

    @contextmanager
    def working(self, threads: int, stop: threading.Event) -> Iterator[None]:
        """As `work`. stop: is set where the workers stop, for the line was declared otherwise since."""
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
    """Raises ValidationError where so many threads cannot work on a step."""
    check_number(threads, "threads", 1, THREADS, int)


def coordinate(ledger: Ledger, stop: threading.Event, woken: threading.Event) -> None:
    """Releases what has gathered, until `stop` is set. A store that is away is waited for.

    woken: is set when it is to stop, and, in a cluster, when there may be something to do. Without, it looks
    five times a second.
    """
    core, come, pause = ledger.core, None, _PAUSE
    reader, memory, gone = OutcomeReader(core, SPOUT), coordinator.Memory(), list[bytes]()
    forgot, retained, counted = time.monotonic(), -coordinator.RETAIN, -_COUNT
    while not stop.is_set():
        if ledger.core is not core:  # the topology has changed
            core, come, gone = ledger.core, None, []
            reader, memory = OutcomeReader(core, SPOUT), coordinator.Memory()
        try:
            if ledger.store.cluster:
                woken.wait(pause)
                woken.clear()
            else:
                come = _awaited(ledger, reader)
            # All are counted now and then: by what comes, nobody learns that the store was set back.
            if time.monotonic() - counted >= _COUNT:
                counted, come = time.monotonic(), None
            elif come is None and not ledger.store.cluster:
                continue
            before = reader.position
            found = ledger.run(coordinator.step(core, reader, gone, memory, come))
            pause = 0 if found >= READ_ENTRIES else _PAUSE
            if found and reader.position == before:
                woken.wait(_AGAIN)
            if gone and time.monotonic() - forgot >= FORGET:
                forgot, memory.number = time.monotonic(), None
                ledger.run(coordinator.forget(core, gone))
            if time.monotonic() - retained >= coordinator.RETAIN:
                retained = time.monotonic()
                ledger.run(coordinator.retain(core))
                ledger.run(coordinator.sweep(core))
        except AckerError as error:
            _log.warning("what gathers in lines of topology %s waits: %s", ledger.config.name, error)
            reader, memory, pause = OutcomeReader(core, SPOUT), coordinator.Memory(), _PAUSE
            woken.wait(_PAUSE)


def _awaited(ledger: Ledger, reader: OutcomeReader) -> Reply:
    """What comes to the outcomes of sections, as `OutcomeReader.take` has it; None where nothing does."""
    patience = round(min(_PAUSE, ledger.store.timeout / 4) * 1000)
    [come] = ledger.store.send([reader.blocking(patience)])
    return come


def _run(worker: Worker, stop: threading.Event, woken: threading.Event) -> None:
    def step() -> float:
        found = worker.work(again=True)
        # As for outcomes. So who has taken all that there was leaves the store to those who work on it.
        return 0.0 if found and worker.more else _PAUSE

    what = f"step {worker.step.name} waits"
    loops.run(stop, step, log=_log, what=what, pause=_PAUSE, longest=_LONGEST_PAUSE, woken=woken)
    try:
        worker.end()
    except AckerError as error:  # its lease ends
        _log.warning("step %s: %s", worker.step.name, error)


def _look_after(
    line: Line, workers: Sequence[Worker], renewals: leases.Renewals, stop: threading.Event
) -> None:
    while not stop.wait(leases.LEASE / 4):
        # First: after a step that held the interpreter, the workers of this process are not to count as dead.
        renew(line, workers, renewals)
        look_after(line, workers, stop)


def _renew(line: Line, workers: Sequence[Worker], renewals: leases.Renewals, stop: threading.Event) -> None:
    """Says again and again that workers live, in a thread of its own: nothing else keeps that waiting."""
    while not stop.wait(renewals.period(line.ledger.core)):
        renew(line, workers, renewals)


def renew(line: Line, workers: Sequence[Worker], renewals: leases.Renewals) -> None:
    """Says that workers live."""
    living = [one for worker in workers if (one := worker.living) is not None]
    _attempt(line, lambda: renewals.renew(line.ledger, living))


def _attempt(line: Line, action: Callable[[], object]) -> None:
    try:
        action()
    except Exception as error:  # noqa: BLE001 - without this thread all count as dead
        unforeseen = None if isinstance(error, AckerError) else error
        _log.warning("line %s: %s", line.name, error, exc_info=unforeseen)


def look_after(line: Line, workers: Sequence[Worker], stop: threading.Event) -> None:
    """Follows the topology, and has others take what dead workers had. Sets `stop` where they are to stop."""

    def keep() -> None:
        try:
            line.keep()
        except (FunctionConflict, LineConflict) as error:
            _log.error("line %s: its workers stop: %s", line.name, error)
            stop.set()

    _attempt(line, keep)
    for worker in {one.step.name: one for one in workers}.values():  # one of a step sees to all of its
        if not stop.is_set():
            _attempt(line, worker.recover)
