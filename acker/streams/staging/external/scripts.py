"""The scripts of external segments as functions (as in acker/streams/log/scripts.py).

Terms: a segment is the rows of an external stream that one sender stamped together; a vector has a number for
each tree, the XOR of tuple ids; a slot is the random number of a subscription.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from acker.ledger.calls.calls import Call
from acker.ledger.settings.config import TopologyConfig
from acker.ledger.settings.topologies import REMEMBERED
from acker.store import scripts
from acker.store.keys import Shard, Stream
from acker.store.operation import Request, Word, script
from acker.streams.log.kinds import Seen
from acker.streams.staging.external import bits


def send(key: bytes, ttl: int, until: int, fields: Mapping[str, bytes | str]) -> Request:
    """Stages the vectors of an external segment; refused after `until` (ms)."""
    return script("send", [key], [ttl, until, *chain.from_iterable(fields.items())])


def hold_external(keys: Sequence[bytes], ttl: int) -> Request:
    """Gives staged segments another time to live in seconds; bits alone are no staged segment."""
    return script("hold_external", keys, [ttl])


def note_write(notes: bytes, tracked: bytes, write: str, texts: tuple[str, str], ttl: int) -> Request:
    """Notes what a write of a batch has sent; texts: the note, and the one of a batch that tracks rows."""
    return script("note_write", [notes, tracked], [write, *texts, ttl])


def note_persist(stream: Stream, field: str) -> Request:
    """Notes in a field of a stream that its rows are persisted; nothing if the stream is gone."""
    return script("note_persist", [stream.subscriptions], [field])


def leave_tombstone(shard: Shard, key: bytes, margin: int) -> Request:
    """Ends a segment in a shard without an ack; what tells of it stays for `margin` seconds longer."""
    return script("leave_tombstone", [key, shard.counters], [margin])


@dataclass(frozen=True, slots=True)
class Received:
    """The received rows of a segment in a shard: key of its hash, bitmap of positions, packed fails."""

    staged: bytes
    bits: bytes
    fails: bytes


def receive(
    config: TopologyConfig,
    shard: Shard,
    received: Sequence[Received],
    *,
    applied: bytes,
    needed: str,
    ttl: int,
    most: int,
) -> Call:
    """Takes the bits and fails of rows. applied, needed: what the commit must have emitted in the shard."""
    declared = [applied, shard.early_rows, *(piece.staged for piece in received)]
    args: list[Word] = [config.waiting_bytes, config.outcomes_kept, needed, ttl, most]
    for piece in received:
        first = bits.first(piece.bits)
        args += (first, b"" if first else piece.bits, piece.fails)
    return Call(shard.number, scripts.get("receive"), declared, args, waits=True)


def serve(
    stream: Stream, slot: int, subscription: str, step: str, shared: bool, lease: int, most: int
) -> Request:
    """Registers a step that serves a subscription. lease: milliseconds for which it counts as live."""
    args: list[Word] = [slot, subscription, step, int(shared), lease, most]
    return script("serve", [stream.subscriptions], args)


def rename_subscription(config: TopologyConfig, stream: Stream, name: str, new: str, seen: Seen) -> Request:
    """Gives a subscription another name."""
    args: list[Word] = [name, new, seen.removals, seen.until, REMEMBERED]
    return script("rename_subscription", [stream.subscriptions, stream.removals], args, config.wait)


def declare_external(
    config: TopologyConfig,
    stream: Stream,
    key: str,
    lost_after: str,
    downtime: str,
    most: str,
    most_bytes: str,
    epoch: str,
    seen: Seen,
) -> Request:
    """Has a stream be external. epoch: for one that has none."""
    own = [stream.subscriptions, stream.entries, stream.schema, stream.removals]
    args: list[Word] = [key, lost_after, downtime, most, most_bytes, seen.removals, seen.until, epoch]
    return script("declare_external", own, args, config.wait)


@dataclass(frozen=True, slots=True)
class Announced:
    """A segment that is announced: token, when it was begun, rows, and its record around the slots.

    bytes: About the bytes of its vectors for one subscription.
    """

    token: str
    sent: int
    rows: int
    bytes: int
    before: str
    after: str


def announce(
    config: TopologyConfig,
    stream: Stream,
    segments: Sequence[Announced],
    *,
    number: int,
    key: str,
    ttl: int,
    margin: int,
    most: int,
    most_bytes: int,
    known_slots: str,
    among: str = "all",
) -> Request:
    """Announces segments. number, key: the number and the key in their stamps.

    among: The slots that they were staged for, as "0,2"; "all" if they are not staged yet.
    """
    declared = [
        stream.entries,
        stream.subscriptions,
        *(stream.announced(segment.token) for segment in segments),
    ]
    args: list[Word] = [number, key, ttl, margin, most, most_bytes, known_slots, among]
    args += [
        word
        for segment in segments
        for word in (segment.sent, segment.rows, segment.bytes, segment.before, segment.after)
    ]
    return script("announce", declared, args, config.wait)


def note_received(
    config: TopologyConfig,
    stream: Stream,
    commit: str,
    slot: int,
    newest: int,
    ttl: int,
    counted: Sequence[tuple[str, int]],
) -> Request:
    """Notes how far a subscription is, once for each commit, and counts by name."""
    args: list[Word] = [slot, newest, ttl, *(word for one in counted for word in one)]
    return script("note_received", [stream.subscriptions, stream.marker(commit)], args, config.wait)


def check_epochs(streams: Sequence[Stream], epochs: Sequence[str]) -> Request:
    """Says whether external streams still have these epochs; only in a chain, because their slots differ."""
    return script("check_epochs", [stream.subscriptions for stream in streams], epochs)


def rotate_key(stream: Stream, number: bytes, key: str, start: str, open_segments: int, how: str) -> Request:
    """Gives stamps a new key, or counts the segments of the one that would go; how: force, count or ""."""
    own = [stream.subscriptions, stream.entries]
    return script("rotate_key", own, [number, key, start, open_segments, how])


def close_segments(stream: Stream, closed: Sequence[tuple[str, int, int, str, str]]) -> Request:
    """Takes entries out: id, rows, bytes, and slots that have acked it and that never will, as "0,2"."""
    own = [stream.entries, stream.subscriptions]
    return script("close_segments", own, [word for one in closed for word in one])
