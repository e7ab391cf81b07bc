"""Records that end the process of their worker, or block it for ever, fail alone.

A segment has a count of workers that died with it. From the second death on, a worker that has the segment is
careful: it records in the store the trees that it begins, up to a 64th of the segment's at a time, and, if
workers die at these, fewer and fewer, down to one. A tree at which three workers have died fails for good.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple, TypeVar

from acker.errors import PermanentFailure, ReaderFenced
from acker.streams.log.subscriptions import Delivery
from acker.workers.out import Anchor, trees_of

CAREFUL = 2
"""Deaths of workers with a segment after which others are careful with it."""
PARTS = 64
"""Parts in which the trees of a segment are begun."""
_MARK = "~"
"""The prefix of a careful worker's begun work: others begin it again."""
_ALONE = threading.Lock()
"""A lock: a process has a careful worker at work at a time, so the record that ended it is known."""
_PATIENCE = 10.0
T = TypeVar("T")


def noted(begun: bytes) -> str:
    """Returns the begun work of a careful worker; "" for any other worker's."""
    text = begun.decode("utf-8", "replace")
    return text.removeprefix(_MARK) if text.startswith(_MARK) else ""


class Deaths(NamedTuple):
    """The deaths of workers with a segment: their number, the trees, and trees that are not begun again."""

    begun: int = 0
    low: int | None = None
    high: int | None = None
    guilty: frozenset[int] = frozenset()

    @classmethod
    def parse(cls, begun: str) -> "Deaths":
        """Parses the text of lua/streams/log/return_segments.lua; returns no deaths for any other text."""
        try:
            count, low, high, _, guilty = begun.split(" ")
            trees = frozenset(map(int, guilty.split(","))) if guilty != "-" else frozenset[int]()
            return cls(
                int(count), None if low == "-" else int(low), None if high == "-" else int(high), trees
            )
        except ValueError:
            return cls()


class Careful:
    """A batch whose rows are begun part by part. note: gets the begun part, and raises ReaderFenced."""

    def __init__(self, delivered: Sequence[Delivery], note: Callable[[str], None]) -> None:
        self._deaths = {piece.segment.id: Deaths.parse(piece.begun) for piece in delivered}
        self._note: Callable[[str], None] | None = note

    @staticmethod
    def needed(delivered: Sequence[Delivery]) -> bool:
        """Return True if workers have died with some of the claimed segments."""
        return any(piece.begun and Deaths.parse(piece.begun).begun >= CAREFUL for piece in delivered)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Makes other careful workers of the process wait; after ten seconds it records nothing instead."""
        held = _ALONE.acquire(timeout=_PATIENCE)
        if not held:
            self._note = None
        try:
            yield
        finally:
            if held:
                _ALONE.release()

    def parts(
        self,
        segment_id: str,
        calls: Sequence[tuple[Anchor, T]],
        fail: Callable[[Anchor, BaseException], None],
    ) -> Iterator[list[tuple[Anchor, T]]]:
        """Yields calls for rows of a segment in parts, recorded when begun. fail: takes the others."""
        deaths = self._deaths[segment_id]
        by_tree: dict[int, list[tuple[Anchor, T]]] = {}
        for call in calls:
            by_tree.setdefault(min(trees_of(call[0]), default=0), []).append(call)
        for tree in deaths.guilty & by_tree.keys():
            for anchor, _ in by_tree.pop(tree):
                fail(anchor, PermanentFailure(_reason(deaths.begun)))
        trees = sorted(by_tree)
        low, high = deaths.low, deaths.high
        suspects = [tree for tree in trees if low is not None and high is not None and low <= tree <= high]
        for group in (suspects, [tree for tree in trees if tree not in set(suspects)]):
            size = max(1, -(-len(group) // PARTS))
            for first in range(0, len(group), size):
                part = group[first : first + size]
                self._begin(f"{segment_id} {part[0]} {part[-1]}")
                yield [call for tree in part for call in by_tree[tree]]

    def _begin(self, rows: str) -> None:
        try:
            if self._note is not None:
                self._note(f"{_MARK}{rows}")
        except ReaderFenced:  # others have begun it: the first to end wins
            self._note = None


def _reason(count: int) -> str:
    return (
        f"it was begun {count} times, and each time its worker died, or gave no sign of life for as long as "
        "its lease: it is not begun again"
    )
