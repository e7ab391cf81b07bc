"""Stamps: the text that a row of an external stream carries.

`a1-` and base64url of: number of anchors (1 byte), the segment's token (14), time of its begin by the store's
clock (4, seconds), the row's position (3), number of the key (1), check (5), anchors (8 each). The check is a
keyed hash of all these with topology and stream; the key belongs to the stream, and is new after the store
was emptied. So the check detects a cut or edited stamp, and a stamp of another stream or of an earlier
content of the store.

Terms: a segment is the rows of an external stream that one sender stamped together.
"""

import base64
import binascii
import hashlib
import struct
from collections.abc import Sequence
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from acker.errors import ValidationError, shown
from acker.ledger.ids import Ids
from acker.streams.staging.external.bits import MOST_POSITIONS

VERSION = "a1-"
"""The letters with which a stamp of this version begins."""
_PREFIX = VERSION.encode()
MOST_ANCHORS = 255
TOKEN_BYTES, KEY_BYTES = 14, 32
_CHECK_BYTES, _HEAD_BYTES = 5, 28
_CHECK = slice(23, _HEAD_BYTES)
_LONGEST = len(VERSION) + (4 * (_HEAD_BYTES + 8 * MOST_ANCHORS) + 2) // 3
_DIGITS = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
_VALUES = np.full(256, 64, dtype=np.uint8)
_VALUES[np.frombuffer(_DIGITS, dtype=np.uint8)] = np.arange(64, dtype=np.uint8)

_ONE_TREE = struct.Struct(">B14sIBHB5sq")
"""The bytes of a stamp with one anchor: number of anchors, token, time, position (1 byte and 2), number of
the key, check, anchor."""
_BEFORE_CHECK, _ANCHOR = struct.Struct(">B14sIBHB"), struct.Struct(">q")
_SHORT = 4 * _ONE_TREE.size // 3
"""Letters of such a stamp behind its version: they need no padding, so each has one way to be written."""
LETTERS = len(VERSION) + _SHORT
"""Letters of a stamp with one anchor."""
_PREFIX_LETTERS = np.frombuffer(_PREFIX, dtype=np.uint8)
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


