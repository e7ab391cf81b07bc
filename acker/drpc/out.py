"""What the steps of a function emit: rows for the step after them, and at last the result."""

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
"""Bytes of JSON that arguments have at most, and a result."""
MOST_LEVELS = 200
"""Lists and dicts within each other that they have at most: what reads JSON has a limit, too."""
_dumps = partial(json.dumps, allow_nan=False, ensure_ascii=False, separators=(",", ":"))


def as_json(value: object, what: str, write: Callable[[Any], str] = _dumps) -> str:
    """A value as JSON. Raises ValidationError for what JSON has not, TooLarge for more than 1 MiB.

    write: makes JSON of the value; raises TypeError or ValueError for what JSON has not.
    """
    try:
        text = write(value)
        size = len(text.encode())
    except (TypeError, ValueError, RecursionError) as error:
        raise ValidationError(
            f"{what}: expected a value that JSON has, got {shown(value)}: {text_of(error)}"
        ) from None
    if size > MOST_BYTES:
        raise TooLarge(f"{what}: expected at most {MOST_BYTES:,} bytes of JSON, got {size:,}")
    if "{" in text and (key := _taken_twice(value)):
        raise ValidationError(f"{what}: expected keys that stay apart as text, got {key} twice in a dict")
    if text.count("[") + text.count("{") > MOST_LEVELS and _deeper(value):
        raise ValidationError(f"{what}: expected at most {MOST_LEVELS} lists and dicts within each other")
    return text


def _taken_twice(value: object) -> str:
    """The text that two keys of a dict become, as 1 and "1"; "" where there is none."""
    left = [value]
    while left:
        one = left.pop()
        if isinstance(one, dict):
            left += one.values()
            if not {str}.issuperset(map(type, one)):
                texts = [json.dumps(key if isinstance(key, str) else json.dumps(key)) for key in one]
                if len({*texts}) < len(texts):
                    return max(texts, key=texts.count)
        elif isinstance(one, list | tuple):
            left += one
    return ""


def _deeper(value: object) -> bool:
    """Whether a value has more levels than it may."""
    level = [value]
    for _ in range(MOST_LEVELS):
        level = [
            inner
            for one in level
            if isinstance(one, list | tuple | dict)
            for inner in (one.values() if isinstance(one, dict) else one)
        ]
    return any(isinstance(one, list | tuple | dict) for one in level)


class Out(Emitting):
    """Where a step of a function emits to: to the next step, and the last one gives the result."""

    def __init__(self, function: str, to: str | None, columns: Collection[str], keep: int) -> None:
        super().__init__()
        self._function, self._to, self._columns, self._keep = function, to, columns, keep
        self._results: dict[int, str] = {}
        self._new: int | None = None

    def emit(self, row: Mapping[str, Any]) -> None:
        """Emits a row to the next step, with the columns that this step gives. Raises ValidationError."""
        if self._to is None:
            raise ValidationError("emit: the last step emits nothing; it gives the result: out.result(value)")
        given: object = row
        if type(given) is not dict and not isinstance(given, Mapping):
            raise ValidationError(f"row: expected a dict of columns by name, got {shown(row)}")
        if other := [name for name in row if name not in self._columns]:
            raise ValidationError(f"row: expected columns {', '.join(self._columns)}, got {shown(other[0])}")
        self.put_checked(self._to, row)

    def result(self, value: object) -> None:
        """Gives the result of the request: what JSON has, at most 1 MiB. Raises ValidationError."""
        if self._to is not None:
            raise ValidationError("result: only the last step gives the result; emit rows to the next one")
        text = as_json(value, "result")
        [anchor] = trees_of(self.anchor)  # what gathers has rows of one tree each
        with self._lock:
            self.check_open()
            if anchor in self._results:
                raise PermanentFailure("gave two results")
            self._results[anchor] = text
            self._new = anchor

    def undo(self) -> None:
        """Takes back what the call has emitted, and the result that it gave."""
        super().undo()
        if self._new is not None:
            self._results.pop(self._new, None)

    def add(self, other: Emitting) -> None:
        """Adds what was emitted elsewhere, and the results."""
        super().add(other)
        if isinstance(other, Out):
            self._results |= other._results

    def stage(
        self, core: Core, failed: Collection[int], into: list[Request]
    ) -> Operation[tuple[Staged, ...]]:
        """Stages the results of requests that have not failed."""
        found = {anchor: result for anchor, result in self._results.items() if anchor not in failed}
        made = yield from results.stage(core, self._function, found, STAGING_TTL, self._keep, into)
        return (Staged("", results=made),) if made else ()
