"""The reader of failed records: a second consumer, so that the first one never goes back.

A seek of the first consumer would read again all records after the failed one. This one is assigned the
places it needs, joins no group, and commits nothing.
"""

import time
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from acker.kafka.failed.retries import Partition, Retry
from acker.ledger.ids import Ids

_FAR = 1_000
"""Offsets after which a seek costs less than the records between."""
_PIECE = 100
_MOST_BYTES = 64 << 20
"""Bytes of records after which no more are read at once."""
_MOST_BEYOND = 100_000
_BEYOND = 60.0
"""Seconds for which a record above the end of its partition is not taken for gone.

It was read before. After a change of its leader, or on a follower, the end may come before it for a while: a
follower that lags for 30 seconds may not become the leader.
"""


def mark_of(message: Message) -> int:
    """A number that tells a record from another one at its offset, as in a topic made anew.

    Each process has numbers of its own.
    """
    return hash((message.key(), message.value()))


def marks_of(messages: Sequence[Message]) -> Ids:
    """The marks of messages."""
    marks = map(hash, zip(map(Message.key, messages), map(Message.value, messages), strict=True))
    return np.fromiter(marks, np.int64, len(messages))


def arrived(consumer: Consumer, most: int, wait: float) -> list[Message]:
    """The messages that have come, at most `most`; waits for the first. `consume` waits for all."""
    messages = consumer.consume(most, 0.0)
    if not messages and wait > 0.0:
        messages = consumer.consume(1, wait)
        if messages and most > 1:
            messages += consumer.consume(most - 1, 0.0)
    return messages


class Reader:
    """Reads records by their places. Not for several threads."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._settings = dict(settings)
        self._consumer: Consumer | None = None
        self._beyond: dict[tuple[Partition, int], float] = {}

    def read(self, wanted: Sequence[Retry], timeout: float) -> dict[Retry, Message | None]:
        """The records; None for a record that its topic no longer has.

        A record is gone if a later one comes in its place, or if it is below the start of its partition, or
        above the end for a minute. One that is not visible yet, or was not read in `timeout` seconds, is
        missing.
        """
        left: dict[Partition, deque[Retry]] = {}
        for retry in sorted(wanted, key=lambda one: (one.partition, one.offset)):
            left.setdefault(retry.partition, deque()).append(retry)
        messages: dict[Retry, Message | None] = {}
        if not left:
            return messages
        if self._consumer is None:
            self._consumer = Consumer(self._settings)
        consumer, deadline, room = self._consumer, time.monotonic() + timeout, _MOST_BYTES
        consumer.assign([TopicPartition(*where, queue[0].offset) for where, queue in left.items()])
        try:
            while left and room > 0 and (now := time.monotonic()) < deadline:
                for message in arrived(consumer, _PIECE, deadline - now):
                    room -= len(message)
                    where = message.topic() or "", message.partition() or 0
                    queue = left.get(where)
                    if queue is None:
                        continue
                    if message.error() is None:
                        self._take(message, queue, messages)
                    else:
                        self._note(message, where, queue, messages)
                    if not queue:
                        del left[where]
                        consumer.incremental_unassign([TopicPartition(*where)])
        finally:
            consumer.unassign()
        for retry in messages:
            self._beyond.pop((retry.partition, retry.offset), None)
        return messages

    def close(self) -> None:
        """Closes the consumer."""
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None

    def _take(self, message: Message, queue: deque[Retry], messages: dict[Retry, Message | None]) -> None:
        offset = message.offset() or 0
        while queue and queue[0].offset < offset:
            messages[queue.popleft()] = None
        if queue and queue[0].offset == offset:
            retry = queue.popleft()
            messages[retry] = message if mark_of(message) == retry.mark else None
        if queue and queue[0].offset > offset + _FAR:
            self._seek(queue[0])

    def _note(
        self, message: Message, where: Partition, queue: deque[Retry], messages: dict[Retry, Message | None]
    ) -> None:
        """Takes an error of a partition: its end, or an offset that it does not have."""
        error = message.error()
        assert self._consumer is not None
        assert error is not None
        if error.code() == KafkaError._PARTITION_EOF:
            first = end = message.offset() or 0  # what has not come before it is gone
        elif error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
            try:
                first, end = self._consumer.get_watermark_offsets(TopicPartition(*where), timeout=5.0)
            except KafkaException:
                return
        else:
            return
        within = list[Retry]()
        for retry in queue:
            if retry.offset < first or (retry.offset >= end and self._is_gone(retry)):
                messages[retry] = None
            elif retry.offset < end:
                within.append(retry)
        queue.clear()
        queue.extend(within)
        if queue:
            self._seek(queue[0])

    def _is_gone(self, retry: Retry) -> bool:
        """True for a record that has been above the end of its partition for long enough."""
        now, place = time.monotonic(), (retry.partition, retry.offset)
        since = self._beyond.setdefault(place, now)
        if len(self._beyond) > _MOST_BEYOND:
            del self._beyond[next(iter(self._beyond))]
        return now - since >= _BEYOND

    def _seek(self, retry: Retry) -> None:
        assert self._consumer is not None
        # Not a seek: a partition that was out of range is not read any more, and takes none.
        self._consumer.incremental_unassign([TopicPartition(*retry.partition)])
        self._consumer.incremental_assign([TopicPartition(*retry.partition, retry.offset)])
