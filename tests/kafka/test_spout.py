"""A spout of Kafka: records become tuples, acked prefixes become commits, failed records are read again."""

from typing import Any

import pytest

from acker import Topology
from acker.errors import ValidationError
from acker.kafka import KafkaRecord, KafkaSpout
from tests.helpers.builders.kafka_spouts import done, drive, letters_of, spout_of
from tests.helpers.servers.kafka import Broker
from tests.helpers.servers.servers import wait_until


def values(records: list[KafkaRecord]) -> list[bytes | None]:
    return [record.value for record in records]


def test_offsets_are_committed_when_all_records_below_them_are_acked(
    broker: Broker, topology: Topology, group: str
) -> None:
    topic, bolt, held = broker.topic(), topology.bolt("b"), list[KafkaRecord]()
    broker.produce(topic, [b"%d" % n for n in range(10)])
    with spout_of(broker, topology, topic, group) as spout:

        def hold_the_fourth(record: KafkaRecord) -> None:
            held.append(record) if record.value == b"3" else bolt.ack(record.tuple)

        drive(spout, topology, hold_the_fourth, lambda: held and spout.pending == 1)
        assert spout.offsets[f"{topic}/0"] == 3
        drive(spout, topology, hold_the_fourth, lambda: broker.committed(group, topic) == 3)
        bolt.ack(held[0].tuple)
        drive(spout, topology, hold_the_fourth, lambda: broker.committed(group, topic) == 10)
    assert len(held) == 1
    assert topology.counters()["acked"] == 10


def test_a_record_has_its_place_as_message_id_and_its_headers(
    broker: Broker, topology: Topology, group: str
) -> None:
    topic, bolt = broker.topic(), topology.bolt("b")
    broker.produce(topic, [b"v"], key=b"k", headers=[("h", b"1"), ("h", None)])
    with spout_of(broker, topology, topic, group) as spout:
        [record] = drive(spout, topology, lambda record: bolt.ack(record.tuple), lambda: done(spout, 1))
    assert (record.key, record.value, record.attempt) == (b"k", b"v", 1)
    assert record.headers == [("h", b"1"), ("h", None)]
    assert record.message_id == f"{topic}/0@0"


def test_a_failed_record_is_read_again_alone_and_then_committed(
    broker: Broker, topology: Topology, group: str
) -> None:
    topic, bolt = broker.topic(), topology.bolt("b")
    broker.produce(topic, [b"%d" % n for n in range(10)])

    def fail_once(record: KafkaRecord) -> None:
        if record.value in (b"2", b"7") and record.attempt == 1:
            bolt.fail(record.tuple, "once")
        else:
            bolt.ack(record.tuple)

    with spout_of(broker, topology, topic, group) as spout:
        records = drive(spout, topology, fail_once, lambda: done(spout, 10))
    assert [record.attempt for record in records] == [1] * 10 + [2] * 2
    assert set(values(records[10:])) == {b"2", b"7"}
    assert broker.committed(group, topic) == 10
    assert letters_of(topology) == []


def test_records_in_flight_come_again_to_the_next_spout(
    broker: Broker, topology: Topology, group: str
) -> None:
    topic, bolt = broker.topic(), topology.bolt("b")
    broker.produce(topic, [b"%d" % n for n in range(4)])

    def some(record: KafkaRecord) -> None:
        if record.value != b"1":
            bolt.ack(record.tuple)

    with spout_of(broker, topology, topic, group) as spout:
        drive(spout, topology, some, lambda: len(spout.offsets) and spout.pending == 1)
    assert broker.committed(group, topic) == 1
    with spout_of(broker, topology, topic, group) as spout:
        again = drive(spout, topology, lambda one: bolt.ack(one.tuple), lambda: done(spout, 4))
    assert values(again) == [b"1", b"2", b"3"]


@pytest.mark.parametrize("emitted", [True, False])
def test_a_null_value_is_a_record_or_passed_over(
    broker: Broker, topology: Topology, group: str, emitted: bool
) -> None:
    topic, bolt = broker.topic(), topology.bolt("b")
    broker.produce(topic, [b"0", None, b"2", None], key=b"k")
    with spout_of(broker, topology, topic, group, null_values=emitted) as spout:
        records = drive(spout, topology, lambda one: bolt.ack(one.tuple), lambda: done(spout, 4))
    assert values(records) == ([b"0", None, b"2", None] if emitted else [b"0", b"2"])
    assert broker.committed(group, topic) == 4


