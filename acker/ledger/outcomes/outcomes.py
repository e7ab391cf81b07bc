"""Outcomes as the ledger keeps them for a spout: stream entries, each of many trees of one status.

An entry is kept until it is confirmed; a new spout reads all unconfirmed entries.
"""

import hashlib
import logging
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

from acker.errors import AckerError, ValidationError
from acker.ledger import ids
from acker.ledger.calls import scripts as calls_scripts
from acker.ledger.calls.calls import Call
from acker.ledger.calls.core import Core
from acker.ledger.outcomes import counts, scripts
from acker.ledger.slabs import slabs as headers
from acker.ledger.slabs.causes import Cause
from acker.store import records
from acker.store.operation import Operation, Reply, Request, command
from acker.store.replies import pairs

Status: TypeAlias = Literal["acked", "failed", "expired", "rejected"]

READ_ENTRIES = 100
"""Most entries of one read from a shard."""
CONFIRM_ENTRIES = 50
CONFIRM_SHARDS = 16
_READ_SHARDS = 32
_log = logging.getLogger(__name__)


class SlabOutcome:
    """Trees of one slab that ended for one cause: indexes in order (None: all), and their latency in seconds.

    said: the stored cause. There may be one for each tree, and a reader decodes few of them.
    """

    __slots__ = ("_cause", "indexes", "latency", "said", "slab")

    def __init__(self, slab: bytes, indexes: tuple[int, ...] | None, latency: float, said: bytes) -> None:
        self.slab = slab
        self.indexes = indexes
        self.latency = latency
        self.said = said
        self._cause: Cause | None = None

    @property
    def cause(self) -> Cause:
        """The cause of the trees' end."""
        if self._cause is None:
            self._cause = Cause.decode(self.said)
        return self._cause

    def indexes_in(self, count: int) -> Sequence[int]:
        """The indexes of the trees in a slab of `count` trees; indexes beyond it are ignored."""
        if self.indexes is None:
            return range(count)
        return (
            self.indexes if max(self.indexes, default=0) < count else [i for i in self.indexes if i < count]
        )


class Confirmation(NamedTuple):
    """The place of an entry, and a digest of its content.

    A store that lost its latest writes, and whose clock is behind, gives an id again: the digest
    distinguishes the two entries.
    """

    shard: int
    id: bytes
    digest: bytes


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry of a spout's outcomes: its place, content and time (Unix seconds)."""

    confirmation: Confirmation
    status: Status
    at: float
    slabs: tuple[SlabOutcome, ...]


def digest(fields: Mapping[bytes, bytes]) -> bytes:
    """The digest that distinguishes entries of one id (lua/ledger/outcomes/confirm.lua computes it, too)."""
    said = b"".join(fields.get(name, b"") for name in (b"at", b"status", b"whole", b"part"))
    return hashlib.sha1(said, usedforsecurity=False).hexdigest()[:16].encode()


def parse(shard: int, entry_id: bytes, fields: Sequence[bytes]) -> Entry:
    """Parses an entry's stream fields; raises UnreadableRecord if they are no entry of this version."""
    with records.reading(f"outcome {entry_id!r} of shard {shard}"):
        values = pairs(fields)
        slabs = []
        reasons, whole, part = split_reasons(values[b"reasons"]), values[b"whole"], values[b"part"]
        at = 0
        while at < len(whole):
            ms, n = struct.unpack_from("<IH", whole, at)
            if at + 6 + 8 * n > len(whole):
                raise ValueError(f"{n} slabs in {len(whole) - at} bytes")
            for (slab,) in struct.iter_unpack("<8s", whole[at + 6 : at + 6 + 8 * n]):
                slabs.append(SlabOutcome(slab, None, ms / 1000, reasons[0]))
            at += 6 + 8 * n
        at = tree = 0
        numbers = [number for (number,) in struct.iter_unpack("<H", values[b"why"])]
        if not reasons or (numbers and max(numbers) >= len(reasons)):
            raise ValueError(f"{len(reasons)} reasons")
        while at < len(part):
            slab, ms, n = struct.unpack_from("<8sIH", part, at)
            indexes = struct.unpack_from(f"<{n}H", part, at + 14)
            for number, own in _by_reason(indexes, numbers[tree : tree + n]).items():
                slabs.append(SlabOutcome(slab, own, ms / 1000, reasons[number]))
            at, tree = at + 14 + 2 * n, tree + n
        if numbers and len(numbers) != tree:
            raise ValueError(f"the reasons of {len(numbers)} of {tree} trees")
        status = values[b"status"].decode()
        if status not in ("acked", "failed", "expired"):
            raise ValueError(status)
        confirmation = Confirmation(shard, entry_id, digest(values))
        return Entry(confirmation, status, int(values[b"at"]) / 1000, tuple(slabs))  # type: ignore[arg-type]


