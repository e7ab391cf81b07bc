"""Idempotency keys: each names a call for an hour or more; it takes effect once, with one answer."""

import hashlib
import secrets
from dataclasses import dataclass

from acker.errors import KeyConflict
from acker.ledger.calls.calls import HORIZON
from acker.ledger.calls.core import Core
from acker.ledger.settings.config import check_text
from acker.store import keys
from acker.store.operation import Operation, Request, command
from acker.store.replies import pairs

KEY_SECONDS = int(HORIZON)
"""Seconds for which a key is remembered, at least."""
NAME_BYTES = 16
"""Bytes of the name under which the store remembers a key."""


@dataclass(frozen=True, slots=True)
class Key:
    """A key as the store remembers it.

    writer: the key's random writer. seconds: time for which the key is remembered. answer: the first noted
    one.
    """

    record: bytes
    writer: bytes
    seconds: int
    answer: bytes | None

    def writer_of(self, number: int) -> bytes:
        """The writer of the key's call of that number, and of no other call."""
        return hashlib.sha256(b"%b %d" % (self.writer, number)).digest()[:NAME_BYTES]

    def noting(self, answer: int) -> list[Request]:
        """Requests that note the first answer of the call; the last one returns it."""
        return [
            command("HSETNX", self.record, "answer", answer),
            _lives(self.record),
            command("HGET", self.record, "answer"),
        ]


def name_of(core: Core, key: str) -> str:
    """The name under which the store remembers a key."""
    given = core.config.name.encode() + b"\0" + check_text(key, "key")
    return hashlib.sha256(given).hexdigest()[: 2 * NAME_BYTES]


def is_taken(core: Core, key: str) -> Operation[bool]:
    """True if a call has taken a key, whatever call."""
    [known] = yield [command("EXISTS", keys.idempotency_key(core.config.name, name_of(core, key)))]
    return bool(known)


def take(core: Core, key: str, call: str, life: int = KEY_SECONDS) -> Operation[Key]:
    """Takes a key for a call, and for so many seconds; raises KeyConflict if it was used for another call."""
    record = keys.idempotency_key(core.config.name, name_of(core, key))
    digest = hashlib.sha256(call.encode()).hexdigest().encode()
    [_, _, _, seconds, stored] = yield [
        command("HSETNX", record, "digest", digest),
        command("HSETNX", record, "writer", secrets.token_bytes(NAME_BYTES)),
        _lives(record, life),
        command("TTL", record),
        command("HGETALL", record),
    ]
    fields = pairs(stored)
    if fields.get(b"digest") != digest or b"writer" not in fields:
        raise KeyConflict("the key was used for another call")
    return Key(record, bytes(fields[b"writer"]), seconds, fields.get(b"answer"))


def _lives(record: bytes, life: int = KEY_SECONDS) -> Request:
    return command("EXPIRE", record, life, "NX")
