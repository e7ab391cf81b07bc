"""The life of a collector: its calls belong to its bolt's function, or to the block of its job.

A later call would stage rows that are never committed, and a failed call is a missing part of the batch. In
both cases nothing of the batch may be acked, whatever the function does with the exception.
"""

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from logging import getLogger
from threading import Condition
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from acker.errors import AckerError, FailedException, class_name, text_of

_log = getLogger(__name__)
P = ParamSpec("P")
R = TypeVar("R")


class Life:
    """The running calls, the threads of all calls, the first failed call, and the end of a collector.

    batch: its name in messages.
    """

    def __init__(self, batch: str) -> None:
        self._batch = batch
        self._changed = Condition()
        self._running = 0
        self._over = False
        self._failed: tuple[str, BaseException] | None = None

    @property
    def over(self) -> bool:
        """Return True if calls are refused."""
        return self._over

    @contextmanager
    def call(self, name: str) -> Iterator[None]:
        """Surrounds a call. Raises AckerError after the end."""
        with self._changed:
            if self._over:
                late = AckerError(
                    f"collector.{name} was called when {self._batch} was over, so it is of no commit: call "
                    "it in the function of the bolt (or the block of the job), and wait there for threads "
                    "that call it"
                )
                self._note(name, late)
                _log.error("%s", late)
                raise late
            self._running += 1
        try:
            yield
        except BaseException as error:
            with self._changed:
                self._note(name, error)
            raise
        finally:
            with self._changed:
                self._running -= 1
                self._changed.notify_all()

    def end(self, wait: bool = True) -> None:
        """Refuses calls from now on. wait: running calls end first, and no call may have failed."""
        with self._changed:
            while wait and self._running:
                self._changed.wait()
            self._over = True
        if wait:
            self.check()

    def check(self) -> None:
        """Raises AckerError if a call has failed, or came too late; the error of a call that fails the batch.

        Another run of the batch would come to the same end: its records are to be replayed.
        """
        if self._failed is not None:
            name, error = self._failed
            if isinstance(error, FailedException):
                raise error
            raise AckerError(
                f"{self._batch} is not committed, for collector.{name} has failed in it and the function "
                f"went on: let the exception end the function, and the batch can run again. "
                f"{class_name(error)}: {text_of(error):.500}"
            ) from error

    def _note(self, name: str, error: BaseException) -> None:
        if self._failed is None:
            self._failed = name, error


class Alive(Protocol):
    """An object that has a life."""

    life: Life


A = TypeVar("A", bound=Alive)


def in_life(method: Callable[Concatenate[A, P], R]) -> Callable[Concatenate[A, P], R]:
    """Makes a method one of the calls of a life."""

    def call(self: A, /, *args: P.args, **kwargs: P.kwargs) -> R:
        with self.life.call(method.__name__):
            return method(self, *args, **kwargs)

    functools.update_wrapper(call, method)
    return call