def split_reasons(packed: bytes) -> list[bytes]:
    """The reasons of an entry (lua/ledger/includes/outcomes.lua).

    Raises ValueError or struct.error for anything else.
    """
    reasons, at = [], 0
    while at < len(packed):
        (length,) = struct.unpack_from("<H", packed, at)
        if at + 2 + length > len(packed):
            raise ValueError(f"a reason of {length} in {len(packed) - at - 2} bytes")
        reasons.append(packed[at + 2 : at + 2 + length])
        at += 2 + length
    return reasons


def _by_reason(indexes: tuple[int, ...], numbers: Sequence[int]) -> dict[int, tuple[int, ...]]:
    """Trees of a slab by the number of their reason, in order: a store has them in the order of their fails.

    numbers: one for each; empty if all have the first.
    """
    if not numbers:
        return {0: tuple(sorted(indexes))}
    by_reason: dict[int, list[int]] = {}
    for index, number in zip(indexes, numbers, strict=True):
        by_reason.setdefault(number, []).append(index)
    return {number: tuple(sorted(own)) for number, own in by_reason.items()}


def id_parts(entry_id: bytes) -> tuple[int, int]:
    """The parts of an entry's id: milliseconds, and a number within the millisecond."""
    milliseconds, _, sequence = entry_id.partition(b"-")
    return int(milliseconds), int(sequence)


def parse_all(shard: int, entries: Reply) -> tuple[list[Entry], list[Confirmation]]:
    """Entries of a shard's stream, and the places of unreadable ones, for `drop`."""
    readable, unreadable = list[Entry](), list[Confirmation]()
    for entry_id, fields in entries:
        with records.passing_over("outcomes"):
            readable.append(parse(shard, entry_id, fields))
            continue
        unreadable.append(Confirmation(shard, entry_id, b"!" + digest(pairs(fields))))
    return readable, unreadable


