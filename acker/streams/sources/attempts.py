"""What became of the attempts of a row so far: it goes with the row, from each tree to the next.

Kept rows have it in a column of their own, as JSON; rows of a first attempt have no such column.
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
"""Bytes to which their reasons are cut, but for the last that failed."""
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
    def of(cls, number: int, entry: Entry, outcome: SlabOutcome, expired: str) -> "Attempt":
        """An attempt that has an outcome. expired: what is said of trees that have expired."""
        why = outcome.cause
        reason = why.reason or (expired if entry.status == "expired" else "")
        return cls(number, entry.status, reason, why.step, why.batch, entry.at)


History: TypeAlias = tuple[Attempt, ...]
"""Attempts of a row, by their numbers."""
_HISTORY: Codec[History] = Codec(Annotated[History, Bounds(0, MOST)], "attempts", 1 << 16)


def decisive(history: Sequence[Attempt]) -> Attempt:
    """The attempt that tells why a row is given up: the last that failed, or the last, where none failed."""
    return next((one for one in reversed(history) if one.status == "failed"), history[-1])


def with_attempt(history: Iterable[Attempt], one: Attempt) -> History:
    """A history with a further attempt, bounded."""
    known = [*history, one]
    real = decisive(known)
    while len(known) > MOST:
        del known[next(at for at in range(1, len(known)) if known[at] is not real)]
    return tuple(
        one if one is real else replace(one, reason=bounded_reason(one.reason, SHORT_BYTES)) for one in known
    )


def pack(history: Iterable[Attempt]) -> bytes:
    """A history as it is stored."""
    return _HISTORY.dump(tuple(history)).encode()


def parse(packed: bytes | None) -> History:
    """The inverse of `pack`; UnreadableRecord for anything else."""
    return _HISTORY.load(packed or b"[]")


def check(rows: pa.Table) -> None:
    """Raises UnreadableRecord where kept rows have a column of attempts that cannot be read."""
    if COLUMN in rows.column_names:
        every = {packed for packed in rows.column(COLUMN).to_pylist() if packed}
        for packed in every:
            parse(packed)


def of_row(rows: pa.Table, row: int) -> History:
    """What became of the attempts of one of kept rows before the one that they are at."""
    return parse(rows.column(COLUMN)[row].as_py()) if COLUMN in rows.column_names else ()


def visible(schema: pa.Schema) -> pa.Schema:
    """The columns of kept rows that are the user's."""
    place = schema.get_field_index(COLUMN)
    return schema if place < 0 else schema.remove(place)


def without(rows: pa.Table) -> pa.Table:
    """Kept rows with the user's columns alone."""
    return rows.drop_columns([COLUMN]) if COLUMN in rows.column_names else rows


def take(rows: pa.Table, ended: Mapping[int, Attempt]) -> pa.Table:
    """Some of kept rows, in their order, each with its attempt that is over now."""
    places = sorted(ended)
    taken = rows.take(pa.array(places))
    before = taken.column(COLUMN).to_pylist() if COLUMN in rows.column_names else [None] * len(places)
    histories = {earlier: parse(earlier) for earlier in set(before)}
    made: dict[tuple[bytes | None, int], bytes] = {}
    packed = []
    for place, earlier in zip(places, before, strict=True):
        key = earlier, id(ended[place])  # many rows have one attempt, and its value takes long to hash
        if key not in made:
            made[key] = pack(with_attempt(histories[earlier], ended[place]))
        packed.append(made[key])
    return without(taken).append_column(COLUMN, pa.array(packed, pa.binary()))
