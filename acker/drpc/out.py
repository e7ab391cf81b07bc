"""Output of a function's steps: rows for the next step, and at last the result.

Terms: a tree is all that comes of one record.
"""

import json
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any

from acker.errors import PermanentFailure, TooLarge, ValidationError, shown, text_of
from acker.ledger.calls.core import Core
from acker.store.operation import Operation, Request
from acker.streams.staging import results
from acker.streams.staging.staging import STAGING_TTL, Staged
from acker.workers.out import Emitting, trees_of

MOST_BYTES = 1 << 20
"""Most bytes of JSON in arguments and in a result."""
MOST_LEVELS = 200
"""Most levels of nested lists and dicts, because readers of JSON have a limit, too."""
_dumps = partial(json.dumps, allow_nan=False, ensure_ascii=False, separators=(",", ":"))


def as_json(value: object, label: str, write: Callable[[Any], str] = _dumps) -> str:
    """Returns a value as JSON. Raises ValidationError for values that JSON lacks, TooLarge over 1 MiB.

    write: makes JSON of the value; raises TypeError or ValueError for values that JSON lacks.
    """
    try:
        text = write(value)
        size = len(text.encode())
    except (TypeError, ValueError, RecursionError) as error:
        raise ValidationError(
            f"{label}: expected a value of JSON, got {shown(value)}: {text_of(error)}"
        ) from None
    if size > MOST_BYTES:
        raise TooLarge(f"{label}: expected at most {MOST_BYTES:,} bytes of JSON, got {size:,}")
    if "{" in text and (key := _taken_twice(value)):
        raise ValidationError(f"{label}: expected keys that differ as text, got {key} twice in a dict")
    if text.count("[") + text.count("{") > MOST_LEVELS and _deeper(value):
        raise ValidationError(f"{label}: expected at most {MOST_LEVELS} lists and dicts within each other")
    return text


def _taken_twice(value: object) -> str:
    """Returns the text that two keys of a dict become, as 1 and "1"; "" if there is none."""
    left = [value]
    while left:
        entry = left.pop()
        if isinstance(entry, dict):
            left += entry.values()
            if not {str}.issuperset(map(type, entry)):
                texts = [json.dumps(key if isinstance(key, str) else json.dumps(key)) for key in entry]
                if len({*texts}) < len(texts):
                    return max(texts, key=texts.count)
        elif isinstance(entry, list | tuple):
            left += entry
    return ""


def _deeper(value: object) -> bool:
    """Return True if a value has more levels than allowed."""
    level = [value]
    for _ in range(MOST_LEVELS):
        level = [
            inner
            for entry in level
            if isinstance(entry, list | tuple | dict)
            for inner in (entry.values() if isinstance(entry, dict) else entry)
        ]
    return any(isinstance(entry, list | tuple | dict) for entry in level)


class Out(Emitting):
    """Output of a function's step: rows for the next step, and in the last step the result.

    Args:
        function: The name of the function.
        to: The stream of the next step; None in the last step.
        columns: The columns that the step declares.
        keep: Seconds for which results are kept.
    """

    def __init__(self, function: str, to: str | None, columns: Collection[str], keep: int) -> None:
        super().__init__()
        self._function, self._to, self._columns, self._keep = function, to, columns, keep
        self._results: dict[int, str] = {}
        self._new: int | None = None

    def emit(self, row: Mapping[str, Any]) -> None:
        """Emits a row to the next step.

        Args:
            row: A dict of values by column, with the columns that this step declares.

        Raises:
            ValidationError: The row has other columns, or this is the last step.
        """
        if self._to is None:
            raise ValidationError("emit: the last step emits nothing; it gives the result: out.result(value)")
        given: object = row
        if type(given) is not dict and not isinstance(given, Mapping):
            raise ValidationError(f"row: expected a dict of columns by name, got {shown(row)}")
        if other := [name for name in row if name not in self._columns]:
            raise ValidationError(f"row: expected columns {', '.join(self._columns)}, got {shown(other[0])}")
        self.put_checked(self._to, row)

    def result(self, value: object) -> None:
        """Gives the result of the request, in the last step.

        Args:
            value: A value of JSON, of at most 1 MiB.

        Raises:
            ValidationError: The value is not one of JSON, or this is not the last step.
            TooLarge: The JSON has more than 1 MiB.
            PermanentFailure: The request has a result already.
        """
        if self._to is not None:
            raise ValidationError("result: only the last step gives the result; emit rows to the next one")
        text = as_json(value, "result")
        [anchor] = trees_of(self.anchor)  # gathered rows have one tree each
        with self._lock:
            self.check_open()
            if anchor in self._results:
                raise PermanentFailure("gave two results")
            self._results[anchor] = text
            self._new = anchor

    def undo(self) -> None:
        """Removes the rows that the call has emitted, and its result."""
        super().undo()
        if self._new is not None:
            self._results.pop(self._new, None)

    def add(self, other: Emitting) -> None:
        """Adds the rows and results of another object.

        Args:
            other: The object.
        """
        super().add(other)
        if isinstance(other, Out):
            self._results |= other._results

    def stage(
        self, core: Core, failed: Collection[int], into: list[Request]
    ) -> Operation[tuple[Staged, ...]]:
        """Stages the results of requests that have not failed.

        Args:
            core: The topology.
            failed: The failed trees.
            into: Gets the requests; see `Staging`.

        Returns:
            The staged results.
        """
        found = {anchor: result for anchor, result in self._results.items() if anchor not in failed}
        made = yield from results.stage(core, self._function, found, STAGING_TTL, self._keep, into)
        return (Staged("", results=made),) if made else ()
