"""A program with a spout of Kafka and a bolt, which kills itself at one of its calls.

    python -m tests.helpers.faults.kafka_worker URL SERVERS TOPIC GROUP LOG RECORDS KILL_AT

It works on each record by a line in LOG, before the record is acked. A record whose value begins with "bad"
fails. It ends by itself when so many records of the topic are done. KILL_AT: the number of the call that it
never reaches.
"""

import sys
from pathlib import Path

from acker import Topology
from acker.collectors.spout import Spout
from acker.kafka import KafkaSpout
from acker.kafka.failed import dead_letters
from acker.kafka.failed.reader import Reader
from acker.kafka.partitions import Partitions
from acker.streams.spouts import settler
from tests.helpers.faults.killing import Count

CALLS: tuple[tuple[object, str], ...] = (
    (Spout, "emit_many"),
    (Spout, "confirm_group"),
    (Reader, "read"),
    (dead_letters, "bury"),
    (settler, "settle"),
    (Partitions, "on_assign"),
    (Partitions, "commit"),
    (Topology, "flush"),
)


def main(url: str, servers: str, topic: str, group: str, log: Path, records: int, kill_at: int) -> None:
    """Works until the last record of the topic is done, in this life or an earlier one."""
    count = Count(kill_at)
    for owner, name in CALLS:
        setattr(owner, name, count.counted(getattr(owner, name)))
    consumer = {"bootstrap.servers": servers, "group.id": group, "group.instance.id": "the-one"}
    options = {"attempts": 2, "backoff": 0.01, "commit_every": 0.0}
    with Topology(url, "t") as topology, log.open("a") as out:
        bolt = topology.bolt("b")
        with KafkaSpout(topology, "s", consumer, topic, **options) as spout:  # type: ignore[arg-type]
            while spout.offsets.get(f"{topic}/0", 0) < records:
                for record in spout.poll(0.05, 4):
                    value = record.value or b""
                    if value.startswith(b"bad"):
                        bolt.fail(record.tuple, "bad")
                    else:
                        out.write(f"{value.decode()}\n")
                        out.flush()
                        count.add()
                        bolt.ack(record.tuple)
                topology.flush()


if __name__ == "__main__":
    url, servers, topic, group, log, *numbers = sys.argv[1:]
    main(url, servers, topic, group, Path(log), int(numbers[0]), int(numbers[1]))
