"""Stamps: the text that a row of an external stream carries.

`a1-` and base64url of: number of anchors (1 byte), the segment's token (14), time of its begin by the store's
clock (4, seconds), number of the key (1), the row's position (3), check (5), anchors (8 each). The check is a
keyed hash of all these with topology and stream (checks.py); the key belongs to the stream, and is new after
the store was emptied. So the check detects a cut or edited stamp, and a stamp of another stream or of an
earlier content of the store. Stamps of a segment with one anchor have their first letters in common, which
are read once for all of them.

Terms: a segment is the rows of an external stream that one sender stamped together.
"""

import base64
import binascii
import struct
from collections.abc import Sequence
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from acker.errors import ValidationError, shown
from acker.ledger.ids import Ids
from acker.streams.staging.external.bits import MOST_POSITIONS
from acker.streams.staging.external.rows import checks
from acker.streams.staging.external.rows.checks import Keys, check_one

VERSION = "a1-"
"""The letters with which a stamp of this version begins."""
_PREFIX = VERSION.encode()
MOST_ANCHORS = 255
TOKEN_BYTES = 14
_CHECK_BYTES, _HEAD_BYTES = 5, 28
_LONGEST = len(VERSION) + (4 * (_HEAD_BYTES + 8 * MOST_ANCHORS) + 2) // 3

_SEGMENT, _ROW, _ANCHOR = struct.Struct(">14sIB"), struct.Struct(">BHBI"), struct.Struct(">q")
"""The bytes of a stamp behind the number of its anchors: token, time, number of the key; then position (1
byte and 2) and check (1 and 4); then anchors."""
_SEGMENT_BYTES, _COMMON_BYTES = slice(1, 20), 21
_TAIL = struct.Struct(">HBIq")
"""The last bytes of a stamp with one anchor: the bytes before them are common to its segment."""
_COMMON, _SHORT = len(VERSION) + 4 * _COMMON_BYTES // 3, 4 * (_COMMON_BYTES + _TAIL.size) // 3
"""Letters that stamps with one anchor of a segment have in common; all of them behind the version. They need
no padding, so each has one way to be written."""
LETTERS = len(VERSION) + _SHORT
"""Letters of a stamp with one anchor."""
_MOST_HEADS = 16_384
"""Segments whose keys a seal remembers."""
Bytes: TypeAlias = npt.NDArray[np.uint8]
_TO_URL = bytes.maketrans(b"+/", b"-_")
_FROM_URL = bytes.maketrans(b"-_+/=", b"+/\0\0\0")

Fault: TypeAlias = Literal["unstamped", "damaged", "foreign", "newer"]
"""Cause of a missing stamp: it is absent, malformed, of another key or of a later version."""


class Stamp(NamedTuple):
    """The content of a row's stamp."""

    token: str
    """The segment, as 28 hexadecimal digits."""
    position: int
    """The row's position in the segment, from 0."""
    sent: int
    """Begin of the segment, in Unix seconds of the store's clock."""
    anchors: tuple[int, ...]


class Head(NamedTuple):
    """The common part of a segment's stamps.

    Attributes:
        token, sent: As in `Stamp`.
        body: Its bytes: token, time, and number of the key.
        letters: The letters with which its stamps with one anchor begin.
        keys: The keys of their checks.
    """

    token: str
    sent: int
    body: bytes
    letters: bytes
    keys: Keys


class Columns(NamedTuple):
    """Stamps with one anchor, read together. The arrays have a member for each.

    Attributes:
        sound: True if it is sound; the arrays behind `foreign` mean nothing where it is not.
        foreign: True if it is well-formed, and its check is of another key.
        segments: The place of its segment in `heads`.
        positions, anchors: As in `Stamp`.
        heads: Their segments.
    """

    sound: npt.NDArray[np.bool_]
    foreign: npt.NDArray[np.bool_]
    segments: Ids
    positions: Ids
    anchors: Ids
    heads: list[Head]


