"""Rows that wait because their source raised, in the order in which it is asked for them again."""

from collections import deque
from collections.abc import Iterable, Sequence
from typing import TypeAlias

from acker.streams.sources.roots import Roots

Row: TypeAlias = tuple[Roots, int]
"""A row of roots, by its place."""
MOST_ROWS = 100_000
"""Most rows that wait here: while there are about so many, nobody looks for further ones."""
_PARTS = 16


class WaitingRows:
    """Groups of rows, each for one call of the source. For one thread.

    A group that fails is divided, so that a row that makes its source raise comes to stand alone. Its
    parts come after all groups: so each row is asked for in turn. Each success doubles the rows of the
    next call, until a failure: so a source that was away gives all of them in few calls.

    Args:
        most: The most rows of a call.
    """

    def __init__(self, most: int) -> None:
        self._most_of_call = most
        self._most = 1
        self._groups = deque[Sequence[Row]]()
        self._keys = set[tuple[str, int]]()

    def __len__(self) -> int:
        return len(self._keys)

    def wait(self, roots_id: str, row: int) -> bool:
        """Returns True if a row of roots is among the waiting rows."""
        return (roots_id, row) in self._keys

    def take(self) -> list[Row]:
        """The rows that are to be asked for next: they wait no longer, unless they are given to `failed`."""
        taken: list[Row] = []
        while self._groups and (not taken or len(taken) + len(self._groups[0]) <= self._most):
            taken += self._groups.popleft()
        self._keys.difference_update(_keys(taken))
        return taken

    def succeeded(self) -> None:
        """Notes that the source has answered a call for rows that were taken from here."""
        self._most = min(self._most_of_call, 2 * self._most)

    def failed(self, rows: Sequence[Row]) -> None:
        """Lets rows wait whose source raised."""
        self._most = 1
        size = -(-len(rows) // _PARTS)
        self._groups.extend(rows[at : at + size] for at in range(0, len(rows), size))
        self._keys.update(_keys(rows))


def _keys(rows: Iterable[Row]) -> set[tuple[str, int]]:
    return {(kept.id, row) for kept, row in rows}
