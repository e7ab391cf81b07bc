"""How dead letters are stored: the facts of each in a stream, by id, and the rows in a hash beside it.

So what looks for some of them reads short entries only, however large their rows are.
"""

import re
import struct
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Annotated

import pyarrow as pa  # noqa: TID251 - rows travel as Arrow, from and to Spark and plain Python

from acker.errors import UnknownDeadLetter, UnreadableRecord, ValidationError, shown
from acker.ledger.calls.core import Core
from acker.ledger.fields import MESSAGE_ID, Batch, Id, Instant, Name, Row, Whole
from acker.ledger.slabs.causes import BATCH
from acker.store import keys, records
from acker.store.operation import Operation, Reply, command
from acker.store.replies import pairs
from acker.streams.log import segments
from acker.streams.sources import attempts
from acker.streams.sources.attempts import History
from acker.streams.sources.roots import Roots

FIRST = "0-0"
"""Before the first dead letter of a spout."""
READ = 1_000
"""Most entries that one command reads, and most dead letters that one drops."""
ROW_BYTES = 16 << 20
"""Bytes of rows after which no more are read for a page, or a step."""
_ROWS = 100
_ID = re.compile(r"([0-9]{1,20}-[0-9]{1,20})@([A-Za-z0-9._-]{1,64})\Z")
_LENGTHS = struct.Struct("<II")


@dataclass(frozen=True, slots=True)
class Head:
    """The facts of a row that was given up after its last attempt."""

    id: str
    spout: Name
    message_id: Annotated[bytes, MESSAGE_ID]
    anchor: Annotated[Id, "Of its last tree."]
    status: Annotated[str, "Of its last tree."]
    reason: Annotated[str, "Of its last tree that failed, or of the last, where none failed; anybody's text."]
    step: Annotated[str, "That gave the reason; empty where none is known."]
    batch: Annotated[Batch, BATCH]
    attempts: Annotated[Whole, "How many trees it had."]
    at: Annotated[Instant, "When its last tree ended."]
    stream: Annotated[Name, "Where a replay is published."]

    @property
    def number(self) -> str:
        """Its id without the spout: those of a spout ascend."""
        return self.id.partition("@")[0]


@dataclass(frozen=True, slots=True)
class Heads:
    """Some entries of a spout's dead letters, oldest first.

    found: the readable ones. count: how many entries there are. last: the number of the last of them,
    readable or not.
    """

    found: list[Head]
    count: int
    last: str


@dataclass(frozen=True, slots=True)
class DeadLetter(Head):
    """A row that was given up after its last attempt."""

    row: Annotated[
        Row, "Its columns: bytes as base64, what JSON has no word for as text. Large: null in a list."
    ]
    history: Annotated[History, "Its trees: at most 10, the first, the last that failed, and the latest."]


@dataclass(frozen=True, slots=True)
class StoredRow:
    """The row of a dead letter as it is stored, with what it was tracked as, and its attempts."""

    roots: Roots
    history: History
    payload: bytes


def split(letter: object) -> tuple[str, str]:
    """The number and the spout of an id; ValidationError where it is none."""
    match = _ID.match(letter) if isinstance(letter, str) else None
    if match is None:
        raise ValidationError(
            f"dead letter: expected an id as <number>-<number>@<spout>, got {shown(letter)}"
        )
    return match[1], match[2]


def unknown(core: Core, letter: str) -> UnknownDeadLetter:
    """What the id of a dead letter is refused with that is not there."""
    return UnknownDeadLetter(f"topology {core.config.name!r} has no dead letter {letter!r}")


def packed(roots: str, payload: bytes, history: bytes = b"[]") -> bytes:
    """A row as it is stored: with the record of its roots, and what became of its attempts."""
    record = roots.encode()
    return _LENGTHS.pack(len(record), len(history)) + record + history + payload


def newest(core: Core, spouts: Sequence[str], end: str = "+") -> Operation[list[str]]:
    """The number of the newest dead letter of each spout, up to a number; "0-0" where there is none."""
    if not spouts:
        return []
    replies = yield [
        command("XREVRANGE", keys.Spout(core.config.name, spout).dead, end, "-", "COUNT", 1)
        for spout in spouts
    ]
    return [reply[0][0].decode() if reply else FIRST for reply in replies]