class Seal:
    """The keys of a stream, which seal its stamps and tell them from other streams' stamps."""

    __slots__ = ("_by_letters", "_heads", "_starts", "number")

    def __init__(self, topology: str, stream: str, stamp_keys: dict[int, bytes], number: int) -> None:
        self.number = number
        self._starts = {of: checks.start_of(key, topology, stream) for of, key in stamp_keys.items()}
        self._heads, self._by_letters = dict[bytes, Head](), dict[bytes, Head | None]()

    def head(self, token: str, sent: int) -> Head:
        """The common part of a segment's stamps. token: 28 hexadecimal digits. sent: in Unix seconds."""
        head = self._head(_SEGMENT.pack(bytes.fromhex(token), sent, self.number))
        assert head is not None  # the seal has the key that it writes with
        return head

    def _head(self, body: bytes) -> Head | None:
        """The common part of stamps, by its bytes; None where its key is not one of the stream's."""
        head = self._heads.get(body)
        if head is None:
            token, sent, number = _SEGMENT.unpack(body)
            start = self._starts.get(number)
            if start is None:
                return None
            common = binascii.b2a_base64(b"\x01" + body + b"\0", newline=False).translate(_TO_URL)
            head = Head(token.hex(), sent, body, _PREFIX + common, checks.derived(start, body))
            if len(self._heads) >= _MOST_HEADS:
                self._heads.clear()
            self._heads[body] = head
        return head

    def _begun(self, letters: bytes) -> Head | None:
        """The common part of stamps with one anchor, by its letters; None if it is not sound."""
        try:
            return self._by_letters[letters]
        except KeyError:
            head = None
            try:
                common = binascii.a2b_base64(letters[len(_PREFIX) :].translate(_FROM_URL), strict_mode=True)
            except binascii.Error:
                common = b""
            if letters.startswith(_PREFIX) and common[:1] == b"\x01" and common[-1:] == b"\0":
                head = self._head(common[_SEGMENT_BYTES])
            if len(self._by_letters) >= _MOST_HEADS:
                self._by_letters.clear()
            self._by_letters[letters] = head
            return head

    def write(self, stamp: Stamp) -> str:
        """Writes a stamp as text.

        Raises:
            ValidationError: It has no anchor or more than 255, or a position or a time out of range.
        """
        token, position, sent, anchors = stamp
        if not 1 <= len(anchors) <= MOST_ANCHORS:
            raise ValidationError(f"stamp: expected 1 to {MOST_ANCHORS} anchors, got {len(anchors):,}")
        if not 0 <= position < MOST_POSITIONS or not 0 <= sent < 1 << 32:
            raise ValidationError(f"stamp: position or time out of range: {shown(stamp)}")
        head = self.head(token, sent)
        if len(anchors) == 1:
            return self.write_one(head, position, anchors[0]).decode("ascii")
        check = checks.check(head.keys, position, anchors, len(anchors))
        row = _ROW.pack(position >> 16, position & 0xFFFF, check >> 32, check & 0xFFFFFFFF)
        body = bytes([len(anchors)]) + head.body + row + b"".join(map(_ANCHOR.pack, anchors))
        text = binascii.b2a_base64(body, newline=False)
        return VERSION + text.translate(_TO_URL).rstrip(b"=").decode("ascii")

    def write_one(self, head: Head, position: int, anchor: int) -> bytes:
        """Writes the stamp of a row with one anchor. head: of its segment, by `head`."""
        check = check_one(head.keys, position, anchor)
        tail = _TAIL.pack(position, check >> 32, check & 0xFFFFFFFF, anchor)
        return head.letters + binascii.b2a_base64(tail, newline=False).translate(_TO_URL)

    def read(self, text: object) -> Stamp | Fault:
        """Reads the value in the place of a row's stamp; no value raises an error."""
        encoded = _encoded(text)
        if not isinstance(encoded, bytes):
            return encoded
        if len(encoded) == _SHORT:
            one = self.read_one(_PREFIX + encoded)
            if one is not None:
                head, position, anchor = one
                return Stamp(head.token, position, head.sent, (anchor,))
        body = _body(encoded)
        return self._stamp(body) if isinstance(body, bytes) else body

    def read_one(self, letters: bytes) -> tuple[Head, int, int] | None:
        """Reads a sound stamp with one anchor: its segment, position and anchor.

        None for any other value of `LETTERS` bytes, which `read` takes.
        """
        head = self._by_letters.get(letters[:_COMMON]) or self._begun(letters[:_COMMON])
        if head is None:
            return None
        try:
            tail = binascii.a2b_base64(letters[_COMMON:].translate(_FROM_URL), strict_mode=True)
        except binascii.Error:
            return None
        position, high, low, anchor = _TAIL.unpack(tail)
        if check_one(head.keys, position, anchor) != high << 32 | low or not anchor & 1:
            return None
        return head, position, anchor

    def _stamp(self, body: bytes) -> Stamp | Fault:
        head, count, tail = self._head(body[_SEGMENT_BYTES]), body[0], body[_HEAD_BYTES:]
        if head is None:
            return "foreign"
        over, position, high, low = _ROW.unpack(body[_SEGMENT_BYTES.stop : _HEAD_BYTES])
        anchors = tuple(
            int.from_bytes(tail[at : at + 8], "big", signed=True) for at in range(0, 8 * count, 8)
        )
        if checks.check(head.keys, over << 16 | position, anchors, count) != high << 32 | low:
            return "foreign"
        if over or not all(anchor & 1 for anchor in anchors):
            return "damaged"
        return Stamp(head.token, position, head.sent, anchors)

    def read_many(self, texts: Sequence[object]) -> list[Stamp | Fault]:
        """Reads the stamps of rows, as `read` does for each."""
        return [self.read(text) for text in texts]

    def write_letters(self, head: Head, positions: Ids, anchors: Ids) -> Bytes:
        """Writes the stamps of rows of one segment that have one anchor each. head: of it, by `head`.

        Returns:
            Their letters: a row of `LETTERS` bytes for each.
        """
        rows = np.empty(len(anchors), dtype=_TAIL_COLUMNS)
        check = checks.checks(head.keys, positions, anchors)
        rows["position"], rows["high"], rows["low"] = positions, check >> np.uint64(32), check & _LOW
        rows["anchor"] = anchors
        text = binascii.b2a_base64(rows.tobytes(), newline=False).translate(_TO_URL)
        letters = np.empty((len(anchors), LETTERS), dtype=np.uint8)
        letters[:, :_COMMON] = np.frombuffer(head.letters, dtype=np.uint8)
        letters[:, _COMMON:] = np.frombuffer(text, dtype=np.uint8).reshape(-1, LETTERS - _COMMON)
        return letters

    def write_many(self, head: Head, positions: Ids, anchors: Ids) -> list[bytes]:
        """Writes the same stamps, each as bytes of ASCII."""
        letters = self.write_letters(head, positions, anchors)
        stamps: list[bytes] = letters.view(f"S{LETTERS}").ravel().tolist()
        return stamps

    def read_letters(self, letters: Bytes) -> Columns:
        """Reads the letters of stamps with one anchor, as `write_letters` returns them.

        What is neither sound nor foreign may be anything: `read` says what is wrong with it.
        """
        nothing = np.zeros(len(letters), np.int64)
        unsound = Columns(nothing != 0, nothing != 0, nothing, nothing, nothing, [])
        if not len(letters):
            return unsound
        starts = np.flatnonzero(_changes(letters))
        places, heads = dict[bytes, int](), list[Head]()
        of_runs = np.empty(len(starts), np.int64)
        for run, start in enumerate(starts.tolist()):
            common = letters[start, :_COMMON].tobytes()
            place = places.get(common)
            if place is None:
                head, place = self._begun(common), -1
                if head is not None:
                    place = len(heads)
                    heads.append(head)
                places[common] = place
            of_runs[run] = place
        segments = np.repeat(of_runs, np.diff(starts, append=len(letters)))
        decoded = _decoded(letters[:, _COMMON:].tobytes()) if heads else None
        if decoded is None:
            return unsound
        rows = np.frombuffer(decoded, _TAIL_COLUMNS)
        positions, anchors = rows["position"].astype(np.int64), rows["anchor"].astype(np.int64)
        check = rows["high"].astype(np.uint64) << np.uint64(32) | rows["low"]
        keys = np.array([head.keys for head in heads], np.uint64).T
        of_rows = keys[:, 0] if len(heads) == 1 else keys[:, segments]
        known, begun = checks.checks(of_rows, positions, anchors) == check, segments >= 0
        sound = known & begun & (anchors & 1 == 1)
        return Columns(sound, ~known & begun, segments, positions, anchors, heads)