class OutcomeReader:
    """Reads a spout's outcomes, from the oldest that is not confirmed: each once, while the store keeps them.

    A store that lost its latest writes may hold new entries before the last read one, or confirmed entries
    again. So each reading counts the entries of each shard. If a shard holds more entries than were read and
    not confirmed since (`confirmed`), or the newest of these has changed, all entries of the shard are read
    again, whether reported before or not.

    An unreadable entry is dropped and counted: the spout's own timer reports its trees.
    """

    def __init__(self, core: Core, spout: str) -> None:
        self.core = core
        self.spout = spout
        self._last = [b"0-0"] * len(core.shards)
        self._given: list[dict[bytes, bytes]] = [{} for _ in core.shards]
        """Unconfirmed read entries in their order, with their digests."""
        self._unreadable: list[Confirmation] = []
        self.behind = True
        """True if the last read may have left entries."""

    def keys(self) -> list[bytes]:
        """The streams of all shards."""
        return [shard.outcomes(self.spout) for shard in self.core.shards]

    @property
    def offset(self) -> list[bytes]:
        """The last read entry of each shard: if it is set back, later entries are read again."""
        return list(self._last)

    @offset.setter
    def offset(self, last: list[bytes]) -> None:
        self._last, self.behind = list(last), True
        for given, before in zip(self._given, last, strict=True):
            # An entry that is read again counts as read then; the store may no longer have it.
            for entry_id in list(given):
                if id_parts(entry_id) > id_parts(before):
                    del given[entry_id]

    def blocking(self, milliseconds: int) -> Request:
        """The one command that waits for entries in any shard, for a store that is one server."""
        streams = self.keys()
        return Request(
            streams[0],
            ["XREAD", "COUNT", READ_ENTRIES, "BLOCK", milliseconds, "STREAMS", *streams, *self._last],
        )

    def take(self, reply: Reply) -> list[Entry]:
        """The entries of the reply to `blocking`. The next `read` drops unreadable ones."""
        self.behind = True
        if not reply:
            return []
        numbers = {key: number for number, key in enumerate(self.keys())}
        return self._taken((numbers[key], entries) for key, entries in reply)

    def confirmed(self, confirmations: Iterable[Confirmation]) -> None:
        """Notes that the store has confirmed entries."""
        for confirmation in confirmations:
            self._given[confirmation.shard].pop(confirmation.id, None)

    def begin_again(self, shards: Iterable[int]) -> None:
        """Makes the next readings begin with the oldest entries of shards."""
        self.behind = True
        for shard in shards:
            self._last[shard], self._given[shard] = b"0-0", {}

    def read(self) -> Operation[list[Entry]]:
        """The next entries of all shards, without waiting."""
        self.behind = False
        entries = yield from self._read(range(len(self._last)))
        if self._unreadable and (yield from drop(self.core, self.spout, self._unreadable)):
            self.confirmed(self._unreadable)
            self._unreadable = []
        return entries

    def _read(self, shards: Sequence[int]) -> Operation[list[Entry]]:
        streams = self.keys()
        fresh: list[Entry] = []
        missed: list[int] = []
        for first in range(0, len(shards), _READ_SHARDS):
            part = shards[first : first + _READ_SHARDS]
            given = [dict(self._given[shard]) for shard in part]
            newest = [(place, list(its.items())[-1]) for place, its in enumerate(given) if its]
            # Counted first: an entry that comes in between is read, and not counted.
            requests = [command("XLEN", streams[shard]) for shard in part]
            requests += [
                command("XRANGE", streams[shard], b"(" + self._last[shard], b"+", b"COUNT", READ_ENTRIES)
                for shard in part
            ]
            requests += [calls_scripts.check_outcomes(streams[part[place]], [one]) for place, one in newest]
            replies = yield requests
            entries_of = replies[len(part) : 2 * len(part)]
            lost = {
                place for (place, _), same in zip(newest, replies[2 * len(part) :], strict=True) if not same
            }
            for place, (shard, entries) in enumerate(zip(part, entries_of, strict=True)):
                more = replies[place] > len(given[place]) + len(entries)
                if place in lost or (len(entries) < READ_ENTRIES and more):
                    missed.append(shard)
            fresh += self._taken((shard, entries) for shard, entries in zip(part, entries_of, strict=True))
        if missed:
            self.begin_again(missed)
            streams = [streams[shard] for shard in missed]
            entries_of = yield [
                command("XRANGE", stream, b"-", b"+", b"COUNT", READ_ENTRIES) for stream in streams
            ]
            again = self._taken(zip(missed, entries_of, strict=True))
            fresh = [entry for entry in fresh if entry.confirmation.shard not in missed] + again
        return fresh

    def _taken(self, read: Iterable[tuple[int, Reply]]) -> list[Entry]:
        """The entries of shards, which count as read from here on."""
        taken: list[Entry] = []
        for shard, entries in read:
            readable, unreadable = parse_all(shard, entries)
            confirmations = sorted(
                [entry.confirmation for entry in readable] + unreadable,
                key=lambda confirmation: id_parts(confirmation.id),
            )
            taken += readable
            self._unreadable += unreadable
            self.behind = self.behind or len(entries) == READ_ENTRIES
            if entries:
                self._last[shard] = entries[-1][0]
                self._given[shard] |= {item.id: item.digest.removeprefix(b"!") for item in confirmations}
        return taken


def confirming(core: Core, spout: str, entries: Sequence[Confirmation]) -> list[Call]:
    """The calls that confirm entries, in their order; each may leave entries over (`confirm`)."""
    by_shard: dict[int, list[Confirmation]] = {}
    for confirmation in entries:
        by_shard.setdefault(confirmation.shard, []).append(confirmation)
    return [
        scripts.confirm(
            core.shards[shard], spout, [(one.id, one.digest) for one in its[first : first + CONFIRM_ENTRIES]]
        )
        for shard, its in by_shard.items()
        for first in range(0, len(its), CONFIRM_ENTRIES)
    ]


