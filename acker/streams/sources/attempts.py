"""Attempts of a row: their outcomes go with the row, from each tree to the next.

Kept rows have them in a column of their own, as JSON. Rows of a first attempt have no such column.

Terms: a tree is all that comes of one record.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, TypeAlias

import pyarrow as pa  # noqa: TID251 - rows travel as Arrow, from and to Spark and plain Python

from acker.ledger.fields import Batch, Instant
from acker.ledger.outcomes.outcomes import Entry, SlabOutcome
from acker.ledger.settings.config import bounded_reason
from acker.ledger.slabs.causes import BATCH
from acker.store.records import Bounds, Codec

COLUMN = "_acker_attempts"
MOST = 10
"""Most attempts of a row that are kept: the first, the last that failed, and the latest."""
SHORT_BYTES = 256
"""Bytes to which reasons are cut, except the reason of the last failed attempt."""
FIELDS = pa.struct(
    [
        ("number", pa.int32()),
        ("status", pa.string()),
        ("reason", pa.string()),
        ("step", pa.string()),
        ("batch", pa.int64()),
        ("at", pa.timestamp("us", "UTC")),
    ]
)
"""An attempt as a value of a table's column."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """A tree of a row that was not acked."""

    number: Annotated[int, Bounds(1)]
    status: str
    reason: Annotated[str, "Why; anybody's text."]
    step: Annotated[str, "That gave the reason; empty where none is known."]
    batch: Annotated[Batch, BATCH]
    at: Annotated[Instant, "When it ended."]

    @classmethod
    def from_outcome(cls, number: int, entry: Entry, outcome: SlabOutcome, expired: str) -> "Attempt":
        """The attempt of a tree with an outcome. expired: the reason of trees that have expired."""
        why = outcome.cause
        reason = why.reason or (expired if entry.status == "expired" else "")
        return cls(number, entry.status, reason, why.step, why.batch, entry.at)


History: TypeAlias = tuple[Attempt, ...]
"""Attempts of a row, by their numbers."""
_HISTORY: Codec[History] = Codec(Annotated[History, Bounds(0, MOST)], "attempts", 1 << 16)


def decisive(history: Sequence[Attempt]) -> Attempt:
    """The attempt that decides why a row is given up: the last failed one, or the last, if none failed."""
    return next((one for one in reversed(history) if one.status == "failed"), history[-1])


def with_attempt(history: Iterable[Attempt], latest: Attempt) -> History:
    """A history with a further attempt, bounded."""
    attempts = [*history, latest]
    real = decisive(attempts)
    while len(attempts) > MOST:
        del attempts[next(at for at in range(1, len(attempts)) if attempts[at] is not real)]
    return tuple(
        attempt if attempt is real else replace(attempt, reason=bounded_reason(attempt.reason, SHORT_BYTES))
        for attempt in attempts
    )


def pack(history: Iterable[Attempt]) -> bytes:
    """A history as stored."""
    return _HISTORY.dump(tuple(history)).encode()


def parse(packed: bytes | None) -> History:
    """The inverse of `pack`. Raises UnreadableRecord."""
    return _HISTORY.load(packed or b"[]")


def check(rows: pa.Table) -> None:
    """Raises UnreadableRecord if kept rows have a column of attempts that cannot be read."""
    if COLUMN in rows.column_names:
        every = {packed for packed in rows.column(COLUMN).to_pylist() if packed}
        for packed in every:
            parse(packed)


def of_row(rows: pa.Table, row: int) -> History:
    """The earlier attempts of a kept row."""
    return parse(rows.column(COLUMN)[row].as_py()) if COLUMN in rows.column_names else ()


def visible(schema: pa.Schema) -> pa.Schema:
    """The user's columns of kept rows."""
    place = schema.get_field_index(COLUMN)
    return schema if place < 0 else schema.remove(place)


def without(rows: pa.Table) -> pa.Table:
    """Kept rows with only the user's columns."""
    return rows.drop_columns([COLUMN]) if COLUMN in rows.column_names else rows


def take(rows: pa.Table, ended: Mapping[int, Attempt]) -> pa.Table:
    """The kept rows at some places, in their order, each with the attempt that is over now."""
    places = sorted(ended)
    taken = rows.take(pa.array(places))
    before = taken.column(COLUMN).to_pylist() if COLUMN in rows.column_names else [None] * len(places)
    histories = {earlier: parse(earlier) for earlier in set(before)}
    packed_histories: dict[tuple[bytes | None, int], bytes] = {}
    packed = []
    for place, earlier in zip(places, before, strict=True):
        key = earlier, id(ended[place])  # many rows have one attempt, and its value takes long to hash
        if key not in packed_histories:
            packed_histories[key] = pack(with_attempt(histories[earlier], ended[place]))
        packed.append(packed_histories[key])
    return without(taken).append_column(COLUMN, pa.array(packed, pa.binary()))
