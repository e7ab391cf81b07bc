"""Calls of asynchronous functions: many at a time, each with its own outcome."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from acker.errors import ValidationError, is_interrupt
from acker.ledger.settings.settings import check_number

T = TypeVar("T")
R = TypeVar("R")
Outcome: TypeAlias = tuple[Any, BaseException | None]
"""The result of a call, or its error."""

CONCURRENCY = 64
TIMEOUT = 60.0


@dataclass(frozen=True, slots=True)
class Pace:
    """concurrency: calls at a time, 1 to 10,000. timeout: seconds of each call, up to a day."""

    concurrency: int = CONCURRENCY
    timeout: float = TIMEOUT

    @classmethod
    def make(cls, wanted: bool, concurrency: int | None, timeout: float | None) -> "Pace | None":
        """The pace of asynchronous functions, with defaults for None; None for plain functions (not wanted).

        Raises ValidationError for bad values, and for any value if the functions are plain.
        """
        if not wanted:
            if concurrency is not None or timeout is not None:
                raise ValidationError("concurrency and timeout are for functions that are `async def`")
            return None
        concurrency = CONCURRENCY if concurrency is None else concurrency
        timeout = TIMEOUT if timeout is None else timeout
        check_number(concurrency, "concurrency", 1, 10_000, int)
        check_number(timeout, "timeout", 0.001, 86400.0, float)
        return cls(concurrency, timeout)

    async def each(
        self, items: Sequence[T], work: "Callable[[T, asyncio.Task[Any] | None], Awaitable[R]]"
    ) -> list[R]:
        """Works on items, so many at a time; returns their results in order. `work` gets this task."""
        results: dict[int, R] = {}
        waiting = iter(enumerate(items))
        whole = asyncio.current_task()

        async def one_after_another() -> None:
            for place, item in waiting:
                results[place] = await work(item, whole)

        async with asyncio.TaskGroup() as group:
            for _ in range(min(self.concurrency, len(items))):
                group.create_task(one_after_another())
        return [results[place] for place in range(len(items))]

    async def outcome(self, call: Callable[[], Awaitable[Any]], whole: "asyncio.Task[Any] | None") -> Outcome:
        """Makes a call, whose error or time-out is its outcome. whole: the task that ends all calls."""
        limit = asyncio.timeout(self.timeout)
        try:
            async with limit:
                return await call(), None
        except asyncio.CancelledError as error:
            if whole is not None and whole.cancelling():
                raise
            # A cancellation inside the function: other calls still need this task.
            task = asyncio.current_task()
            while task is not None and task.cancelling():
                task.uncancel()
            return None, error
        except BaseException as error:  # SystemExit and GeneratorExit also fail this call alone
            if is_interrupt(error):
                raise
            if limit.expired():
                return None, TimeoutError(f"no result within {self.timeout:g} s")
            return None, error


def asynchronous(function: object) -> bool:
    """True if a function is `async def`, or an object with such a `__call__`."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004 - an object whose call is `async def`
    )
