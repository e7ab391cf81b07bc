"""Reached offsets: how far a spout has come in the partitions of its source, and what of it is not done.

For spouts whose source keeps their records, as Kafka does: their replays wait in the spout's process, and
come again after a crash. So the store has no tree of such a record, and knows by these notes alone when it
was first tracked. A spout notes a position before it tracks the records below it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from acker.ledger.calls.core import Core
from acker.store import keys
from acker.store.operation import Operation, Word, command
from acker.store.records import reading
from acker.store.replies import pairs
from acker.streams.sources import scripts

_CALL = 500
Marks = tuple[int, ...]
"""Positions, in order: a partition's notes that are not done."""


@dataclass(frozen=True, slots=True)
class Position:
    """The position of a spout in a partition.

    Attributes:
        partition: Its name, which no other spout's partition has: with the group that reads it.
        topic_id: The id of the topic, or "" if it is not known.
        begins: True if its offsets begin anew: earlier notes are of records that are gone.
        done: The offset below which all records are done.
        reached: The offset after the last record that was read.
        open: Position of a known mark -> records that are not done, from the known mark before it on. It has
            the first of the known marks, up to `reached`: of what lies behind, the counts stay.
    """

    partition: str
    topic_id: str
    begins: bool
    done: int
    reached: int
    open: dict[int, int]


def note(core: Core, spout: str, positions: Sequence[Position]) -> Operation[list[Marks]]:
    """Notes positions; returns the marks of each of these partitions, or none where the topology is gone."""
    answers = list[Marks]()
    for first in range(0, len(positions), _CALL):
        partitions: list[tuple[Word, Word, Word, Word, Word, Word]] = []
        for position in positions[first : first + _CALL]:
            counts = " ".join(f"{at} {count}" for at, count in position.open.items())
            begins = "1" if position.begins else "0"
            topic = position.topic_id or "-"
            partitions.append(
                (f"p:{position.partition}", topic, begins, position.done, position.reached, counts)
            )
        [replies] = yield [scripts.note_reached(core.config.name, spout, partitions)]
        if not replies:
            return []
        answers += [tuple(map(int, reply.split())) for reply in replies]
    return answers


@dataclass(slots=True)
class Noted:
    """The notes of a spout.

    Attributes:
        open: Records that are not done, first tracked before a time.
        partitions: The partitions of the notes, as `topic/number`: they tell of the records there.
    """

    open: int = 0
    partitions: set[bytes] = field(default_factory=set)


def open_before(core: Core, before: int) -> Operation[dict[str, Noted]]:
    """The notes of each spout that notes positions, on records that were first tracked before a time.

    A record counts for the spout that has had its partition last. A spout notes within a second what is done.

    Args:
        core: The ledger.
        before: The time, in ms by the server's clock.

    Raises:
        UnreadableRecord: A note cannot be read.
    """
    notes: dict[str, Noted] = {}
    for name, text in (yield from _stored(core)).items():
        if name.startswith(b"s:"):
            notes.setdefault(text.decode().strip(), Noted())
        elif name.startswith(b"p:"):
            with reading(f"positions of {name!r:.100}"):
                spout, _, done, *marks = text.decode().split()
                noted = notes.setdefault(spout, Noted())
                noted.partitions.add(b"/".join(name.rsplit(b"/", 2)[-2:]))
                for at, position, count in zip(*[iter(map(int, marks))] * 3, strict=True):
                    if at < before and position > int(done.partition("@")[0]):
                        noted.open += count
    return notes


def _stored(core: Core) -> Operation[dict[bytes, bytes]]:
    """All notes, page by page: there is one for each partition of each group.

    Open records of partitions that nobody notes any more move to a field of their spout meanwhile. These
    fields are read last: records may count twice then, and none is missed.
    """
    stored, cursor, key = dict[bytes, bytes](), -1, keys.reached(core.config.name)
    while cursor:
        [(position, page)] = yield [command("HSCAN", key, max(0, cursor), "COUNT", _CALL)]
        stored |= pairs(page)
        cursor = int(position)
    moved = [b"p:/old/" + name.removeprefix(b"s:") for name in stored if name.startswith(b"s:")]
    if moved:
        [texts] = yield [command("HMGET", key, *moved)]
        stored |= {name: text for name, text in zip(moved, texts, strict=True) if text is not None}
    return stored
