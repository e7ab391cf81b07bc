"""Failed records of a spout: they wait, are read again, and are dead letters after their last attempt."""

import logging
import random
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from confluent_kafka import Message

from acker.collectors.outcome import Outcome
from acker.errors import AckerError
from acker.kafka.failed import dead_letters
from acker.kafka.failed.reader import Reader
from acker.kafka.failed.retries import Partition, Retry, RetryQueue, next_number
from acker.kafka.intake import Piece, Read
from acker.kafka.options import KafkaOptions, reader_settings
from acker.kafka.partitions import Partitions
from acker.ledger.client import Ledger
from acker.streams.sources import attempts
from acker.streams.sources.attempts import Attempt
from acker.streams.spouts import backoff

_READING = 1.0
"""Seconds of a poll in which failed records are read again."""
_RETRIES = 500
"""Most failed records that one poll reads again."""
_UNREAD = 0.5
"""Seconds after which a record that could not be read is read again."""
_HELD_BACK = 5.0
"""Seconds after which a dead letter that the store did not take is tried again."""
_log = logging.getLogger(__name__)


class FailedRecords:
    """The failed records of a spout. Not for several threads.

    Args:
        ledger: The ledger of the topology.
        spout: The name of the spout.
        options: The options of the spout.
        partitions: The partitions of this member.
        consumer: The user's settings of the consumer.
    """

    def __init__(
        self,
        ledger: Ledger,
        spout: str,
        options: KafkaOptions,
        partitions: Partitions,
        consumer: Mapping[str, Any],
    ) -> None:
        self._ledger, self._spout, self._options, self._partitions = ledger, spout, options, partitions
        self._waiting = RetryQueue()
        self._reader = Reader(reader_settings(consumer))

    @property
    def due(self) -> float | None:
        """The time of the monotonic clock at which the first of them is to be read; None without any."""
        return self._waiting.due

    def close(self) -> None:
        """Closes the reader."""
        self._reader.close()

    def forget(self, partition: Partition) -> None:
        """Forgets the records of a partition."""
        self._waiting.forget(partition)

    def add(self, piece: Piece, place: int, outcome: Outcome, *, lost: bool = False) -> bool:
        """Lets a record wait for its next attempt; returns True if its last one counts.

        lost: the spout's own timer says so, and nobody knows how the attempt ended. Such a one does not
        count, but as often as a record has attempts: it must not come again for ever.
        """
        options, history, final = self._options, piece.histories.get(place, ()), False
        offset = int(piece.offsets[place])
        counts = outcome.status != "rejected"  # a rejected record was not tried
        if counts and lost:
            piece.assigned.lost[offset] = times = piece.assigned.lost.get(offset, 0) + 1
            counts = times > options.attempts
        if counts:
            reason = outcome.reason or outcome.status
            attempt = Attempt(
                next_number(history), outcome.status, reason, outcome.step, outcome.batch, time.time()
            )
            history = attempts.with_attempt(history, attempt)
            final = attempt.number >= options.attempts or not outcome.retry
            piece.assigned.attempts[offset], piece.assigned.noted = history, False
        retry = Retry(piece.assigned.partition, offset, int(piece.marks[place]), history, final)
        failures, share = max(1, next_number(history) - 1), random.random()
        wait = 0.0 if final else backoff.wait(options.backoff, options.max_backoff, failures, share)
        self._waiting.add(retry, time.monotonic() + wait)
        return counts

    def add_again(self, piece: Piece) -> None:
        """Lets all records of a piece that are not done, and do not wait, be read again at once."""
        for place, mark in enumerate(piece.marks.tolist()):
            where = piece.assigned.partition, int(piece.offsets[place])
            if not piece.run.done[piece.at + place] and where not in self._waiting:
                self._waiting.add(Retry(*where, mark, piece.histories.get(place, ())), time.monotonic())

    def read(self, most: int) -> list[Read]:
        """Records whose time has come, read again. Buries the last attempts among them."""
        now = time.monotonic()
        if self.due is None or self.due > now:
            return []
        taken = self._waiting.take(now, max(0, min(most, _RETRIES)))
        messages = self._reader.read(taken, _READING)
        again: list[Read] = []
        over: list[tuple[Retry, Message | None]] = []
        for retry in taken:
            assigned = self._partitions.get(retry.partition)
            place = assigned.offsets.find(retry.offset) if assigned is not None else None
            if assigned is None or place is None:
                continue
            if retry not in messages:
                self._waiting.add(retry, now + _UNREAD)
            elif (message := messages[retry]) is None or retry.final:
                over.append((retry, messages[retry]))
            else:
                mark = np.array([retry.mark], np.int64)
                again.append((Piece(assigned, *place, mark, {0: retry.history}), [message]))
        self._bury(over)
        return again

    def _bury(self, over: Sequence[tuple[Retry, Message | None]]) -> None:
        """Makes dead letters; their offsets are done when the store has them."""
        if not over:
            return
        left = {retry for retry, _ in over}

        def buried(retry: Retry) -> None:
            left.discard(retry)
            if (assigned := self._partitions.get(retry.partition)) is not None:
                assigned.offsets.end(retry.offset)

        try:
            dead_letters.bury(self._ledger, self._spout, over, self._options, buried)
        except AckerError as error:
            _log.warning("spout %s: %d dead letters wait: %s", self._spout, len(left), error)
            for retry in left:
                self._waiting.add(retry, time.monotonic() + _HELD_BACK)
