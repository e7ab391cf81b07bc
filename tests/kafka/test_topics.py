"""Topics that change: gaps of compaction and transactions, topics made anew, deletion by retention."""

from collections.abc import Callable
from contextlib import closing

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from acker import Topology
from acker.kafka import KafkaRecord, KafkaSpout
from tests.helpers.builders.kafka_spouts import drive, letters_of, spout_of
from tests.helpers.servers.kafka import Broker
from tests.helpers.servers.servers import wait_until

pytestmark = pytest.mark.slow


def acker(topology: Topology) -> Callable[[KafkaRecord], None]:
    """A bolt that acks each record."""
    bolt = topology.bolt("b")
    return lambda record: bolt.ack(record.tuple)


def at_the_end(spout: KafkaSpout, broker: Broker, topic: str) -> Callable[[], bool]:
    """True when the first partition is done up to its last offset, markers included."""
    return lambda: spout.offsets.get(f"{topic}/0") == broker.end(topic)


def test_gaps_of_compaction_hold_nothing_back_storm_2505(
    real_broker: Broker, topology: Topology, group: str
) -> None:
    topic = real_broker.topic(
        cleanup_policy="compact", segment_ms="50", min_cleanable_dirty_ratio="0.01", delete_retention_ms="0"
    )

    def kept() -> int:
        """Writes once more, which closes a segment, and counts the records that are left."""
        real_broker.produce(topic, [b"last"], key=b"other")
        return len(real_broker.offsets(topic))

    for n in range(30):
        real_broker.produce(topic, [b"%d" % n], key=b"k%d" % (n % 3))
    wait_until(lambda: kept() < 20, interval=0.1)
    with spout_of(real_broker, topology, topic, group) as spout:
        records = drive(spout, topology, acker(topology), at_the_end(spout, real_broker, topic))
    offsets = [record.message.offset() or 0 for record in records]
    assert offsets == sorted(set(offsets))
    assert len(offsets) < real_broker.end(topic), "there are gaps"
    assert real_broker.committed(group, topic) == real_broker.end(topic)


def test_markers_of_transactions_and_aborted_records_hold_nothing_back(
    real_broker: Broker, topology: Topology, group: str
) -> None:
    topic = real_broker.topic()
    producer = Producer({"bootstrap.servers": real_broker.servers, "transactional.id": topic})
    producer.init_transactions(30)
    for end in (producer.commit_transaction, producer.abort_transaction, producer.commit_transaction):
        producer.begin_transaction()
        for n in range(3):
            producer.produce(topic, b"%d" % n)
        producer.flush(30)  # or an abort drops what it has not sent
        end(30)
    wait_until(lambda: real_broker.end(topic) == 12)  # the last marker comes after its commit
    with spout_of(real_broker, topology, topic, group) as spout:
        records = drive(spout, topology, acker(topology), at_the_end(spout, real_broker, topic))
        assert [record.message.offset() for record in records] == [0, 1, 2, 8, 9, 10]
        assert spout.offsets == {f"{topic}/0": 12}
    assert real_broker.committed(group, topic) == 12, "no lag is left, though the last offset is a marker"


def test_a_topic_made_anew_while_the_spout_was_away_is_read_from_its_start_storm_2211(
    real_broker: Broker, topology: Topology, group: str
) -> None:
    topic = real_broker.topic()
    real_broker.produce(topic, [b"old %d" % n for n in range(5)])
    with spout_of(real_broker, topology, topic, group) as spout:
        drive(spout, topology, acker(topology), at_the_end(spout, real_broker, topic))
    with closing(Consumer({"bootstrap.servers": real_broker.servers, "group.id": group})) as late:
        [old] = late.committed([TopicPartition(topic, 0)], timeout=30)
        real_broker.delete(topic)
        real_broker.create(topic)
        # The broker forgets commits with their topic; a member that has not heard of it commits again.
        late.commit(offsets=[old], asynchronous=False)
    assert real_broker.committed(group, topic) == 5
    # More than before: by offsets alone the committed one looks right, and five records would be lost.
    real_broker.produce(topic, [b"new %d" % n for n in range(8)])
    with spout_of(real_broker, topology, topic, group) as spout:
        records = drive(spout, topology, acker(topology), at_the_end(spout, real_broker, topic))
    assert [record.value for record in records] == [b"new %d" % n for n in range(8)]


