"""The scripts of streams and commits as functions (as in acker/ledger/calls/scripts.py).

Where a script takes the topology's configuration, its reply waits for files and replicas as that says.
"""

from collections.abc import Sequence

from acker.ledger.settings.config import TopologyConfig
from acker.store import keys, scripts
from acker.store.keys import Shard, Stream
from acker.store.operation import Request, Word, script
from acker.streams.log.segments import Segment, row_keys

# Streams and their readers


def record_schema(stream: Stream, seen: bytes, new: bytes) -> Request:
    """Records a schema where another is seen, or none (empty)."""
    return script("record_schema", [stream.schema], [seen, new])


def subscribe(stream: Stream, name: str, most: int, number: int, step: int) -> Request:
    """Gives a subscription its number. number: of the first; step: of another one, above those there are."""
    return script("subscribe", [stream.subscriptions, stream.entries], [name, most, number, step])


def read_fairly(stream: Stream, column: str, slot: int | None) -> Request:
    """Has a stream be read fairly, by a subscription, too, where that is named."""
    return script("read_fairly", [stream.subscriptions], [column, "" if slot is None else slot])


def count_volumes(stream: Stream, ttl: int, counted: Sequence[tuple[int, Sequence[int]]]) -> Request:
    """Counts rows by key: for each how many, and the places of its counts."""
    args = [word for rows, places in counted for word in (rows, " ".join(map(str, places)))]
    return script("count_volumes", [stream.volumes], [ttl, *args])


def declare_gather(stream: Stream, record: str) -> Request:
    """Has a stream gather."""
    return script("declare_gather", [stream.entries, stream.subscriptions], [record])


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
    taken: Sequence[tuple[int, str, Segment, str]],
) -> Request:
    """Notes what a subscription did with segments: number, entry and record of each."""
    own = [stream.entries, stream.subscriptions, stream.taken(slot, reader)]
    own += row_keys(stream, [one for _, _, one, _ in taken])
    facts = [word for number, entry, one, _ in taken for word in (number, entry, one.rows, one.bytes)]
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
    died: str,
    noted: str,
    ended: Sequence[tuple[str, str]],
    taken: Sequence[tuple[int, str, Segment, str]],
) -> Request:
    """Takes segments back from a reader. ended: commits as they are bound to it."""
    own = [
        stream.taken(slot, reader), stream.returned(slot), stream.readers(slot), stream.bound(slot, reader),
        *row_keys(stream, [one for _, _, one, _ in taken]),
    ]  # fmt: skip
    args: list[Word] = [slot, reader, int(dead), ttl, died, noted, len(ended)]
    args += [word for one in ended for word in one]
    return script("return_segments", own, [*args, *(number for number, *_ in taken)], config.wait)


# Commits


def check_slabs(shard: Shard, names: Sequence[bytes]) -> Request:
    """Tells whether a shard knows none of some slabs."""
    return script("check_slabs", [shard.slabs], names)


def check_groups(stream: Stream, groups: Sequence[str]) -> Request:
    """Tells whether a stream that gathers knows none of some groups."""
    return script("check_groups", [stream.progress(group) for group in groups], [])
