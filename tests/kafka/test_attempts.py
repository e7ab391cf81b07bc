"""Attempts through restarts and rebalances: a record that fails each time comes to its end."""

from contextlib import ExitStack

import pytest

from acker import Topology
from acker.kafka import KafkaRecord, starts
from tests.helpers.builders.kafka_spouts import done, drive, letters_of, spout_of
from tests.helpers.servers.kafka import Broker
from tests.helpers.servers.servers import wait_until

LONG = 60.0
"""Seconds until another attempt: longer than a test."""


def test_a_record_that_fails_after_each_restart_has_its_attempts_in_all(
    real_broker: Broker, topology: Topology, group: str
) -> None:
    topic, bolt, numbers = real_broker.topic(), topology.bolt("b"), list[int]()
    real_broker.produce(topic, [b"0", b"bad", b"2"])

    def handle(record: KafkaRecord) -> None:
        if record.value == b"bad":
            numbers.append(record.attempt)
            bolt.fail(record.tuple, f"no. {record.attempt}")
        else:
            bolt.ack(record.tuple)

    options = {"attempts": 4, "backoff": LONG, "max_backoff": LONG}
    for _ in range(3):
        with spout_of(real_broker, topology, topic, group, **options) as spout:  # type: ignore[arg-type]
            drive(spout, topology, handle, lambda: len(spout._failed._waiting) == 1)
    with spout_of(real_broker, topology, topic, group, **options) as spout:  # type: ignore[arg-type]
        drive(spout, topology, handle, lambda: done(spout, 3))
    assert numbers == [1, 2, 3, 4]
    [letter] = letters_of(topology)
    assert (letter.attempts, letter.reason) == (4, "no. 4")
    assert real_broker.committed(group, topic) == 3


def test_attempts_go_with_a_partition_to_its_next_owner(
    real_broker: Broker, topology: Topology, group: str
) -> None:
    topic, bolt, got = real_broker.topic(2), topology.bolt("b"), list[KafkaRecord]()
    for partition in range(2):
        real_broker.produce(topic, [b"bad"], partition=partition)
    with (
        spout_of(real_broker, topology, topic, group, backoff=LONG, max_backoff=LONG) as first,
        ExitStack() as stack,
    ):
        drive(
            first, topology, lambda one: bolt.fail(one.tuple, "no"), lambda: len(first._failed._waiting) == 2
        )
        second = stack.enter_context(spout_of(real_broker, topology, topic, group))

        def shared() -> bool:
            first.poll(0.02)
            got.extend(second.poll(0.02))
            return bool(got)

        wait_until(shared)
    assert [record.attempt for record in got] == [2]


def test_a_broker_without_room_for_attempts_takes_the_offsets(
    real_broker: Broker, topology: Topology, group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, bolt = real_broker.topic(), topology.bolt("b")
    real_broker.produce(topic, [b"0", *[b"bad"] * 1_000])
    monkeypatch.setattr(starts, "NOTE_BYTES", 10**6)

    def handle(record: KafkaRecord) -> None:
        bolt.ack(record.tuple) if record.value == b"0" else bolt.fail(record.tuple)

    with spout_of(real_broker, topology, topic, group, backoff=LONG, max_backoff=LONG) as spout:
        drive(spout, topology, handle, lambda: len(spout._failed._waiting) == 1_000)
    assert real_broker.committed(group, topic) == 1


def test_a_gate_waits_for_a_record_in_backoff_whatever_becomes_of_its_spout(
    real_broker: Broker, topology: Topology, group: str
) -> None:
    topic, bolt = real_broker.topic(), topology.bolt("b")
    real_broker.produce(topic, [b"0", b"bad", b"2"])
    topology.complete("0s")

    def handle(record: KafkaRecord) -> None:
        if record.value == b"bad":
            bolt.fail(record.tuple, "no")
        else:
            bolt.ack(record.tuple)

    with spout_of(real_broker, topology, topic, group, backoff=LONG, max_backoff=LONG) as first:
        drive(first, topology, handle, lambda: len(first._failed._waiting) == 1 and first.pending == 1)
        before = topology.complete("0s").before
    down = topology.complete(before)
    assert (down.state, down.records, down.places[0].step) == ("open", 1, "spout s")
    got = list[KafkaRecord]()
    with spout_of(real_broker, topology, topic, group) as second:
        drive(second, topology, got.append, lambda: {one.value for one in got} >= {b"bad"})
        assert topology.complete(before).state == "open"  # its tree is younger, the record is not
        for record in got:
            bolt.ack(record.tuple)
        drive(second, topology, got.append, lambda: done(second, 3))
    assert topology.complete(before).state == "complete"