# 5 in flight pause the partition. Of 9 none is noticed without ids, which a slow broker tells later.
@pytest.mark.parametrize(("count", "most", "ids"), [(3, 5, 5.0), (9, 100, 5.0), (9, 100, 0.0)])
def test_a_topic_made_anew_under_a_running_spout_is_read_from_its_start(
    real_broker: Broker,
    topology: Topology,
    group: str,
    count: int,
    most: int,
    ids: float,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("acker.kafka.topic_ids.IDS", ids)
    topic, held, new = real_broker.topic(), list[KafkaRecord](), list[KafkaRecord]()
    real_broker.produce(topic, [b"old %d" % n for n in range(5)])
    bolt = topology.bolt("b")
    with spout_of(real_broker, topology, topic, group, max_uncommitted=most) as spout:
        drive(spout, topology, held.append, lambda: len(held) == 5)
        drive(spout, topology, held.append, lambda: all(one.topic_id for one in spout._partitions))
        real_broker.delete(topic)
        real_broker.create(topic)
        real_broker.produce(topic, [b"new %d" % n for n in range(count)])
        expected = {b"new %d" % n for n in range(count)}
        drive(spout, topology, new.append, lambda: {record.value for record in new} == expected)
        for record in held:  # of the old topic: they say nothing of the new one
            bolt.ack(record.tuple)
        topology.flush()
        spout.poll(0.0)
        assert spout.offsets == {f"{topic}/0": 0}
        for record in new:
            bolt.ack(record.tuple)
        drive(spout, topology, acker(topology), at_the_end(spout, real_broker, topic))
    assert real_broker.committed(group, topic) == count


def test_a_failed_record_that_retention_deleted_is_a_dead_letter_without_a_row_storm_2546_and_2608(
    real_broker: Broker, topology: Topology, group: str
) -> None:
    topic, bolt = real_broker.topic(), topology.bolt("b")
    real_broker.produce(topic, [b"%d" % n for n in range(6)], key=b"k")

    def fail_some(record: KafkaRecord) -> None:
        offset = record.message.offset()
        if offset == 1 and record.attempt == 1:
            real_broker.delete_before(topic, 4)
        if offset in (1, 5) and record.attempt == 1:
            bolt.fail(record.tuple, "once")
        else:
            bolt.ack(record.tuple)

    with spout_of(real_broker, topology, topic, group) as spout:
        records = drive(spout, topology, fail_some, at_the_end(spout, real_broker, topic))
    assert [record.message.offset() for record in records[6:]] == [5], "the other one is tried again"
    [letter] = letters_of(topology)
    assert (letter.message_id.decode(), letter.attempts) == (f"{topic}/0@1", 1)
    assert letter.reason == "gone from its source, after: once"
    assert (letter.row["offset"], letter.row["key"], letter.row["value"]) == (1, None, None)
    assert real_broker.committed(group, topic) == 6


def test_records_that_retention_deletes_before_they_are_read_are_passed_over(
    real_broker: Broker, topology: Topology, group: str
) -> None:
    topic = real_broker.topic()
    real_broker.produce(topic, [b"%d" % n for n in range(10)])
    with spout_of(real_broker, topology, topic, group, max_uncommitted=2) as spout:
        held = drive(spout, topology, lambda record: None, lambda: spout.pending == 2)
        real_broker.delete_before(topic, 7)
        bolt = topology.bolt("b")
        for record in held:
            bolt.ack(record.tuple)
        records = drive(spout, topology, acker(topology), at_the_end(spout, real_broker, topic))
    assert [record.message.offset() for record in records][-3:] == [7, 8, 9]
    assert real_broker.committed(group, topic) == 10
