"""Spouts of Kafka for tests, and loops that drive them until something holds."""

import secrets
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from acker import Topology
from acker.errors import StoreUnavailable
from acker.kafka import KafkaRecord, KafkaSpout
from acker.streams.dead_letters import dead_letters
from acker.streams.sources import dead_letter_store
from acker.streams.sources.dead_letter_store import DeadLetter
from tests.helpers.servers.kafka import Broker

Handle = Callable[[KafkaRecord], object]
QUICK = {"backoff": 0.02, "max_backoff": 0.05, "commit_every": 0.0}
"""Options under which retries and commits come at once."""


def new_group() -> str:
    """A group of a name of its own."""
    return f"g-{secrets.token_hex(6)}"


def spout_of(
    broker: Broker, topology: Topology, topics: str | list[str], group: str, name: str = "s", **options: Any
) -> KafkaSpout:
    """A spout that is quick in all it does."""
    own = {option: options.pop(option) for option in list(options) if "." in option}
    consumer = {
        "bootstrap.servers": broker.servers,
        "group.id": group,
        "session.timeout.ms": 6_000,
        "heartbeat.interval.ms": 200,
        "topic.metadata.refresh.interval.ms": 500,
        **own,
    }
    return KafkaSpout(topology, name, consumer, topics, **{**QUICK, **options})


def drive(
    spout: KafkaSpout, topology: Topology, handle: Handle, until: Callable[[], object], timeout: float = 60.0
) -> list[KafkaRecord]:
    """Polls, and hands each record to `handle`, until a condition holds; returns the records.

    Tests of outages give a store half a second, which a busy machine does not always hold.
    """
    deadline, found = time.monotonic() + timeout, list[KafkaRecord]()
    while not until():
        assert time.monotonic() < deadline, f"not true in {timeout} s; {spout.offsets}, {found}"
        with suppress(StoreUnavailable):
            for record in spout.poll(0.05):
                found.append(record)
                handle(record)
            topology.flush()
    return found


def letters_of(topology: Topology, spout: str = "s") -> list[DeadLetter]:
    """The dead letters of a spout of Kafka."""
    ledger = topology.ledger
    found = ledger.run(dead_letter_store.heads(ledger.core, f"{spout}.failed", "0-0", "+", 100)).found
    return [ledger.run(dead_letters.get(ledger.core, one.id)) for one in found]


def done(spout: KafkaSpout, count: int) -> bool:
    """True when so many records are done."""
    return sum(spout.offsets.values()) == count and not spout.pending
