"""KafkaSpout: emits the records of topics, and commits what is acked (Storm's KafkaSpout)."""

import logging
import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self

import numpy as np
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from acker.collectors.session import Session
from acker.collectors.spout import Spout
from acker.collectors.tuples import TupleVector
from acker.errors import AckerError, KafkaFailed, SpoutPendingFull, StoreUnavailable, class_name, text_of
from acker.kafka.failed.failed_records import FailedRecords
from acker.kafka.failed.replays import Replays
from acker.kafka.failed.retries import next_number
from acker.kafka.flying import FlyingSlab, slabs_of
from acker.kafka.intake import MOST_RECORDS, Intake, Piece, Read
from acker.kafka.members import Member
from acker.kafka.message_ids import packed_ids
from acker.kafka.offsets import Places
from acker.kafka.options import KafkaOptions, check_topics, consumer_settings
from acker.kafka.partitions import Assigned, Partitions
from acker.kafka.record import KafkaBatch, KafkaRecord
from acker.ledger.ids import Ids
from acker.ledger.settings.config import spout_of
from acker.ledger.settings.settings import check_number
from acker.store import keys
from acker.store.operation import Request
from acker.store.replies import seconds

_LOOK = 1.0
"""Seconds between two looks for topics that were made anew, or for the end of a pause, at least."""
_NOTE = 1.0
"""Seconds between two notes of what is done, at least."""
_WAIT = 0.1
_log = logging.getLogger(__name__)


