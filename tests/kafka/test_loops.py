"""The ready-made loop over a real consumer: a row that it has not given out is read again."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka import Consumer, Message

from acker import StoreUnavailable, Topology
from acker.embedded import EmbeddedServer
from tests.helpers.builders.external import source
from tests.helpers.servers.kafka import Broker
from tests.helpers.servers.new_server import NewServer
from tests.helpers.servers.servers import wait_until

ROWS = 8


@pytest.fixture
def away(new_server: NewServer) -> EmbeddedServer:
    """A server of the test's own, which keeps what it has through a restart."""
    return new_server(append_only=True, options={"appendfsync": "always"})


def consumer_of(broker: Broker, group: str, strategy: str = "range") -> Consumer:
    """A member of a group."""
    return Consumer(
        {
            "bootstrap.servers": broker.servers, "group.id": group, "auto.offset.reset": "earliest",
            "enable.auto.commit": False, "session.timeout.ms": 6_000, "heartbeat.interval.ms": 200,
            "partition.assignment.strategy": strategy,
        }
    )  # fmt: skip


def fill(broker: Broker, topology: Topology) -> str:
    """Rows of records in a topic, each in a segment of its own."""
    topology.incoming("items", subscription="count")
    topic = broker.topic()
    for number, headers in enumerate(source(topology, ROWS)):
        broker.produce(topic, [b"%d" % number], headers=headers)
    topology.flush()
    return topic


def numbers(items: Any, consumer: Consumer, topic: str, **options: Any) -> Iterator[int]:
    """Works on rows by a loop that flushes at its end alone."""
    for row in items.consume(consumer, [topic], seconds=3600.0, **options):
        items.ack(row)
        yield int(row.message.value())


@contextmanager
def closing(consumer: Consumer) -> Iterator[Consumer]:
    """Leaves the group at the end."""
    try:
        yield consumer
    finally:
        consumer.close()


@pytest.mark.parametrize("again", ["new", "range", "cooperative-sticky"])
@pytest.mark.timeout(120)
def test_a_row_whose_extract_has_raised_comes_again(
    real_broker: Broker, away: EmbeddedServer, group: str, again: str
) -> None:
    """again: by a new consumer, or by the same one under a strategy of its group."""
    strategy = "range" if again == "new" else again
    worked = list[int]()
    with Topology(away.url, "t", timeout=3.0, linger=None) as topology:
        topic, items = fill(real_broker, topology), topology.incoming("items", subscription="count")
        with closing(consumer_of(real_broker, group, strategy)) as consumer:
            rows = numbers(items, consumer, topic)
            worked += [next(rows) for _ in range(5)]
            away.stop()
            with pytest.raises(StoreUnavailable):
                next(rows)
            away.start()
            if again != "new":
                for number in numbers(items, consumer, topic, running=lambda: ROWS - 1 not in worked):
                    worked.append(number)
        if again == "new":
            assert real_broker.committed(group, topic) <= 0
            with closing(consumer_of(real_broker, group)) as consumer:
                for number in numbers(items, consumer, topic, running=lambda: ROWS - 1 not in worked):
                    worked.append(number)
        assert worked == [*range(5), *range(ROWS)]
        assert topology.counters()["acked"] == ROWS
    assert real_broker.committed(group, topic) == ROWS


def test_a_loop_of_ones_own_calls_a_flush_again_that_the_store_was_away_for_and_then_commits(
    broker: Broker, away: EmbeddedServer, group: str
) -> None:
    with Topology(away.url, "t", timeout=3.0, linger=None) as topology:
        topic, items = fill(broker, topology), topology.incoming("items", subscription="count")
        with closing(consumer_of(broker, group)) as consumer:
            consumer.subscribe([topic])
            messages = list[Message]()

            def all_read() -> bool:
                messages.extend(consumer.consume(ROWS, 0.5))
                return len(messages) == ROWS

            wait_until(all_read)
            items.ack(items.extract_many([message.headers() for message in messages]))
            away.stop()
            for _ in range(2):
                with pytest.raises(StoreUnavailable):
                    topology.flush()
            assert broker.committed(group, topic) < 0, "no offset may be committed yet"
            away.start()
            topology.flush()
            assert topology.counters()["acked"] == ROWS
            consumer.commit(asynchronous=False)
    assert broker.committed(group, topic) == ROWS


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_rows_that_were_worked_on_are_committed_where_their_partitions_move(
    real_broker: Broker, topology: Topology, group: str, strategy: str
) -> None:
    topology.incoming("items", subscription="count")
    topic, items = real_broker.topic(2), topology.incoming("items", subscription="count")
    for partition in range(2):
        real_broker.produce(topic, [b"1", b"2"], partition=partition)
    worked = list[int]()
    with (
        closing(consumer_of(real_broker, group, strategy)) as consumer,
        closing(consumer_of(real_broker, group, strategy)) as other,
    ):

        def running() -> bool:
            return len(worked) < 4 or not (other.poll(0.05) or other.assignment())

        for number in numbers(items, consumer, topic, running=running):
            worked.append(number)
            if len(worked) == 4:
                assert [real_broker.committed(group, topic, at) for at in range(2)] == [-1001, -1001]
                other.subscribe([topic])
        [moved] = other.assignment()
        assert real_broker.committed(group, topic, moved.partition) == 2


@pytest.mark.timeout(120)
def test_a_row_whose_extract_a_signal_has_ended_is_not_committed(
    broker: Broker, topology: Topology, group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, items = fill(broker, topology), topology.incoming("items", subscription="count")
    look, stopping = type(items)._look, list[bool]()

    def ended(*_: Any) -> None:
        raise SystemExit

    def signalled(*given: Any) -> Any:
        if stopping:
            os.kill(os.getpid(), signal.SIGTERM)
        return look(*given)

    monkeypatch.setattr(type(items), "_look", signalled)
    before = signal.signal(signal.SIGTERM, ended)
    try:
        with closing(consumer_of(broker, group)) as consumer:
            rows = numbers(items, consumer, topic)
            assert [next(rows) for _ in range(5)] == list(range(5))
            stopping.append(True)
            with pytest.raises(SystemExit):
                next(rows)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert broker.committed(group, topic) <= 5
    topology.flush()  # no row is left in work
