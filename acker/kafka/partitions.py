"""The partitions that a KafkaSpout has: where each begins, what of it is done, and its commits.

The callbacks of a rebalance are here. They run within `poll` and `close` of the spout, in its thread.
"""

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from acker.errors import AckerError
from acker.kafka import starts
from acker.kafka.failed.retries import Partition
from acker.kafka.offsets import Offsets
from acker.kafka.options import STRATEGY, KafkaOptions
from acker.kafka.starts import Committed
from acker.kafka.topic_ids import TopicIds
from acker.ledger.calls.core import Core
from acker.store.operation import Operation
from acker.streams.sources import reached as reached_notes
from acker.streams.sources.attempts import Attempt, History
from acker.streams.sources.reached import Marks, Position

ANSWER = 30.0
"""Seconds that a broker has for an answer while partitions are assigned."""
_PASSING = {
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError._UNKNOWN_PARTITION,
    KafkaError._UNKNOWN_TOPIC,
}
"""Errors that end when the brokers have chosen a coordinator or a leader, or when the client knows the new
partitions of a topic. The client does not ask again."""
_PAUSE = 0.1
_log = logging.getLogger(__name__)
T = TypeVar("T")


class Assigned:
    """An assignment of a partition. Records of an earlier assignment belong to another object.

    alive: False from when it is revoked. committed: the offset that the broker is known to have. attempts:
    offset -> attempts of records that have failed, and are not done. earlier: offsets of them that have not
    come to this owner. lost: offset -> how often the outcome of a record was lost. noted: False if a commit
    has to tell of new ones. begins, marks, seen: of its notes in the store
    (`acker.streams.sources.reached`): whether the next one begins anew, its marks, and the position that it
    had last.
    """

    __slots__ = (
        "alive",
        "attempts",
        "begins",
        "committed",
        "earlier",
        "lost",
        "marks",
        "noted",
        "offsets",
        "partition",
        "paused",
        "seen",
        "topic_id",
    )

    def __init__(self, partition: Partition, first: int, topic_id: str) -> None:
        self.partition = partition
        self.offsets = Offsets(first)
        self.topic_id = topic_id
        self.committed = -1
        self.alive = True
        self.paused = False
        self.attempts: dict[int, History] = {}
        self.earlier: set[int] = set()
        self.lost: dict[int, int] = {}
        self.noted = True
        self.begins = False
        self.marks: Marks = ()
        self.seen = -1

    def where(self, group: str) -> Position:
        """The offsets of the partition, for a note in the store."""
        offsets, (topic, number) = self.offsets, self.partition
        # An owner before may have read further: what lies below its mark is not counted until it was read.
        counts = offsets.open_between(self.marks)
        open_records = {at: count for at, count in counts.items() if at <= offsets.position}
        return Position(
            f"{group}/{topic}/{number}", self.topic_id, self.begins,
            offsets.committable, offsets.position, open_records,
        )  # fmt: skip

    def note(self, at: int, most: int) -> str:
        """The note of its next commit. at: the store's time. most: bytes of attempts."""
        first = self.offsets.committable
        self.attempts = {
            offset: history
            for offset, history in self.attempts.items()
            if offset in self.earlier or offset in self.offsets
        }
        self.lost = {offset: times for offset, times in self.lost.items() if offset in self.offsets}
        tried = {offset: history[-1].number for offset, history in self.attempts.items()}
        return starts.note(self.topic_id, at, first, tried, most)


