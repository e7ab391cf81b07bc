"""Removes a stream with all its data, for `acker.inspect.operate.removal`.

Terms: a segment is some thousand rows of a stream, stored and acked as one piece.
"""

from collections.abc import Iterator

from acker.ledger.calls.core import Core
from acker.ledger.settings import topologies
from acker.store import keys
from acker.store.operation import Operation, Reply, command
from acker.store.records import passing_over
from acker.store.replies import pairs
from acker.streams.log import kinds
from acker.streams.log.segments import Segment
from acker.streams.staging import acks, vectors

_PAGE = 64
_MOST_PAGES = 1 << 20


def remove_stream(core: Core, name: str) -> Operation[None]:
    """Removes a stream: its segments, schema and subscriptions. If it is cut short, it can be run again."""
    stream_keys = keys.Stream(core.config.name, name)
    yield topologies.note_removal(stream_keys.removals)
    [epoch] = yield [command("HGET", stream_keys.subscriptions, "epoch")]

    def is_same() -> Operation[bool]:
        [now] = yield [command("HGET", stream_keys.subscriptions, "epoch")]
        return bool(now == epoch)

    start = "-"
    while True:
        [entries] = yield [command("XRANGE", stream_keys.entries, start, "+", "COUNT", _PAGE)]
        if not entries:
            break
        yield from acks.unlink(core, [key for entry in entries for key in _segment(core, stream_keys, entry)])
        start = f"({entries[-1][0].decode()}"
    yield from _remove_gathered(core, stream_keys)
    [stored] = yield [command("HGETALL", stream_keys.subscriptions)]
    # A number that cannot be read is in the name of its cursor, too.
    numbers = [number for field, number in pairs(stored).items() if field.startswith(b"name:")]
    numbers += [field[7:] for field in pairs(stored) if field.startswith(b"cursor:")]
    for slot in sorted({int(number) for number in numbers if len(number) < 17 and number.isdigit()}):
        [readers] = yield [command("HKEYS", stream_keys.readers(slot))]
        names = [reader.decode("utf-8", "replace") for reader in readers]
        left = [key for name in names for key in stream_keys.of_reader(slot, name)]
        of_slot = [
            stream_keys.readers(slot),
            stream_keys.heartbeats(slot),
            stream_keys.returned(slot),
            stream_keys.workers(slot),
        ]
        yield from acks.unlink(core, [*left, *of_slot])
        yield kinds.forget_open_rows(core, slot)
    gone = [
        stream_keys.entries, stream_keys.schema, stream_keys.subscriptions, stream_keys.drops,
        stream_keys.volumes, stream_keys.gone,
    ]  # fmt: skip
    yield from topologies.forget_keys(stream_keys.removals, gone, is_same)


def _remove_gathered(core: Core, stream_keys: keys.Stream) -> Operation[None]:
    """Removes rows that wait in a stream that gathers. Notes on its groups have a time to live."""
    for _ in range(_MOST_PAGES):
        [waiting] = yield [command("ZRANGEBYSCORE", stream_keys.gathering, "-inf", "+inf", "LIMIT", 0, _PAGE)]
        if not waiting:
            return
        for name in waiting:
            group, _, task = name.decode("utf-8", "replace").partition(":")
            gathered = stream_keys.gathered(group, int(task) if task.isdecimal() else 0)
            start = "-"
            while True:
                [entries] = yield [command("XRANGE", gathered, start, "+", "COUNT", _PAGE)]
                if not entries:
                    break
                yield from acks.unlink(
                    core, [key for entry in entries for key in _segment(core, stream_keys, entry)]
                )
                start = f"({entries[-1][0].decode()}"
            yield [command("UNLINK", gathered), command("ZREM", stream_keys.gathering, name)]


def _segment(core: Core, stream_keys: keys.Stream, entry: Reply) -> Iterator[bytes]:
    """The keys of an entry's segment; none if it cannot be read."""
    with passing_over(core.config.name, "an entry of a gather"):
        segment = Segment.load(entry[1][1])
        places = vectors.keys_of(core, segment)
        yield stream_keys.payload(segment.id)
        yield stream_keys.unacked(segment.id)
        yield from (key for key, _ in places)