class KafkaSpout:
    """Emits each record of topics as a tuple, and commits offsets when records are acked.

    A committed offset says that all records below it are acked or dead letters. A failed or expired record is
    read again from its topic, after a delay; the store has its id alone. After its last attempt it is a dead
    letter, with its row. Replays come out of order. Where nothing is tracked, the records of a poll are done
    when the next poll begins.

    `poll` and `close` are for one thread; tuples are for any, in any process. All processes of a group use
    the same name, and each hears of its own records. See docs/kafka.md.

    Args:
        topology: Its topology.
        name: The name of the spout. The spout `<name>.failed` has its dead letters.
        consumer: Settings of confluent-kafka's Consumer, with `bootstrap.servers` and `group.id`.
        topics: A topic, a pattern that begins with `^`, or a list of them.
        max_spout_pending: Most records without an outcome; None: no limit but the high-water mark.
        observe: True only records, and tries no record again (`acker.Topology.spout`).
        options: See `acker.kafka.options.KafkaOptions`.

    Raises:
        ValidationError: A setting is not what was expected.
        StoreUnavailable: The store does not answer.
        SpoutsFull: 60 processes use this name already.
    """

    def __init__(
        self,
        topology: Session,
        name: str,
        consumer: Mapping[str, Any],
        topics: str | Sequence[str],
        *,
        max_spout_pending: int | None = None,
        observe: bool = False,
        **options: Any,
    ) -> None:
        self.options = KafkaOptions(**options)
        subscribed = check_topics(topics)
        settings = consumer_settings(consumer)
        self._topology = topology
        self._member = Member(topology, name, max_spout_pending, observe, settings)
        self._partitions = Partitions(
            settings, self.options, self._clock, self._take_outcomes, self._left, self._member.run
        )
        self._flying: dict[bytes, FlyingSlab] = {}
        self._failed = FailedRecords(topology.ledger, name, self.options, self._partitions, consumer)
        self._unsent: list[Read] = []
        self._untracked: list[Piece] = []
        self._again = 0
        self._replays = Replays(topology.ledger, topology.owner, name)
        self._commit_at = self._look_at = self._note_at = self._resumed_at = 0.0
        self._broken = ""
        on_commit = settings.get("on_commit")

        def committed(error: KafkaError | None, places: list[TopicPartition]) -> None:
            self._partitions.committed(error, places)
            if on_commit is not None:
                on_commit(error, places)

        self._consumer = Consumer({**settings, "on_commit": committed})
        rebalances = self._partitions
        self._intake = Intake(self._consumer, self._partitions, self.options, self._room)
        self._consumer.subscribe(subscribed, rebalances.on_assign, rebalances.on_revoke, rebalances.on_lost)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def _spout(self) -> Spout:
        return self._member.spout

    @property
    def name(self) -> str:
        """The name of the spout."""
        return self._spout.name

    @property
    def pending(self) -> int:
        """The number of records that are not done yet."""
        return sum(one.offsets.flying for one in self._partitions)

    @property
    def offsets(self) -> dict[str, int]:
        """The offset up to which each partition, as `topic/partition`, is done: what is committed next."""
        return {
            f"{topic}/{number}": one.offsets.committable
            for one in self._partitions
            for topic, number in (one.partition,)
        }

    def poll(self, timeout: float = 1.0, most: int = 500) -> list[KafkaRecord]:
        """The records of `poll_many`, made. It has the same arguments and errors."""
        batch = self.poll_many(timeout, most)
        try:
            return list(batch)
        except BaseException as error:  # the next poll would take them for worked on
            self._broken = class_name(error)
            raise

    def poll_many(self, timeout: float = 1.0, most: int = 4_000) -> KafkaBatch:
        """The next records, new and failed ones, as soon as some are there; none after `timeout` seconds.

        It also takes outcomes, commits offsets and takes part in rebalances: call it again within the
        consumer's `max.poll.interval.ms`. After StoreUnavailable call it again: no record is lost.

        Raises:
            ValidationError: `timeout` or `most` (1 to 10,000) is out of range.
            StoreUnavailable: The store does not answer; records that were read are emitted by a later call.
            KafkaFailed: The consumer cannot go on, or an exception ended an earlier call. Close the spout.
        """
        check_number(timeout, "timeout", 0.0, 3600.0, float)
        check_number(most, "most", 1, MOST_RECORDS, int)
        deadline = time.monotonic() + timeout
        if self._broken:
            raise KafkaFailed(
                f"spout {self.name!r}: an earlier poll did not end: {self._broken}. Close the spout"
            )
        while True:
            try:
                found = self._step(most, deadline)
                if found or time.monotonic() >= deadline:
                    return found
            except KafkaException as error:
                self._broken = text_of(error)
                raise KafkaFailed(
                    f"spout {self.name!r}: the consumer cannot go on: {error}. Close the spout"
                ) from error
            except KafkaFailed as error:
                self._broken = str(error)
                raise
            except AckerError:  # the records that were read wait for the next call
                raise
            except BaseException as error:
                # The consumer may have passed records that nobody has: none after them may be committed.
                self._broken = class_name(error)
                raise

    def _step(self, most: int, deadline: float) -> KafkaBatch:
        for piece in self._untracked:
            _end(piece, slice(None))
        self._untracked = []
        try:
            if self._member.keep():
                self._try_again()
            self._take_outcomes()
        except AckerError:
            self._unsent += self._intake.stay()
            raise
        self._do_what_is_due()
        replays = self._replays.take(most)
        if replays or self._unsent:  # nothing new is read, and the group has to see this member
            self._unsent += self._intake.stay()
        if replays:
            return replays
        batch = self._emit(self._unsent_before() or self._read(most, deadline))
        if not batch and self._intake.full:
            self._take_outcomes(self._patience(deadline))
        return batch

    def close(self) -> None:
        """Commits what is done and leaves the group. Records in flight come again, here or elsewhere.

        Where nothing is tracked, the records of the last poll are in flight.
        """
        try:
            self._take_outcomes()
            self._note_reached(done=True)
        except AckerError as error:
            _log.warning("spout %s: closed without its last outcomes: %s", self.name, error)
        self._partitions.close(self._consumer)
        self._failed.close()
        self._member.leave()

    # Records that are read

    def _room(self, most: int) -> int:
        """The number of records there is room for."""
        limit = self._spout.max_spout_pending
        return most if limit is None else min(most, limit - self._spout.pending - self._again)

    def _patience(self, deadline: float) -> float:
        """Seconds to wait for new records: not longer than until a retry is due."""
        now = time.monotonic()
        due = self._failed.due
        wait = deadline - now if due is None else min(deadline - now, due - now)
        return max(0.0, min(wait, _WAIT))

    def _unsent_before(self) -> list[Read]:
        """Records that a call before could not emit, no more than may be in flight."""
        limit = self._spout.max_spout_pending or MOST_RECORDS
        unsent, self._unsent = [one for one in self._unsent if one[0].assigned.alive], []
        ends = np.cumsum([len(piece.marks) for piece, _ in unsent])
        fitting = max(1, int(np.searchsorted(ends, limit, "right")))
        self._unsent = unsent[fitting:]
        return unsent[:fitting]

    def _read(self, most: int, deadline: float) -> list[Read]:
        """Failed records, and new ones: the consumer takes part in its group, however many have failed."""
        turn, self._again = most > 1 or not self._again, 0
        again = self._failed.read(self._room(max(1, most // 2))) if turn else []
        self._again = len(again)
        if most == self._again:
            return again
        return again + self._intake.read(most - self._again, 0.0 if again else self._patience(deadline))

    # Records that are emitted

    def _emit(self, read: list[Read]) -> KafkaBatch:
        """Emits records; a store that is away leaves them for the next call."""
        if not read:
            return self._batch([], np.zeros(0, np.int64), np.zeros(0, np.int64))
        message_ids = packed_ids((piece.assigned.partition, piece.offsets) for piece, _ in read)
        pieces = [piece for piece, _ in read]
        if not self._topology.config.ackers:
            self._untracked = pieces
            no_trees = np.zeros(len(message_ids), np.int64)
            return self._batch(read, no_trees, no_trees)
        self._unsent += read
        self._note_reached(done=False)
        if self._is_paused():  # they are emitted when it is resumed
            self._take_outcomes(_WAIT)
            return self._emit([])
        try:
            anchors, edges = self._spout.emit_many(message_ids, wait=False)
        except SpoutPendingFull:
            self._take_outcomes(_WAIT)
            return self._emit([])
        self._unsent = self._unsent[: len(self._unsent) - len(read)]
        if self._spout.observes:
            self._untracked = pieces
        else:
            self._flying |= slabs_of(pieces, anchors, self._topology.config.slab_trees)
        return self._batch(read, anchors, edges)

    def _is_paused(self) -> bool:
        """True while the spout is paused, as far as its rejected tracks have told it."""
        if self._spout.observes:  # it never asks the store
            return False
        core, name, now = self._topology.ledger.core, spout_of(self.name), time.monotonic()
        if name in core.paused and now >= self._resumed_at:
            self._topology.ledger.run(core.read_pause(name))
            self._resumed_at = now + _LOOK
        return name in core.paused

    def _batch(self, read: list[Read], anchors: Ids, edges: Ids) -> KafkaBatch:
        messages, attempts_of = list[Message](), dict[int, int]()
        for piece, some in read:
            for at, history in piece.histories.items():
                attempts_of[len(messages) + at] = next_number(history)
            messages += some
        return KafkaBatch(messages, TupleVector(self._topology.owner, anchors, edges), attempts_of)

    # Outcomes

    def _take_outcomes(self, wait: float = 0.0) -> None:
        for group in self._spout.outcome_groups(wait):
            # Trees of an earlier run, or of a lost partition, change nothing.
            slab = self._flying.get(group.slab)
            if slab is not None:
                for piece, places in slab.ended(group.indexes):
                    if piece.assigned.alive and group.outcome.status == "acked":
                        _end(piece, places)
                    elif piece.assigned.alive:
                        for place in range(len(piece.marks))[places] if isinstance(places, slice) else places:
                            if self._failed.add(piece, int(place), group.outcome, lost=group.entry is None):
                                soon = time.monotonic() + min(_LOOK, self.options.backoff / 2)
                                self._commit_at = min(self._commit_at, soon)
                if not slab.left:
                    del self._flying[group.slab]
            self._spout.confirm_group(group)

    def _try_again(self) -> None:
        """Has all records in flight tried again, whose outcomes went to another process."""
        for slab in reversed(self._flying.values()):  # the last attempts of a record first
            for piece in slab.pieces:
                if piece.assigned.alive:
                    self._failed.add_again(piece)
        self._flying = {}

    def _left(self, gone: Assigned) -> None:
        """Forgets the failed records of a partition that is revoked, or begins again."""
        self._failed.forget(gone.partition)

    # The clock

    def _do_what_is_due(self) -> None:
        now = time.monotonic()
        if now >= self._note_at:
            try:
                self._note_reached(done=True)
            except StoreUnavailable as error:  # until the next note more records count as open
                _log.debug("spout %s: its positions are not noted: %s", self.name, error)
            self._note_at = time.monotonic() + _NOTE
        if now >= self._commit_at:
            self._partitions.commit(self._consumer, wait=False)
            self._commit_at = now + self.options.commit_every
        if now >= self._look_at or self._intake.topic_missing:
            self._intake.topic_missing = False
            self._look_at = now + max(_LOOK, self.options.commit_every)
            self._partitions.look_for_new_topics(self._consumer)
            if not self._spout.observes:
                self._replays.look()

    def _note_reached(self, *, done: bool) -> None:
        """Notes in the store how far the partitions are, for `acker complete`."""
        if self._topology.config.ackers and not self._spout.observes and not self._topology.off:
            ledger = self._topology.ledger
            ledger.run(self._partitions.note_reached(ledger.core, self.name, done=done))

    def _clock(self) -> int:
        """The store's time, in milliseconds; this machine's where it is not asked."""
        if self._topology.off or self._spout.observes:
            return round(time.time() * 1000)
        key = keys.Spout(self._topology.name, self.name).kept
        [instant] = self._topology.ledger.store.send([Request(key, ["TIME"])])
        return round(seconds(instant) * 1000)


def _end(piece: Piece, places: Places) -> None:
    """Notes that records are done."""
    at, count = piece.at, len(piece.marks)
    its = slice(at, at + count) if isinstance(places, slice) else np.asarray(places) + at
    piece.assigned.offsets.end_many(piece.run, its)
