"""Calls of a function for each record of a task; an exception belongs to its record alone."""

import asyncio
import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

from acker.errors import ValidationError, shown
from acker.ledger.user_functions.async_calls import Outcome, Pace, asynchronous

Record: TypeAlias = dict[str, Any]
RecordFunction: TypeAlias = Callable[[Record], Any]
"""A function of a record as a dict. It may be `async def`."""


@dataclass(frozen=True, slots=True)
class Calls:
    """Options of calls for records. `make` checks the values."""

    function: RecordFunction
    pace: Pace | None = None
    """The pace of an asynchronous function; None for a plain one."""

    @classmethod
    def make(cls, function: RecordFunction, concurrency: int | None, timeout: float | None) -> "Calls":
        """Returns calls, with defaults for None. Raises ValidationError for bad values."""
        if not callable(function):
            raise ValidationError(f"function: expected a function of a record, got {shown(function)}")
        if _generates(function):
            raise ValidationError("function: expected one that returns its rows as a list, got a generator's")
        return cls(function, Pace.make(asynchronous(function), concurrency, timeout))

    def outcomes(self, batches: Iterator[list[Record]]) -> Iterator[Iterator[Outcome] | Sequence[Outcome]]:
        """Yields for each batch of records, in order, the outcomes of its records, in order."""
        if self.pace is None:
            yield from map(self._one_by_one, batches)
            return
        # One loop for all batches, so that a session or a pool that the function opens can be used again.
        with asyncio.Runner() as runner:
            for records in batches:
                yield runner.run(self.pace.each(records, partial(self._outcome, self.pace)))

    async def _outcome(self, pace: Pace, record: Record, whole: "asyncio.Task[Any] | None") -> Outcome:
        return await pace.outcome(partial(self.function, record), whole)

    def _one_by_one(self, records: list[Record]) -> Iterator[Outcome]:
        function = self.function
        for record in records:
            try:
                result = function(record)
            except KeyboardInterrupt:
                raise  # a user stops the program: no record fails
            except BaseException as error:  # noqa: BLE001 - SystemExit, too, fails this record alone
                yield None, error
            else:
                yield result, None


def _generates(function: RecordFunction) -> bool:
    call = getattr(function, "__call__", None)  # noqa: B004 - as below
    return any(
        inspect.isgeneratorfunction(one) or inspect.isasyncgenfunction(one) for one in (function, call)
    )
