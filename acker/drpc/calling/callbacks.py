"""Callbacks of answers: they run in threads of their own, so that a waiting callback delays no answer.

A callback may begin another call and wait for its answer. As many run at a time as there are threads; others
wait for a thread, and answers wait for no callback.
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
"""Most callbacks that wait for a thread; at this number, no call is begun."""
IDLE = 5.0
"""Seconds after which an idle thread ends."""
_log = logging.getLogger(__name__)


class _Guard(Condition):
    """A condition whose lock is taken, and released, in one step of the interpreter.

    An interrupt comes before or after that step. In between, the lock would stay with a thread that has left.
    """

    __enter__ = property(attrgetter("_lock.__enter__"))
    __exit__ = property(attrgetter("_lock.__exit__"))


class Answer(Future[Any]):
    """The answer to a call. Its callbacks run one after the other, in threads that bring no answers.

    If the answer is there and earlier callbacks have run, a new callback is called at once. If an interrupt
    ends a thread that waits for the answer, other threads still get it.
    """

    def __init__(self) -> None:
        super().__init__()
        self._condition = _Guard()
        self._adding = RLock()
        self._callbacks_to_run: list[Callable[[Future[Any]], object]] | None = []
        super().add_done_callback(_answered)

    def add_done_callback(self, fn: Callable[[Future[Any]], object]) -> None:
        """Adds a callback for the answer, as in any future; it runs in another thread.

        Args:
            fn: Takes this future.
        """
        with self._adding:
            if self._callbacks_to_run is not None:
                self._callbacks_to_run.append(fn)
                return
        _call(fn, self)

    def result(self, timeout: float | None = None) -> Any:
        """Waits for the answer and returns it, as any future does."""
        self._wait(timeout)
        return super().result(0)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Waits for the answer and returns its error, or None, as any future does."""
        self._wait(timeout)
        return super().exception(0)

    def _wait(self, timeout: float | None) -> None:
        """Waits for the answer. Raises TimeoutError.

        A condition releases its lock while it waits: an interrupt could come in between, too.
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
        """Adds a callback that never waits: the thread that brings the answer calls it."""
        super().add_done_callback(fn)

    def tell(self) -> None:
        """Runs the callbacks of a present answer."""
        while (fn := self._next()) is not None:
            _call(fn, self)

    def _next(self) -> Callable[[Future[Any]], object] | None:
        with self._adding:
            if self._callbacks_to_run:
                return self._callbacks_to_run.pop(0)
            self._callbacks_to_run = None
            return None

    def wanted(self) -> bool:
        """Return True while there are callbacks to run; without any, new callbacks are called at once."""
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
    """Returns the number of callbacks that wait for a thread."""
    return _threads.waiting


class _Threads:
    """Threads that start when they are needed, and end when they are idle."""

    def __init__(self) -> None:
        self._lock = RLock()  # reentrant: a signal handler may cancel a call
        self._come = Condition(self._lock)
        self._calls: deque[Callable[[], object]] = deque()
        self._running = self._idle = 0
        self._full = False

    @property
    def waiting(self) -> int:
        """Returns the number of calls that wait for a thread."""
        return max(0, len(self._calls) - self._idle)

    def run(self, call: Callable[[], object]) -> None:
        """Lets a free thread make a call."""
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
            _log.warning(
                "%d callbacks of answers to function calls run, the most at a time: others wait for an end",
                MOST,
            )

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
    """Forgets the threads of the parent in a forked child."""
    global _threads  # noqa: PLW0603 - it is the process's
    _threads = _Threads()


os.register_at_fork(after_in_child=_begin_anew)
