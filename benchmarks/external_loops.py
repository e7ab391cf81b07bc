"""The loop of docs/transports.md over Kafka, against the same loop that copies a header of 50 bytes."""

import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from confluent_kafka import Consumer, Producer

from acker import Topology
from benchmarks.figures import Sample
from tests.helpers.servers.kafka import Broker

BATCH, FLUSH = 500, 10_000
"""Messages of a batch, and rows after which the loop flushes and commits its offsets."""
HEADER = "acker-stamp"


class Loops:
    """A topic whose rows have stamps, a topic for the rows that a loop makes, and steps that are known."""

    def __init__(self, broker: Broker, url: str, name: str, rows: int, size: int) -> None:
        self.broker, self.rows = broker, rows
        self.topic, self.to = broker.topic(), broker.topic()
        self.producer = Producer({"bootstrap.servers": broker.servers, "queue.buffering.max.messages": 10**7})
        self.topology = Topology(url, name, linger=None, message_timeout=3600.0)
        self.incoming = [self.topology.incoming("items", subscription=way) for way in ("row", "bulk")]
        self.topology.incoming("words", subscription="sink")
        self.words = self.topology.outgoing("words")
        self._fill(url, name, secrets.token_bytes(size))

    def _fill(self, url: str, name: str, value: bytes) -> None:
        with Topology(url, name, linger=None) as made:
            spout, out = made.spout("s"), made.outgoing("items")
            for number in range(self.rows):
                headers = out.inject(None, spout.emit(b"%d" % number)[0])
                self.producer.produce(self.topic, value, headers=headers, partition=0)
                if (number + 1) % FLUSH == 0:
                    made.flush()
            made.flush()
        if left := self.producer.flush(120):
            raise RuntimeError(f"the topic should have {self.rows:,} rows, {left:,} are missing")

    def samples(self) -> Iterator[Sample]:
        """Rows per second of each loop, and processor time of a row in the client's process."""
        for way, (alone, tracked) in {
            "row by row": (self._copy, self._row_by_row),
            "in bulk": (self._copy_many, self._in_bulk),
        }.items():
            name, of = f"{way}: a header of 50 bytes", f"{way}: stamps and acks"
            rate, cpu = self._rate(way, alone)
            yield Sample(name, rate, "rows/s")
            tracked_rate, tracked_cpu = self._rate(way, tracked)
            yield Sample(of, tracked_rate, "rows/s", name)
            yield Sample(f"{name}: processor time", cpu, "us/row")
            yield Sample(f"{of}: processor time", tracked_cpu, "us/row", f"{name}: processor time")

    def _rate(self, way: str, work: Callable[[Sequence[Any]], None]) -> tuple[float, float]:
        own = {"auto.offset.reset": "earliest", "enable.auto.commit": False, "group.id": secrets.token_hex(8)}
        consumer = Consumer({"bootstrap.servers": self.broker.servers, **own})
        consumer.subscribe([self.topic])
        begun, cpu, seen, due = 0.0, 0.0, 0, FLUSH
        while seen < self.rows:
            if way == "in bulk":
                messages = consumer.consume(BATCH, 1.0)
            else:
                message = consumer.poll(1.0)
                messages = [message] if message is not None else []
            messages = [message for message in messages if message.error() is None]
            if messages and not begun:
                begun, cpu = time.perf_counter(), time.process_time()
            work(messages)
            seen += len(messages)
            if seen >= min(due, self.rows):
                self._flush(consumer)
                due += FLUSH
        taken, used = time.perf_counter() - begun, time.process_time() - cpu
        consumer.close()
        return self.rows / taken, 1e6 * used / self.rows

    def _flush(self, consumer: Consumer) -> None:
        self.producer.flush()
        self.topology.flush()
        consumer.commit(asynchronous=False)

    def _copy(self, messages: Sequence[Any]) -> None:
        for message in messages:
            headers = [(HEADER, message.headers()[0][1])]
            self.producer.produce(self.to, message.value(), headers=headers, on_delivery=delivered)
        self.producer.poll(0)

    _copy_many = _copy

    def _row_by_row(self, messages: Sequence[Any]) -> None:
        items, words = self.incoming[0], self.words
        for message in messages:
            row = items.extract(message.headers())
            headers = words.inject(None, row)
            self.producer.produce(
                self.to, message.value(), headers=headers, on_delivery=words.reports(headers)
            )
            items.ack(row)
        self.producer.poll(0)

    def _in_bulk(self, messages: Sequence[Any]) -> None:
        items, words = self.incoming[1], self.words
        rows = items.extract_many([message.headers() for message in messages])
        many = words.inject_many(None, rows)
        for message, headers, report in zip(messages, many, words.reports_many(many), strict=True):
            self.producer.produce(self.to, message.value(), headers=headers, on_delivery=report)
        items.ack(rows)
        self.producer.poll(0)


def delivered(error: Any, _: Any) -> None:
    """Raises where a row was not delivered."""
    if error is not None:
        raise RuntimeError(f"a row was not delivered: {error}")