def heads(core: Core, spout: str, after: str, end: str, most: int) -> Operation[Heads]:
    """At most `most` (`READ`) dead letters after a number, up to and including `end`.

    Each that cannot be read is passed over, and logged with its id.
    """
    own = keys.Spout(core.config.name, spout)
    [entries] = yield [command("XRANGE", own.dead, f"({after}", end, "COUNT", most)]
    found = []
    for entry in entries:
        with records.passing_over(core.config.name):
            found.append(_head(entry, spout))
    return Heads(found, len(entries), entries[-1][0].decode() if entries else after)


def head(core: Core, letter: str) -> Operation[Head]:
    """The facts of one dead letter. Raises UnknownDeadLetter, UnreadableRecord."""
    number, spout = split(letter)
    [found] = yield [command("XRANGE", keys.Spout(core.config.name, spout).dead, number, number)]
    if not found:
        raise unknown(core, letter)
    return _head(found[0], spout)


def fitting(core: Core, found: Sequence[Head]) -> Operation[int]:
    """How many of these, from the first on, have rows of `ROW_BYTES` in all: at least one."""
    size = 0
    for first in range(0, len(found), READ):
        part = found[first : first + READ]
        lengths = yield [
            command("HSTRLEN", keys.Spout(core.config.name, one.spout).letters, one.number) for one in part
        ]
        for place, length in enumerate(lengths, first):
            size += int(length)
            if size > ROW_BYTES and place:
                return place
    return len(found)


def stored(core: Core, found: Sequence[Head]) -> Operation[list[StoredRow | UnreadableRecord | None]]:
    """Their rows; None where one is gone meanwhile, an error that names it where it cannot be read."""
    rows: list[StoredRow | UnreadableRecord | None] = []
    for first in range(0, len(found), _ROWS):
        part = found[first : first + _ROWS]
        replies = yield [
            command("HGET", keys.Spout(core.config.name, one.spout).letters, one.number) for one in part
        ]
        rows += [_stored(one.id, reply) for one, reply in zip(part, replies, strict=True)]
    return rows


def batches(one: Head, row: StoredRow) -> list[pa.RecordBatch]:
    """The row of a dead letter, as Arrow: one in all. Raises UnreadableRecord, which names it."""
    with _reading(one.id):
        found = list(segments.decode(row.payload))
        if (count := sum(batch.num_rows for batch in found)) != 1:
            raise ValueError(f"{count} rows")
    return found


def whole(one: Head, row: StoredRow) -> DeadLetter:
    """A dead letter with its row. Raises UnreadableRecord, which names it: it can still be discarded."""
    found = batches(one, row)
    with _reading(one.id):
        [values] = [each for batch in found for each in segments.values(batch)]
    return DeadLetter(**asdict(one), row=values, history=row.history)


def _head(entry: Reply, spout: str) -> Head:
    number, fields = entry
    letter = f"{number.decode()}@{spout}"
    with _reading(letter):
        values = pairs(fields)
        return Head(
            id=letter,
            spout=spout,
            message_id=values[b"message_id"],
            anchor=int(values[b"anchor"]),
            status=values[b"status"].decode(),
            reason=values[b"reason"].decode("utf-8", "replace"),
            step=values[b"step"].decode("utf-8", "replace"),
            batch=int(values[b"batch"]),
            attempts=int(values[b"attempts"]),
            at=int(values[b"at"]) / 1000,
            stream=values[b"stream"].decode(),
        )


def _stored(letter: str, reply: bytes | None) -> StoredRow | UnreadableRecord | None:
    if reply is None:
        return None
    try:
        with _reading(letter):
            length, more = _LENGTHS.unpack_from(reply)
            end = _LENGTHS.size + length
            rest = end + more
            known = Roots.load(reply[_LENGTHS.size : end])
            return StoredRow(known, attempts.parse(reply[end:rest]), reply[rest:])
    except UnreadableRecord as error:
        return error


def _reading(letter: str) -> records.reading:
    return records.reading(f"dead letter {letter!r}")
