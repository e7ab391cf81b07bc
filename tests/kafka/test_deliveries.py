"""Rows that a real client of Kafka does not deliver. Its reports have no headers. No broker is needed."""

from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

from acker import Topology
from acker.errors import AckerError
from tests.helpers.builders.collectors import reported


@pytest.fixture
def producer() -> Iterator[Producer]:
    """A producer whose broker is away."""
    made = Producer({"bootstrap.servers": "127.0.0.1:1", "message.timeout.ms": 1, "log_level": 0})
    yield made
    made.flush()


def test_a_row_that_was_not_delivered_fails_its_own_record(topology: Topology, producer: Producer) -> None:
    topology.incoming("items", subscription="count")
    spout, items = topology.spout("s"), topology.outgoing("items")
    sent, lost = (items.inject([], spout.emit(name)[0]) for name in ("sent", "lost"))
    items.reports(sent)(None, None)
    producer.produce("items", b"lost", headers=lost, on_delivery=items.reports(lost))
    producer.flush()
    [outcome] = reported(spout)
    assert (outcome.message_id, outcome.status) == (b"lost", "failed")
    assert "a row of items was not delivered: KafkaError" in outcome.reason
    assert spout.pending == 1


def test_a_report_that_does_not_name_its_row_ends_the_loop(topology: Topology, producer: Producer) -> None:
    topology.incoming("items", subscription="count")
    items = topology.outgoing("items")
    headers = items.inject([], topology.spout("s").emit("m")[0])
    producer.produce("items", b"lost", headers=headers, on_delivery=items.delivered)
    with pytest.raises(AckerError, match=r"no headers.*on_delivery=outgoing.reports\(headers\)"):
        producer.flush()
