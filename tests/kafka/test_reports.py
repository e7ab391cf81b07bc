"""The reports of users of Storm's KafkaSpout, each by its name."""

from collections import Counter

import pytest

from acker import Topology
from acker.kafka import KafkaRecord
from tests.helpers.builders.kafka_spouts import done, drive, letters_of, spout_of
from tests.helpers.servers.kafka import Broker


def test_storm_2544_the_prefix_is_not_stuck_behind_a_record_that_was_given_up(
    broker: Broker, topology: Topology, group: str
) -> None:
    topic, bolt = broker.topic(), topology.bolt("b")
    broker.produce(topic, [b"%d" % n for n in range(5)], key=b"k")

    def fail_the_second(record: KafkaRecord) -> None:
        bolt.fail(record.tuple, "bad") if record.value == b"1" else bolt.ack(record.tuple)

    with spout_of(broker, topology, topic, group, attempts=2) as spout:
        drive(spout, topology, fail_the_second, lambda: done(spout, 5))
        drive(spout, topology, fail_the_second, lambda: broker.committed(group, topic) == 5)
    [letter] = letters_of(topology)
    assert (letter.message_id.decode(), letter.attempts, letter.reason) == (f"{topic}/0@1", 2, "bad")
    assert (letter.row["value"], letter.row["key"]) == (b"1", b"k")


def test_storm_2343_more_failed_records_than_may_be_uncommitted_are_all_tried_again(
    broker: Broker, topology: Topology, group: str
) -> None:
    topic, bolt = broker.topic(), topology.bolt("b")
    broker.produce(topic, [b"%d" % n for n in range(20)])

    def fail_each_once(record: KafkaRecord) -> None:
        bolt.fail(record.tuple, "once") if record.attempt == 1 else bolt.ack(record.tuple)

    with spout_of(broker, topology, topic, group, max_uncommitted=3) as spout:
        drive(spout, topology, fail_each_once, lambda: done(spout, 20))
    assert broker.committed(group, topic) == 20


def test_storm_2549_a_record_is_tried_again_while_all_others_up_to_the_bound_are_acked(
    broker: Broker, topology: Topology, group: str
) -> None:
    topic, bolt, bound, held = broker.topic(), topology.bolt("b"), 7, list[KafkaRecord]()
    broker.produce(topic, [b"%d" % n for n in range(5)])
    with spout_of(broker, topology, topic, group, max_uncommitted=bound, attempts=5) as spout:

        def hold_the_first(record: KafkaRecord) -> None:
            held.append(record) if record.message.offset() == 0 else bolt.ack(record.tuple)

        def fail_the_first(record: KafkaRecord) -> None:
            if record.message.offset() == 0 and record.attempt < 5:
                bolt.fail(record.tuple, "not yet")
            else:
                bolt.ack(record.tuple)

        def count(record: KafkaRecord) -> None:
            seen.add(record.message.offset() or 0)
            hold_the_first(record)

        seen = set[int]()
        drive(spout, topology, count, lambda: len(seen) == 5 and spout.pending == 1)
        broker.produce(topic, [b"%d" % n for n in range(5, 40)])
        drive(spout, topology, count, lambda: len(seen) >= bound)
        for _ in range(5):
            assert spout.poll(0.05) == []
        assert len(seen) == bound, "all of the bound is used, and no more"
        bolt.fail(held[0].tuple, "not yet")
        records = drive(spout, topology, fail_the_first, lambda: done(spout, 40))
    assert [one.attempt for one in records if one.message.offset() == 0] == [2, 3, 4, 5]


def test_storm_2666_what_is_committed_is_not_emitted_again(
    broker: Broker, topology: Topology, group: str
) -> None:
    """A failed record is read again, and those after it with it; a seek emitted them a second time."""
    topic, bolt, times = broker.topic(), topology.bolt("b"), Counter[bytes | None]()
    broker.produce(topic, [b"%d" % n for n in range(50)])

    def fail_some(record: KafkaRecord) -> None:
        times[record.value] += 1
        if record.message.offset() in (3, 20, 21) and record.attempt < 3:
            bolt.fail(record.tuple, "not yet")
        else:
            bolt.ack(record.tuple)

    with spout_of(broker, topology, topic, group) as spout:
        drive(spout, topology, fail_some, lambda: done(spout, 50))
        broker.produce(topic, [b"50"])
        drive(spout, topology, fail_some, lambda: done(spout, 51))
    assert times == {b"%d" % n: 3 if n in (3, 20, 21) else 1 for n in range(51)}


def test_storm_2352_and_2413_attempts_are_counted_though_each_is_read_anew(
    broker: Broker, topology: Topology, group: str
) -> None:
    topic, bolt = broker.topic(), topology.bolt("b")
    broker.produce(topic, [b"bad"])
    with spout_of(broker, topology, topic, group, attempts=4) as spout:
        records = drive(
            spout, topology, lambda one: bolt.fail(one.tuple, f"no. {one.attempt}"), lambda: done(spout, 1)
        )
    assert [record.attempt for record in records] == [1, 2, 3, 4]
    [letter] = letters_of(topology)
    assert [attempt.reason for attempt in letter.history] == ["no. 1", "no. 2", "no. 3", "no. 4"]


def test_storm_2957_without_ackers_offsets_are_committed_and_reading_goes_on(
    broker: Broker, valkey_url: str, group: str
) -> None:
    topic = broker.topic()
    broker.produce(topic, [b"%d" % n for n in range(20)])
    with Topology(valkey_url, "t", ackers=0) as topology:
        with spout_of(broker, topology, topic, group, max_uncommitted=3) as spout:
            records = drive(spout, topology, lambda record: None, lambda: done(spout, 20))
        assert [record.tuple.anchors for record in records] == [()] * 20
    assert broker.committed(group, topic) == 20


@pytest.mark.parametrize("retry", [True, False])
def test_a_failure_for_good_is_a_dead_letter_at_once(
    broker: Broker, topology: Topology, group: str, retry: bool
) -> None:
    topic, bolt = broker.topic(), topology.bolt("b")
    broker.produce(topic, [b"bad"])
    with spout_of(broker, topology, topic, group) as spout:
        records = drive(
            spout, topology, lambda one: bolt.fail(one.tuple, "no", retry=retry), lambda: done(spout, 1)
        )
    assert len(records) == (3 if retry else 1)
    assert len(letters_of(topology)) == 1
