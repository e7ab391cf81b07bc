"""Emitted rows of a step, by stream, for the request that the step is called for.

Terms: an anchor is the number of a tree.
"""

from collections.abc import Collection, Mapping
from threading import RLock
from typing import Any, Self, TypeAlias

from acker.errors import ValidationError, shown
from acker.ledger.calls.core import Core
from acker.ledger.settings.config import check_name
from acker.store.operation import Operation, Request
from acker.streams.log.gathers import FINISHED
from acker.streams.log.segments import ANCHORS
from acker.streams.staging.staging import Staged

Row: TypeAlias = Mapping[str, Any]
Anchor: TypeAlias = int | tuple[int, ...]
"""The tree of a row, or 0 for none; the trees of a row in a stream whose rows may have several."""


def anchor_of(value: Any) -> Anchor:
    """Returns the trees in a row's column of anchors: each once, without null and without 0 among several."""
    if isinstance(value, list):
        return tuple(dict.fromkeys(one for one in value if one))
    return value or 0


def trees_of(anchor: Anchor) -> tuple[int, ...]:
    """Returns the trees of a row; (0,) or () if it has none."""
    return anchor if isinstance(anchor, tuple) else (anchor,)


class Emitting:
    """The emitted rows of a batch, by stream. A step gets an object for one call of one request (`of`)."""

    def __init__(self) -> None:
        self.rows: dict[str, list[dict[str, Any]]] = {}
        self.anchor: Anchor = 0
        self._begun: dict[str, int] = {}
        self._over = False
        # One lock for all calls of a batch: making a lock for each call would take longer than the guarded
        # work. Reentrant, because a finalizer that runs meanwhile may emit, too.
        self._lock = RLock()

    def put(self, stream: str, row: Row) -> None:
        """Emits a row to a stream.

        Args:
            stream: The name of the stream.
            row: A dict of values by column.

        Raises:
            ValidationError: The row is invalid, or the step has returned.
        """
        given: object = row
        plain = type(given) is dict or isinstance(given, Mapping)
        if not plain or not all(isinstance(name, str) for name in row):
            raise ValidationError(f"row: expected a dict of columns by name, got {shown(row)}")
        if ANCHORS in row or FINISHED in row:
            raise ValidationError(f"row: the columns {ANCHORS} and {FINISHED} are acker's own")
        self.put_checked(stream, row)

    def put_checked(self, stream: str, row: Row) -> None:
        """Emits a row with columns of the stream, and none of acker's own, without the checks of `put`.

        Args:
            stream: The name of the stream.
            row: A dict of values by column.
        """
        copy = {**row, ANCHORS: self.anchor}  # a mapping is the user's, and may take its time
        with self._lock:
            self.check_open()
            self.rows.setdefault(stream, []).append(copy)

    def of(self, anchor: Anchor) -> Self:
        """Returns an object for one call: until its `end`, rows that it emits belong to these trees.

        Args:
            anchor: The trees.
        """
        output = object.__new__(type(self))
        output.__dict__.update(self.__dict__)
        output.anchor = anchor
        output._begun = {stream: len(rows) for stream, rows in self.rows.items()} if self.rows else {}
        return output

    def end(self) -> None:
        """Refuses later rows of the call: the step has returned, and may be committed."""
        with self._lock:
            self._over = True

    def check_open(self) -> None:
        """Refuses output after the end of the call. The call does not end while the caller has the lock.

        Raises:
            ValidationError: The call is over.
        """
        if self._over:
            raise ValidationError(
                "out: expected to be used before the step has returned, got a row or a result after that; "
                "nothing was emitted. A step that starts threads or tasks must wait for them"
            )

    def undo(self) -> None:
        """Removes the rows that the call has emitted."""
        for stream, rows in self.rows.items():
            del rows[self._begun.get(stream, 0) :]

    def add(self, other: "Emitting") -> None:
        """Adds the rows that another object has emitted.

        Args:
            other: The object.
        """
        for stream, rows in other.rows.items():
            self.rows.setdefault(stream, []).extend(rows)

    def stage(
        self, core: Core, failed: Collection[int], into: list[Request]
    ) -> Operation[tuple[Staged, ...]]:
        """Stages results and the like; failed trees are left out.

        Args:
            core: The topology.
            failed: The failed trees.
            into: Gets the requests; see `Staging`.

        Returns:
            The staged results.
        """
        del core, failed, into
        yield from ()
        return ()


class Out(Emitting):
    """Emits the rows of a step. They belong to the request, and take effect with the step's commit."""

    def emit(self, stream: str, row: Row) -> None:
        """Emits a row to a stream.

        Args:
            stream: The name of the stream.
            row: A dict of values by column.

        Raises:
            ValidationError: The name or the row is invalid, or the step has returned.
        """
        if stream not in self.rows:
            check_name(stream, "stream")
        self.put(stream, row)
