"""The reader of failed records: a record is gone only where its offset can come no more."""

from collections.abc import Iterator

import pytest
from confluent_kafka import Message

from acker.kafka.failed import reader
from acker.kafka.failed.reader import Reader, mark_of
from acker.kafka.failed.retries import Retry
from acker.kafka.options import reader_settings
from tests.helpers.servers.kafka import Broker


@pytest.fixture
def second(broker: Broker) -> Iterator[Reader]:
    """A reader."""
    made = Reader(reader_settings({"bootstrap.servers": broker.servers, "group.id": "g"}))
    yield made
    made.close()


def retry_of(topic: str, offset: int, value: bytes) -> Retry:
    """A retry of a record without a key."""
    message = Message(topic=topic, partition=0, offset=offset, key=None, value=value)
    return Retry((topic, 0), offset, mark_of(message))


@pytest.mark.parametrize("beyond", [2, 4])  # at the end of the partition, and out of its range
def test_a_record_above_the_end_of_its_partition_is_not_gone_at_once(
    broker: Broker, second: Reader, monkeypatch: pytest.MonkeyPatch, beyond: int
) -> None:
    """After a change of the leader, or on a follower, the end comes later than its records were read."""
    topic = broker.topic()
    broker.produce(topic, [b"0", b"1"])
    there, unseen = retry_of(topic, 1, b"1"), retry_of(topic, beyond, b"later")
    found = second.read([there, unseen], 10.0)
    assert [retry.offset for retry in found] == [1]
    assert second.read([unseen], 10.0) == {}
    broker.produce(topic, [b"later"] * (beyond - 1))
    found = second.read([there, unseen], 10.0)
    assert {retry.offset: message.value() for retry, message in found.items() if message is not None} == {
        1: b"1",
        beyond: b"later",
    }
    lost = retry_of(topic, 9, b"lost")
    assert second.read([lost], 10.0) == {}
    monkeypatch.setattr(reader, "_BEYOND", 0.0)
    assert second.read([lost], 10.0) == {lost: None}


def test_a_record_below_the_start_of_its_partition_is_gone_at_once(
    real_broker: Broker, second: Reader
) -> None:
    topic = real_broker.topic()
    real_broker.produce(topic, [b"%d" % n for n in range(6)])
    real_broker.delete_before(topic, 3)
    wanted = [retry_of(topic, offset, b"%d" % offset) for offset in (1, 4)]
    found = second.read(wanted, 10.0)
    assert [message is None for message in map(found.__getitem__, wanted)] == [True, False]


def test_records_are_read_in_parts_of_bounded_size(
    broker: Broker, second: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = broker.topic()
    values = [b"%d" % n * 1_000 for n in range(10)]
    broker.produce(topic, values)
    wanted = [retry_of(topic, offset, value) for offset, value in enumerate(values)]
    monkeypatch.setattr(reader, "_MOST_BYTES", 3_000)
    monkeypatch.setattr(reader, "_PIECE", 1)
    found = second.read(wanted, 10.0)
    assert sorted(retry.offset for retry in found) == [0, 1, 2]
