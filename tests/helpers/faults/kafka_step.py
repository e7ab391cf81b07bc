"""A role of examples/kafka_steps.py, which kills itself at one of its calls.

    python -m tests.helpers.faults.kafka_step ROLE URL SERVERS TABLE PREFIX KILL_AT

It counts the calls to its clients of Kafka, to acker's streams and to the flush, before and after each.
KILL_AT: the number of the call that it never reaches; 0: it is not killed.
"""

import sys
from pathlib import Path
from typing import Any

from acker import Topology
from acker.collectors.external.blocking import BlockingExchange
from acker.collectors.external.incoming import Incoming
from acker.collectors.external.outgoing import Outgoing
from acker.kafka import KafkaSpout
from examples import kafka_steps
from examples.kafka_steps import Places
from tests.helpers.faults.killing import Count

CALLS: tuple[tuple[type, str], ...] = (
    (Topology, "flush"),
    (BlockingExchange, "flush"),
    (Incoming, "extract"),
    (Incoming, "extract_many"),
    (Incoming, "ack"),
    (Outgoing, "inject"),
    (KafkaSpout, "poll"),
)


class Counting:
    """Counts the calls of a client."""

    def __init__(self, client: Any, count: Count) -> None:
        self._client, self._count = client, count

    def __getattr__(self, name: str) -> Any:
        return self._count.counted(getattr(self._client, name))


def main(role: str, places: Places, kill_at: int) -> None:
    """Runs a role until it kills itself, or is killed."""
    count = Count(kill_at)
    for owner, name in CALLS:
        setattr(owner, name, count.counted(getattr(owner, name)))
    for name in ("consumer", "producer"):
        made = getattr(Places, name)
        setattr(Places, name, lambda *given, made=made: Counting(made(*given), count))
    {"spout": kafka_steps.spout, "split": kafka_steps.split, "count": kafka_steps.count}[role](places)


if __name__ == "__main__":
    given = sys.argv[1:]
    main(given[0], Places(given[1], given[2], Path(given[3]), given[4]), int(given[5]))
