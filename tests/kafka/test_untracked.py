"""Untracked records are done when the next poll begins: the records of the last poll come again."""

from collections.abc import Iterator
from typing import Any

import pytest

from acker import Topology
from acker.errors import KafkaFailed
from acker.kafka import KafkaBatch, KafkaRecord, KafkaSpout
from tests.helpers.builders.kafka_spouts import done, drive, spout_of
from tests.helpers.servers.kafka import Broker
from tests.helpers.servers.servers import wait_until

RECORDS = [b"%d" % n for n in range(10)]
MODES: dict[str, dict[str, Any]] = {
    "off": {"enabled": False},
    "observing": {"observe": True},
    "no ackers": {"ackers": 0},
}


class Trouble(Exception):
    """A fault of the program."""


@pytest.fixture(params=list(MODES))
def untracked(request: pytest.FixtureRequest, valkey_url: str) -> Iterator[Topology]:
    """A topology whose spouts have nothing to wait for."""
    with Topology(valkey_url, "t", **MODES[request.param]) as made:
        yield made


def ignore(_: KafkaRecord) -> None:
    """Works on a record."""


@pytest.mark.parametrize("take", ["poll", "poll_many"])
def test_records_that_an_exception_of_the_program_left_come_again(
    broker: Broker, untracked: Topology, group: str, take: str
) -> None:
    topic, worked, polled = broker.topic(), list[bytes | None](), 0
    broker.produce(topic, RECORDS)

    def work() -> None:
        nonlocal polled
        with spout_of(broker, untracked, topic, group) as first:
            while True:
                polled = len(worked)
                for record in getattr(first, take)(0.05, 4):
                    if record.value == b"6":
                        raise Trouble
                    worked.append(record.value)

    with pytest.raises(Trouble):
        work()
    assert broker.committed(group, topic) == polled, "the records of all polls but the last"
    with spout_of(broker, untracked, topic, group) as second:
        rest = drive(second, untracked, ignore, lambda: done(second, 10))
    assert worked[:polled] + [record.value for record in rest] == RECORDS


@pytest.mark.parametrize("untracked", ["observing"], indirect=True)
def test_records_of_the_last_poll_go_to_the_next_owner(
    broker: Broker, untracked: Topology, group: str
) -> None:
    topic, got = broker.topic(4), list[KafkaRecord]()
    broker.produce(topic, RECORDS)
    first = spout_of(broker, untracked, topic, group)

    def given() -> bool:
        got.extend(first.poll(0.05))
        return bool(got)

    wait_until(given)
    with spout_of(broker, untracked, topic, group) as second:
        assert second.poll(0.0) == [], "the group has another owner"
        first.close()
        rest = drive(second, untracked, ignore, lambda: done(second, 10))
    assert [record.value for record in rest] == RECORDS


@pytest.mark.parametrize("untracked", ["off"], indirect=True)
def test_records_that_a_poll_could_not_return_come_again(
    broker: Broker, untracked: Topology, group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = broker.topic()
    broker.produce(topic, RECORDS)
    first = spout_of(broker, untracked, topic, group)
    with monkeypatch.context() as patch:
        patch.setattr(KafkaBatch, "__iter__", interrupted)
        wait_until(lambda: raises_interrupt(first))
    with pytest.raises(KafkaFailed, match=r"KeyboardInterrupt\. Close the spout"):
        first.poll(0.05)
    first.close()
    with spout_of(broker, untracked, topic, group) as second:
        rest = drive(second, untracked, ignore, lambda: done(second, 10))
    assert [record.value for record in rest] == RECORDS


def interrupted(batch: KafkaBatch) -> Iterator[KafkaRecord]:
    """Raises KeyboardInterrupt if there are records."""
    if len(batch):
        raise KeyboardInterrupt
    return iter(())


def raises_interrupt(polled: KafkaSpout) -> bool:
    """Polls once."""
    try:
        polled.poll(0.05)
    except KeyboardInterrupt:
        return True
    return False
