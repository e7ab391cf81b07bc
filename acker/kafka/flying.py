"""Records in flight, by the slabs of their trees.

Terms: a tree is all that comes of one record; a slab is the trees that one call tracked together.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from acker.kafka.intake import Piece
from acker.kafka.offsets import Places
from acker.ledger import ids
from acker.ledger.ids import Ids


class FlyingSlab:
    """The records of one slab, in the order of their trees. left: trees without an outcome."""

    __slots__ = ("_starts", "left", "pieces")

    def __init__(self, pieces: Sequence[Piece]) -> None:
        self.pieces = pieces
        self._starts = np.cumsum([0, *(len(piece.marks) for piece in pieces)])
        self.left = int(self._starts[-1])

    def ended(self, indexes: Sequence[int]) -> Iterator[tuple[Piece, Places]]:
        """The records whose trees have an outcome now: pieces, and places in them."""
        self.left -= len(indexes)
        if len(indexes) == self._starts[-1]:
            for piece in self.pieces:
                yield piece, slice(None)
            return
        ended = np.asarray(indexes)
        cuts = np.searchsorted(ended, self._starts)
        for number, piece in enumerate(self.pieces):
            places = ended[cuts[number] : cuts[number + 1]] - self._starts[number]
            if len(places):
                yield piece, places


def slabs_of(pieces: Sequence[Piece], anchors: Ids, most: int) -> dict[bytes, FlyingSlab]:
    """Records by the names of their slabs, which have at most so many trees each."""
    slabs, members, room = dict[bytes, FlyingSlab](), list[Piece](), most
    names = iter([ids.slab_of(int(anchor)) for anchor in anchors[::most]])
    for piece in pieces:
        at = 0
        while at < len(piece.marks):
            part = piece.part(at, at + room)
            members.append(part)
            at, room = at + len(part.marks), room - len(part.marks)
            if not room:
                slabs[next(names)] = FlyingSlab(members)
                members, room = [], most
    if members:
        slabs[next(names)] = FlyingSlab(members)
    return slabs