_TAIL_COLUMNS = np.dtype([("position", ">u2"), ("high", "u1"), ("low", ">u4"), ("anchor", ">i8")])
_LOW = np.uint64(0xFFFFFFFF)


def _changes(letters: Bytes) -> npt.NDArray[np.bool_]:
    """True for each stamp that begins otherwise than the one before it, and for the first."""
    changes = np.zeros(len(letters), np.bool_)
    changes[0] = True
    rows = np.ascontiguousarray(letters)
    for place in (*range(0, _COMMON - 8, 8), _COMMON - 8):
        words = np.ndarray(len(rows), np.uint64, rows, place, (LETTERS,))
        changes[1:] |= words[1:] != words[:-1]
    return changes


def key_number(text: object) -> int:
    """The number of the key of a foreign stamp, which it states itself."""
    letters = _encoded(text)
    return binascii.a2b_base64(letters[24:28].translate(_FROM_URL))[1] if isinstance(letters, bytes) else 0


def _encoded(text: object) -> bytes | Fault:
    """The letters behind the version."""
    if type(text) is bytes and text.startswith(_PREFIX) and len(text) <= _LONGEST:
        return text[len(_PREFIX) :]
    if text is None:
        return "unstamped"
    if isinstance(text, bytearray | memoryview):
        try:
            text = bytes(text[: _LONGEST + 1])
        except (ValueError, TypeError, NotImplementedError):  # a view that is released, or has no first bytes
            return "damaged"
    if not isinstance(text, str | bytes) or len(text) > _LONGEST:
        return "damaged"
    if isinstance(text, str):
        if not text.isascii():
            return "damaged"
        text = text.encode("ascii")
    if not text.startswith(_PREFIX):
        version = text[:1] == b"a" and text[1:].partition(b"-")[0]
        return "newer" if version and version.isdigit() and int(version) > 1 else "damaged"
    return text[len(VERSION) :]


def _decoded(letters: bytes) -> bytes | None:
    """The bytes of stamps with one anchor, one after another; None where one is malformed."""
    try:
        return binascii.a2b_base64(letters.translate(_FROM_URL), strict_mode=True)
    except binascii.Error:
        return None


def _body(letters: bytes) -> bytes | Fault:
    """The bytes of one stamp, by the letters behind its version."""
    try:
        body = base64.b64decode(letters + b"=" * (-len(letters) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        return "damaged"
    if len(body) < _HEAD_BYTES or len(body) != _HEAD_BYTES + 8 * body[0] or not body[0]:
        return "damaged"
    if base64.urlsafe_b64encode(body).rstrip(b"=") != letters:  # written otherwise: bits that nobody checks
        return "damaged"
    return body
