"""The scripts of streams and commits as functions (as in acker/ledger/calls/scripts.py).

Where a script takes the topology's configuration, its reply waits for files and replicas as that says.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from acker.ledger.calls.calls import Call
from acker.ledger.calls.marks import Mark
from acker.ledger.settings.config import TopologyConfig
from acker.store import keys, scripts
from acker.store.keys import Shard, Stream
from acker.store.operation import Request, Word, script
from acker.streams.segments import Segment

MOST_DROPS = 1_000
"""Drops of a stream that are kept for people."""


def _rows_of(stream: Stream, segments: Sequence[Segment]) -> list[bytes]:
    """For each segment: payload, owed."""
    return [key for one in segments for key in (stream.payload(one.token), stream.owed(one.token))]


def _published(segment: Segment) -> list[Word]:
    return [segment.record(), segment.rows, segment.bytes, ",".join(map(str, segment.slots))]


# Streams and their readers


def record_schema(stream: Stream, seen: bytes, new: bytes) -> Request:
    """Records a schema where another is seen, or none (empty)."""
    return script("record_schema", [stream.schema], [seen, new])


def subscribe(stream: Stream, name: str, most: int, number: int, step: int) -> Request:
    """Gives a subscription its number. number: of the first; step: of another one, above those there are."""
    return script("subscribe", [stream.subscriptions, stream.entries], [name, most, number, step])


def retire_subscription(stream: Stream, name: str, forget: bool) -> Request:
    """Takes a subscription out of the list."""
    return script("retire_subscription", [stream.subscriptions], [name, int(forget)])


def read_fairly(stream: Stream, column: str, slot: int | None) -> Request:
    """Has a stream be read fairly, by a subscription, too, where that is named."""
    return script("read_fairly", [stream.subscriptions], [column, "" if slot is None else slot])


def check_version(stream: Stream, version: str) -> Request:
    """Tells whether the steps that read a stream are of a version of their function."""
    return script("check_version", [stream.subscriptions], [version])


def set_version(stream: Stream, version: str, before: bytes) -> Request:
    """Notes of which version of a function the steps are that read a stream. before: the one found there."""
    return script("set_version", [stream.subscriptions], [version, before])


def count_volumes(stream: Stream, ttl: int, counted: Sequence[tuple[int, Sequence[int]]]) -> Request:
    """Counts rows by key: for each how many, and the places of its counts."""
    args = [word for rows, places in counted for word in (rows, " ".join(map(str, places)))]
    return script("count_volumes", [stream.volumes], [ttl, *args])


def declare_gather(stream: Stream, record: str) -> Request:
    """Has a stream gather."""
    return script("declare_gather", [stream.entries, stream.subscriptions], [record])


def declare_line(
    topology: str, name: str, record: str, most: int, own: int, others: Sequence[int]
) -> Request:
    """Declares a line. own: the number that its streams gather by, or 0; others: those of other streams."""
    return script("declare_line", [keys.lines(topology)], [name, record, most, own, *others])


def gather(
    config: TopologyConfig,
    stream: Stream,
    ttl: int,
    known: int,
    waiting: Sequence[tuple[str, int, Segment]],
    open_at: Sequence[Word],
) -> Request:
    """Publishes staged segments of a stream that gathers: group and task of each, and the segment.

    open_at: when the group of each was seen to be open, as lua/gather.lua takes it. known: ms.
    """
    own = [stream.gathering, stream.subscriptions]
    args: list[Word] = [ttl, known]
    for (group, task, one), at in zip(waiting, open_at, strict=True):
        own += [stream.gathered(group, task), stream.progress(group), *_rows_of(stream, [one])]
        args += [f"{group}:{task}", *_published(one), at]
    return script("gather", own, args, config.wait)


def check_open(shard: Shard, names: Sequence[bytes]) -> Request:
    """Tells of slabs whether some of their trees are not over."""
    return script("check_open", [shard.slabs, *shard.vectors(names)], names)


def note_arrivals(
    config: TopologyConfig, progress: bytes, requests: int, over: bytes, acked: bytes, ttl: int
) -> Request:
    """Notes which requests of a group are over."""
    return script("note_arrivals", [progress], [requests, over, acked, ttl], config.wait)


def check_noted(progress: bytes, over: bytes, acked: bytes) -> Request:
    """Tells whether it is noted of a group that these requests are over, and that these were acked."""
    return script("check_noted", [progress], [over, acked])


def release(
    config: TopologyConfig, stream: Stream, group: str, task: int, last: Segment, ttl: int, light: int
) -> Request:
    """Releases what has gathered for a task of a group. last: the segment that ends the bundle."""
    own = [stream.entries, stream.subscriptions, stream.gathered(group, task), stream.progress(group)]
    own += [*_rows_of(stream, [last]), stream.gathering, stream.gone]
    return script("release", own, [ttl, *_published(last), f"{group}:{task}", light], config.wait)


def drop_gathered(
    stream: Stream, why: str, slot: int | None, doomed: Sequence[tuple[bytes, str, str, Segment]]
) -> Request:
    """Drops segments that wait: the key where each does, its place, its entry. slot: for that alone."""
    own = [stream.subscriptions, stream.gathering, stream.drops]
    args: list[Word] = [why, MOST_DROPS, "" if slot is None else slot]
    for gathered, place, entry, one in doomed:
        own += [gathered, *_rows_of(stream, [one])]
        args += [place, entry, one.rows, one.bytes]
    return script("drop_gathered", own, args)


def close_group(stream: Stream, group: str, tasks: Sequence[int], ttl: int) -> Request:
    """Closes a group of which nothing waits."""
    own = [stream.progress(group), stream.gone, *(stream.gathered(group, task) for task in tasks)]
    return script("close_group", own, [ttl, group])


def check_stream(stream: Stream, slots: Sequence[int], gather: bytes, fair: bytes, schema: str) -> Request:
    """Tells whether a stream is as it was looked at. schema: SHA-1 of it, or ""."""
    own = [stream.subscriptions, stream.schema]
    return script("check_stream", own, [",".join(map(str, slots)), gather, fair, schema])


def claim_segments(
    stream: Stream,
    slot: int,
    reader: str,
    at: int,
    rows: int,
    bytes: int,  # noqa: A002 - of rows, before compression
    segments: int,
    end: str,
    ttl: int,
    shown: int,
    name: str,
    version: str,
) -> Request:
    """Gives a reader segments, and tells up to `shown` of them."""
    own = [
        stream.entries, stream.subscriptions, stream.returned(slot), stream.taken(slot, reader),
        stream.readers(slot), stream.bound(slot, reader),
    ]  # fmt: skip
    return script(
        "claim_segments", own, [slot, reader, at, rows, bytes, segments, end, ttl, shown, name, version]
    )


def claim_and_look(
    config: TopologyConfig,
    stream: Stream,
    slot: int,
    reader: str,
    at: int,
    rows: int,
    bytes: int,  # noqa: A002 - as there
    segments: int,
    end: str,
    ttl: int,
    shown: int,
    name: str,
    version: str,
) -> Request:
    """As `claim_segments`, and reads what a worker wants to know of segments. A cluster answers None."""
    claim = claim_segments(stream, slot, reader, at, rows, bytes, segments, end, ttl, shown, name, version)
    args = [*claim.args, stream.payload(""), *keys.around_shard(config.name, config.ackers)]
    return Request(claim.key, args, scripts.get("claim_and_look"), claim.keys, one_server=True)


def note_segments(
    config: TopologyConfig,
    stream: Stream,
    slot: int,
    reader: str,
    forget: bool,
    ttl: int,
    taken: Sequence[tuple[int, str, Segment]],
) -> Request:
    """Notes what a subscription did with segments: number, entry and record of each."""
    own = [stream.entries, stream.subscriptions, stream.taken(slot, reader)]
    own += _rows_of(stream, [one for _, _, one in taken])
    facts = [word for number, entry, one in taken for word in (number, entry, one.rows, one.bytes)]
    return script("note_segments", own, [slot, int(forget), ttl, *facts], config.wait)


def bind_reader(
    config: TopologyConfig, bound: bytes, commit: str, place: str, ttl: int, start: int
) -> Request:
    """Binds what a reader took to a commit."""
    return script("bind_reader", [bound], [commit, place, ttl, start], config.wait)


def return_segments(
    config: TopologyConfig,
    stream: Stream,
    slot: int,
    reader: str,
    dead: bool,
    ttl: int,
    ended: Sequence[tuple[str, str]],
    taken: Sequence[tuple[int, str, Segment]],
) -> Request:
    """Takes segments back from a reader. ended: commits as they are bound to it."""
    own = [
        stream.taken(slot, reader), stream.returned(slot), stream.readers(slot), stream.bound(slot, reader),
        *_rows_of(stream, [one for _, _, one in taken]),
    ]  # fmt: skip
    args: list[Word] = [slot, reader, int(dead), ttl, len(ended), *(word for one in ended for word in one)]
    return script("return_segments", own, [*args, *(number for number, _, _ in taken)], config.wait)


def drop_segments(stream: Stream, why: str, doomed: Sequence[tuple[bytes, Segment]]) -> Request:
    """Drops segments, each with its entry. why: over which limit they are."""
    own = [stream.entries, stream.subscriptions, stream.drops, *_rows_of(stream, [one for _, one in doomed])]
    args: list[Word] = [why, MOST_DROPS]
    args += [word for entry, one in doomed for word in (entry, one.rows, one.bytes)]
    return script("drop_segments", own, args)


def count_stale(stream: Stream, token: str, slot: int, rows: int, ttl: int) -> Request:
    """Counts stale rows of a segment, once."""
    return script("count_stale", [stream.subscriptions, stream.stale(token, slot)], [slot, rows, ttl])


def keep_waiting(shard: Shard, slabs: Sequence[bytes], rotations: int) -> Call:
    """Sends slabs back to the nursery that were put into it so many rotations ago."""
    return Call(shard.number, scripts.get("keep_waiting"), shard.vectors(slabs), [rotations])


# Commits


def stage(key: bytes, ttl: int, fields: Mapping[str, bytes | str]) -> Request:
    """Stages a hash, where there is none."""
    return script("stage", [key], [ttl, *chain.from_iterable(fields.items())])


@dataclass(frozen=True, slots=True)
class StagedChunk:
    """A chunk of staged vectors: its hash, its number there, its slabs of many, and those of one.

    left: slabs, and which of their trees are not acked (acker/streams/commits/skipped.py); None: all are.
    """

    staged: bytes
    number: int
    slabs: Sequence[bytes]
    ones: Sequence[bytes]
    left: Mapping[bytes, bytes] | None = None


def apply_staged(
    config: TopologyConfig,
    shard: Shard,
    chunks: Sequence[StagedChunk],
    *,
    to: str,
    made: bytes | None = None,
    needed: str = "",
    by: Mark | None = None,
) -> Call:
    """Brings chunks to a state. made, needed: of a commit that needs something made. by: who acks."""
    own = [*([] if made is None else [made]), *([] if by is None else shard.of_steps())]
    args: list[Word] = [to, config.waiting_bytes, needed, b"" if by is None else by.packed()]
    for one in chunks:
        own += [one.staged, *shard.vectors(one.slabs)]
        each = [one.left.get(slab, b"") for slab in (*one.slabs, *one.ones)] if one.left else ()
        packed = b"".join(len(part).to_bytes(2, "little") + part for part in each) if any(each) else b""
        args += [one.number, len(one.slabs), len(one.ones), packed, *one.ones]
    return Call(shard.number, scripts.get("apply_staged"), own, args, waits=True)


def stage_rows(key: bytes, ttl: int, rows: bytes) -> Request:
    """Stages the rows of a segment, or of roots, where there are none."""
    return script("stage_rows", [key], [ttl, rows])


def check_slabs(shard: Shard, names: Sequence[bytes]) -> Request:
    """Tells whether a shard knows none of some slabs."""
    return script("check_slabs", [shard.slabs], names)


def check_groups(stream: Stream, groups: Sequence[str]) -> Request:
    """Tells whether a stream that gathers knows none of some groups."""
    return script("check_groups", [stream.progress(group) for group in groups], [])


def hold_staged(staged: Sequence[bytes], ttl: int) -> Request:
    """Gives what is staged for a commit another time to live."""
    return script("hold_staged", staged, [ttl])


def check_staged(staged: Sequence[bytes]) -> Request:
    """Tells whether vectors of a shard are still staged."""
    return script("check_staged", staged, [])


def check_taken(taken: bytes, first: str, last: str, planned: str) -> Request:
    """Tells whether a range is what its batch was planned with."""
    return script("check_taken", [taken], [first, last, planned])


def end_commit(
    config: TopologyConfig, writer: str, number: int, what: str, of: str, trail: str,
    bound: Sequence[bytes], field: str, spent: Sequence[bytes],
) -> Request:  # fmt: skip
    """Ends a commit that one server has carried out."""
    own = [keys.commits(config.name, writer), *bound, *spent]
    return script("end_commit", own, [number, what, of, trail, field, len(bound)], config.wait)


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
    config: TopologyConfig, writer: str, number: int, what: str, start: str, to: str, of: str, trail: str = ""
) -> Request:
    """Moves a commit from one state to another."""
    own = [keys.commits(config.name, writer)]
    return script("advance_commit", own, [number, what, start, to, of, trail], config.wait)


def note_trail(
    config: TopologyConfig, writer: str, number: int, token: str, at: int, more: int = 0
) -> Request:
    """Notes how far a trail has come; answered None by a cluster. more: notes behind it in its flight."""
    own = keys.commits(config.name, writer)
    return Request(own, [number, token, at, more], scripts.get("note_trail"), [own], one_server=True)


def check_trail(config: TopologyConfig, writer: str, number: int, token: str, at: int) -> Request:
    """Tells whether a trail is as it was noted."""
    return script("check_trail", [keys.commits(config.name, writer)], [number, token, at])


def unlink(spent: Sequence[bytes]) -> Request:
    """Deletes keys: the same as the command, for a chain."""
    return script("unlink", spent, [])


def note_made(config: TopologyConfig, made: bytes, what: str, ttl: int) -> Request:
    """Notes in a shard that a commit has made something elsewhere."""
    return script("note_made", [made], [what, ttl], config.wait)


def hold(stream: Stream, segments: Sequence[Segment], ttl: int) -> Request:
    """Gives rows of staged segments another time to live."""
    return script("hold", _rows_of(stream, segments), [ttl])


def publish(config: TopologyConfig, stream: Stream, segments: Sequence[Segment]) -> Request:
    """Publishes staged segments."""
    own = [stream.entries, stream.subscriptions, *_rows_of(stream, segments)]
    args = [word for one in segments for word in (*_published(one), one.lane)]
    return script("publish", own, args, config.wait)


def publish_once(
    config: TopologyConfig, stream: Stream, segment: Segment, payload: bytes, ttl: int, following: int
) -> Request:
    """Publishes a segment without a commit. following: of the next subscription, where it has no number."""
    own = [stream.entries, stream.subscriptions, *_rows_of(stream, [segment]), stream.marker(segment.token)]
    facts: list[Word] = [*_published(segment), payload, ttl, segment.lane]
    return script("publish_once", own, [*facts, "" if segment.shards else following], config.wait)


def record_effects(
    count: bytes, effects: bytes, period: int, generation: int, digests: Sequence[bytes]
) -> Request:
    """Records effects in a generation of so many ms. count, effects: keys of that."""
    return script("record_effects", [count, effects], [period, generation, *digests])


def register_roots(
    key: bytes,
    ttl: int,
    source: str,
    task: tuple[int, int, int],
    fingerprint: str,
    roots: str,
    number: int,
) -> Request:
    """Settles which roots the rows of a task have. task: stage, partition and attempt. number: of its own."""
    return script("register_roots", [key], [ttl, source, *task, fingerprint, roots, number])


def give_results(staged: bytes, results: Sequence[bytes], ttl: int, anchors: Sequence[str]) -> Request:
    """Has staged results take effect, by anchor."""
    return script("give_results", [staged, *results], [ttl, *anchors])
