"""Offsets of one partition: the records in flight, and the prefix that may be committed.

The counterpart of Storm's OffsetManager. Records come in the order of their offsets, each once, many at a
time. So it needs no more than the runs in which they came. Offsets that a compaction or a transaction marker
has taken are never in flight, and hold nothing back.
"""

from bisect import bisect_right
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from acker.ledger.ids import Ids

_COMPACT = 1_024
"""Number of passed runs that are dropped at once."""

Places = slice | Sequence[int] | npt.NDArray[np.intp]
"""Places of a run's records."""


class Run:
    """Records that came together: their offsets, in order, which are done, and the number in flight."""

    __slots__ = ("done", "first", "flying", "offsets")

    def __init__(self, offsets: Ids) -> None:
        self.offsets = offsets
        self.first = int(offsets[0])
        self.done = np.zeros(len(offsets), np.bool_)
        self.flying = len(offsets)


class Offsets:
    """The state of one partition, from the first offset to be read on. Not for several threads.

    position: the offset after the last record that came. A record below it came before. flying: the number of
    records in flight.
    """

    __slots__ = ("_head", "_held", "_runs", "flying", "position")

    def __init__(self, first: int) -> None:
        self.position = first
        self.flying = 0
        self._runs: list[Run] = []
        self._head = 0
        self._held = 0

    def begin(self, offsets: Ids) -> Run:
        """Notes records that are now in flight. O(1), but for the array.

        offsets: one or more, each above the one before, and none below `position`.
        """
        run = Run(offsets)
        self.position = int(offsets[-1]) + 1
        self.flying += run.flying
        self._held += run.flying
        self._runs.append(run)
        return run

    def skip(self, position: int) -> None:
        """Moves on to an offset below which nothing more comes, as after a transaction marker. O(1)."""
        self.position = max(self.position, position)

    def find(self, offset: int) -> tuple[Run, int] | None:
        """The run of a record in flight, and its place there. O(log n)."""
        at = bisect_right(self._runs, offset, self._head, key=_first) - 1
        if at < self._head:
            return None
        run = self._runs[at]
        place = int(np.searchsorted(run.offsets, offset))
        there = place < len(run.offsets) and run.offsets[place] == offset and not run.done[place]
        return (run, place) if there else None

    def end(self, offset: int) -> bool:
        """Notes that a record is done: acked, or a dead letter. False if it is not in flight. O(log n)."""
        position = self.find(offset)
        if position is None:
            return False
        run, place = position
        self.end_many(run, [place])
        return True

    def end_many(self, run: Run, places: Places) -> None:
        """Notes that records of a run are done; one that was done before stays so."""
        run.done[places] = True
        flying = len(run.done) - int(np.count_nonzero(run.done))
        self.flying -= run.flying - flying
        run.flying = flying

    def __contains__(self, offset: int) -> bool:
        """True for a record in flight."""
        return self.find(offset) is not None

    def open_between(self, marks: Sequence[int]) -> dict[int, int]:
        """For each mark, an offset, the records in flight from the mark before it on. marks: in order."""
        counts = np.zeros(len(marks) + 1, np.int64)
        for run in self._runs[self._head :] if marks else ():
            if run.flying:
                places = np.searchsorted(marks, run.offsets[~run.done], side="right")
                counts += np.bincount(places, minlength=len(counts))
        return dict(zip(marks, counts.tolist(), strict=False))

    @property
    def committable(self) -> int:
        """The offset to commit: all records below it are done. Amortized O(1), but for one run."""
        runs = self._runs
        while self._head < len(runs) and not runs[self._head].flying:
            self._held -= len(runs[self._head].offsets)
            self._head += 1
        if self._head >= min(_COMPACT, len(runs)):
            del runs[: self._head]
            self._head = 0
        if not runs:
            return self.position
        first = runs[self._head]
        return int(first.offsets[int(first.done.argmin())])

    @property
    def uncommitted(self) -> int:
        """The number of records from the first one in flight on, done or not. As `committable`."""
        if self.committable == self.position or not self._runs:
            return 0
        return self._held - int(self._runs[self._head].done.argmin())


def _first(run: Run) -> int:
    return run.first