def confirm(core: Core, spout: str, entries: Sequence[Confirmation]) -> Operation[int]:
    """Confirms entries; returns the number of trees. Confirming again changes nothing."""
    trees, most = 0, CONFIRM_ENTRIES
    left: dict[int, list[Confirmation]] = {}
    for confirmation in entries:
        left.setdefault(confirmation.shard, []).append(confirmation)
    while left:
        shards = list(left)[:CONFIRM_SHARDS]
        replies = yield from core.ask(
            [
                scripts.confirm(
                    core.shards[shard], spout, [(one.id, one.digest) for one in left[shard][:most]]
                )
                for shard in shards
            ]
        )
        for shard, (confirmed, seen, unreadable) in zip(shards, replies, strict=True):
            log_unreadable(core, shard, unreadable)
            trees += confirmed
            del left[shard][:seen]
            if not left[shard]:
                del left[shard]
    return trees


def log_unreadable(core: Core, shard: int, names: Sequence[bytes]) -> None:
    """Logs the slabs that a shard could not read in a confirmation."""
    for name in names:
        _log.error("%s, shard %d: %r cannot be read", core.config.name, shard, bytes(name))


def drop(core: Core, spout: str, unreadable: Sequence[Confirmation]) -> Operation[bool]:
    """Drops and counts unreadable entries (`parse_all` names them).

    Returns True if that was done: if the store refuses it now, readable entries are reported all the same.
    """
    try:
        yield from confirm(core, spout, unreadable)
    except AckerError as error:
        _log.warning("outcomes of spout %s that cannot be read are still to be dropped: %s", spout, error)
        return False
    return True


def pieces(core: Core, slab: bytes, packed: bytes, count: int) -> Operation[list[tuple[bytes | None, int]]]:
    """A slab's message ids, each piece with its number of trees (lua/ledger/includes/id_pieces.lua)."""
    if packed or count <= headers.PIECE_TREES:
        return [(packed, count)]
    key = core.shards[ids.shard_of(slab, core.config.ackers)].message_ids
    replies = yield [command("HGET", key, piece) for piece in headers.piece_fields(slab, count)]
    return [(piece, headers.piece_trees(count, number)) for number, piece in enumerate(replies)]


def message_ids(core: Core, slabs: Sequence[bytes]) -> Operation[dict[bytes, list[bytes]]]:
    """The message ids of remembered slabs: slab -> one for each tree.

    Unreadable message ids are dropped, counted and left out.
    """
    by_slab: dict[bytes, list[bytes]] = {}
    unreadable: dict[bytes, int] = {}
    for first in range(0, len(slabs), 64):
        part = slabs[first : first + 64]
        shards = [core.shards[ids.shard_of(slab, core.config.ackers)] for slab in part]
        requests = [command("HGET", shard.slabs, slab) for shard, slab in zip(shards, part, strict=True)]
        requests += [
            command("HGET", shard.message_ids, slab) for shard, slab in zip(shards, part, strict=True)
        ]
        replies = yield requests
        for slab, stored, packed in zip(part, replies[: len(part)], replies[len(part) :], strict=True):
            header = headers.read(stored)
            if header is not None and packed is not None:
                in_pieces = yield from pieces(core, slab, packed, header.count)
                try:
                    by_slab[slab] = [
                        one
                        for piece, count in in_pieces
                        for one in headers.unpack_message_ids(piece or b"", count)
                    ]
                except ValidationError as error:
                    _log.error("slab %s: %s", slab.hex(), error)
                    unreadable[slab] = header.count
    for slab, count in unreadable.items():
        key = core.shards[ids.shard_of(slab, core.config.ackers)].message_ids
        [there] = yield [command("HDEL", key, slab, *headers.piece_fields(slab, count))]
        yield from counts.pass_over(core, f"message ids of slab {slab.hex()}", bool(there))
    return by_slab
