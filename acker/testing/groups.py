"""Groups of consumers of a transport in memory: what comes next, and what was committed."""

import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from acker.errors import AckerError, ValidationError, shown
from acker.testing.messages import Record

MOST_BEHIND = 10
"""A row that is reordered, delayed or duplicated comes at most so many rows, or polls, later."""
PATIENCE = 30.0
"""Seconds for which a step may go without a commit when it has all rows."""

Log: TypeAlias = Callable[[str], Sequence[Record]]


class Drained(BaseException):
    """All rows were delivered, and what was worked on is committed: a step ends by it.

    It is no Exception, so that a step that goes on after errors ends, too.
    """


@dataclass(frozen=True, slots=True)
class Faults:
    """Chances of a row, from 0 to 1; see `acker.testing.Transport`."""

    duplicated: float
    lost: float
    delayed: float
    reordered: float
    undelivered: float
    errors: float

    def check(self) -> None:
        """Raises ValidationError."""
        for name in self.__slots__:
            chance = getattr(self, name)
            if isinstance(chance, bool) or not isinstance(chance, int | float) or not 0 <= chance <= 1:
                raise ValidationError(f"{name}: expected a chance from 0 to 1, got {shown(chance)}")


@dataclass(slots=True)
class _Due:
    """A delivery: its place among others, the poll from which on it may come, and its message."""

    place: float
    poll: int
    record: Record


class _Topic:
    """A topic as a group sees it: rows that were given, in their order, and rows that are due."""

    def __init__(self, seed: str) -> None:
        self.chance = random.Random(seed)
        self.read = 0
        self.due: list[_Due] = []
        self.given: list[Record] = []
        self.position = self.committed = 0


class Group:
    """The rows of a group. It has one member at a time; a new one begins at what was committed.

    A row's offset is its place among the rows that the group was given, so a row that comes twice has two.
    """

    def __init__(self, log: Log, seed: str, faults: Faults) -> None:
        self._log, self._seed, self._faults = log, seed, faults
        self._topics: dict[str, _Topic] = {}
        self._polls = self._faulty_before = 0
        self._errors = random.Random(f"{seed}/errors")
        self._since = time.monotonic()

    def rejoin(self) -> None:
        """Begins again behind the committed rows, as a member does that is started anew."""
        for topic in self._topics.values():
            topic.position = topic.committed

    def is_faulty(self, topics: Sequence[str]) -> bool:
        """True if an error comes in place of the next row: once a row, by chance."""
        taken = sum(self._planned(name).position for name in topics)
        if taken < self._faulty_before:
            return False
        self._faulty_before = taken + 1
        return self._errors.random() < self._faults.errors

    @property
    def is_committed(self) -> bool:
        """True if no row was taken since the last commit."""
        return all(topic.position == topic.committed for topic in self._topics.values())

    def take(self, topics: Sequence[str]) -> Record | None:
        """The next row of topics; None where it has to wait.

        Raises:
            Drained: All rows were taken and committed.
            AckerError: They were taken half a minute ago, and not committed.
        """
        self._polls += 1
        for name in topics:
            topic = self._planned(name)
            if topic.position == len(topic.given):
                ready = [row for row in topic.due if row.poll <= self._polls]
                if not ready:
                    continue
                first = min(ready, key=lambda row: row.place)
                topic.due = [row for row in topic.due if row is not first]
                topic.given.append(replace(first.record, offset=topic.position))
            topic.position += 1
            self._since = time.monotonic()
            return topic.given[topic.position - 1]
        states = [self._topics[name] for name in topics]
        if any(topic.due for topic in states):
            return None
        left = sum(len(topic.given) - topic.committed for topic in states)
        if not left:
            raise Drained(f"all rows of {', '.join(topics)} were worked on")
        if time.monotonic() - self._since > PATIENCE:
            raise AckerError(f"the step has not committed {left:,} rows within {PATIENCE:g} s")
        return None

    def commit(self, offsets: Mapping[str, int] | None = None) -> None:
        """Commits the taken rows. offsets: by topic, and only rows below it."""
        for name, topic in self._topics.items():
            topic.committed = topic.position if offsets is None else offsets.get(name, topic.committed)
        self._since = time.monotonic()

    def _planned(self, name: str) -> _Topic:
        """A topic, for whose new rows it is drawn what happens to them."""
        topic = self._topics.setdefault(name, _Topic(f"{self._seed}/{name}"))
        records, faults, chance = self._log(name), self._faults, topic.chance
        for record in records[topic.read :]:
            draws = [chance.random() for _ in range(4)]
            late = [chance.randint(1, MOST_BEHIND) for _ in range(3)]
            if draws[0] < faults.lost:
                continue
            place = record.offset + (late[0] + 0.5 if draws[1] < faults.reordered else 0.0)
            poll = self._polls + late[1] if draws[2] < faults.delayed else 0
            topic.due.append(_Due(place, poll, record))
            if draws[3] < faults.duplicated:
                topic.due.append(_Due(place + late[2] + 0.5, poll, record))
        topic.read = len(records)
        return topic
