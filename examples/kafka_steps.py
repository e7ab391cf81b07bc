r"""Lines in Kafka to words in SQLite: a spout and two steps, each a process, with rows in Kafka alone.

    python -m examples.kafka_steps --check [--crash] [--url redis://localhost:6379] [--servers localhost:9092]

    topic lines --spout--> topic sentences --split--> topic words --count--> table words

The spout gives each line a tree and sends it on with a stamp. The step `split` makes a row of each word, and
`count` stores the words by transactions. A line is acked when all its words are stored. Rows come again after
a crash, so the table has a line and the place of a word there as its key. --crash kills processes again and
again. --check looks at the table, the outcomes and the committed offsets at the end.

Without --url it starts a store of its own, and without --servers the mock broker inside confluent-kafka.
"""

import argparse
import random
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from acker import Topology
from acker.embedded import EmbeddedServer
from acker.embedded.processes import tied
from acker.kafka import KafkaSpout

ROLES = ("spout", "split", "count")
LINES, SENTENCES, WORDS = "lines", "sentences", "words"
NAME = "kafka-steps"
EVERY = 0.2
"""Seconds between two flushes."""


@dataclass(frozen=True)
class Places:
    """The store, the broker and the file of the table; prefix: of the topics and groups."""

    url: str
    servers: str
    table: Path
    prefix: str

    def consumer(self, group: str) -> Consumer:
        """A consumer that commits when it is told to."""
        return Consumer(
            {**self.settings(group), "auto.offset.reset": "earliest", "enable.auto.commit": False}
        )

    def settings(self, group: str) -> dict[str, object]:
        """A member of a group; a static one, whose partitions wait for it while it is started again."""
        return {
            "bootstrap.servers": self.servers,
            "group.id": f"{self.prefix}{group}",
            "group.instance.id": group,
            "session.timeout.ms": 6_000,
        }

    def producer(self) -> Producer:
        """A producer that sends at once."""
        return Producer({"bootstrap.servers": self.servers, "linger.ms": 1})


def spout(places: Places) -> None:
    """Gives each line a tree, and sends it on."""
    producer = places.producer()
    with Topology(places.url, NAME, linger=None) as topology:
        sentences = topology.outgoing(SENTENCES)
        consumer = places.settings("spout")
        with KafkaSpout(topology, "lines", consumer, places.prefix + LINES, commit_every=EVERY) as lines:
            while True:
                for record in lines.poll(EVERY):
                    headers = sentences.inject([("line", record.message_id.encode())], record.tuple)
                    producer.produce(
                        places.prefix + SENTENCES, record.value, headers=headers,
                        on_delivery=sentences.reports(headers),
                    )  # fmt: skip
                producer.flush()
                topology.flush()


def split(places: Places) -> None:
    """Makes a row of each word."""
    producer = places.producer()
    with Topology(places.url, NAME, linger=None) as topology:
        sentences = topology.incoming(SENTENCES, subscription="split")
        words = topology.outgoing(WORDS)
        topics = [places.prefix + SENTENCES]
        for row in sentences.consume(places.consumer("split"), topics, producers=[producer], seconds=EVERY):
            line = header(row.message, "line")
            for place, word in enumerate((row.message.value() or b"").split()):
                headers = words.inject([("line", line), ("place", b"%d" % place)], row)
                producer.produce(
                    places.prefix + WORDS, word, headers=headers, on_delivery=words.reports(headers)
                )
            sentences.ack(row)


def count(places: Places) -> None:
    """Stores words by transactions: rows first, then their acks, then the offsets."""
    database = sqlite3.connect(places.table)
    database.execute("PRAGMA journal_mode=WAL")
    database.execute(
        "CREATE TABLE IF NOT EXISTS words (line TEXT, place INTEGER, word TEXT, UNIQUE (line, place))"
    )
    consumer = places.consumer("count")
    consumer.subscribe([places.prefix + WORDS])
    with Topology(places.url, NAME, linger=None) as topology:
        words = topology.incoming(WORDS, subscription="count")
        while True:
            # All that `consume` has given is stored before its offsets are committed.
            messages = [one for one in consumer.consume(500, EVERY) if one.error() is None]
            if not messages:
                topology.flush()  # also without rows: it tells that the step lives
                continue
            rows = words.extract_many([message.headers() for message in messages])
            with database:  # one transaction
                database.executemany(
                    "INSERT OR IGNORE INTO words VALUES (?, ?, ?)",
                    [
                        (
                            header(one, "line").decode(),
                            int(header(one, "place")),
                            (one.value() or b"").decode(),
                        )
                        for one in messages
                    ],
                )
            words.ack(rows)
            topology.flush()  # StoreUnavailable: call it again, or end; commit nothing before it returns
            consumer.commit(asynchronous=False)


def header(message: Message, name: str) -> bytes:
    """A header of a message. Raises LookupError."""
    found = dict(message.headers() or ())[name]
    return found.encode() if isinstance(found, str) else found or b""


