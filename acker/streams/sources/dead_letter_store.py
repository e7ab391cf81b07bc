"""The store of dead letters: the facts of each in a stream, by id, and its row in a hash beside it.

So a search reads only short entries, however large the rows are.

Terms: roots are rows of a spout that were staged together, and get a tree each.
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
        """The id of the dead letter without the spout. The numbers of a spout ascend."""
        return self.id.partition("@")[0]


@dataclass(frozen=True, slots=True)
class Heads:
    """A page of entries of a spout's dead letters, oldest first.

    Attributes:
        found: The readable ones.
        count: The number of entries.
        last: The number of the last entry, readable or not.
    """

    found: list[Head]
    count: int
    last: str


@dataclass(frozen=True, slots=True)
class DeadLetter(Head):
    """A row that was given up after its last attempt."""

    row: Annotated[Row, "Its columns: bytes as base64, what JSON has no word for as text."]
    history: Annotated[History, "Its trees: at most 10, the first, the last that failed, and the latest."]
    row_left_out: Annotated[
        str, "Why `row` is null: `large` in a list, `scope` where the token lacks scope `rows`; else empty."
    ] = ""


@dataclass(frozen=True, slots=True)
class StoredRow:
    """The stored row of a dead letter, with its roots and attempts."""

    roots: Roots
    history: History
    payload: bytes


def split_id(letter: object) -> tuple[str, str]:
    """The number and the spout of an id. Raises ValidationError."""
    match = _ID.match(letter) if isinstance(letter, str) else None
    if match is None:
        raise ValidationError(
            f"dead letter: expected an id as <number>-<number>@<spout>, got {shown(letter)}"
        )
    return match[1], match[2]


def unknown_letter(core: Core, letter: str) -> UnknownDeadLetter:
    """The error for the id of a dead letter that does not exist."""
    return UnknownDeadLetter(f"topology {core.config.name!r} has no dead letter {letter!r}")


def pack_row(roots: str, payload: bytes, history: bytes = b"[]") -> bytes:
    """A row as stored: with the record of its roots, and its attempts."""
    record = roots.encode()
    return _LENGTHS.pack(len(record), len(history)) + record + history + payload


def newest(core: Core, spouts: Sequence[str], end: str = "+") -> Operation[list[str]]:
    """The number of the newest dead letter of each spout, up to a number; "0-0" if there is none."""
    if not spouts:
        return []
    replies = yield [
        command("XREVRANGE", keys.Spout(core.config.name, spout).dead, end, "-", "COUNT", 1)
        for spout in spouts
    ]
    return [reply[0][0].decode() if reply else FIRST for reply in replies]


def heads(core: Core, spout: str, after: str, end: str, most: int) -> Operation[Heads]:
    """At most `most` (`READ`) dead letters after a number, up to and including `end`.

    One that cannot be read is passed over, and logged with its id.
    """
    spout_keys = keys.Spout(core.config.name, spout)
    [entries] = yield [command("XRANGE", spout_keys.dead, f"({after}", end, "COUNT", most)]
    letters = []
    for entry in entries:
        with records.passing_over(core.config.name):
            letters.append(_head(entry, spout))
    return Heads(letters, len(entries), entries[-1][0].decode() if entries else after)


def head(core: Core, letter: str) -> Operation[Head]:
    """The facts of one dead letter. Raises UnknownDeadLetter, UnreadableRecord."""
    number, spout = split_id(letter)
    [entries] = yield [command("XRANGE", keys.Spout(core.config.name, spout).dead, number, number)]
    if not entries:
        raise unknown_letter(core, letter)
    return _head(entries[0], spout)


def fitting(core: Core, letters: Sequence[Head]) -> Operation[int]:
    """The number of letters, from the first on, whose rows have `ROW_BYTES` together: at least one."""
    size = 0
    for first in range(0, len(letters), READ):
        part = letters[first : first + READ]
        lengths = yield [
            command("HSTRLEN", keys.Spout(core.config.name, one.spout).letters, one.number) for one in part
        ]
        for place, length in enumerate(lengths, first):
            size += int(length)
            if size > ROW_BYTES and place:
                return place
    return len(letters)


def stored(core: Core, letters: Sequence[Head]) -> Operation[list[StoredRow | UnreadableRecord | None]]:
    """The rows of letters: None for a row that is gone, an error with its id for one that cannot be read."""
    rows: list[StoredRow | UnreadableRecord | None] = []
    for first in range(0, len(letters), _ROWS):
        part = letters[first : first + _ROWS]
        replies = yield [
            command("HGET", keys.Spout(core.config.name, one.spout).letters, one.number) for one in part
        ]
        rows += [_stored(one.id, reply) for one, reply in zip(part, replies, strict=True)]
    return rows


def batches(letter: Head, row: StoredRow) -> list[pa.RecordBatch]:
    """The row of a dead letter, as Arrow. Raises UnreadableRecord with its id."""
    with _reading(letter.id):
        return segments.decode_all(row.payload, 1)


def load_letter(letter: Head, row: StoredRow) -> DeadLetter:
    """A dead letter with its row. Raises UnreadableRecord with its id: it can still be discarded."""
    found = batches(letter, row)
    with _reading(letter.id):
        [values] = [each for batch in found for each in segments.values(batch)]
    return DeadLetter(**asdict(letter), row=values, history=row.history)


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
