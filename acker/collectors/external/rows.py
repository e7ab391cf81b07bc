"""Rows that were received together: a row is made when it is asked for.

Terms: a tree is all that comes of one record; a segment is the rows of an external stream that one sender
stamped together.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NoReturn, overload

from acker.collectors.external.row import ELSEWHERE, Row
from acker.errors import TupleError
from acker.streams.staging.external.rows.one_tree import OneTreeStamps


class Rows(Sequence[Row]):
    """The rows of messages that were read together, in their order. Made by `Incoming.extract_many`.

    `ack`, `stamps` and `inject_many` of all of them make no row, if each has one tree, so they cost little.
    The first look at one makes the rows, which are the same objects from then on. It is no list, and never
    changes: `list(rows)` is one to sort, to compare, or to add to. A slice of it, and a sum with rows or a
    list of them, is a list.

    Attributes:
        incoming: The receiver of the rows.
        stamps: Their stamps, if each has one tree, which is not over; otherwise None.
        ended: "acked" if all were acked together; otherwise empty, and the rows say it themselves.
    """

    __slots__ = ("_rows", "ended", "incoming", "stamps")

    def __init__(self, incoming: Any, stamps: OneTreeStamps | None, rows: list[Row] | None = None) -> None:
        self.incoming, self.stamps, self.ended = incoming, stamps, ""
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows or ()) if self.stamps is None else len(self.stamps.positions)

    @overload
    def __getitem__(self, place: int) -> Row: ...

    @overload
    def __getitem__(self, place: slice) -> list[Row]: ...

    def __getitem__(self, place: int | slice) -> Row | list[Row]:
        return self.listed()[place]

    def __iter__(self) -> Iterator[Row]:
        return iter(self.listed())

    def __add__(self, others: object) -> list[Row]:
        return [*self, *others] if isinstance(others, Rows | list) else NotImplemented

    def __radd__(self, others: object) -> list[Row]:
        return [*others, *self] if isinstance(others, list) else NotImplemented

    def __reduce__(self) -> NoReturn:
        raise TupleError(ELSEWHERE)

    def __repr__(self) -> str:
        return f"<{len(self):,} rows of {self.incoming!r}>"

    def listed(self) -> list[Row]:
        """Makes the rows. From then on each is in work by itself."""
        exchange = self.incoming._exchange
        if self._rows is None or self in exchange.batches:
            with exchange.lock:  # each step may come twice, after an interrupt
                if self._rows is None:
                    self._rows = self._made()
                if self in exchange.batches:
                    exchange.open.update((id(row), row) for row in self._rows)
                    exchange.batches.pop(self, None)
        return self._rows

    def _made(self) -> list[Row]:
        rows, stamps = list[Row](), self.stamps
        assert stamps is not None
        for (token, sent, *_), first, last, _ in stamps.runs:
            places = slice(first, last)
            positions, anchors = stamps.positions[places].tolist(), stamps.anchors[places].tolist()
            shards = stamps.shards[places].tolist()
            rows += [
                Row(self.incoming, token, position, sent, (anchor,), "", shard)
                for position, anchor, shard in zip(positions, anchors, shards, strict=True)
            ]
        for row in rows if self.ended else ():
            row.ended = self.ended
        return rows
