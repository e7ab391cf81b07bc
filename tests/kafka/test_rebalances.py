"""Rebalances: a partition has one owner, and no other one commits what it did not see done."""

from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.cimpl import NewPartitions

from acker import Topology
from acker.kafka import KafkaRecord, KafkaSpout
from tests.helpers.builders.kafka_spouts import done, drive, spout_of
from tests.helpers.servers.kafka import Broker
from tests.helpers.servers.servers import wait_until

pytestmark = pytest.mark.slow

PARTITIONS = 4


def filled(broker: Broker, each: int = 5) -> str:
    """A topic with records in each of its partitions."""
    topic = broker.topic(PARTITIONS)
    for partition in range(PARTITIONS):
        broker.produce(topic, [b"%d/%d" % (partition, n) for n in range(each)], partition=partition)
    return topic


def owned(spout: KafkaSpout) -> set[int]:
    """The partitions that a spout has."""
    return {int(name.rpartition("/")[2]) for name in spout.offsets}


def share(first: KafkaSpout, second: KafkaSpout, handle: "dict[str, list[KafkaRecord]]") -> None:
    """Polls two members until they share the partitions."""

    def shared() -> bool:
        for name, spout in (("first", first), ("second", second)):
            handle[name] += spout.poll(0.02)
        return (len(owned(first)), len(owned(second))) == (2, 2)

    wait_until(shared)


@pytest.mark.parametrize("strategy", ["cooperative-sticky", "range"])
def test_the_old_owner_neither_acks_nor_commits_what_was_revoked(
    broker: Broker, topology: Topology, group: str, strategy: str
) -> None:
    topic, bolt = filled(broker), topology.bolt("b")
    settings: dict[str, Any] = {"partition.assignment.strategy": strategy, "commit_every": 3600.0}
    got: dict[str, list[KafkaRecord]] = {"first": [], "second": []}
    with spout_of(broker, topology, topic, group, **settings) as first, ExitStack() as stack:
        got["first"] += drive(first, topology, lambda one: None, lambda: first.pending == 5 * PARTITIONS)
        second = stack.enter_context(spout_of(broker, topology, topic, group, **settings))
        share(first, second, got)
        moved = owned(second)
        drive(second, topology, got["second"].append, lambda: second.pending == 5 * len(moved))
        for record in got["first"]:  # its tuples of partitions that it has no more, too
            bolt.ack(record.tuple)
        # What was revoked and came back, as it does by `range`, is in flight anew.
        drive(
            first, topology, lambda one: bolt.ack(one.tuple), lambda: set(first.offsets.values()) == {5}
        )  # fmt: skip
        assert {partition for partition in range(PARTITIONS) if partition not in moved} == owned(first)
        stack.close()
        for partition in moved:
            assert broker.committed(group, topic, partition) == 0, "nobody has acked these for their owner"


def test_records_acked_before_a_rebalance_are_committed_by_it(
    real_broker: Broker, topology: Topology, group: str
) -> None:
    topic, bolt = filled(real_broker), topology.bolt("b")
    got: dict[str, list[KafkaRecord]] = {"first": [], "second": []}
    with (
        spout_of(real_broker, topology, topic, group, commit_every=3600.0) as first,
        ExitStack() as stack,
    ):
        drive(first, topology, lambda one: bolt.ack(one.tuple), lambda: sum(first.offsets.values()) == 20)
        second = stack.enter_context(spout_of(real_broker, topology, topic, group))
        share(first, second, got)
        assert not second.pending
        for partition in owned(second):
            assert real_broker.committed(group, topic, partition) == 5
    assert got["second"] == []


def test_all_records_are_done_while_members_come_and_go(
    real_broker: Broker, topology: Topology, group: str
) -> None:
    topic, bolt = filled(real_broker, each=30), topology.bolt("b")
    times = Counter[tuple[int, int]]()

    def ack(record: KafkaRecord) -> None:
        times[record.message.partition() or 0, record.message.offset() or 0] += 1
        bolt.ack(record.tuple)

    def work(until: Callable[[], object], most: int) -> None:
        def worked() -> bool:
            for spout in spouts:
                for record in spout.poll(0.02, most):
                    ack(record)
            topology.flush()
            return bool(until())

        wait_until(worked)

    def all_committed() -> bool:
        return all(real_broker.committed(group, topic, partition) == 30 for partition in range(PARTITIONS))

    spouts = [spout_of(real_broker, topology, topic, group)]
    try:
        for number in range(1, 4):
            work(lambda: owned(spouts[-1]), 3)
            spouts.append(spout_of(real_broker, topology, topic, group))
            work(lambda: all(owned(one) for one in spouts), 3)
            if number > 1:
                spouts.pop(0).close()
        work(all_committed, 100)
    finally:
        for spout in spouts:
            spout.close()
    assert set(times) == {(partition, n) for partition in range(PARTITIONS) for n in range(30)}


