"""What a step emits: rows by stream, of the request that it is called for."""

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
"""The tree of a row, 0 where it has none; the trees of a row of a stream in which rows may have several."""


def anchor_of(value: Any) -> Anchor:
    """What a row has in its column of anchors: each tree once, and nothing for null and 0 among several."""
    if isinstance(value, list):
        return tuple(dict.fromkeys(one for one in value if one))
    return value or 0


def trees_of(anchor: Anchor) -> tuple[int, ...]:
    """The trees of a row, also of one that has none: it has (0,) then, or ()."""
    return anchor if isinstance(anchor, tuple) else (anchor,)


class Emitting:
    """What a step emits of a batch: rows by stream. A step has it for one call, of one request (`of`)."""

    def __init__(self) -> None:
        self.rows: dict[str, list[dict[str, Any]]] = {}
        self.anchor: Anchor = 0
        self._begun: dict[str, int] = {}
        self._over = False
        # One for all calls of a batch: to make one for each takes longer than what it guards. Reentrant, for
        # what is collected as garbage meanwhile may emit, too.
        self._lock = RLock()

    def put(self, stream: str, row: Row) -> None:
        """Emits a row to a stream. Raises ValidationError."""
        given: object = row
        plain = type(given) is dict or isinstance(given, Mapping)
        if not plain or not all(isinstance(name, str) for name in row):
            raise ValidationError(f"row: expected a dict of columns by name, got {shown(row)}")
        if ANCHORS in row or FINISHED in row:
            raise ValidationError(f"row: the columns {ANCHORS} and {FINISHED} are acker's own")
        self.put_checked(stream, row)

    def put_checked(self, stream: str, row: Row) -> None:
        """As `put`, a row that is known to have columns of the stream, and none of acker's own."""
        own = {**row, ANCHORS: self.anchor}  # a mapping is the user's, and may take its time
        with self._lock:
            self.check_open()
            self.rows.setdefault(stream, []).append(own)

    def of(self, anchor: Anchor) -> Self:
        """The same for one call: rows that are emitted by it are of these trees, until its `end`."""
        own = object.__new__(type(self))
        own.__dict__.update(self.__dict__)
        own.anchor = anchor
        own._begun = {stream: len(rows) for stream, rows in self.rows.items()} if self.rows else {}
        return own

    def end(self) -> None:
        """Refuses what comes for the call from now on: the step has returned, and may be committed."""
        with self._lock:
            self._over = True

    def check_open(self) -> None:
        """Raises ValidationError where the call is over. It is not over while who asks has the lock."""
        if self._over:
            raise ValidationError(
                "out: expected to be used before the step has returned, got a row or a result after that, of "
                "which nothing is emitted. A step that has threads or tasks of its own waits for them"
            )

    def undo(self) -> None:
        """Takes back what the call has emitted."""
        for stream, rows in self.rows.items():
            del rows[self._begun.get(stream, 0) :]

    def add(self, other: "Emitting") -> None:
        """Adds what was emitted elsewhere."""
        for stream, rows in other.rows.items():
            self.rows.setdefault(stream, []).extend(rows)

    def stage(
        self, core: Core, failed: Collection[int], into: list[Request]
    ) -> Operation[tuple[Staged, ...]]:
        """Stages what else there is than rows; nothing of trees that have failed. into: as of `Staging`."""
        del core, failed, into
        yield from ()
        return ()


class Out(Emitting):
    """Where a step emits rows to: they are of the request at hand, and take effect with the step's commit."""

    def emit(self, stream: str, row: Row) -> None:
        """Emits a row to a stream. Raises ValidationError."""
        if stream not in self.rows:
            check_name(stream, "stream")
        self.put(stream, row)
