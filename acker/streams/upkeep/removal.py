"""Removing a stream with all that it holds, for `acker.inspect.operate.removal`."""

from collections.abc import Iterator

from acker.errors import UnreadableRecord
from acker.ledger.calls.core import Core
from acker.store import keys
from acker.store.operation import Operation, Reply, command
from acker.store.replies import pairs
from acker.streams.log.segments import Segment
from acker.streams.staging import acks, vectors

_PAGE = 64
_MOST_PAGES = 1 << 20


def remove_stream(core: Core, name: str) -> Operation[None]:
    """Removes a stream: its segments, schema and subscriptions. Cut short it can be run again."""
    own = keys.Stream(core.config.name, name)
    start = "-"
    while True:
        [found] = yield [command("XRANGE", own.entries, start, "+", "COUNT", _PAGE)]
        if not found:
            break
        yield from acks.unlink(core, [key for entry in found for key in _segment(core, own, entry)])
        start = f"({found[-1][0].decode()}"
    yield from _remove_gathered(core, own)
    [stored] = yield [command("HGETALL", own.subscriptions)]
    # A number that cannot be read is in the name of its cursor, too.
    numbers = [number for field, number in pairs(stored).items() if field.startswith(b"name:")]
    numbers += [field[7:] for field in pairs(stored) if field.startswith(b"cursor:")]
    for slot in sorted({int(number) for number in numbers if len(number) < 17 and number.isdigit()}):
        [readers] = yield [command("HKEYS", own.readers(slot))]
        names = [reader.decode("utf-8", "replace") for reader in readers]
        left = [key for name in names for key in own.of_reader(slot, name)]
        of_slot = [own.readers(slot), own.beats(slot), own.returned(slot), own.workers(slot)]
        yield from acks.unlink(core, [*left, *of_slot])
    yield from acks.unlink(
        core, [own.entries, own.schema, own.subscriptions, own.drops, own.volumes, own.gone]
    )


def _remove_gathered(core: Core, own: keys.Stream) -> Operation[None]:
    """Removes rows that wait in a stream that gathers. Notes on its groups have a time to live."""
    for _ in range(_MOST_PAGES):
        [waiting] = yield [command("ZRANGEBYSCORE", own.gathering, "-inf", "+inf", "LIMIT", 0, _PAGE)]
        if not waiting:
            return
        for name in waiting:
            group, _, task = name.decode("utf-8", "replace").partition(":")
            gathered = own.gathered(group, int(task) if task.isdecimal() else 0)
            start = "-"
            while True:
                [found] = yield [command("XRANGE", gathered, start, "+", "COUNT", _PAGE)]
                if not found:
                    break
                yield from acks.unlink(core, [key for entry in found for key in _segment(core, own, entry)])
                start = f"({found[-1][0].decode()}"
            yield [command("UNLINK", gathered), command("ZREM", own.gathering, name)]


def _segment(core: Core, own: keys.Stream, entry: Reply) -> Iterator[bytes]:
    """What an entry leads to; nothing where it cannot be read."""
    try:
        segment = Segment.load(entry[1][1])
        places = vectors.keys_of(core, segment)
    except (IndexError, UnreadableRecord):
        return
    yield own.payload(segment.token)
    yield own.owed(segment.token)
    yield from (key for key, _ in places)
