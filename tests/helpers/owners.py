"""Owners of what lives for ever: rows must be of a segment that is read, or that waits for a live request.

A key with a time to live needs no owner. See `tests.helpers.models.leaks` for the kinds of keys.
"""

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

from acker.ledger.slabs import sections

_STREAM = re.compile(rb"(acker:\{[^{}:/@]+/[^{}:]+\}:)([a-z_]+)(?::(.*))?\Z", re.DOTALL)
_SPOUT = re.compile(rb"(acker:\{[^{}:/@]+@[^{}:]+\}:)rows:(.*)\Z", re.DOTALL)
_SHARD = re.compile(rb"acker:\{[^{}:/@]+:\d+/\d+\}:slabs\Z")
_GROUP = re.compile(rb"([0-9a-f]{16}):\d+\Z")


def unowned(clients: Sequence[Any]) -> Iterator[str]:
    """Keys without a time to live that nobody will find again. clients: of all servers of a store."""
    slabs = set[bytes]()
    for client in clients:
        for key in client.scan_iter("acker:{*}:slabs", count=1000):
            if _SHARD.match(key) and client.type(key) == b"hash":
                slabs.update(client.hkeys(key))
    for client in clients:
        yield from _rows_of_streams(client, slabs)
        yield from _rows_of_spouts(client)


def assert_owned(clients: Sequence[Any]) -> None:
    """Fails where something is left that lives for ever and has no owner."""
    found = sorted(unowned(clients))
    assert not found, "\n".join(["keys that nobody will find again:", *found[:20]])


def _rows_of_streams(client: Any, slabs: set[bytes]) -> Iterator[str]:
    by_stream: dict[bytes, dict[bytes, list[bytes]]] = {}
    for key in client.scan_iter("acker:{*/*}:*", count=1000):
        if match := _STREAM.match(key):
            by_stream.setdefault(match[1], {}).setdefault(match[2], []).append(match[3] or b"")
    for prefix, kinds in by_stream.items():
        owned = set[bytes]()
        with suppress(ValueError):  # an entry that cannot be read: nobody knows whose rows it has
            owned |= _tokens(client, prefix + b"entries")
            for place in kinds.get(b"gathered", ()):
                group = _GROUP.match(place)
                owned |= _tokens(client, prefix + b"gathered:" + place)
                if group and not any(
                    sections.slab_of(group[1].decode(), section) in slabs
                    for section in range(1, sections.SECTIONS + 1)
                ):
                    yield f"{prefix + b'gathered:' + place!r} waits for a request that is over"
            for kind in (b"payload", b"owed"):
                for token in kinds.get(kind, ()):
                    key = prefix + kind + b":" + token
                    if token not in owned and client.ttl(key) == -1:
                        yield f"{key!r} is of no segment"


def _tokens(client: Any, key: bytes) -> set[bytes]:
    """The segments of a stream of entries. Raises ValueError where one cannot be read."""
    if client.type(key) != b"stream":
        return set()
    found = set[bytes]()
    for _, fields in client.xrange(key):
        record = json.loads(fields.get(b"segment", b"null"))
        if not isinstance(record, list) or len(str(record[0])) != 32:
            raise ValueError(record)
        found.add(str(record[0]).encode())
    return found


def _rows_of_spouts(client: Any) -> Iterator[str]:
    for key in client.scan_iter("acker:{*@*}:rows:*", count=1000):
        match = _SPOUT.match(key)
        if (
            match
            and client.ttl(key) == -1
            and not client.hexists((match[1] + b"kept").decode(), match[2].decode())
        ):
            yield f"{key!r} is of no roots"