def test_a_member_that_was_silent_for_too_long_commits_nothing(
    real_broker: Broker, topology: Topology, group: str
) -> None:
    topic, bolt = filled(real_broker), topology.bolt("b")
    short: dict[str, Any] = {"session.timeout.ms": 1_000, "max.poll.interval.ms": 1_000}
    got: list[KafkaRecord] = []
    with spout_of(real_broker, topology, topic, group, **short) as silent, ExitStack() as stack:
        held = drive(silent, topology, lambda one: None, lambda: silent.pending == 5 * PARTITIONS)
        second = stack.enter_context(spout_of(real_broker, topology, topic, group))
        drive(second, topology, got.append, lambda: second.pending == 5 * PARTITIONS)
        for record in held:
            bolt.ack(record.tuple)
        topology.flush()
        wait_until(lambda: silent.poll(0.05) == [] and not silent.offsets)
        assert all(real_broker.committed(group, topic, partition) <= 0 for partition in range(PARTITIONS))


def test_a_member_that_is_given_partitions_while_it_leaves_begins_none(
    broker: Broker, topology: Topology, group: str
) -> None:
    """It would wait for the answers of its brokers, in the middle of `close`."""
    topic, given = filled(broker), list[int]()
    spout = spout_of(broker, topology, topic, group)
    partitions = spout._partitions

    def assign(consumer: Consumer, some: list[TopicPartition]) -> None:
        given.append(len(some))
        partitions.on_assign(consumer, some)

    # A rebalance that ends within `close`: that the group is slower than this thread cannot be arranged.
    partitions._closing = True
    spout._consumer.subscribe([topic], assign, partitions.on_revoke, partitions.on_lost)
    wait_until(lambda: spout.poll(0.05) or given)
    assert (given, spout.offsets) == ([PARTITIONS], {})
    spout.close()
    assert broker.committed(group, topic) < 0


@pytest.mark.parametrize("policy", ["earliest", "latest"])
def test_the_first_poll_of_a_run_holds_for_no_rebalance_after_it(
    real_broker: Broker, topology: Topology, group: str, policy: str
) -> None:
    topic, bolt = filled(real_broker), topology.bolt("b")
    with spout_of(real_broker, topology, topic, group) as earlier:
        drive(earlier, topology, lambda one: bolt.ack(one.tuple), lambda: sum(earlier.offsets.values()) == 20)
    got: dict[str, list[KafkaRecord]] = {"first": [], "second": []}
    with (
        spout_of(real_broker, topology, topic, group, first_poll=policy) as first,
        ExitStack() as stack,
    ):
        records = drive(
            first, topology, lambda one: bolt.ack(one.tuple), lambda: sum(first.offsets.values()) == 20
        )
        assert len(records) == (20 if policy == "earliest" else 0)
        for partition in range(PARTITIONS):
            real_broker.produce(topic, [b"new"], partition=partition)
        drive(first, topology, lambda one: None, lambda: first.pending == PARTITIONS)
        second = stack.enter_context(spout_of(real_broker, topology, topic, group, first_poll=policy))
        share(first, second, got)
        moved = owned(second)
        drive(second, topology, got["second"].append, lambda: second.pending == len(moved))
    assert [record.value for record in got["second"]] == [b"new"] * len(moved)


@pytest.mark.parametrize("strategy", ["cooperative-sticky", "range"])
def test_a_paused_partition_that_goes_and_comes_back_is_read_on(
    broker: Broker, topology: Topology, group: str, strategy: str
) -> None:
    """The client remembers a pause through rebalances; the spout begins with partitions that are read."""
    topic, bolt = filled(broker), topology.bolt("b")
    settings: dict[str, Any] = {"partition.assignment.strategy": strategy}
    got: dict[str, list[KafkaRecord]] = {"first": [], "second": []}
    with spout_of(broker, topology, topic, group, max_spout_pending=2, **settings) as first:
        drive(first, topology, got["first"].append, lambda: len(got["first"]) == 2)
        drive(first, topology, got["first"].append, lambda: all(one.paused for one in first._partitions))
        with spout_of(broker, topology, topic, group, **settings) as second:
            share(first, second, got)
        for record in got["first"]:
            bolt.ack(record.tuple)
        drive(first, topology, lambda one: bolt.ack(one.tuple), lambda: done(first, 5 * PARTITIONS), 30)


