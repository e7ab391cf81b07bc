"""The intake of a KafkaSpout: what it reads of its partitions, and how it holds them back.

A partition is paused at its bound of uncommitted records. All are paused where the spout has as many records
in flight as it may, and while the store is away.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

import numpy as np
from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from acker.errors import KafkaFailed
from acker.kafka.failed.reader import arrived, marks_of
from acker.kafka.failed.retries import Partition
from acker.kafka.offsets import Run
from acker.kafka.options import KafkaOptions
from acker.kafka.partitions import Assigned, Partitions
from acker.ledger.ids import Ids
from acker.streams.sources.attempts import History

MOST_RECORDS = 10_000
"""Most records that one poll gives."""
_log = logging.getLogger(__name__)


class Piece(NamedTuple):
    """Records in flight, side by side in a run: their partition, marks of their contents, earlier attempts.

    at: the place of the first in the run. histories: place in the piece -> attempts.
    """

    assigned: Assigned
    run: Run
    at: int
    marks: Ids
    histories: dict[int, History]

    @property
    def offsets(self) -> Ids:
        """The offsets of the records."""
        return self.run.offsets[self.at : self.at + len(self.marks)]

    def part(self, first: int, last: int) -> "Piece":
        """The records from `first` up to `last`, without it."""
        if not first and last >= len(self.marks):
            return self
        histories = {at - first: one for at, one in self.histories.items() if first <= at < last}
        return Piece(self.assigned, self.run, self.at + first, self.marks[first:last], histories)


Read = tuple[Piece, Sequence[Message]]
"""Records in flight with their messages."""


class Intake:
    """Reads new records. Not for several threads.

    Args:
        consumer: The member of the group.
        partitions: Its partitions.
        options: The options of the spout.
        room: Tells how many of some records there is room for.
    """

    def __init__(
        self,
        consumer: Consumer,
        partitions: Partitions,
        options: KafkaOptions,
        room: Callable[[int], int],
    ) -> None:
        self._consumer, self._partitions, self._options = consumer, partitions, options
        self._room = room
        self.full = False
        """True when the last `read` had no room: outcomes come next."""
        self.topic_missing = False
        """True when the broker has said that a topic is not there, until the spout has looked."""

    def read(self, most: int, wait: float) -> list[Read]:
        """New records, at most `most`, which are in flight from now on; waits for the first one."""
        room = self._room(min(most, self._pause()))
        self.full = room <= 0
        if self.full:  # only the group's own events can come
            room, wait = 1, 0.0
            if self._room(1) <= 0:
                self.hold()
        return self._taken(arrived(self._consumer, room, wait))

    def stay(self) -> list[Read]:
        """Takes part in the group without reading on; returns records that came all the same."""
        self.hold()
        # All partitions are paused; one that comes in this call may bring a record.
        return self._taken(self._consumer.consume(1, 0.0))

    def hold(self) -> None:
        """Pauses all partitions, until the next `read` that has room."""
        for assigned in self._partitions:
            if not assigned.paused:
                assigned.paused = True
                self._consumer.pause([TopicPartition(*assigned.partition)])

    def _pause(self) -> int:
        """Pauses and resumes partitions by their bounds; returns how many records may come at once."""
        most = self._options.max_uncommitted
        room = min(most, MOST_RECORDS)  # all of it may be of a partition that comes meanwhile
        full, free = [], []
        for assigned in self._partitions:
            uncommitted = assigned.offsets.uncommitted
            if not assigned.paused and uncommitted >= most:
                assigned.paused = True
                full.append(TopicPartition(*assigned.partition))
            elif assigned.paused and uncommitted <= most // 2 and self._room(1) > 0:
                assigned.paused = False
                free.append(TopicPartition(*assigned.partition))
            if not assigned.paused:
                room = min(room, most - uncommitted)
        if full:
            self._consumer.pause(full)
        if free:
            self._consumer.resume(free)
        return 0 if all(assigned.paused for assigned in self._partitions) and len(self._partitions) else room

    def _taken(self, messages: Sequence[Message]) -> list[Read]:
        """Takes messages of the first consumer: those to be emitted."""
        return [read for where, some in self._by_partition(messages) for read in self._begun(where, some)]

    def _by_partition(self, messages: Sequence[Message]) -> Iterator[tuple[Partition, Sequence[Message]]]:
        """Runs of messages of one partition. Events between them are taken in their order."""
        if not messages:
            return
        if any(map(Message.error, messages)):
            for good, some in groupby(messages, lambda message: message.error() is None):
                if good:
                    yield from self._by_partition(list(some))
                else:
                    for event in some:
                        self._event(event)
            return
        topics, numbers = list(map(Message.topic, messages)), list(map(Message.partition, messages))
        if numbers.count(numbers[0]) == topics.count(topics[0]) == len(messages):
            yield (topics[0] or "", numbers[0] or 0), messages
            return
        for _, run_of in groupby(range(len(messages)), lambda at: (topics[at], numbers[at])):
            places = list(run_of)
            first, last = places[0], places[-1]
            yield (topics[first] or "", numbers[first] or 0), messages[first : last + 1]

    def _begun(self, where: Partition, messages: Sequence[Message]) -> Iterator[Read]:
        """Notes messages of a partition as records in flight, unless it is another member's by now."""
        assigned = self._partitions.get(where)
        if assigned is None:
            return
        offsets = np.fromiter(map(Message.offset, messages), np.int64, len(messages))
        back = np.flatnonzero(offsets[1:] <= offsets[:-1])
        if len(back):  # a topic that was made anew within these
            cut = int(back[0]) + 1
            yield from self._begun(where, messages[:cut])
            yield from self._begun(where, messages[cut:])
            return
        if offsets[0] < assigned.offsets.position:
            assigned = self._partitions.begin_again(assigned, int(offsets[0]))
        end = int(offsets[-1]) + 1
        if not self._options.null_values:
            kept = [at for at, value in enumerate(map(Message.value, messages)) if value is not None]
            if len(kept) < len(messages):
                messages, offsets = [messages[at] for at in kept], offsets[kept]
        if len(messages):
            run, marks = assigned.offsets.begin(offsets), marks_of(messages)
            assigned.offsets.skip(end)
            histories = dict[int, History]()
            for offset in [offset for offset in assigned.earlier if offset < end]:
                assigned.earlier.discard(offset)
                at = int(np.searchsorted(offsets, offset))
                if at < len(offsets) and offsets[at] == offset:
                    histories[at] = assigned.attempts[offset]
            yield Piece(assigned, run, 0, marks, histories), messages
        assigned.offsets.skip(end)

    def _event(self, message: Message) -> None:
        """Takes an event: the end of a partition, or an error after which the consumer goes on.

        Raises KafkaFailed for another error.
        """
        error = message.error()
        assert error is not None
        if error.code() == KafkaError._PARTITION_EOF:
            assigned = self._partitions.get((message.topic() or "", message.partition() or 0))
            if assigned is not None:
                assigned.offsets.skip(message.offset() or 0)
            return
        if error.fatal():
            raise KafkaFailed(f"the consumer cannot go on: {error}. Close the spout")
        if error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            self.topic_missing = True
        _log.warning("%s", error)
