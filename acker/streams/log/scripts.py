"""The scripts of streams and commits as functions (see acker/ledger/calls/scripts.py).

A script that takes the topology's configuration waits for files and replicas before it replies, as
configured.

Terms: a slab is the trees that one call tracked together; a segment is some thousand rows of a stream, stored
and acked as one piece.
"""

from collections.abc import Sequence

from acker.ledger.settings.config import TopologyConfig
from acker.store import keys, scripts
from acker.store.keys import Shard, Stream
from acker.store.operation import Request, Word, script
from acker.streams.log.kinds import Seen
from acker.streams.log.segments import Segment, row_keys

# Streams and their readers


def record_schema(stream: Stream, before: bytes, new: bytes, seen: Seen) -> Request:
    """Records a schema if the stored one is `before`; empty: if none is stored."""
    own = [stream.schema, stream.removals]
    return script("record_schema", own, [before, new, seen.removals, seen.until])


def reserve_slot(stream: Stream, number: int, seen: Seen) -> Request:
    """Gives a stream without subscriptions the number of the next one."""
    own = [stream.subscriptions, stream.removals]
    return script("reserve_slot", own, [number, seen.removals, seen.until])


def subscribe(
    config: TopologyConfig,
    stream: Stream,
    name: str,
    most: int,
    number: int,
    step: int,
    seen: Seen,
) -> Request:
    """Gives a subscription its random number in its stream (its slot).

    number: of the first; step: distance of another one from the highest.
    """
    own = [stream.subscriptions, stream.entries, stream.removals]
    return script("subscribe", own, [name, most, number, step, seen.removals, seen.until], config.wait)


def read_fairly(stream: Stream, column: str, slot: int | None, seen: Seen) -> Request:
    """Makes a stream be read fairly, and also by a named subscription."""
    own = [stream.subscriptions, stream.removals]
    return script("read_fairly", own, [column, "" if slot is None else slot, seen.removals, seen.until])


def count_volumes(stream: Stream, ttl: int, counted: Sequence[tuple[int, Sequence[int]]]) -> Request:
    """Counts rows by key: for each key the number of rows, and the places of its counts."""
    args = [word for rows, places in counted for word in (rows, " ".join(map(str, places)))]
    return script("count_volumes", [stream.volumes], [ttl, *args])


def declare_gather(stream: Stream, record: str, seen: Seen) -> Request:
    """Makes a stream gather."""
    own = [stream.entries, stream.subscriptions, stream.removals]
    return script("declare_gather", own, [record, seen.removals, seen.until])


def claim_segments(
    stream: Stream,
    slot: int,
    reader: str,
    offset: int,
    rows: int,
    bytes: int,  # noqa: A002 - of rows, before compression
    segments: int,
    end: str,
    ttl: int,
    shown: int,
    name: str,
    version: str,
) -> Request:
    """Gives a reader segments, and lists up to `shown` of them."""
    declared = [
        stream.entries, stream.subscriptions, stream.returned(slot), stream.delivered(slot, reader),
        stream.readers(slot), stream.fences(slot, reader),
    ]  # fmt: skip
    return script(
        "claim_segments",
        declared,
        [slot, reader, offset, rows, bytes, segments, end, ttl, shown, name, version],
    )


def claim_and_read(
    config: TopologyConfig,
    stream: Stream,
    slot: int,
    reader: str,
    offset: int,
    rows: int,
    bytes: int,  # noqa: A002 - as there
    segments: int,
    end: str,
    ttl: int,
    shown: int,
    name: str,
    version: str,
) -> Request:
    """Claims like `claim_segments`, and reads a worker's data about the segments. A cluster replies None."""
    claim = claim_segments(
        stream, slot, reader, offset, rows, bytes, segments, end, ttl, shown, name, version
    )
    args = [*claim.args, stream.payload(""), *keys.around_shard(config.name, config.ackers)]
    return Request(claim.key, args, scripts.get("claim_and_read"), claim.keys, one_server=True)


def note_segments(
    config: TopologyConfig,
    stream: Stream,
    slot: int,
    reader: str,
    forget: bool,
    ttl: int,
    delivered: Sequence[tuple[int, str, Segment, str]],
) -> Request:
    """Notes that a subscription acked, or forgets, segments: number, entry and record of each."""
    declared = [stream.entries, stream.subscriptions, stream.delivered(slot, reader)]
    declared += row_keys(stream, [one for _, _, one, _ in delivered])
    facts = [word for number, entry, one, _ in delivered for word in (number, entry, one.counted, one.bytes)]
    return script("note_segments", declared, [slot, int(forget), ttl, *facts], config.wait)


def bind_reader(
    config: TopologyConfig, fences: bytes, commit: str, segments: str, ttl: int, start: int
) -> Request:
    """Binds a reader's segments to a commit."""
    return script("bind_reader", [fences], [commit, segments, ttl, start], config.wait)


def return_segments(
    config: TopologyConfig,
    stream: Stream,
    slot: int,
    reader: str,
    dead: bool,
    ttl: int,
    died: str,
    noted: str,
    ended: Sequence[tuple[str, str]],
    delivered: Sequence[tuple[int, str, Segment, str]],
) -> Request:
    """Takes segments back from a reader. ended: commits in the form in which they are bound to it."""
    declared = [
        stream.delivered(slot, reader), stream.returned(slot), stream.readers(slot),
        stream.fences(slot, reader),
        *row_keys(stream, [segment for _, _, segment, _ in delivered]),
    ]  # fmt: skip
    args: list[Word] = [slot, reader, int(dead), ttl, died, noted, len(ended)]
    args += [word for commit in ended for word in commit]
    return script("return_segments", declared, [*args, *(number for number, *_ in delivered)], config.wait)


# Commits


def check_slabs(shard: Shard, names: Sequence[bytes]) -> Request:
    """Says whether a shard knows none of some slabs."""
    return script("check_slabs", [shard.slabs], names)


def check_groups(stream: Stream, groups: Sequence[str]) -> Request:
    """Says whether a stream that gathers knows none of some groups."""
    return script("check_groups", [stream.progress(group) for group in groups], [])