def run(places: Places, lines: int, crash: bool, seconds: float) -> int:
    """Runs all processes until each line has an outcome; returns how often one was killed."""
    chance, killed = random.Random(lines), 0
    with Topology(places.url, NAME, message_timeout=seconds) as topology:
        declare(topology)
        produce(places, lines)
        children = {role: start(role, places) for role in ROLES}
        deadline, kill_at = time.monotonic() + seconds, time.monotonic() + 3.0
        try:
            while committed(places) < lines:
                if time.monotonic() > deadline:
                    raise TimeoutError(f"not done in {seconds:g} s: {topology.counters()}")
                topology.tick()
                for role, child in children.items():
                    if child.poll() is not None:
                        raise RuntimeError(f"{role} has ended with {child.returncode}")
                if crash and killed < 6 and time.monotonic() >= kill_at:
                    role = chance.choice(ROLES)
                    children[role].kill()
                    children[role].wait()
                    children[role] = start(role, places)
                    killed, kill_at = killed + 1, time.monotonic() + chance.uniform(0.3, 2.5)
                time.sleep(0.1)
        finally:
            for child in children.values():
                child.kill()
                child.wait()
    return killed


def declare(topology: Topology) -> None:
    """Makes the subscriptions before the first row: nobody owes anything for rows that came before."""
    topology.incoming(SENTENCES, subscription="split")
    topology.incoming(WORDS, subscription="count")


def create_topics(places: Places) -> None:
    """Creates the topics, unless they are there."""
    admin = AdminClient({"bootstrap.servers": places.servers})
    names = [places.prefix + name for name in (LINES, SENTENCES, WORDS)]
    for made in admin.create_topics([NewTopic(name, 2) for name in names]).values():
        try:
            made.result(30.0)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise


def produce(places: Places, lines: int) -> None:
    """Writes the lines to their topic."""
    producer = places.producer()
    for number in range(lines):
        producer.produce(places.prefix + LINES, b"the line of number %d" % number)
    producer.flush()


def start(role: str, places: Places) -> "subprocess.Popen[bytes]":
    """Starts a process of a role."""
    own = [places.url, places.servers, str(places.table), places.prefix]
    return subprocess.Popen(tied([sys.executable, "-m", "examples.kafka_steps", "--role", role, *own]))


def committed(places: Places) -> int:
    """The number of lines that the spout has committed."""
    consumer = Consumer({"bootstrap.servers": places.servers, "group.id": f"{places.prefix}spout"})
    try:
        topic = places.prefix + LINES
        parts = consumer.list_topics(topic, timeout=10.0).topics[topic].partitions
        found = consumer.committed([TopicPartition(topic, number) for number in parts], timeout=10.0)
        return sum(max(0, one.offset) for one in found)
    finally:
        consumer.close()


def check(places: Places, lines: int) -> list[str]:
    """The faults that the end of a run has."""
    with sqlite3.connect(places.table) as database:
        stored = database.execute("SELECT line, word FROM words ORDER BY line, place").fetchall()
    texts: dict[str, list[str]] = {}
    for line, word in stored:
        texts.setdefault(line, []).append(word)
    expected = sorted(f"the line of number {number}" for number in range(lines))
    faults = []
    if sorted(" ".join(words) for words in texts.values()) != expected:
        faults.append(
            f"the table has {len(stored):,} words of {len(texts):,} lines, expected {lines:,} lines"
        )
    with Topology(places.url, NAME) as topology:
        counters = topology.counters()
    faults += [f"{counters[name]} trees are {name}" for name in ("failed", "expired") if counters[name]]
    if counters["acked"] < lines:
        faults.append(f"{counters['acked']:,} trees are acked, not {lines:,}")
    return faults


@contextmanager
def mock_broker() -> Iterator[str]:
    """The address of the mock broker inside confluent-kafka, for those without one."""
    owner = Producer({"bootstrap.servers": "mock", "test.mock.num.brokers": 1})
    [broker] = owner.list_topics(timeout=10).brokers.values()
    yield f"{broker.host}:{broker.port}"
    owner.flush()


def main() -> int:
    """Runs a role, or all of them; returns the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--url", help="the store; default: a server of its own")
    parser.add_argument("--servers", help="the broker; default: the mock one")
    parser.add_argument("--lines", type=int, default=2_000)
    parser.add_argument(
        "--seconds", type=float, default=120.0, help="of the whole run, and the message timeout"
    )
    parser.add_argument("--prefix", default="", help="of topics and groups")
    parser.add_argument("--crash", action="store_true")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--role", nargs=5, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.role:
        role, url, servers, table, prefix = options.role
        {"spout": spout, "split": split, "count": count}[role](Places(url, servers, Path(table), prefix))
        return 0
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        url = options.url or stack.enter_context(EmbeddedServer(directory / "server")).url
        servers = options.servers or stack.enter_context(mock_broker())
        places = Places(url, servers, directory / "words.db", options.prefix)
        if options.servers:  # the mock broker makes them by itself
            create_topics(places)
        begun = time.monotonic()
        killed = run(places, options.lines, options.crash, options.seconds)
        print(f"{options.lines:,} lines in {time.monotonic() - begun:.1f} s, {killed} processes killed")
        faults = check(places, options.lines) if options.check else []
        print("\n".join(faults) or "checked: nothing is wrong" if options.check else "")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
