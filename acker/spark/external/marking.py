"""A column for received rows that says what the store knows of each, before the function is called."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa

from acker.errors import ValidationError, shown
from acker.ledger import ids
from acker.spark.runtime.pickling import Shipped
from acker.streams.staging.external import bits
from acker.streams.staging.external.rows.stamps import Seal, Stamp

KNOWN = "_acker_known"
"""The column."""
MARK = "mark"
_WORDS = ("first", "copy", "over", "untracked")
"""Its words. A row with several trees or stamps has the one that comes first here."""


def check(duplicates: object) -> bool:
    """True if rows are to be marked. Raises ValidationError."""
    if duplicates is not None and (not isinstance(duplicates, str) or duplicates != MARK):
        raise ValidationError(f"duplicates: expected {MARK!r} or None, got {shown(duplicates)}")
    return duplicates is not None


class Marker(Shipped):
    """Makes the column `_acker_known` of stamps.

    - `first`: no commit of the subscription has received the row yet.
    - `copy`: a commit has: it was acked, or has failed.
    - `over`: its trees ended without it, as by a replay, or its stamp is too old to be of an open segment.
    - `untracked`: it has no stamp of the stream.

    Args:
        seal: Makes the seal that reads the stamps, in each task.
        ackers: Shards of the topology.
        over: Segments and shards whose trees are over.
        received: By segment and shard: the rows that were received, as a bitmap.
    """

    def __init__(
        self,
        seal: Callable[[], Seal],
        ackers: int,
        over: Collection[tuple[str, int]],
        received: Mapping[tuple[str, int], bytes],
    ) -> None:
        self.seal, self.ackers, self.over, self.received = seal, ackers, over, received

    def __call__(self, columns: Iterator[pa.Array]) -> Iterator[pa.Array]:
        """Yields the words for columns of texts, or of arrays of texts."""
        seal = self.seal()
        for column in columns:
            if isinstance(column, pa.ChunkedArray):
                column = column.combine_chunks()
            if pa.types.is_list(column.type):
                marks = [self._rank(seal.read_many(texts or [])) for texts in column.to_pylist()]
            else:
                marks = [self._rank([stamp]) for stamp in seal.read_many(column.to_pylist())]
            yield pa.array([_WORDS[rank] for rank in marks], pa.string())

    def _rank(self, stamps: Iterable[Any]) -> int:
        ranks = [len(_WORDS) - 1]
        for stamp in stamps:
            if isinstance(stamp, Stamp):
                ranks += [self._of(stamp, anchor) for anchor in stamp.anchors]
        return min(ranks)

    def _of(self, stamp: Stamp, anchor: int) -> int:
        place = stamp.token, ids.shard_of_anchor(anchor, self.ackers)
        if bits.has(self.received.get(place, b""), stamp.position):
            return 1
        return 2 if place in self.over else 0
