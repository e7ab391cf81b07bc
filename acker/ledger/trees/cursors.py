"""Cursors of pages: the position of a bounded read, as text that the caller hands back unread.

A cursor holds its position by name and not by number, so trees that finish or expire between two pages do not
shift it. It is bound to its query, and not to a server process: after a restart of the store pages may repeat
trees or leave some out.

Terms: a tree is all that comes of one record; a slab is the trees that one call tracked together.
"""

import base64
import binascii
import hashlib
import struct
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TypeVar

from acker.errors import UnreadableRecord, ValidationError
from acker.ledger import ids
from acker.store.records import Codec

_T = TypeVar("_T")
_VERSION = 3
_MOST_SLABS = 4096
_HEAD = struct.Struct("<B4sHqQHBHH")
_SHARD = struct.Struct("<qB")
_MOST_ROTATIONS = 2**53
TURNS = 4
"""Passes of a read by age through all shards: one for slabs set aside, and one for each bucket."""
MOST_LISTED = 800
"""Slabs that a read remembers to have listed, the last ones: a request line of 8 KiB has room for so many."""
_MARK_BYTES = 5
_CHECK = struct.Struct("<I")


@dataclass(slots=True)
class Position:
    """The position of a read: named slabs that are not read yet, and the place of the next names.

    shard: the shard to go on in; generation: the generation of its slabs (-1: its first); scan: the server's
    cursor. slabs: named and unread slabs of one shard; first: the first index in the first of them.
    clocks: for a read by age, which goes through all shards several times: the rotations of each shard at its
    begin (-1: none yet), and the number of undrained ones (255 at most); turn: the number of the pass.
    listed: marks of the slabs whose trees were listed, the last `MOST_LISTED` ones: a reset moves a slab
    into a bucket that is still to be read.
    """

    shard: int = 0
    generation: int = -1
    scan: int = 0
    first: int = 0
    slabs: list[bytes] = field(default_factory=list)
    turn: int = 0
    clocks: list[tuple[int, int]] = field(default_factory=list)
    listed: dict[bytes, None] = field(default_factory=dict)

    def note(self, slabs: Iterable[bytes]) -> None:
        """Remembers that trees of slabs were listed."""
        for mark in map(_mark, slabs):
            self.listed.pop(mark, None)
            self.listed[mark] = None
        for mark in list(self.listed)[:-MOST_LISTED]:
            del self.listed[mark]

    def has_listed(self, slab: bytes) -> bool:
        """True if it remembers that trees of a slab were listed. Two slabs in 2**40 have the same mark."""
        return _mark(slab) in self.listed


def _mark(slab: bytes) -> bytes:
    return hashlib.sha256(slab).digest()[:_MARK_BYTES]


def as_text(packed: bytes) -> str:
    """Bytes as a cursor: letters, digits, - and _, which are safe in a URL."""
    return base64.urlsafe_b64encode(packed).rstrip(b"=").decode()


def from_text(cursor: object, most: int) -> bytes:
    """The inverse of `as_text`. Raises ValidationError for other text, and beyond `most` characters."""
    if not isinstance(cursor, str) or not cursor.isascii() or not 0 < len(cursor) <= most:
        raise malformed()
    try:
        return base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
    except binascii.Error as error:
        raise malformed() from error


def read(codec: Codec[_T], cursor: object, most: int) -> _T:
    """The value of a cursor of records. Raises ValidationError for anything else."""
    try:
        return codec.load(from_text(cursor, most))
    except UnreadableRecord as error:
        raise malformed() from error


def malformed() -> ValidationError:
    """The error of a cursor that no page gave."""
    return ValidationError("cursor: expected one that a page of the same query gave")


def _query(parts: tuple[object, ...]) -> bytes:
    return hashlib.sha256(repr(parts).encode()).digest()[:4]


def encode(position: Position, query: tuple[object, ...]) -> str:
    """A position in the answers to a query as printable text, safe in a URL."""
    packed = _HEAD.pack(
        _VERSION,
        _query(query),
        position.shard,
        position.generation,
        position.scan,
        position.first,
        position.turn,
        len(position.slabs),
        len(position.listed),
    )
    packed += b"".join([*position.slabs, *position.listed])
    if position.clocks:  # shards rotate together, so this is mostly short
        packed += zlib.compress(b"".join(_SHARD.pack(*clock) for clock in position.clocks))
    return as_text(packed + _CHECK.pack(zlib.crc32(packed)))


def decode(text: object, query: tuple[object, ...], ackers: int) -> Position:
    """The position of a cursor; raises ValidationError for a cursor of another query."""
    packed = from_text(text, 2 * 8 * _MOST_SLABS)
    try:
        body, check = packed[: -_CHECK.size], packed[-_CHECK.size :]
        if _CHECK.unpack(check)[0] != zlib.crc32(body):
            raise malformed()
        version, asked, shard, generation, scan, first, turn, count, marks = _HEAD.unpack_from(body)
    except struct.error as error:
        raise malformed() from error
    names, rest = body[_HEAD.size : _HEAD.size + 8 * count], body[_HEAD.size + 8 * count :]
    packed_marks, rest = rest[: _MARK_BYTES * marks], rest[_MARK_BYTES * marks :]
    listed = [packed_marks[at : at + _MARK_BYTES] for at in range(0, len(packed_marks), _MARK_BYTES)]
    if marks > MOST_LISTED or len(packed_marks) != _MARK_BYTES * marks:
        raise malformed()
    if version != _VERSION or asked != _query(query) or shard > ackers or generation < -1:
        raise malformed()
    slabs = [names[at : at + 8] for at in range(0, len(names), 8)]
    if len(names) != 8 * count or len({ids.shard_of(slab, max(1, ackers)) for slab in slabs}) > 1:
        raise malformed()
    clocks = _clocks(rest, ackers) if rest else []
    if clocks is None or turn > (TURNS - 1 if clocks else 0):
        raise malformed()
    return Position(shard, generation, scan, first, slabs, turn, clocks, dict.fromkeys(listed))


def _clocks(packed: bytes, ackers: int) -> list[tuple[int, int]] | None:
    """The clocks of a cursor; None if they are not the clocks of so many shards."""
    try:
        unpacked = zlib.decompressobj().decompress(packed, _SHARD.size * ackers + 1)
    except zlib.error:
        return None
    if len(unpacked) != _SHARD.size * ackers:
        return None
    found = list(_SHARD.iter_unpack(unpacked))
    return found if all(-1 <= rotations < _MOST_ROTATIONS for rotations, _ in found) else None
