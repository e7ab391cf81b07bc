"""Outcomes as the ledger keeps them for a spout: stream entries, each of many trees of one status and reason.

An entry is kept until it is confirmed; a spout that starts anew reads all that it has not confirmed.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from acker import encoding, ids
from acker.errors import StoreError
from acker.operations import Core
from acker.requests import Operation, Reply, Request, command
from acker.submissions import Call

Status: TypeAlias = Literal["acked", "failed", "expired", "rejected"]

READ_ENTRIES = 100
"""Most entries that one read takes from a shard."""
CONFIRM_ENTRIES = 50
CONFIRM_SHARDS = 16
_HEADER = struct.Struct("<BBHIQ")


@dataclass(frozen=True, slots=True)
class SlabOutcome:
    """The trees of one slab in an entry: their indexes (None: all), and their latency in seconds."""

    slab: bytes
    indexes: tuple[int, ...] | None
    latency: float


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of a spout's outcomes: where it is (shard, id), what it says and when (Unix seconds)."""

    shard: int
    id: bytes
    status: Status
    reason: str
    at: float
    slabs: tuple[SlabOutcome, ...]


def parse(shard: int, entry_id: bytes, fields: Sequence[bytes]) -> Entry:
    """An entry from its stream fields; StoreError where they are not an entry of this version."""
    try:
        values = dict(zip(fields[::2], fields[1::2], strict=True))
        slabs = []
        whole, part = values[b"whole"], values[b"part"]
        at = 0
        while at < len(whole):
            ms, n = struct.unpack_from("<IH", whole, at)
            for (slab,) in struct.iter_unpack("<8s", whole[at + 6 : at + 6 + 8 * n]):
                slabs.append(SlabOutcome(slab, None, ms / 1000))
            at += 6 + 8 * n
        at = 0
        while at < len(part):
            slab, ms, n = struct.unpack_from("<8sIH", part, at)
            slabs.append(SlabOutcome(slab, struct.unpack_from(f"<{n}H", part, at + 14), ms / 1000))
            at += 14 + 2 * n
        status = values[b"status"].decode()
        if status not in ("acked", "failed", "expired"):
            raise ValueError(status)
        reason = values[b"reason"].decode("utf-8", "replace")
        return Entry(shard, entry_id, status, reason, int(values[b"at"]) / 1000, tuple(slabs))  # type: ignore[arg-type]
    except (KeyError, ValueError, struct.error) as error:
        raise StoreError(f"outcome {entry_id!r} of shard {shard} is not readable: {error!r}") from error


class OutcomeReader:
    """Reads a spout's outcomes: each once, from the oldest that is not confirmed."""

    def __init__(self, core: Core, spout: int) -> None:
        self.core = core
        self.spout = spout
        self._last = [b"0-0"] * len(core.shards)

    def keys(self) -> list[bytes]:
        """The streams of all shards."""
        return [shard.outcomes(self.spout) for shard in self.core.shards]

    def blocking(self, milliseconds: int) -> Request:
        """The one command that waits for entries in any shard, for a store that is one server."""
        streams = self.keys()
        return Request(
            streams[0],
            ["XREAD", "COUNT", READ_ENTRIES, "BLOCK", milliseconds, "STREAMS", *streams, *self._last],
        )

    def take(self, reply: Reply) -> list[Entry]:
        """The entries that `blocking` was answered with."""
        if not reply:
            return []
        numbers = {key: number for number, key in enumerate(self.keys())}
        pairs = reply.items() if isinstance(reply, dict) else reply
        found = []
        for key, entries in pairs:
            found += self._taken(numbers[key], entries)
        return found

    def read(self) -> Operation[list[Entry]]:
        """The next entries of all shards, without waiting."""
        found: list[Entry] = []
        streams = self.keys()
        for first in range(0, len(streams), 64):
            replies = yield [
                command("XRANGE", stream, b"(" + last, b"+", b"COUNT", READ_ENTRIES)
                for stream, last in zip(
                    streams[first : first + 64], self._last[first : first + 64], strict=True
                )
            ]
            for number, entries in enumerate(replies, first):
                found += self._taken(number, entries)
        return found

    def _taken(self, shard: int, entries: Reply) -> list[Entry]:
        found = [parse(shard, entry_id, fields) for entry_id, fields in entries]
        if found:
            self._last[shard] = found[-1].id
        return found


def confirm(core: Core, spout: int, entries: Sequence[tuple[int, bytes]]) -> Operation[int]:
    """Confirms entries, given as (shard, id); returns how many trees. Confirming again changes nothing."""
    trees = 0
    left: dict[int, list[bytes]] = {}
    for shard, entry_id in entries:
        left.setdefault(shard, []).append(entry_id)
    while left:
        shards = list(left)[:CONFIRM_SHARDS]
        replies = yield from core.ask(
            [
                Call(
                    shard,
                    "confirm",
                    [core.shards[shard].outcomes(spout)],
                    list(left[shard][:CONFIRM_ENTRIES]),
                )
                for shard in shards
            ]
        )
        for shard, (confirmed, seen) in zip(shards, replies, strict=True):
            trees += confirmed
            del left[shard][:seen]
            if not left[shard]:
                del left[shard]
    return trees


def message_ids(core: Core, slabs: Sequence[bytes]) -> Operation[dict[bytes, list[bytes]]]:
    """The message ids of slabs that are not forgotten yet: slab -> one for each tree."""
    found: dict[bytes, list[bytes]] = {}
    for first in range(0, len(slabs), 64):
        part = slabs[first : first + 64]
        shards = [core.shards[ids.shard_of(slab, core.config.ackers)] for slab in part]
        requests = [command("HGET", shard.slabs, slab) for shard, slab in zip(shards, part, strict=True)]
        requests += [
            command("HGET", shard.message_ids, slab) for shard, slab in zip(shards, part, strict=True)
        ]
        replies = yield requests
        for slab, header, packed in zip(part, replies[: len(part)], replies[len(part) :], strict=True):
            if header is not None and packed is not None:
                found[slab] = encoding.unpack_message_ids(packed, _HEADER.unpack_from(header)[2])
    return found