class Partitions:
    """The partitions of one member of the group. Not for several threads.

    Args:
        settings: The user's settings of the consumer.
        options: The options of the spout.
        clock: The store's time, in milliseconds.
        leaving: Is called before partitions are revoked, to take the outcomes that are there.
        left: Is called with each partition that is gone.
        run: The begin of the group's run, in milliseconds of the store's clock; 0: this member begins it.
    """

    def __init__(
        self,
        settings: Mapping[str, Any],
        options: KafkaOptions,
        clock: Callable[[], int],
        leaving: Callable[[], object],
        left: Callable[[Assigned], object],
        run: int = 0,
    ) -> None:
        self._options, self._clock = options, clock
        self._leaving, self._left = leaving, left
        self._ids = TopicIds(settings)
        self._group = str(settings["group.id"])
        protocol = str(settings.get("group.protocol", "")).lower()
        self._incremental = protocol == "consumer" or "cooperative" in str(settings.get(STRATEGY, ""))
        self._started, self._since = clock(), time.monotonic()
        self._run = run or self._started
        # A member that begins later takes an older commit for a commit of an earlier run.
        self._again = options.first_poll in starts.BY_RUN
        self._assigned: dict[Partition, Assigned] = {}
        self._closing = False
        self._note_bytes = starts.NOTE_BYTES

    def __iter__(self) -> Iterator[Assigned]:
        return iter(self._assigned.values())

    def __len__(self) -> int:
        return len(self._assigned)

    def get(self, partition: Partition) -> Assigned | None:
        """The assignment of a partition, if there is one."""
        return self._assigned.get(partition)

    # Rebalances

    def on_assign(self, consumer: Consumer, given: list[TopicPartition]) -> None:
        """Begins partitions that the group has given to this member, unless it is about to leave."""
        if self._closing:  # the brokers' answers would be waited for, and nobody reads on
            return
        topic_ids = self._ids.of({partition.topic for partition in given})
        begun = []
        for partition in answer_to(partial(committed_offsets, consumer, given)):
            place = TopicPartition(partition.topic, partition.partition)
            low, high = answer_to(partial(watermarks, consumer, place))
            topic_id = topic_ids.get(partition.topic, "")
            committed = Committed.of(partition.offset, partition.metadata)
            first = starts.first_offset(self._options.first_poll, committed, low, high, topic_id, self._run)
            if partition.offset >= 0 and first != partition.offset:
                _log.info(
                    "%s/%d begins at %d, not at its committed offset %d (it has %d to %d)",
                    partition.topic, partition.partition, first, partition.offset, low, high,
                )  # fmt: skip
            # The id of the commit stands in until the broker tells one: a look then finds that they differ.
            known = topic_id or (committed.topic_id if committed is not None else "")
            begun.append(Assigned((partition.topic, partition.partition), first, known))
            if committed is not None:
                tried = committed.attempts_of(topic_id, first)
                begun[-1].attempts = {offset: _tried(number) for offset, number in tried.items()}
                begun[-1].earlier = set(tried)
        places = [TopicPartition(*assigned.partition, assigned.offsets.position) for assigned in begun]
        if self._incremental:
            consumer.incremental_assign(places)
        else:
            consumer.assign(places)
        if places:  # the client remembers the pauses of an earlier assignment
            consumer.resume(places)
        self._assigned |= {assigned.partition: assigned for assigned in begun}
        # At once: where a partition begins at its latest record, a crash must not make that a later one.
        self.commit(consumer, wait=False, some=None if self._again else places)

    def on_revoke(self, consumer: Consumer, gone: list[TopicPartition]) -> None:
        """Commits what is done of partitions that go to another member, and forgets them."""
        if self._closing:
            self._forget(gone)
            return
        try:
            self._leaving()
        except AckerError as error:
            _log.warning("partitions were revoked before their last outcomes were read: %s", error)
        # With the time of now, for the next member of this run, also where nothing was done since.
        self.commit(consumer, wait=True, some=gone, again=True)
        self._forget(gone)

    def on_lost(self, _: Consumer, gone: list[TopicPartition]) -> None:
        """Forgets partitions that other members may have already: nothing of them is committed."""
        self._forget(gone)

    def close(self, consumer: Consumer) -> None:
        """Commits what is done, while the consumer is still a member, and leaves the group."""
        self.commit(consumer, wait=True, again=True)
        self._closing = True
        try:
            consumer.close()
        finally:
            self._ids.close()

    def _forget(self, gone: Sequence[TopicPartition]) -> None:
        for partition in gone:
            assigned = self._assigned.pop((partition.topic, partition.partition), None)
            if assigned is not None:
                assigned.alive = False
                self._left(assigned)

    # Topics made anew

    def look_for_new_topics(self, consumer: Consumer) -> None:
        """Begins partitions again whose topic was made anew under its name."""
        topic_ids = self._ids.of({assigned.partition[0] for assigned in self}, wait=False)
        for assigned in list(self):
            now = topic_ids.get(assigned.partition[0], "")
            if now and not assigned.topic_id:
                assigned.topic_id, assigned.noted = now, False
            elif now and now != assigned.topic_id:
                try:
                    low, _ = consumer.get_watermark_offsets(TopicPartition(*assigned.partition), ANSWER)
                    consumer.seek(TopicPartition(*assigned.partition, low))
                except KafkaException as error:  # the next look finds it, too
                    _log.warning("%s/%d: the topic was made anew: %s", *assigned.partition, error)
                    continue
                self.begin_again(assigned, low, now)

    def begin_again(self, old: Assigned, first: int, topic_id: str | None = None) -> Assigned:
        """Begins a partition again whose offsets went back; forgets the records in flight of before."""
        _log.warning(
            "%s/%d: the topic was made anew, or has lost its end: read again from offset %d; %d records "
            "in flight are gone from it",
            *old.partition, first, old.offsets.flying,
        )  # fmt: skip
        old.alive = False
        self._left(old)
        topic = old.partition[0]
        known = self._ids.of({topic}).get(topic, "") if topic_id is None else topic_id
        new = self._assigned[old.partition] = Assigned(old.partition, first, known)
        new.paused = old.paused  # the client keeps the pause, too
        new.begins = True
        return new

    # Notes in the store

    def note_reached(self, core: Core, spout: str, *, done: bool) -> Operation[None]:
        """Notes partitions that have read on since their last note; with `done` also what was done since."""
        moved = list[Assigned]()
        for assigned in self:
            # Open marks are noted again and again: the store may have lost them.
            reached = assigned.offsets.position
            if (done and assigned.marks) or (
                reached > assigned.seen and reached > assigned.offsets.committable
            ):
                moved.append(assigned)
        seen = [assigned.offsets.position for assigned in moved]
        marks = yield from reached_notes.note(
            core, spout, [assigned.where(self._group) for assigned in moved]
        )
        for assigned, its, at in zip(moved, marks, seen, strict=bool(marks)):
            assigned.marks, assigned.seen, assigned.begins = its, at, False

    # Commits

    def commit(
        self,
        consumer: Consumer,
        *,
        wait: bool,
        some: Sequence[TopicPartition] | None = None,
        again: bool = False,
    ) -> None:
        """Commits the acked prefix of each partition that has got further, or of `some`.

        A commit that fails is logged: the next one has all that it had. again: commits an offset once more.
        Where the time of a commit tells its run, each offset is committed again.
        """
        wanted = None if some is None else {(partition.topic, partition.partition) for partition in some}
        chosen = [
            assigned
            for assigned in self
            if (wanted is None or assigned.partition in wanted)
            and (
                again
                or self._again
                or not assigned.noted
                or assigned.offsets.committable != assigned.committed
            )
        ]
        if not chosen:
            return
        try:
            at = self._clock()
        except AckerError as error:  # a store that is away does not hold commits back
            _log.warning("offsets are committed without the store's time: %s", error)
            at = self._started + round((time.monotonic() - self._since) * 1000)
        room = self._note_bytes
        places = [
            TopicPartition(*assigned.partition, assigned.offsets.committable, assigned.note(at, room))
            for assigned in chosen
        ]
        for assigned in chosen:
            assigned.noted = True
        try:
            if wait:
                self.committed(None, consumer.commit(offsets=places, asynchronous=False))
            else:
                consumer.commit(offsets=places, asynchronous=True)
        except KafkaException as error:
            self.committed(error.args[0], places)
            if wait and self._note_bytes < room:  # without attempts the broker takes it
                self.commit(consumer, wait=wait, some=some, again=again)

    def committed(self, error: KafkaError | None, places: Sequence[TopicPartition]) -> None:
        """Notes what the broker has answered to a commit."""
        if error is not None:
            _log.warning("offsets are not committed: %s", error)
        for place in places:
            assigned = self._assigned.get((place.topic, place.partition))
            trouble = error if error is not None else place.error
            if trouble is not None and trouble.code() == KafkaError.OFFSET_METADATA_TOO_LARGE:
                _log.warning("the broker takes no attempts in commits: a restart counts them from 1")
                self._note_bytes = 0
            if assigned is not None and trouble is None:
                assigned.committed = place.offset
            elif assigned is not None:
                assigned.noted = False


