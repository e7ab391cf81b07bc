"""External streams: a spout of Kafka, steps that read and write Kafka, and the store.

    uv run python -m benchmarks external [--external-records 200000] [--external-rounds 3] ...

A broker with one topic of one partition, which has records of 100 bytes. Each round reads all of it in three
ways, each as a group that is new to it:

    consumer   confluent-kafka's Consumer alone: `consume` of 4,000, and a commit of its offsets each 5 s
    poll_many  KafkaSpout with a tree for each record, whose batches a bolt in the same program acks by
               `ack_many`, and with the outcomes, until all offsets are committed
    poll       the same, with a KafkaRecord and an `ack` for each

All of them look at the length of each message.

Steps work on --external-rows rows with a flush after each 10,000 (external_loops.py). Once they copy a header
of 50 bytes, once they read and write stamps and ack the rows: row by row, and in bulk. Rows per second depend
on the broker, which works beside them; the processor time of their own process does not.

Then come the figures of the store, each once (external_segments.py): exchanges of a flush; bytes of a row in
flight, with all rows of a segment acked but one; processor time of the server for the bits of a segment,
without its vector; its slowest command while halves of segments are received and then acked; and a pass
over --external-open open segments, after which no tree expires.

The broker is the real one where Maven is there to fetch it, and else the mock one inside confluent-kafka.
"""

import secrets
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import Consumer, Producer

from acker import Topology
from acker.collectors.bolt import Bolt
from acker.kafka import KafkaSpout
from benchmarks import external_segments
from benchmarks.exchanges import external_flush
from benchmarks.external_loops import Loops
from benchmarks.figures import Sample
from benchmarks.servers import serving
from tests.helpers.servers import kafka
from tests.helpers.servers.kafka import Broker

TITLE = "external streams: a spout and steps over Kafka, and the store"
BATCH = 4_000
EVERY = 5.0
"""Seconds between two commits of offsets."""


@dataclass(frozen=True)
class Sizes:
    """Options: how many records a round reads, and of how many bytes."""

    rounds: int = 3
    records: int = 200_000
    bytes: int = 100
    rows: int = 1_000_000
    segments: tuple[int, ...] = (1_000, 50_000)
    bits: tuple[int, ...] = (1_000, 65_536)
    halves: int = 128
    open: int = 1_000_000


def samples(sizes: Sizes) -> Iterator[Sample]:
    """Measures both ways, round by round."""
    with tempfile.TemporaryDirectory() as directory, kafka.broker(Path(directory) / "kafka") as broker:
        topic = broker.topic()
        _fill(broker, topic, sizes)
        with serving() as url:
            for number in range(sizes.rounds):
                yield _rate("consumer", sizes, lambda: _alone(broker, topic, sizes.records))
                for name, work in WAYS.items():
                    with Topology(url, f"{name}{number}") as topology:
                        yield _rate(
                            name,
                            sizes,
                            lambda topology=topology, work=work: _spout(  # type: ignore[misc]
                                broker, topology, topic, sizes.records, work
                            ),
                            "consumer",
                        )
                yield from Loops(broker, url, f"loops{number}", sizes.rows, sizes.bytes).samples()
    with serving() as url:
        yield from _of_store(url, sizes)


def _of_store(url: str, sizes: Sizes) -> Iterator[Sample]:
    exchanges = len(external_flush(url))
    yield Sample("a flush that receives and sends 10,000 rows: exchanges", exchanges, "exchanges")
    for rows in sizes.segments:
        yield from external_segments.store(url, rows, 20)
    for rows in sizes.bits:
        for name, whole in (("all", True), ("half of the", False)):
            taken = external_segments.server_time(url, rows, whole)
            yield Sample(f"{name} bits of a segment of {rows:,}: server", taken, "us")
    longest = external_segments.slowest(url, sizes.halves)
    yield Sample(f"{sizes.halves} half segments, then full: slowest command", longest, "ms")
    yield from external_segments.open_pass(url, sizes.open)


def _fill(broker: Broker, topic: str, sizes: Sizes) -> None:
    producer = Producer({"bootstrap.servers": broker.servers, "queue.buffering.max.messages": 10**7})
    value = secrets.token_bytes(sizes.bytes)
    for _ in range(sizes.records):
        producer.produce(topic, value, partition=0)
    if left := producer.flush(120):
        raise RuntimeError(f"the topic should have {sizes.records:,} records, {left:,} are missing")


def _rate(name: str, sizes: Sizes, read: Callable[[], float], against: str = "") -> Sample:
    return Sample(name, sizes.records / read(), "records/s", against)


def _settings(broker: Broker) -> dict[str, object]:
    return {"bootstrap.servers": broker.servers, "group.id": secrets.token_hex(8)}


def _alone(broker: Broker, topic: str, records: int) -> float:
    """Seconds from the first record to the commit of the last."""
    own = {"auto.offset.reset": "earliest", "enable.auto.commit": False}
    consumer = Consumer({**_settings(broker), **own})
    consumer.subscribe([topic])
    begun, seen, commit_at = 0.0, 0, time.perf_counter() + EVERY
    while seen < records:
        found = consumer.consume(BATCH, 0.1)
        begun = begun or (time.perf_counter() if found else 0.0)
        seen += sum(message.error() is None and len(message) > 0 for message in found)
        if time.perf_counter() >= commit_at:
            consumer.commit(asynchronous=True)
            commit_at = time.perf_counter() + EVERY
    consumer.commit(asynchronous=False)
    taken = time.perf_counter() - begun
    consumer.close()
    return taken


def _many(spout: KafkaSpout, bolt: Bolt) -> int:
    batch = spout.poll_many(0.1, BATCH)
    seen = sum(len(message) > 0 for message in batch.messages)
    bolt.ack_many(batch.tuples)
    return seen


def _single(spout: KafkaSpout, bolt: Bolt) -> int:
    seen = 0
    for record in spout.poll(0.1, BATCH):
        seen += len(record.message) > 0
        bolt.ack(record.tuple)
    return seen


Work = Callable[[KafkaSpout, Bolt], int]
WAYS: dict[str, Work] = {"poll_many": _many, "poll": _single}


def _spout(broker: Broker, topology: Topology, topic: str, records: int, work: Work) -> float:
    """Seconds from the first record until all are done and committed."""
    bolt, begun, name = topology.bolt("b"), 0.0, f"{topic}/0"
    spout = KafkaSpout(topology, "s", _settings(broker), topic, commit_every=EVERY)
    while spout.offsets.get(name) != records:
        seen = work(spout, bolt)
        begun = begun or (time.perf_counter() if seen else 0.0)
    spout.close()
    return time.perf_counter() - begun
