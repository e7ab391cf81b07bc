"""The scripts of commits as functions (as in acker/streams/log/scripts.py)."""

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
    known: int,
    waiting: Sequence[tuple[str, int, Segment]],
    open_at: Sequence[Word],
) -> Request:
    """Publishes staged segments of a stream that gathers: group and task of each, and the segment.

    open_at: when the group of each was seen to be open, as lua/streams/commits/gather.lua takes it. known:
    ms.
    """
    own = [stream.gathering, stream.subscriptions]
    args: list[Word] = [ttl, known]
    for (group, task, one), at in zip(waiting, open_at, strict=True):
        own += [stream.gathered(group, task), stream.progress(group), *row_keys(stream, [one])]
        args += [f"{group}:{task}", *published_words(one), at]
    return script("gather", own, args, config.wait)


def check_open(shard: Shard, names: Sequence[bytes]) -> Request:
    """Tells of slabs whether some of their trees are not over."""
    return script("check_open", [shard.slabs, *shard.vectors(names)], names)


def release(
    config: TopologyConfig, stream: Stream, group: str, task: int, last: Segment, ttl: int, light: int
) -> Request:
    """Releases what has gathered for a task of a group. last: the segment that ends the bundle."""
    own = [stream.entries, stream.subscriptions, stream.gathered(group, task), stream.progress(group)]
    own += [*row_keys(stream, [last]), stream.gathering, stream.gone]
    return script("release", own, [ttl, *published_words(last), f"{group}:{task}", light], config.wait)


def check_taken(taken: bytes, first: str, last: str, planned: str) -> Request:
    """Tells whether a range is what its batch was planned with."""
    return script("check_taken", [taken], [first, last, planned])


def begin_commit(
    config: TopologyConfig, writer: str, number: int, what: str, ttl: int, attempt: str, kept: int
) -> Request:
    """Stores a commit, or reads the one that is stored."""
    args: list[Word] = [number, what, ttl, attempt, kept, keys.config(config.name), config.ackers]
    return script("begin_commit", [keys.commits(config.name, writer)], args, config.wait)


def beat_commit(topology: str, writer: str, number: int, what: str, ttl: int) -> Request:
    """Notes that a commit is under way. what: it begins, and does that; or ""."""
    own = [keys.committing(topology)]
    return script("beat_commit", own, [f"{number} {writer}", ttl, what])


def advance_commit(
    config: TopologyConfig,
    writer: str,
    number: int,
    start: str,
    to: str,
    of: str = "",
    bound: Sequence[bytes] = (),
    field: str = "",
    spent: Sequence[bytes] = (),
) -> Request:
    """Moves a commit from one state to another.

    of: its batch; bound: readers that it is a field of; spent: keys that go. All of them where it ends.
    """
    own = [keys.commits(config.name, writer), *bound, *spent]
    return script("advance_commit", own, [number, start, to, of, field, len(bound)], config.wait)


def unlink(spent: Sequence[bytes]) -> Request:
    """Deletes keys: the same as the command, for a chain."""
    return script("unlink", spent, [])


def hold(stream: Stream, segments: Sequence[Segment], ttl: int) -> Request:
    """Gives rows of staged segments another time to live."""
    return script("hold", row_keys(stream, segments), [ttl])


def publish(config: TopologyConfig, stream: Stream, segments: Sequence[Segment]) -> Request:
    """Publishes staged segments."""
    own = [stream.entries, stream.subscriptions, *row_keys(stream, segments)]
    args = [word for one in segments for word in (*published_words(one), one.lane)]
    return script("publish", own, args, config.wait)


def publish_once(
    config: TopologyConfig, stream: Stream, segment: Segment, payload: bytes, ttl: int, following: int
) -> Request:
    """Publishes a segment without a commit. following: of the next subscription, where it has no number."""
    own = [stream.entries, stream.subscriptions, *row_keys(stream, [segment]), stream.marker(segment.token)]
    facts: list[Word] = [*published_words(segment), payload, ttl, segment.lane]
    return script("publish_once", own, [*facts, "" if segment.shards else following], config.wait)
