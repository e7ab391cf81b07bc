"""Origins of commits: the ranges of sources that a batch has read.

Two batches of one number may have read different ranges.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

from acker.store.records import Count, Record
from acker.streams.log.subscriptions import Range

_SHOWN = 4
Key: TypeAlias = tuple[str, Count, Count]
"""A reader, and the numbers after which and up to which it reads."""


@dataclass(frozen=True, slots=True)
class Origin(Record, label="the origin of a commit"):
    """The sources of a batch.

    Attributes:
        ranges: Ranges of streams.
        others: The identity of its other sources: a digest of their offsets, the time of the batch (`at`), or
            the run that has planned it (`by`); "" without any.
        whole: True if `ranges` has all ranges of the batch, not only the known ones.
    """

    ranges: frozenset[Key] = frozenset()
    others: str = ""
    whole: bool = True

    @classmethod
    def from_ranges(cls, ranges: Iterable[Range], others: str = "", *, whole: bool = True) -> "Origin":
        """The origin of a batch whose tasks have read some ranges."""
        return cls(frozenset(map(range_key, ranges)), others, whole)

    def contradicts(self, other: "Origin") -> bool:
        """Return True if the origins, as far as known, cannot belong to one batch."""
        if self.others and other.others and self.others != other.others:
            kinds = _kind(self.others), _kind(other.others)
            # A run knows which batches it has planned itself, others may be of any earlier one.
            if kinds not in {("run", "at"), ("", "at"), ("at", "")}:
                return True
        if self.whole and not other.ranges <= self.ranges:
            return True
        if other.whole and not self.ranges <= other.ranges:
            return True
        own = {reader: place for reader, *place in self.ranges}
        return any(own.get(reader, place) != place for reader, *place in other.ranges)

    def text(self) -> str:
        """The origin as text for an error."""
        ranges = [f"{start + 1} to {end} of reader {reader}" for reader, start, end in sorted(self.ranges)]
        more = [f"{len(ranges) - _SHOWN} more"] if len(ranges) > _SHOWN else []
        ranges = [*ranges[:_SHOWN], *more, *(["other sources"] if self.others else [])]
        return "segments " + ", ".join(ranges) if self.ranges else "other sources" if ranges else "nothing"


def time_identity(time: str) -> str:
    """The identity of a batch by its time (ms), which stays the same when the batch runs again."""
    return f"at {time}"


def run_identity(run: str) -> str:
    """The identity of a batch that a run of a query has planned, and did not find in its checkpoint."""
    return f"run {run}"


def _kind(others: str) -> str:
    """The kind of an identity: `at`, `run`, or "" for a digest."""
    kind, space, _ = others.partition(" ")
    return kind if space else ""


def range_key(read_range: Range) -> Key:
    """The key of a range in an origin."""
    return read_range.reader, read_range.start, read_range.end
