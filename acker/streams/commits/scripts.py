"""The scripts of commits as functions (as in acker/streams/log/scripts.py).

Terms: a tree is all that comes of one record; a slab is the trees that one call tracked together; a segment
is some thousand rows of a stream, stored and acked as one piece; a slot is the random number of a
subscription; a bundle is the rows that have gathered for one task of a group; staged rows are stored, but
nobody sees them before a commit.
"""

from collections.abc import Sequence

from acker.ledger.settings.config import TopologyConfig
from acker.store import keys
from acker.store.keys import Shard, Stream
from acker.store.operation import Request, Word, script
from acker.streams.log.segments import Segment, published_words, row_keys


def gather(
    config: TopologyConfig,
    stream: Stream,
    ttl: int,
    late_ttl: int,
    waiting: Sequence[tuple[str, int, Segment]],
    open_at: Sequence[Word],
) -> Request:
    """Publishes staged segments of a stream that gathers: group, task and segment of each.

    open_at: the times at which groups were seen to be open (lua/streams/commits/gather.lua). late_ttl: ms.
    """
    declared = [stream.gathering, stream.subscriptions]
    args: list[Word] = [ttl, late_ttl]
    for (group, task, segment), at in zip(waiting, open_at, strict=True):
        declared += [stream.gathered(group, task), stream.progress(group), *row_keys(stream, [segment])]
        args += [f"{group}:{task}", *published_words(segment), at]
    return script("gather", declared, args, config.wait)


def check_open(shard: Shard, names: Sequence[bytes]) -> Request:
    """Says for each slab whether some of its trees are not over."""
    return script("check_open", [shard.slabs, *shard.vectors(names)], names)


def release_bundle(
    config: TopologyConfig, stream: Stream, group: str, task: int, last: Segment, ttl: int, light: int
) -> Request:
    """Releases the rows that have gathered for a task of a group. last: the segment that ends the bundle."""
    own = [stream.entries, stream.subscriptions, stream.gathered(group, task), stream.progress(group)]
    own += [*row_keys(stream, [last]), stream.gathering, stream.gone]
    return script("release_bundle", own, [ttl, *published_words(last), f"{group}:{task}", light], config.wait)


def check_delivered(delivered: bytes, first: str, last: str, planned: str) -> Request:
    """Says whether a range still has the segments that its batch was planned with."""
    return script("check_delivered", [delivered], [first, last, planned])


def begin_commit(
    config: TopologyConfig, writer: str, number: int, text: str, ttl: int, attempt: str, kept: int
) -> Request:
    """Stores a commit, or reads the one that is stored."""
    args: list[Word] = [number, text, ttl, attempt, kept, keys.config(config.name), config.ackers]
    return script("begin_commit", [keys.commits(config.name, writer)], args, config.wait)


def beat_commit(topology: str, writer: str, number: int, text: str, ttl: int) -> Request:
    """Notes that a commit is under way. text: the text of a commit that begins; or ""."""
    own = [keys.committing(topology)]
    return script("beat_commit", own, [f"{number} {writer}", ttl, text])


def advance_commit(
    config: TopologyConfig,
    writer: str,
    number: int,
    start: str,
    to: str,
    of: str = "",
    fences: Sequence[bytes] = (),
    field: str = "",
    spent: Sequence[bytes] = (),
) -> Request:
    """Moves a commit from one state to another.

    At its end: of: its batch; fences: readers that have a field of it; spent: keys to delete.
    """
    own = [keys.commits(config.name, writer), *fences, *spent]
    return script("advance_commit", own, [number, start, to, of, field, len(fences)], config.wait)


def unlink(spent: Sequence[bytes]) -> Request:
    """Deletes keys: the same as the command, for a chain."""
    return script("unlink", spent, [])


def extend_rows(stream: Stream, segments: Sequence[Segment], ttl: int) -> Request:
    """Gives rows of staged segments another time to live."""
    return script("extend_rows", row_keys(stream, segments), [ttl])


def publish(config: TopologyConfig, stream: Stream, segments: Sequence[Segment]) -> Request:
    """Publishes staged segments."""
    own = [stream.entries, stream.subscriptions, *row_keys(stream, segments)]
    args = [word for one in segments for word in (*published_words(one), one.lane)]
    return script("publish", own, args, config.wait)


def publish_once(
    config: TopologyConfig, stream: Stream, segment: Segment, payload: bytes, ttl: int, following: int
) -> Request:
    """Publishes a segment without a commit.

    following: the slot of the next subscription, if none is stored yet.
    """
    own = [stream.entries, stream.subscriptions, *row_keys(stream, [segment]), stream.marker(segment.id)]
    facts: list[Word] = [*published_words(segment), payload, ttl, segment.lane]
    return script("publish_once", own, [*facts, "" if segment.shards else following], config.wait)