def test_records_in_flight_go_to_a_member_that_began_after_their_last_commit(
    real_broker: Broker, topology: Topology, group: str
) -> None:
    """Their commit tells no earlier run, though it is older than the new owner."""
    topic = filled(real_broker)
    options: dict[str, Any] = {"first_poll": "latest", "commit_every": 3600.0}
    short: dict[str, Any] = {"session.timeout.ms": 1_000, "max.poll.interval.ms": 1_000}
    got: dict[str, list[KafkaRecord]] = {"first": [], "second": []}
    with (
        spout_of(real_broker, topology, topic, group, **short, **options) as first,
        ExitStack() as stack,
    ):
        drive(first, topology, lambda one: None, lambda: len(owned(first)) == PARTITIONS)
        second = stack.enter_context(spout_of(real_broker, topology, topic, group, **options))
        share(first, second, got)
        kept = owned(first)
        for partition in kept:
            real_broker.produce(topic, [b"new"], partition=partition)
        drive(first, topology, lambda one: None, lambda: first.pending == len(kept))
        drive(second, topology, got["second"].append, lambda: len(owned(second)) == PARTITIONS)
        drive(second, topology, got["second"].append, lambda: second.pending == len(kept))
    assert [record.value for record in got["second"]] == [b"new"] * len(kept)


def test_records_of_a_member_that_dies_right_after_another_has_started_are_not_skipped(
    broker: Broker, topology: Topology, group: str
) -> None:
    """Under `latest` its last commit is older than the other member, and is of the same run all the same."""
    topic, options = filled(broker), {"first_poll": "latest", "commit_every": 3600.0}
    first = spout_of(broker, topology, topic, group, **options)  # type: ignore[arg-type]
    drive(first, topology, lambda one: None, lambda: len(owned(first)) == PARTITIONS)
    for partition in range(PARTITIONS):
        drive(first, topology, lambda one: None, lambda: broker.committed(group, topic, partition) == 5)  # noqa: B023
        broker.produce(topic, [b"new"], partition=partition)
    drive(first, topology, lambda one: None, lambda: first.pending == PARTITIONS)
    with spout_of(broker, topology, topic, group, **options) as second:  # type: ignore[arg-type]
        first._partitions._closing = True  # it dies: nothing is committed
        first._consumer.close()
        got = drive(second, topology, lambda one: None, lambda: second.pending == PARTITIONS)
    assert [record.value for record in got] == [b"new"] * PARTITIONS


@pytest.mark.parametrize("policy", ["uncommitted_earliest", "uncommitted_latest"])
def test_a_group_without_commits_begins_at_an_end_and_is_known_from_then_on(
    broker: Broker, topology: Topology, group: str, policy: str
) -> None:
    topic = filled(broker)
    with spout_of(broker, topology, topic, group, first_poll=policy, commit_every=3600.0) as spout:
        drive(spout, topology, lambda one: None, lambda: len(owned(spout)) == PARTITIONS)
        first = 0 if policy == "uncommitted_earliest" else 5
        drive(
            spout, topology, lambda one: None,
            lambda: {broker.committed(group, topic, one) for one in range(PARTITIONS)} == {first},
        )  # fmt: skip


def test_a_partition_that_was_added_is_read_by_a_member_that_has_not_seen_it(
    real_broker: Broker, topology: Topology, group: str
) -> None:
    """Another member shares the partitions out, and has asked the broker for them since."""
    topic, bolt = real_broker.topic(2), topology.bolt("b")
    seldom: dict[str, Any] = {"topic.metadata.refresh.interval.ms": 300_000}
    with (
        spout_of(real_broker, topology, topic, group) as first,
        spout_of(real_broker, topology, topic, group, **seldom) as second,
    ):

        def shared(each: int) -> bool:
            for spout in (first, second):
                for record in spout.poll(0.02):
                    bolt.ack(record.tuple)
            topology.flush()
            return len(owned(first)) == len(owned(second)) == each

        wait_until(lambda: shared(1))
        real_broker.admin.create_partitions([NewPartitions(topic, 4)])[topic].result(30)
        wait_until(lambda: shared(2))
        for partition in range(4):
            real_broker.produce(topic, [b"new"], partition=partition)
        wait_until(lambda: shared(2) and sum((first.offsets | second.offsets).values()) == 4)