def test_several_topics_are_read(broker: Broker, topology: Topology, group: str) -> None:
    topics, bolt = [broker.topic(), broker.topic()], topology.bolt("b")
    for topic in topics:
        broker.produce(topic, [topic.encode()])
    with spout_of(broker, topology, topics, group) as spout:
        records = drive(spout, topology, lambda one: bolt.ack(one.tuple), lambda: done(spout, 2))
    assert set(values(records)) == {topic.encode() for topic in topics}


def test_a_pattern_also_takes_topics_that_come_later(broker: Broker, topology: Topology, group: str) -> None:
    first, bolt = broker.topic(), topology.bolt("b")
    later = f"{first}-later"
    broker.produce(first, [b"1"])
    with spout_of(broker, topology, f"^{first}.*", group) as spout:
        drive(spout, topology, lambda one: bolt.ack(one.tuple), lambda: done(spout, 1))
        broker.create(later)
        broker.produce(later, [b"2"])
        records = drive(spout, topology, lambda one: bolt.ack(one.tuple), lambda: done(spout, 2))
    assert values(records) == [b"2"]


def test_no_more_records_are_in_flight_than_max_spout_pending(
    broker: Broker, topology: Topology, group: str
) -> None:
    topic, bolt, held = broker.topic(), topology.bolt("b"), list[KafkaRecord]()
    broker.produce(topic, [b"%d" % n for n in range(20)])
    with spout_of(broker, topology, topic, group, max_spout_pending=5) as spout:
        drive(spout, topology, held.append, lambda: len(held) == 5)
        for _ in range(3):
            assert spout.poll(0.05) == []
        for record in held:
            bolt.ack(record.tuple)
        most = [0]

        def look(record: KafkaRecord) -> None:
            most[0] = max(most[0], spout.pending)
            bolt.ack(record.tuple)

        records = drive(spout, topology, look, lambda: done(spout, 20))
    assert len(records) == 15
    assert most[0] <= 5


def test_with_a_timeout_alone_a_poll_gives_nothing_and_stays_a_member(
    broker: Broker, topology: Topology, group: str
) -> None:
    topic = broker.topic()
    with spout_of(broker, topology, topic, group) as spout:
        assert spout.poll(0.0) == []
        drive(spout, topology, lambda record: None, lambda: spout.offsets)
        assert spout.poll(0.2) == []


@pytest.mark.parametrize(
    ("consumer", "topics", "options", "words"),
    [
        ({}, "t", {}, "group.id"),
        ({"group.id": "g", "enable.auto.commit": True}, "t", {}, "enable.auto.commit is set by the spout"),
        ({"group.id": "g", "auto.offset.reset": "latest"}, "t", {}, "See first_poll"),
        ({"group.id": "g"}, [], {}, "topics: expected"),
        ({"group.id": "g"}, [1], {}, "topics: expected"),
        ({"group.id": "g"}, "t", {"attempts": 0}, "attempts: expected int from 1"),
        ({"group.id": "g"}, "t", {"first_poll": "last"}, "first_poll: expected uncommitted_earliest"),
    ],
)
def test_a_setting_that_cannot_be_is_refused(
    topology: Topology, consumer: dict[str, object], topics: str, options: dict[str, Any], words: str
) -> None:
    with pytest.raises(ValidationError, match=words):
        KafkaSpout(topology, "s", consumer, topics, **options)


def test_an_observing_spout_commits_what_it_has_emitted_and_records_it(
    broker: Broker, topology: Topology, group: str
) -> None:
    topic, bolt = broker.topic(), topology.bolt("b")
    broker.produce(topic, [b"%d" % n for n in range(10)])
    with spout_of(broker, topology, topic, group, observe=True) as spout:

        def work(record: KafkaRecord) -> None:
            bolt.fail(record.tuple, "no") if record.value == b"3" else bolt.ack(record.tuple)

        records = drive(spout, topology, work, lambda: broker.committed(group, topic) == 10)
        assert spout.name == "s.observed"
    wait_until(lambda: topology.counters()["failed"] == 1 and topology.counters()["acked"] == 9)
    assert len(records) == 10, "no record is read again"
    assert letters_of(topology) == []


def test_offsets_are_committed_without_a_store_where_acker_is_off(broker: Broker, group: str) -> None:
    topic = broker.topic()
    broker.produce(topic, [b"%d" % n for n in range(10)])
    with Topology("redis://127.0.0.1:1", "t", timeout=0.1, enabled=False) as off:
        bolt = off.bolt("b")
        with spout_of(broker, off, topic, group) as spout:

            def work(record: KafkaRecord) -> None:
                bolt.fail(record.tuple, "no") if record.value == b"3" else bolt.ack(record.tuple)

            records = drive(spout, off, work, lambda: broker.committed(group, topic) == 10)
    assert sorted(value or b"" for value in values(records)) == [b"%d" % n for n in range(10)]
