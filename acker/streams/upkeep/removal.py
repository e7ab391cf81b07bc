"""Removes a stream with all its data, for `acker.inspect.operate.removal`.

Terms: a segment is some thousand rows of a stream, stored and acked as one piece.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from acker.ledger.calls.core import Core
from acker.ledger.settings import topologies
from acker.store import keys
from acker.store.operation import Operation, command
from acker.store.records import passing_over
from acker.store.replies import pairs
from acker.streams.log import kinds
from acker.streams.log.segments import Segment
from acker.streams.staging import acks, vectors

_PAGE = 64
_KEYS = 2 * _PAGE
_MOST_PAGES = 1 << 20


def remove_stream(core: Core, name: str, *, unused: bool = False) -> Operation[None]:
    """Removes a stream: its segments, schema and subscriptions. If it is cut short, it can be run again.

    Args:
        core: The ledger.
        name: The stream.
        unused: True keeps a stream from the moment on at which a function is registered that reads it.

    Raises:
        AckerError: Other processes remove it again and again at this moment.
    """
    stream_keys, first = keys.Stream(core.config.name, name), None
    for attempt in range(topologies.ATTEMPTS):
        [number, _] = yield topologies.note_removal(stream_keys.removals)
        [[epoch, version]] = yield [command("HMGET", stream_keys.subscriptions, "epoch", "version")]
        if attempt and epoch != first:
            return  # it is another one by now
        if unused and version is not None:
            return
        first = epoch
        if (yield from _Removal(core, stream_keys, number).run()):
            return
    raise topologies.removed_by_others(stream_keys.entries)


@dataclass(frozen=True, slots=True)
class _Removal:
    """A removal of a stream, which ends where another one has begun, or the stream is used again.

    number: the stream's removals at its begin.
    """

    core: Core
    stream: keys.Stream
    number: int

    def run(self) -> Operation[bool]:
        """Removes all keys; False if it has ended early."""
        if not (yield from self._remove_rows(self.stream.entries)) or not (
            yield from self._remove_gathered()
        ):
            return False
        [stored] = yield [command("HGETALL", self.stream.subscriptions)]
        # A number that cannot be read is in the name of its cursor, too.
        numbers = [number for field, number in pairs(stored).items() if field.startswith(b"name:")]
        numbers += [field[7:] for field in pairs(stored) if field.startswith(b"cursor:")]
        for slot in sorted({int(number) for number in numbers if len(number) < 17 and number.isdigit()}):
            [readers] = yield [command("HKEYS", self.stream.readers(slot))]
            names = [reader.decode("utf-8", "replace") for reader in readers]
            of_slot = [key for name in names for key in self.stream.of_reader(slot, name)]
            of_slot += [
                self.stream.readers(slot),
                self.stream.heartbeats(slot),
                self.stream.returned(slot),
                self.stream.workers(slot),
            ]
            if not (yield from self._forget(of_slot)):
                return False
            yield kinds.forget_open_rows(self.core, slot)
        gone = [
            self.stream.entries, self.stream.schema, self.stream.subscriptions, self.stream.drops,
            self.stream.volumes, self.stream.gone,
        ]  # fmt: skip
        return (yield from topologies.forget_part(self.stream.removals, self.number, gone, last=True))

    def _forget(self, gone: Sequence[bytes]) -> Operation[bool]:
        """Removes keys of the stream; False if the removal has ended early."""
        for first in range(0, len(gone), _KEYS):
            part = gone[first : first + _KEYS]
            if not (yield from topologies.forget_part(self.stream.removals, self.number, part)):
                return False
        return True

    def _remove_rows(self, entries_key: bytes) -> Operation[bool]:
        """Removes the segments of a stream of entries; False if the removal has ended early."""
        start = "-"
        while True:
            [entries] = yield [command("XRANGE", entries_key, start, "+", "COUNT", _PAGE)]
            if not entries:
                return True
            rows, vectors_of_rows = list[bytes](), list[bytes]()
            for entry in entries:
                with passing_over(self.core.config.name, "an entry of a stream"):
                    segment = Segment.load(entry[1][1])
                    rows += [self.stream.payload(segment.id), self.stream.unacked(segment.id)]
                    vectors_of_rows += [key for key, _ in vectors.keys_of(self.core, segment)]
            if rows and not (yield from self._forget(rows)):
                return False  # before their vectors, which no other use of the stream has
            yield from acks.unlink(self.core, vectors_of_rows)
            start = f"({entries[-1][0].decode()}"

    def _remove_gathered(self) -> Operation[bool]:
        """Removes rows that wait in a stream that gathers. Notes on its groups have a time to live."""
        for _ in range(_MOST_PAGES):
            [waiting] = yield [
                command("ZRANGEBYSCORE", self.stream.gathering, "-inf", "+inf", "LIMIT", 0, _PAGE)
            ]
            if not waiting:
                return True
            for name in waiting:
                group, _, task = name.decode("utf-8", "replace").partition(":")
                gathered = self.stream.gathered(group, int(task) if task.isdecimal() else 0)
                if not (yield from self._remove_rows(gathered)) or not (yield from self._forget([gathered])):
                    return False
                yield [command("ZREM", self.stream.gathering, name)]
        return True
