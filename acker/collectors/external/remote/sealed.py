"""Sealed texts that a client holds between two calls: names of segments, and tokens bound to a commit.

Terms: an anchor is the number of a tree; a segment is the rows of an external stream that one sender stamped
together.
"""

import hashlib
import secrets
from collections.abc import Mapping

from acker.errors import StreamLost
from acker.streams.staging.external.rows.stamps import TOKEN_BYTES, Fault, Seal, Stamp

SEGMENT_PATTERN = r"^sa1-[A-Za-z0-9_-]{48,2764}$"
"""The form of a segment's name."""
_PREFIX = "s"
_NONCE_BYTES = 8


def segment_name(seal: Seal, token: str, position: int, sent: int, anchors: tuple[int, ...]) -> str:
    """Names a segment and shards of it.

    Args:
        seal: The keys of the segment's stream.
        token: The segment.
        position: The highest position of the rows that have this name: its sender has stamped it, also if it
            has left it out then.
        sent: The time at which it was begun, in Unix seconds.
        anchors: An anchor in each of the shards.
    """
    return _PREFIX + seal.write(Stamp(token, position, sent, anchors))


def read_segment_name(seal: Seal, name: str) -> Stamp | Fault:
    """Reads the name of a segment, as `segment_name` has made it."""
    return seal.read(name.removeprefix(_PREFIX)) if name.startswith(_PREFIX) else "damaged"


def new_token(key: bytes, commit: str) -> str:
    """A random token of a segment that only one commit can send. key: of the segment's stream."""
    nonce = secrets.token_bytes(_NONCE_BYTES)
    return (nonce + _bound(key, commit, nonce)).hex()


def key_number(stamp_keys: Mapping[int, bytes], commit: str, token: str) -> int | None:
    """The number of the key with which a token was bound to a commit; None where it is of another commit."""
    whole = bytes.fromhex(token)
    nonce, bound = whole[:_NONCE_BYTES], whole[_NONCE_BYTES:]
    numbers = (number for number, key in stamp_keys.items() if _bound(key, commit, nonce) == bound)
    return next(numbers, None)


def seed_of(key: bytes, token: str) -> int:
    """The seed of a segment's tuple ids: every server of the commit has the same, and nobody can guess it."""
    digest = hashlib.blake2b(token.encode(), digest_size=8, key=key, person=b"acker-seed").digest()
    return int.from_bytes(digest, "big") >> 1


def foreign(stream: str, text: str) -> StreamLost:
    """The error of a sealed text of another key."""
    return StreamLost(
        f"stream {stream!r}: {text} is of another stream, or the store has lost the stream since it gave it, "
        "or its key was rotated twice: nothing of the commit took effect. Start the step again from its "
        "committed offsets"
    )


def _bound(key: bytes, commit: str, nonce: bytes) -> bytes:
    size = TOKEN_BYTES - _NONCE_BYTES
    return hashlib.blake2b(
        nonce + commit.encode(), digest_size=size, key=key, person=b"acker-commit"
    ).digest()
