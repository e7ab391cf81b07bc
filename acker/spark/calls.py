"""Calling a function for each record of a task: what it raises is that record's own."""

import asyncio
import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from acker.errors import ValidationError
from acker.ledger.settings import check_number

Record: TypeAlias = dict[str, Any]
RecordFunction: TypeAlias = Callable[[Record], Any]
"""Takes a record as a dict. May be `async def`."""
Outcome: TypeAlias = tuple[Any, BaseException | None]
"""What the function returned, and what it raised in place of that."""

CONCURRENCY = 64
TIMEOUT = 60.0


@dataclass(frozen=True, slots=True)
class Calls:
    """How a function is called for records. `make` checks the values."""

    function: RecordFunction
    concurrency: int = 0
    """Calls of an asynchronous function that are under way at a time; 0 for a plain function."""
    timeout: float = TIMEOUT

    @classmethod
    def make(cls, function: RecordFunction, concurrency: int | None, timeout: float | None) -> "Calls":
        """Calls with defaults for what is None; ValidationError for bad values."""
        if not callable(function):
            raise ValidationError(f"function: expected one of a record, got {function!r}")
        if _generates(function):
            raise ValidationError("function: expected one that returns its rows as a list, got a generator's")
        if not _asynchronous(function):
            if concurrency is not None or timeout is not None:
                raise ValidationError("concurrency and timeout are for functions that are `async def`")
            return cls(function)
        concurrency = CONCURRENCY if concurrency is None else concurrency
        timeout = TIMEOUT if timeout is None else timeout
        check_number(concurrency, "concurrency", 1, 10_000, int)
        check_number(timeout, "timeout", 0.001, 86400.0, float)
        return cls(function, concurrency, timeout)

    def outcomes(self, batches: Iterator[list[Record]]) -> Iterator[Iterator[Outcome] | Sequence[Outcome]]:
        """For each batch of records, in order, the outcomes of its records, in order."""
        if not self.concurrency:
            yield from map(self._one_by_one, batches)
            return
        # One loop for all batches, so that what the function opens (a session, a pool) can be used again.
        with asyncio.Runner() as runner:
            for records in batches:
                yield runner.run(self._together(records))

    def _one_by_one(self, records: list[Record]) -> Iterator[Outcome]:
        function = self.function
        for record in records:
            try:
                result = function(record)
            except KeyboardInterrupt:
                raise  # somebody stops the program: that is no record's
            except BaseException as error:  # noqa: BLE001 - SystemExit, too, fails this record alone
                yield None, error
            else:
                yield result, None

    async def _together(self, records: list[Record]) -> list[Outcome]:
        outcomes: list[Outcome] = [(None, None)] * len(records)
        waiting = iter(enumerate(records))
        whole = asyncio.current_task()

        async def work() -> None:
            for place, record in waiting:
                outcomes[place] = await self._in_time(record, whole)

        async with asyncio.TaskGroup() as group:
            for _ in range(min(self.concurrency, len(records))):
                group.create_task(work())
        return outcomes

    async def _in_time(self, record: Record, whole: asyncio.Task[Any] | None) -> Outcome:
        limit = asyncio.timeout(self.timeout)
        try:
            async with limit:
                return await self.function(record), None
        except asyncio.CancelledError as error:
            if whole is not None and whole.cancelling():
                raise
            # Of something that the function waited for, or of itself: other records need this task yet.
            task = asyncio.current_task()
            while task is not None and task.cancelling():
                task.uncancel()
            return None, error
        except (KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException as error:  # noqa: BLE001 - as above
            if limit.expired():
                return None, TimeoutError(f"no result within {self.timeout:g} s")
            return None, error


def _generates(function: RecordFunction) -> bool:
    call = getattr(function, "__call__", None)  # noqa: B004 - as below
    return any(
        inspect.isgeneratorfunction(one) or inspect.isasyncgenfunction(one) for one in (function, call)
    )


def _asynchronous(function: RecordFunction) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004 - an object whose call is `async def`
    )
