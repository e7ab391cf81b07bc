"""Records that end the process of their worker, or hold it for ever, fail alone.

A segment says how often workers that had it have died. From the second time on a worker that has it is
careful: it notes in the store which trees it begins, up to a 64th of the segment's at a time, and, where
workers die at these, fewer and fewer, down to one. A tree at which three workers have died fails for good.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple, TypeVar

from acker.errors import PermanentFailure, ReaderFenced
from acker.streams.log.subscriptions import Taken
from acker.workers.out import Anchor, trees_of

CAREFUL = 2
"""Workers that have died with a segment until others are careful with it."""
PARTS = 64
"""Parts in which the trees of a segment are begun."""
_MARK = "~"
"""Before what a careful worker notes to have begun: others begin it again."""
_ALONE = threading.Lock()
"""Of careful workers of a process one is at work at a time: so it is known at what the process has ended."""
_PATIENCE = 10.0
T = TypeVar("T")


def noted(begun: bytes) -> str:
    """What a careful worker has noted to have begun; "" of what any other one has."""
    text = begun.decode("utf-8", "replace")
    return text.removeprefix(_MARK) if text.startswith(_MARK) else ""


class Deaths(NamedTuple):
    """The workers that died with a segment: how many, at which trees, and which trees are not begun again."""

    begun: int = 0
    low: int | None = None
    high: int | None = None
    guilty: frozenset[int] = frozenset()

    @classmethod
    def parse(cls, begun: str) -> "Deaths":
        """The inverse of what lua/streams/log/return_segments.lua writes; none for anything else."""
        try:
            count, low, high, _, guilty = begun.split(" ")
            trees = frozenset(map(int, guilty.split(","))) if guilty != "-" else frozenset[int]()
            return cls(
                int(count), None if low == "-" else int(low), None if high == "-" else int(high), trees
            )
        except ValueError:
            return cls()


class Careful:
    """A batch whose rows are begun part by part. note: is given what is begun, and raises ReaderFenced."""

    def __init__(self, taken: Sequence[Taken], note: Callable[[str], None]) -> None:
        self._deaths = {piece.segment.token: Deaths.parse(piece.begun) for piece in taken}
        self._note: Callable[[str], None] | None = note

    @staticmethod
    def needed(taken: Sequence[Taken]) -> bool:
        """True where workers have died with some of what was taken."""
        return any(piece.begun and Deaths.parse(piece.begun).begun >= CAREFUL for piece in taken)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Keeps other careful workers of the process waiting; after ten seconds it notes nothing instead."""
        held = _ALONE.acquire(timeout=_PATIENCE)
        if not held:
            self._note = None
        try:
            yield
        finally:
            if held:
                _ALONE.release()

    def parts(
        self, token: str, calls: Sequence[tuple[Anchor, T]], fail: Callable[[Anchor, BaseException], None]
    ) -> Iterator[list[tuple[Anchor, T]]]:
        """Calls for rows of a segment in parts, each noted when begun. fail: is called for the others."""
        deaths = self._deaths[token]
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
                self._begin(f"{token} {part[0]} {part[-1]}")
                yield [call for tree in part for call in by_tree[tree]]

    def _begin(self, what: str) -> None:
        try:
            if self._note is not None:
                self._note(f"{_MARK}{what}")
        except ReaderFenced:  # others have begun it: whoever ends first wins
            self._note = None


def _reason(count: int) -> str:
    return (
        f"it was begun {count} times, and each time its worker died, or gave no sign of life for as long as "
        "its lease: it is not begun again"
    )