class Seal:
    """The keys of a stream, which seal its stamps and tell them from other streams' stamps."""

    __slots__ = ("_hashes", "number")

    def __init__(self, topology: str, stream: str, stamp_keys: dict[int, bytes], number: int) -> None:
        self.number = number
        self._hashes = {}
        for of, key in stamp_keys.items():
            start = hashlib.blake2b(digest_size=_CHECK_BYTES, key=key, person=b"acker-stamp")
            start.update(f"{topology}\0{stream}\0".encode())
            self._hashes[of] = start

    def check(self, body: bytes) -> bytes | None:
        """The check of a stamp's bytes; None where its key is not one of the stream's."""
        start = self._hashes.get(body[22])
        if start is None:
            return None
        hasher = start.copy()
        hasher.update(body[:23])
        hasher.update(body[_HEAD_BYTES:])
        return hasher.digest()

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
        head = _BEFORE_CHECK.pack(
            len(anchors), bytes.fromhex(token), sent, position >> 16, position & 0xFFFF, self.number
        )
        tail = b"".join(map(_ANCHOR.pack, anchors))
        hashed = self._hashes[self.number].copy()
        hashed.update(head + tail)
        text = binascii.b2a_base64(head + hashed.digest() + tail, newline=False)
        return VERSION + text.translate(_TO_URL).rstrip(b"=").decode("ascii")

    def read(self, text: object) -> Stamp | Fault:
        """Reads the value in the place of a row's stamp; no value raises an error."""
        encoded = _encoded(text)
        if not isinstance(encoded, bytes):
            return encoded
        if len(encoded) == _SHORT:
            try:
                return self._of_one_tree(binascii.a2b_base64(encoded.translate(_FROM_URL), strict_mode=True))
            except binascii.Error:
                return "damaged"
        body = _body(encoded)
        return self._stamp(body) if isinstance(body, bytes) else body

    def _of_one_tree(self, body: bytes) -> Stamp | Fault:
        """The stamp of these 36 bytes."""
        count, token, sent, high, low, number, check, anchor = _ONE_TREE.unpack(body)
        if count != 1:
            return "damaged"
        start = self._hashes.get(number)
        if start is None:
            return "foreign"
        hashed = start.copy()
        hashed.update(body[:23] + body[_HEAD_BYTES:])
        if hashed.digest() != check:
            return "foreign"
        if high or not anchor & 1:
            return "damaged"
        return Stamp(token.hex(), low, sent, (anchor,))

    def _stamp(self, body: bytes) -> Stamp | Fault:
        check = self.check(body)
        if check != body[_CHECK]:
            return "foreign"
        count, tail = body[0], body[_HEAD_BYTES:]
        anchors = tuple(
            int.from_bytes(tail[at : at + 8], "big", signed=True) for at in range(0, 8 * count, 8)
        )
        position = int.from_bytes(body[19:22], "big")
        if position >= MOST_POSITIONS or not all(anchor & 1 for anchor in anchors):
            return "damaged"
        return Stamp(body[1:15].hex(), position, int.from_bytes(body[15:19], "big"), anchors)

    def read_many(self, texts: Sequence[object]) -> list[Stamp | Fault]:
        """Reads the stamps of rows, as `read` does for each, together for stamps of one length."""
        stamps: list[Stamp | Fault] = ["unstamped"] * len(texts)
        by_length: dict[int, list[int]] = {}
        asked = [_encoded(text) for text in texts]
        for place, encoded in enumerate(asked):
            if isinstance(encoded, bytes):
                by_length.setdefault(len(encoded), []).append(place)
            else:
                stamps[place] = encoded
        for length, places in by_length.items():
            letters = b"".join([asked[place] for place in places])  # type: ignore[misc]
            if length == _SHORT and (whole := _decoded(letters)) is not None:
                size = _ONE_TREE.size
                for at, place in enumerate(places):
                    stamps[place] = self._of_one_tree(whole[size * at : size * at + size])
                continue
            bodies, sound = _bodies(letters, len(places), length)
            for place, body, is_whole in zip(places, bodies, sound, strict=True):
                stamps[place] = self._stamp(body) if is_whole else "damaged"
        return stamps

    def write_letters(self, token: str, sent: int, positions: Ids, anchors: Ids) -> Bytes:
        """Writes the stamps of rows of one segment that have one anchor each.

        Returns:
            Their letters: a row of `LETTERS` bytes for each.
        """
        rows = np.zeros((len(anchors), _HEAD_BYTES + 8), dtype=np.uint8)
        rows[:, 0], rows[:, 22] = 1, self.number
        rows[:, 1:15] = np.frombuffer(bytes.fromhex(token), dtype=np.uint8)
        rows[:, 15:19] = np.frombuffer(sent.to_bytes(4, "big"), dtype=np.uint8)
        rows[:, 19:22] = positions.astype(">u4").view(np.uint8).reshape(-1, 4)[:, 1:]
        rows[:, _HEAD_BYTES:] = anchors.astype(">i8").view(np.uint8).reshape(-1, 8)
        rows[:, _CHECK] = self._checks(rows, self.number)
        text = binascii.b2a_base64(rows.tobytes(), newline=False).translate(_TO_URL)
        letters = np.empty((len(anchors), LETTERS), dtype=np.uint8)
        letters[:, : len(_PREFIX)] = _PREFIX_LETTERS
        letters[:, len(_PREFIX) :] = np.frombuffer(text, dtype=np.uint8).reshape(-1, _SHORT)
        return letters

    def write_many(self, token: str, sent: int, positions: Ids, anchors: Ids) -> list[str]:
        """Writes the same stamps as texts."""
        text = self.write_letters(token, sent, positions, anchors).tobytes().decode("ascii")
        return [text[at : at + LETTERS] for at in range(0, len(text), LETTERS)]

    def read_letters(self, letters: Bytes) -> tuple[Bytes, npt.NDArray[np.bool_]]:
        """Reads the letters of stamps with one anchor, as `write_letters` returns them.

        Returns:
            The bytes of each stamp; and True for each that is sound. `read` says what is wrong with others.
        """
        decoded = _decoded(letters[:, len(_PREFIX) :].tobytes())
        sound = np.zeros(len(letters), dtype=np.bool_)
        if decoded is None:
            return np.zeros((len(letters), _ONE_TREE.size), dtype=np.uint8), sound
        bodies = np.frombuffer(decoded, dtype=np.uint8).reshape(-1, _ONE_TREE.size)
        whole = (letters[:, : len(_PREFIX)] == _PREFIX_LETTERS).all(axis=1)
        whole &= (bodies[:, 0] == 1) & (bodies[:, 19] == 0) & (bodies[:, -1] & 1 == 1)
        for number in self._hashes:
            places = np.flatnonzero(whole & (bodies[:, 22] == number))
            own = bodies[places]
            sound[places] = (self._checks(own, number) == own[:, _CHECK]).all(axis=1)
        return bodies, sound

    def _checks(self, bodies: Bytes, number: int) -> Bytes:
        """The checks that stamps of a key have, by their bytes."""
        hashed, size = np.delete(bodies, _CHECK, axis=1).tobytes(), _HEAD_BYTES + 8 - _CHECK_BYTES
        checks, start = list[bytes](), self._hashes[number]
        for at in range(0, len(hashed), size):
            made = start.copy()
            made.update(hashed[at : at + size])
            checks.append(made.digest())
        return np.frombuffer(b"".join(checks), dtype=np.uint8).reshape(-1, _CHECK_BYTES)


