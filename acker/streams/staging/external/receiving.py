"""Receiving rows: one script of a shard takes the bits and fails of the rows of a commit.

Terms: a segment is the rows of an external stream that one sender stamped together; a vector has a number for
each tree, the XOR of tuple ids; a slot is the random number of a subscription.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from acker.errors import StreamFull, UnreadableRecord
from acker.ledger.calls.calls import Call
from acker.ledger.calls.core import Core
from acker.store.operation import Reply, Request, command
from acker.streams.staging import vectors
from acker.streams.staging.external import bits, scripts
from acker.streams.staging.external.contents import ExternalCommit
from acker.streams.staging.external.scripts import Received
from acker.streams.staging.external.segments import Sent, Worked, WorkedBits, unsent_of
from acker.streams.staging.vectors import CommitProgress, StagedVectors, VectorKey

_SEGMENTS, _BYTES, _FAILS = 400, 1 << 19, 250
MOST_HEADS = 1_000
"""Received segments of a commit whose ack is sent along, at most."""


@dataclass(frozen=True, slots=True)
class Part:
    """The received rows that one call of a shard takes: no segment twice."""

    shard: int
    pieces: list[Received]

    @property
    def size(self) -> int:
        """Bytes of the bits and fails of the received rows."""
        return sum(len(piece.bits) + len(piece.fails) for piece in self.pieces)

    @property
    def fails(self) -> bool:
        """True if received rows have failed."""
        return any(piece.fails for piece in self.pieces)

    def places(self) -> Iterator[VectorKey]:
        """The places of the segments that the rows belong to."""
        return ((piece.staged, self.shard) for piece in self.pieces)


def parts_of(core: Core, commit: ExternalCommit, emitted: Sequence[tuple[Sent, int, int]]) -> list[Part]:
    """The received rows of a commit, cut into calls that do not take long.

    emitted: Segments of the commit, and the slots and shards in which they have vectors. Rows of theirs that
    did not reach the transport count as received.
    """
    queues = dict[int, list[Received]]()
    for (_, slot), one in commit.received.items():
        for (token, shard), worked in one.worked.items():
            key = core.shards[shard].staged(token, slot)
            queues.setdefault(shard, []).extend(worked.parts(key, _FAILS))
    for (token, slot, shard), worked in commit.unsent.items():
        key = core.shards[shard].staged(token, slot)
        queues.setdefault(shard, []).extend(worked.parts(key, _FAILS))
    for sent, slot, shard in emitted:
        if sent.unsent:
            key = core.shards[shard].staged(sent.token, slot)
            worked = unsent_of(core, sent, shard, dict(sent.unsent))
            queues.setdefault(shard, []).extend(worked.parts(key, _FAILS))
    return [part for shard, queue in queues.items() for part in _cut(shard, queue)]


def parts_of_rows(core: Core, rows: Iterable[tuple[str, int, int, Worked | WorkedBits]]) -> list[Part]:
    """Received rows, as segment, slot, shard and positions, cut into such calls."""
    queues = dict[int, list[Received]]()
    for token, slot, shard, worked in rows:
        key = core.shards[shard].staged(token, slot)
        queues.setdefault(shard, []).extend(worked.parts(key, _FAILS))
    return [part for shard, queue in queues.items() for part in _cut(shard, queue)]


def _cut(shard: int, queue: Sequence[Received]) -> Iterator[Part]:
    part, size, fails = dict[bytes, Received](), 0, False
    for piece in queue:
        piece_bytes = len(piece.bits) + len(piece.fails)
        full = len(part) >= _SEGMENTS or size + piece_bytes > _BYTES or (fails and piece.fails)
        if part and (full or piece.staged in part):
            yield Part(shard, list(part.values()))
            part, size, fails = {}, 0, False
        part[piece.staged] = piece
        size, fails = size + piece_bytes, fails or bool(piece.fails)
    yield Part(shard, list(part.values()))


def few(parts: Sequence[Part]) -> bool:
    """True if all parts together are no more than one call may take."""
    return (
        sum(len(part.pieces) for part in parts) <= _SEGMENTS
        and sum(part.size for part in parts) <= _BYTES
        and sum(part.fails for part in parts) <= 1
    )


def call_of(core: Core, part: Part, progress: CommitProgress, ttl: int) -> Call:
    """The call that takes a part, where the shard holds what the commit has emitted there.

    ttl: Seconds for which rows wait whose segment is not emitted yet.
    """
    return scripts.receive(
        core.config, core.shards[part.shard], part.pieces, applied=progress.key(core, part.shard),
        needed=progress.needs(part.shard), ttl=ttl, most=core.config.external_waiting_bytes,
    )  # fmt: skip


def looks_of(places: Sequence[VectorKey]) -> list[Part]:
    """Parts without new rows: the shards only say what becomes of segments."""
    queues = dict[int, list[Received]]()
    for key, shard in places:
        queues.setdefault(shard, []).append(Received(key, b"", b""))
    return [part for shard, queue in queues.items() for part in _cut(shard, queue)]


def bits_of(parts: Sequence[Part]) -> dict[VectorKey, bytes]:
    """The new bits of each segment."""
    new_bits = dict[VectorKey, bytes]()
    for part in parts:
        for piece in part.pieces:
            place = (piece.staged, part.shard)
            new_bits[place] = bits.either(new_bits.get(place, b""), piece.bits)
    return new_bits


def head(key: bytes) -> Request:
    """A request for the fields of a segment that `filled` needs."""
    return command("HMGET", key, *vectors.HEAD, "rows", "bits")


def filled(key: bytes, reply: Reply, new: bytes) -> StagedVectors | None:
    """The vectors of a segment that new bits fill, by the reply to `head`; None where they do not."""
    *facts, numbers, before = reply
    rows = (numbers or b"").partition(b" ")[0]
    if not rows.isdigit() or bits.count(bits.either(before or b"", new)) < int(rows):
        return None
    try:
        return vectors.staged_of(key, facts)
    except UnreadableRecord:
        return None  # the end of the flush reads it, too, and raises


def full(core: Core, error: str) -> StreamFull:
    """The error of a shard in which too many bits and fails wait."""
    return StreamFull(
        f"{core.config.name}: {error.removeprefix('FULL ')}: a part of the flush may have taken effect. "
        "Flush again when the programs that send them have flushed: it goes on then"
    )
