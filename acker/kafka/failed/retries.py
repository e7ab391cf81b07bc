"""Retries: failed records wait, each for its own time, until they are read again.

The counterpart of Storm's KafkaSpoutRetryExponentialBackoff. The queue holds places of records, and the
history of their attempts, but no row.
"""

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, field

from acker.streams.sources.attempts import History

Partition = tuple[str, int]
"""Topic and number of a partition."""


@dataclass(frozen=True, slots=True)
class Retry:
    """A record to be read again.

    mark: tells the record from another one that has its offset later. history: its attempts so far. final: it
    had its last attempt, and is read for its dead letter. anchor: of its last tree.
    """

    partition: Partition
    offset: int
    mark: int
    history: History = ()
    final: bool = False
    anchor: int = 0


def next_number(history: History) -> int:
    """The number of the attempt that follows."""
    return history[-1].number + 1 if history else 1


@dataclass(order=True, slots=True)
class _Waiting:
    at: float
    number: int
    retry: Retry = field(compare=False)


class RetryQueue:
    """Retries by the time at which they are due. Not for several threads.

    It holds at most what is in flight: each record of a partition waits once.
    """

    def __init__(self) -> None:
        self._heap: list[_Waiting] = []
        self._waiting: dict[tuple[Partition, int], _Waiting] = {}
        self._count = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def __contains__(self, place: tuple[Partition, int]) -> bool:
        return place in self._waiting

    def add(self, retry: Retry, at: float) -> None:
        """Lets a record wait until `at`, in place of an earlier wait. O(log n)."""
        self._count += 1
        made = _Waiting(at, self._count, retry)
        self._waiting[retry.partition, retry.offset] = made
        heapq.heappush(self._heap, made)
        if len(self._heap) > 2 * len(self._waiting) + 64:
            self._heap = sorted(self._waiting.values())

    def take(self, now: float, most: int) -> list[Retry]:
        """Removes and returns at most `most` records that are due, the longest due first."""
        due: list[Retry] = []
        while len(due) < most and (first := self._first()) is not None and first.at <= now:
            heapq.heappop(self._heap)
            del self._waiting[first.retry.partition, first.retry.offset]
            due.append(first.retry)
        return due

    @property
    def due(self) -> float | None:
        """The time at which the first record is due; None if none waits."""
        first = self._first()
        return None if first is None else first.at

    def forget(self, partition: Partition) -> int:
        """Drops the records of a partition; returns how many. O(n)."""
        gone = [place for place in self._waiting if place[0] == partition]
        for place in gone:
            del self._waiting[place]
        return len(gone)

    def __iter__(self) -> Iterator[Retry]:
        return (waiting.retry for waiting in self._waiting.values())

    def _first(self) -> _Waiting | None:
        while self._heap:
            first = self._heap[0]
            if self._waiting.get((first.retry.partition, first.retry.offset)) is first:
                return first
            heapq.heappop(self._heap)
        return None
