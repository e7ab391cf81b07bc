"""The ledger's scripts as functions: each puts KEYS and ARGV in the order that its header in lua/ gives.

A script of a shard makes a `Call`: `Core.request` puts the shard's keys, spouts and stamp first. The header
also tells the reply.

Terms: a tree is all that comes of one record; a slab is the trees that one call tracked together; a delta is
the XOR of the ids that a call adds to a tree; the nursery is the first of three time buckets, through which a
tree goes until it expires.
"""

from collections.abc import Sequence

from acker.ledger.calls.calls import Call
from acker.ledger.calls.encoding import TreesCall, UpdateCall
from acker.ledger.calls.marks import Mark
from acker.ledger.settings.config import TopologyConfig
from acker.store import scripts
from acker.store.keys import Shard
from acker.store.operation import Request, Word, script


def track(
    config: TopologyConfig,
    shard: Shard,
    spout: str,
    slabs: Sequence[tuple[bytes, bytes, bytes]],
    *,
    limit: int,
    how: str = "",
    emitted: int = 0,
    staged: bytes | None = None,
) -> Call:
    """Tracks slabs: name, ack values and packed message ids of each. staged: of roots, with `how`."""
    keys = [shard.outcomes(spout), *shard.vectors([name for name, _, _ in slabs])]
    args: list[Word] = [spout, limit, config.outcomes_kept, how, emitted]
    args += [word for _, values, message_ids in slabs for word in (values, message_ids)]
    keys += [staged] if staged is not None else []
    return Call(shard.number, scripts.get("track"), keys, args, tracks=spout, waits=True)


def stage_ids(
    config: TopologyConfig,
    shard: Shard,
    spout: str,
    slab: bytes,
    *,
    limit: int,
    count: int,
    number: int,
    piece: bytes,
) -> Call:
    """Sends a piece of a slab's message ids ahead of its track.

    count: its trees. limit: see `track`. spout: "" of roots, which a pause does not hold up.
    """
    args: list[Word] = [config.waiting_bytes, limit, count, number, piece, spout]
    return Call(shard.number, scripts.get("stage_ids"), [shard.vector(slab)], args)


def update(
    config: TopologyConfig,
    shard: Shard,
    part: UpdateCall,
    emitted: int = 0,
    by: Mark | None = None,
    acked: int = 0,
) -> Call:
    """XORs deltas into ack values. by: the acking step. acked: its acked tuples."""
    keys = [*([] if by is None else shard.of_steps), *shard.vectors(part.slabs)]
    args: list[Word] = [config.waiting_bytes, emitted, b"" if by is None else by.packed(), acked, part.trees]
    args += [part.counts, part.indexes, part.deltas, part.ones, *part.vectors, *part.singles]
    return Call(shard.number, scripts.get("update"), keys, args)


def fail(
    config: TopologyConfig,
    shard: Shard,
    part: TreesCall,
    *,
    staged: bytes | None = None,
    applied: bytes | None = None,
    number: int | None = None,
    by: Mark | None = None,
    stay: int = 0,
) -> Call:
    """Fails trees, as `acker.ledger.calls.encoding.fail_calls` cuts them. by: the failing step.

    staged, applied, number: of a commit, which has `applied` only where its inputs are acked.
    stay: ms for which the fails wait for their track; 0 for three rotations.
    """
    keys = [] if by is None else [shard.step_counts]
    keys += shard.vectors(part.slabs) + [key for key in (staged, applied) if key is not None]
    args: list[Word] = [config.waiting_bytes, part.reasons, part.why, part.counts, part.indexes]
    args += [config.outcomes_kept, b"" if by is None else by.packed()]
    args += [] if number is None and not stay else [b"" if number is None else number, stay]
    return Call(shard.number, scripts.get("fail"), keys, args)


def reset_timeout(shard: Shard, part: TreesCall) -> Call:
    """Sends slabs back to the nursery."""
    keys = shard.vectors(part.slabs)
    return Call(shard.number, scripts.get("reset_timeout"), keys, [part.counts, part.indexes])


def apply_calls(shard: Shard, calls: Sequence[Call]) -> Call:
    """Combines calls of a shard into one, which takes effect once as a whole."""
    args: list[Word] = []
    for call in calls:
        args += [call.script.name, len(call.keys), len(call.args), *call.args]
    own = [key for call in calls for key in call.keys]
    waits = any(call.waits for call in calls)
    return Call(shard.number, scripts.get("apply_calls"), own, args, waits=waits)


def count_unreadable(shard: Shard, records: int) -> Call:
    """Counts unreadable records."""
    return Call(shard.number, scripts.get("count_unreadable"), [], [records])


def note_trace(
    shard: Shard, anchor: int, events: Sequence[tuple[str, str]], most_events: int, most: int, ttl: int
) -> Request:
    """Adds events to a trace: the key and the text of each."""
    args: list[Word] = [anchor, most_events, most, ttl]
    args += [word for event in events for word in event]
    return script("note_trace", [shard.traces, shard.trace(anchor)], args)


def reserve_sequence(shard: Shard) -> Call:
    """Takes the next number of a writer."""
    return Call(shard.number, scripts.get("reserve_sequence"), [], [])


def check_outcomes(outcomes: bytes, entries: Sequence[tuple[bytes, bytes]]) -> Request:
    """Tells whether outcomes are there still: id and digest of each entry."""
    return script("check_outcomes", [outcomes], [word for entry in entries for word in entry])


def check_over(slabs: bytes, vector: bytes, slab: bytes) -> Request:
    """Tells whether all trees of a slab of many are over."""
    return script("check_over", [slabs, vector], [slab])
