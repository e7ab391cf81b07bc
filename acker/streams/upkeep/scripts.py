"""The scripts that drop and count a stream's data as functions (see acker/streams/log/scripts.py).

Terms: a tree is all that comes of one record; a slab is the trees that one call tracked together; a segment
is some thousand rows of a stream, stored and acked as one piece; a vector has a number for each tree, the XOR
of tuple ids; a slot is the random number of a subscription; the nursery is the first of three time buckets,
through which a tree goes until it expires.
"""

from collections.abc import Sequence

from acker.ledger.calls.calls import Call
from acker.ledger.settings.topologies import REMEMBERED
from acker.store import scripts
from acker.store.keys import Shard, Stream
from acker.store.operation import Request, Word, script
from acker.streams.log.segments import Segment, row_keys

MOST_DROPS = 1_000
"""Drops of a stream that are kept for people."""


def remove_subscription(stream: Stream, name: str, slot: int, forget: bool) -> Request:
    """Takes a subscription out of the list."""
    own = [stream.subscriptions, stream.removals]
    return script("remove_subscription", own, [name, slot, int(forget), REMEMBERED])


def drop_gathered(
    stream: Stream, why: str, slot: int | None, doomed: Sequence[tuple[bytes, str, str, Segment]]
) -> Request:
    """Drops waiting segments: the key, place and entry of each.

    slot: the subscription to drop them for; None: all.
    """
    declared = [stream.subscriptions, stream.gathering, stream.drops]
    args: list[Word] = [why, MOST_DROPS, "" if slot is None else slot]
    for gathered, place, entry, one in doomed:
        declared += [gathered, *row_keys(stream, [one])]
        args += [place, entry, one.rows, one.bytes]
    return script("drop_gathered", declared, args)


def close_group(stream: Stream, group: str, tasks: Sequence[int], ttl: int) -> Request:
    """Closes a group without waiting rows."""
    own = [stream.progress(group), stream.gone, *(stream.gathered(group, task) for task in tasks)]
    return script("close_group", own, [ttl, group])


def drop_segments(stream: Stream, why: str, doomed: Sequence[tuple[bytes, Segment]]) -> Request:
    """Drops segments, each with its entry. why: the exceeded limit."""
    declared = [
        stream.entries,
        stream.subscriptions,
        stream.drops,
        *row_keys(stream, [segment for _, segment in doomed]),
    ]
    args: list[Word] = [why, MOST_DROPS]
    args += [word for entry, segment in doomed for word in (entry, segment.counted, segment.bytes)]
    return script("drop_segments", declared, args)


def count_stale(stream: Stream, segment_id: str, slot: int, rows: int, ttl: int) -> Request:
    """Counts stale rows of a segment, once."""
    return script("count_stale", [stream.subscriptions, stream.stale(segment_id, slot)], [slot, rows, ttl])


def note_lags(stream: Stream, lags: Sequence[tuple[int, int, str]]) -> Request:
    """Notes how far present subscriptions are: slot, rows acked ahead, and the entry they have passed."""
    return script("note_lags", [stream.subscriptions], [word for one in lags for word in one])


def mark_unreadable(staged: bytes) -> Request:
    """Marks staged vectors that cannot be read, once."""
    return script("mark_unreadable", [staged], [])


def pause_clock(shard: Shard, slabs: Sequence[bytes], rotations: int) -> Call:
    """Sends slabs back to the nursery if they were put into it at least so many rotations ago."""
    return Call(shard.number, scripts.get("pause_clock"), shard.vectors(slabs), [rotations])
