"""Callbacks of answers: they run in threads of their own, so that one that waits keeps no answer back.

A callback may ask the next question and wait for it. As many run at a time as there are threads; others wait
for one, and answers wait for none of them.
"""

import logging
import os
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from operator import attrgetter
from queue import Empty, SimpleQueue
from threading import Condition, RLock, Thread
from typing import Any

from acker.errors import is_interrupt
from acker.ledger.slabs.causes import log_error

MOST = 64
"""Most threads of a process in which callbacks run."""
MOST_WAITING = 100_000
"""Most callbacks that wait for a thread; while there are so many, no call is begun."""
IDLE = 5.0
"""Seconds after which a thread ends that has nothing to do."""
_log = logging.getLogger(__name__)


class _Guard(Condition):
    """A condition whose lock is taken, and given back, in one step of the interpreter.

    An interrupt comes before it or after it. In between, the lock would stay with a thread that has left.
    """

    __enter__ = property(attrgetter("_lock.__enter__"))
    __exit__ = property(attrgetter("_lock.__exit__"))


class Answer(Future[Any]):
    """The answer to a call. Its callbacks run one after the other, in no thread that brings answers.

    One that is added when the answer is there, and those before it have run, is called at once. An interrupt
    of a thread that waits for the answer leaves it to others, and to the thread that brings it.
    """

    def __init__(self) -> None:
        super().__init__()
        self._condition = _Guard()
        self._adding = RLock()
        self._callbacks_to_run: list[Callable[[Future[Any]], object]] | None = []
        super().add_done_callback(_answered)

    def add_done_callback(self, fn: Callable[[Future[Any]], object]) -> None:
        """Has a callback called with the answer; as of any future, but in a thread of its own."""
        with self._adding:
            if self._callbacks_to_run is not None:
                self._callbacks_to_run.append(fn)
                return
        _call(fn, self)

    def result(self, timeout: float | None = None) -> Any:
        """Waits for the answer and returns it; as of any future."""
        self._wait(timeout)
        return super().result(0)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Waits for the answer and returns its error, or None; as of any future."""
        self._wait(timeout)
        return super().exception(0)

    def _wait(self, timeout: float | None) -> None:
        """Waits until the answer is there. Raises TimeoutError.

        A condition gives its lock back while it waits: an interrupt could come in between, too.
        """
        if self.done():
            return
        come = SimpleQueue[Any]()
        self.ring(come.put)
        try:
            come.get(timeout=timeout if timeout is None else max(0.0, timeout))
        except Empty:
            raise TimeoutError from None
        finally:
            with suppress(ValueError):
                self._done_callbacks.remove(come.put)  # type: ignore[attr-defined]

    def ring(self, fn: Callable[[Future[Any]], object]) -> None:
        """As `add_done_callback`, for one that never waits: whoever brings the answer calls it."""
        super().add_done_callback(fn)

    def tell(self) -> None:
        """Runs the callbacks, when the answer is there."""
        while (fn := self._next()) is not None:
            _call(fn, self)

    def _next(self) -> Callable[[Future[Any]], object] | None:
        with self._adding:
            if self._callbacks_to_run:
                return self._callbacks_to_run.pop(0)
            self._callbacks_to_run = None
            return None

    def wanted(self) -> bool:
        """True while there are callbacks to run; without any, those to come are called at once."""
        with self._adding:
            if not self._callbacks_to_run:
                self._callbacks_to_run = None
            return self._callbacks_to_run is not None


def _answered(answer: Future[Any]) -> None:
    assert isinstance(answer, Answer)
    if answer.wanted():
        _threads.run(answer.tell)


def _call(fn: Callable[[Future[Any]], object], answer: Answer) -> None:
    try:
        fn(answer)
    except BaseException as error:  # it is the user's: SystemExit, too, is its own
        if is_interrupt(error):
            raise
        log_error(_log, error, "a callback of an answer has raised")


def waiting() -> int:
    """How many callbacks wait for a thread."""
    return _threads.waiting


class _Threads:
    """Threads that are started when they are needed, and end when they are not."""

    def __init__(self) -> None:
        self._lock = RLock()  # reentrant: a signal handler may cancel a call
        self._come = Condition(self._lock)
        self._calls: deque[Callable[[], object]] = deque()
        self._running = self._idle = 0
        self._full = False

    @property
    def waiting(self) -> int:
        """How many calls wait for a thread."""
        return max(0, len(self._calls) - self._idle)

    def run(self, call: Callable[[], object]) -> None:
        """Has a call made by a thread, when one is free."""
        with self._lock:
            warn = False
            if len(self._calls) >= self._idle:
                if self._running < MOST:
                    Thread(target=self._work, name="acker-callbacks", daemon=True).start()
                    self._running += 1
                else:
                    warn, self._full = not self._full, True
            self._calls.append(call)
            self._come.notify()
        if warn:
            _log.warning("%d callbacks of answers are under way, and further ones wait for these", MOST)

    def _work(self) -> None:
        while True:
            with self._lock:
                self._idle += 1
                come = self._come.wait_for(lambda: bool(self._calls), IDLE)
                self._idle -= 1
                if not come:
                    self._running -= 1
                    return
                call = self._calls.popleft()
                self._full = self._full and bool(self._calls)
            call()
            del call  # or it would be kept until the next one comes


_threads = _Threads()


def _begin_anew() -> None:
    """In a forked child: its parent's threads are not there."""
    global _threads  # noqa: PLW0603 - it is the process's
    _threads = _Threads()


os.register_at_fork(after_in_child=_begin_anew)