def key_number(text: object) -> int:
    """The number of the key of a foreign stamp, which it states itself."""
    letters = _encoded(text)
    return binascii.a2b_base64(letters[28:32].translate(_FROM_URL))[1] if isinstance(letters, bytes) else 0


def _encoded(text: object) -> bytes | Fault:
    """The letters behind the version."""
    if type(text) is bytes and text.startswith(_PREFIX) and len(text) <= _LONGEST:
        return text[len(_PREFIX) :]
    if text is None:
        return "unstamped"
    if isinstance(text, bytearray | memoryview):
        text = bytes(text[: _LONGEST + 1])
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


def _bodies(letters: bytes, count: int, length: int) -> tuple[list[bytes], list[bool]]:
    """The bytes of stamps of one length, and which of them are whole."""
    size, rest = divmod(length * 6, 8)
    anchors, odd = divmod(size - _HEAD_BYTES, 8)
    if not 1 <= anchors <= MOST_ANCHORS or odd or rest >= 6:
        return [b""] * count, [False] * count
    digits: npt.NDArray[np.uint8] = _VALUES[np.frombuffer(letters, dtype=np.uint8).reshape(count, length)]
    sound = (digits < 64).all(axis=1)
    padded = np.zeros((count, -(-length // 4) * 4), dtype=np.uint32)
    padded[:, :length] = digits & 63
    groups = padded.reshape(count, -1, 4)
    words = groups[:, :, 0] << 18 | groups[:, :, 1] << 12 | groups[:, :, 2] << 6 | groups[:, :, 3]
    unpacked = words.astype(">u4").view(np.uint8).reshape(count, -1, 4)[:, :, 1:].reshape(count, -1)
    sound &= unpacked[:, 0] == anchors
    if unpacked.shape[1] > size:
        sound &= ~unpacked[:, size:].any(axis=1)
    whole = np.ascontiguousarray(unpacked[:, :size]).tobytes()
    return [whole[at : at + size] for at in range(0, count * size, size)], sound.tolist()
