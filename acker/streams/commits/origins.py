"""Of which ranges of its sources a commit is: a batch of the same number over others is another batch."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

from acker.store.records import Count, Record
from acker.streams.log.subscriptions import Range

_SHOWN = 4
Key: TypeAlias = tuple[str, Count, Count]
"""A reader, and the numbers after which and up to which it reads."""


@dataclass(frozen=True, slots=True)
class Origin(Record, what="the origin of a commit"):
    """What a batch reads. ranges: of streams; others: what tells of its other sources, or "".

    others: a digest of their offsets, `at` the time of the batch, or the run that has planned it (`by`).
    whole: whether these are all ranges that it reads, not those alone that are known.
    """

    ranges: frozenset[Key] = frozenset()
    others: str = ""
    whole: bool = True

    @classmethod
    def of(cls, ranges: Iterable[Range], others: str = "", *, whole: bool = True) -> "Origin":
        """That of ranges which tasks have read."""
        return cls(frozenset(map(key, ranges)), others, whole)

    def contradicts(self, other: "Origin") -> bool:
        """Whether a batch of this origin cannot be one of the other origin, as far as both are known."""
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

    def shown(self) -> str:
        """For an error."""
        found = [f"{start + 1} to {end} of reader {reader}" for reader, start, end in sorted(self.ranges)]
        more = [f"{len(found) - _SHOWN} more"] if len(found) > _SHOWN else []
        found = [*found[:_SHOWN], *more, *(["other sources"] if self.others else [])]
        return "segments " + ", ".join(found) if self.ranges else "other sources" if found else "nothing"


def at(time: str) -> str:
    """What tells of a batch by its time (ms), which is the same when it runs again."""
    return f"at {time}"


def by(run: str) -> str:
    """What tells of a batch that a run of a query has planned, and did not find in its checkpoint."""
    return f"run {run}"


def _kind(others: str) -> str:
    """Which of these it is: `at`, `run`, or "" for a digest."""
    kind, space, _ = others.partition(" ")
    return kind if space else ""


def key(one: Range) -> Key:
    """How origins name a range."""
    return one.reader, one.start, one.end