def answer_to(ask: Callable[[], T], seconds: float = ANSWER) -> T:
    """Asks brokers, again after a passing error, for so many seconds. Raises KafkaException."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            return ask()
        except KafkaException as error:
            if error.args[0].code() not in _PASSING or time.monotonic() >= deadline:
                raise
        time.sleep(_PAUSE)


def watermarks(consumer: Consumer, place: TopicPartition) -> tuple[int, int]:
    """The first offset of a partition and the one after its last. Raises KafkaException.

    A member may be given a partition that is newer than its own list of them, by one that has seen it.
    """
    try:
        low, high = consumer.get_watermark_offsets(place, ANSWER)
    except KafkaException as error:
        if error.args[0].code() in (KafkaError._UNKNOWN_PARTITION, KafkaError._UNKNOWN_TOPIC):
            consumer.list_topics(place.topic, ANSWER)
        raise
    return low, high


def committed_offsets(consumer: Consumer, places: Sequence[TopicPartition]) -> list[TopicPartition]:
    """The committed offsets of the consumer's group. Raises KafkaException, also for one partition alone."""
    answers: list[TopicPartition] = consumer.committed(list(places), timeout=ANSWER) if places else []
    for answer in answers:
        if answer.error is not None:
            raise KafkaException(answer.error)
    return answers


def _tried(number: int) -> History:
    """The attempts of a record of which only the number is known."""
    return (Attempt(number, "failed", "by an earlier run of the spout", "", -1, 0.0),)
