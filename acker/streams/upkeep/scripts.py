"""The scripts that drop and count what streams keep as functions (as in acker/streams/log/scripts.py)."""

from collections.abc import Sequence

from acker.ledger.calls.calls import Call
from acker.store import scripts
from acker.store.keys import Shard, Stream
from acker.store.operation import Request, Word, script
from acker.streams.log.segments import Segment, row_keys

MOST_DROPS = 1_000
"""Drops of a stream that are kept for people."""


def retire_subscription(stream: Stream, name: str, forget: bool) -> Request:
    """Takes a subscription out of the list."""
    return script("retire_subscription", [stream.subscriptions], [name, int(forget)])


def drop_gathered(
    stream: Stream, why: str, slot: int | None, doomed: Sequence[tuple[bytes, str, str, Segment]]
) -> Request:
    """Drops segments that wait: the key where each does, its place, its entry. slot: for that alone."""
    own = [stream.subscriptions, stream.gathering, stream.drops]
    args: list[Word] = [why, MOST_DROPS, "" if slot is None else slot]
    for gathered, place, entry, one in doomed:
        own += [gathered, *row_keys(stream, [one])]
        args += [place, entry, one.rows, one.bytes]
    return script("drop_gathered", own, args)


def close_group(stream: Stream, group: str, tasks: Sequence[int], ttl: int) -> Request:
    """Closes a group of which nothing waits."""
    own = [stream.progress(group), stream.gone, *(stream.gathered(group, task) for task in tasks)]
    return script("close_group", own, [ttl, group])


def drop_segments(stream: Stream, why: str, doomed: Sequence[tuple[bytes, Segment]]) -> Request:
    """Drops segments, each with its entry. why: over which limit they are."""
    own = [stream.entries, stream.subscriptions, stream.drops, *row_keys(stream, [one for _, one in doomed])]
    args: list[Word] = [why, MOST_DROPS]
    args += [word for entry, one in doomed for word in (entry, one.rows, one.bytes)]
    return script("drop_segments", own, args)


def count_stale(stream: Stream, token: str, slot: int, rows: int, ttl: int) -> Request:
    """Counts stale rows of a segment, once."""
    return script("count_stale", [stream.subscriptions, stream.stale(token, slot)], [slot, rows, ttl])


def keep_waiting(shard: Shard, slabs: Sequence[bytes], rotations: int) -> Call:
    """Sends slabs back to the nursery that were put into it so many rotations ago."""
    return Call(shard.number, scripts.get("keep_waiting"), shard.vectors(slabs), [rotations])
