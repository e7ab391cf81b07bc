"""The ledger's scripts as functions: each puts KEYS and ARGV in the order that its header in lua/ gives.

A script of a shard makes a `Call`: `Core.request` puts the shard's keys, spouts and stamp before its own.
What is answered stands in the header too.
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
    own = [shard.outcomes(spout), *shard.vectors([name for name, _, _ in slabs])]
    args: list[Word] = [spout, limit, config.outcomes_kept, how, emitted]
    args += [word for _, values, message_ids in slabs for word in (values, message_ids)]
    own += [staged] if staged is not None else []
    return Call(shard.number, scripts.get("track"), own, args, tracks=spout, waits=True)


def stage_ids(
    config: TopologyConfig, shard: Shard, slab: bytes, *, limit: int, count: int, number: int, piece: bytes
) -> Call:
    """Sends a piece of a slab's message ids ahead of its track. count: of its trees. limit: as of `track`."""
    args: list[Word] = [config.waiting_bytes, limit, count, number, piece]
    return Call(shard.number, scripts.get("stage_ids"), [shard.vector(slab)], args)


def update(
    config: TopologyConfig,
    shard: Shard,
    what: UpdateCall,
    emitted: int = 0,
    by: Mark | None = None,
    acked: int = 0,
) -> Call:
    """XORs deltas into ack values. by: who acks, and `acked` how many tuples."""
    own = [*([] if by is None else shard.of_steps()), *shard.vectors(what.slabs)]
    args: list[Word] = [config.waiting_bytes, emitted, b"" if by is None else by.packed(), acked, what.trees]
    args += [what.counts, what.indexes, what.deltas, what.ones, *what.vectors, *what.singles]
    return Call(shard.number, scripts.get("update"), own, args)


def fail(
    config: TopologyConfig,
    shard: Shard,
    what: TreesCall,
    *,
    staged: bytes | None = None,
    made: bytes | None = None,
    number: int | None = None,
    by: Mark | None = None,
) -> Call:
    """Fails trees, as `acker.ledger.calls.encoding.fail_calls` cuts them. by: who fails them.

    staged, made, number: of a commit, which has `made` only where its inputs are acked.
    """
    own = [] if by is None else [shard.step_counts]
    own += shard.vectors(what.slabs) + [key for key in (staged, made) if key is not None]
    args: list[Word] = [config.waiting_bytes, what.reasons, what.why, what.counts, what.indexes]
    args += [config.outcomes_kept, b"" if by is None else by.packed()]
    args += [] if number is None else [number]
    return Call(shard.number, scripts.get("fail"), own, args)


def reset_timeout(shard: Shard, what: TreesCall) -> Call:
    """Sends slabs back to the nursery."""
    own = shard.vectors(what.slabs)
    return Call(shard.number, scripts.get("reset_timeout"), own, [what.counts, what.indexes])


def apply_calls(shard: Shard, calls: Sequence[Call]) -> Call:
    """Several calls of a shard as one, which takes effect once as a whole."""
    args: list[Word] = []
    for call in calls:
        args += [call.script.name, len(call.keys), len(call.args), *call.args]
    own = [key for call in calls for key in call.keys]
    waits = any(call.waits for call in calls)
    return Call(shard.number, scripts.get("apply_calls"), own, args, waits=waits)


def count_unreadable(shard: Shard, records: int) -> Call:
    """Counts records that could not be read."""
    return Call(shard.number, scripts.get("count_unreadable"), [], [records])


def note_trace(
    shard: Shard, anchor: int, events: Sequence[tuple[str, str]], most_events: int, most: int, ttl: int
) -> Request:
    """Adds events to a trace: key of each, and what it is."""
    args: list[Word] = [anchor, most_events, most, ttl]
    args += [word for event in events for word in event]
    return script("note_trace", [shard.traces, shard.trace(anchor)], args)


def take_turn(shard: Shard) -> Call:
    """Takes the next number of a writer."""
    return Call(shard.number, scripts.get("take_turn"), [], [])


def check_outcomes(outcomes: bytes, entries: Sequence[tuple[bytes, bytes]]) -> Request:
    """Tells whether outcomes are there still: id and digest of each entry."""
    return script("check_outcomes", [outcomes], [word for entry in entries for word in entry])


def check_over(slabs: bytes, vector: bytes, slab: bytes) -> Request:
    """Tells whether all trees of a slab of many are over."""
    return script("check_over", [slabs, vector], [slab])
