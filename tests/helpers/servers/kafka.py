"""A broker of Kafka for the tests: a real one in KRaft mode, or the mock one inside confluent-kafka.

All workers of a test run share one real broker. The first that asks starts it, and a guard ends it when the
last one is gone, in whichever way that ended.
"""

import base64
import fcntl
import gc
import logging
import os
import secrets
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from pyspark.sql import SparkSession

from acker.embedded.java import ensure_java
from acker.embedded.server import free_port
from acker.kafka.partitions import answer_to, committed_offsets
from tests.helpers.servers.jars import NO_MAVEN, fetch

KAFKA, CONNECTOR, CONNECTOR_OF_LAKE = "4.1.1", "4.2.0", "4.1.1"
_PROPERTIES = """\
process.roles=broker,controller
node.id=1
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
controller.quorum.bootstrap.servers=127.0.0.1:{controller}
log.dirs={logs}
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.num.partitions=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
group.min.session.timeout.ms=1000
log.cleaner.backoff.ms=100
log.retention.check.interval.ms=100
log.initial.task.delay.ms=100
auto.create.topics.enable=false
num.network.threads=2
num.io.threads=2
background.threads=2
"""
# Holds the broker as long as any test process holds the shared lock.
_GUARD = """\
import fcntl, os, subprocess, sys
users, address, log = sys.argv[1:4]
with open(log, "ab") as out:
    broker = subprocess.Popen(sys.argv[4:], stdin=subprocess.DEVNULL, stdout=out, stderr=out)
with open(users) as lock:
    fcntl.flock(lock, fcntl.LOCK_EX)
    if os.path.exists(address):
        os.unlink(address)
    broker.terminate()
    try:
        broker.wait(15)
    except subprocess.TimeoutExpired:
        broker.kill()
        broker.wait()
"""


@dataclass(frozen=True)
class Broker:
    """A broker that tests share.

    real: False for the mock one, which has no admin of topics. metrics: the port of its metrics (JMX).
    """

    servers: str
    real: bool
    admin: AdminClient
    metrics: str = ""

    def topic(self, partitions: int = 1, **config: str) -> str:
        """A new topic of a name of its own. config: with `_` for `.`, as `cleanup_policy="compact"`."""
        name = f"t-{secrets.token_hex(6)}"
        self.create(name, partitions, **config)
        return name

    def create(self, name: str, partitions: int = 1, **config: str) -> None:
        """Creates a topic of that name; in the mock broker it has 4 partitions and no settings."""
        if not self.real:
            Producer({"bootstrap.servers": self.servers}).list_topics(name, timeout=10)
            return
        settings = {key.replace("_", "."): value for key, value in config.items()}
        made = self.admin.create_topics([NewTopic(name, partitions, 1, config=settings)])
        made[name].result(30)

    def delete(self, name: str) -> None:
        """Deletes a topic, and waits until the broker no longer has it."""
        self.admin.delete_topics([name])[name].result(30)
        deadline = time.monotonic() + 30
        while name in self.admin.list_topics(timeout=10).topics:
            assert time.monotonic() < deadline, f"topic {name} is still there"

    def delete_before(self, topic: str, offset: int) -> None:
        """Deletes the records of the first partition below an offset, as retention does."""
        for answer in self.admin.delete_records([TopicPartition(topic, 0, offset)]).values():
            assert answer.result(30).low_watermark == offset

    def produce(
        self,
        topic: str,
        values: Sequence[bytes | None],
        *,
        partition: int = 0,
        key: bytes | None = None,
        headers: list[tuple[str, str | bytes | None]] | None = None,
        timestamp: int = 0,
    ) -> None:
        """Writes values to a partition, and waits for them."""
        producer = Producer({"bootstrap.servers": self.servers, "linger.ms": 0})
        failed: list[KafkaError] = []

        def delivered(error: KafkaError | None, _: object) -> None:
            if error is not None:
                failed.append(error)

        for value in values:
            producer.produce(
                topic, value, key, partition, on_delivery=delivered, timestamp=timestamp, headers=headers
            )
        assert producer.flush(30) == 0
        producer.close()
        assert not failed, failed

    def committed(self, group: str, topic: str, partition: int = 0) -> int:
        """The committed offset of a group; a negative number if it has none."""
        consumer = Consumer({"bootstrap.servers": self.servers, "group.id": group})
        try:
            [found] = answer_to(partial(committed_offsets, consumer, [TopicPartition(topic, partition)]))
            return int(found.offset)
        finally:
            consumer.close()

    def offsets(self, topic: str) -> list[int]:
        """The offsets of the records that the first partition has."""
        settings = {"group.id": "none", "enable.partition.eof": True, "auto.offset.reset": "earliest"}
        consumer, found = Consumer({"bootstrap.servers": self.servers, **settings}), list[int]()
        consumer.assign([TopicPartition(topic, 0, 0)])
        try:
            while True:
                for message in consumer.consume(1, 10.0):
                    if message.error() is not None:
                        return found
                    found.append(int(message.offset() or 0))
        finally:
            consumer.close()

    def sent(self, spark: SparkSession, topic: str) -> int:
        """The bytes of a topic that the broker has sent to consumers so far."""
        assert spark._jvm is not None
        management = spark._jvm.javax.management
        url = management.remote.JMXServiceURL(
            f"service:jmx:rmi:///jndi/rmi://127.0.0.1:{self.metrics}/jmxrmi"
        )
        connector = management.remote.JMXConnectorFactory.connect(url)
        try:
            name = management.ObjectName(
                f"kafka.server:type=BrokerTopicMetrics,name=BytesOutPerSec,topic={topic}"
            )
            server = connector.getMBeanServerConnection()
            return int(server.getAttribute(name, "Count")) if server.isRegistered(name) else 0
        finally:
            connector.close()

    def end(self, topic: str, partition: int = 0) -> int:
        """The offset after the last one of a partition, markers included."""
        consumer = Consumer({"bootstrap.servers": self.servers, "group.id": "none"})
        try:
            return int(consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=30)[1])
        finally:
            consumer.close()


def jars() -> Path | None:
    """The broker's jars, fetched by Maven once; None where they are missing, and so is Maven."""
    return fetch(f"kafka-{KAFKA}", f"org.apache.kafka:kafka_2.13:{KAFKA}")


def connector(release: str = "") -> list[Path] | None:
    """The jars of Spark's connector, which Spark itself does not have; None as in `jars`.

    release: Of the connector; by default the one for the Spark of this environment.
    """
    release = release or (CONNECTOR_OF_LAKE if version("pyspark").startswith("4.1.") else CONNECTOR)
    artifact = "spark-sql-kafka-0-10_2.13"
    only = f"{artifact},spark-token-provider-kafka-0-10_2.13,kafka-clients,commons-pool2"
    folder = fetch(f"spark-kafka-{release}", f"org.apache.spark:{artifact}:{release}", only=only)
    return None if folder is None else sorted(folder.iterdir())


@contextmanager
def broker(directory: Path) -> Iterator[Broker]:
    """The broker of this test run. directory: all its processes share it.

    Without Maven it is the mock broker; where CI is set, the test fails then.
    """
    found = jars()
    if found is None:
        message = NO_MAVEN.format("Kafka")
        if os.environ.get("CI"):
            pytest.fail(message)
        with mock() as made:
            yield made
        return
    directory.mkdir(exist_ok=True)
    with (directory / "users").open("w") as users:
        fcntl.flock(users, fcntl.LOCK_SH)
        servers, metrics = _address(directory, found).split()
        with AdminClient({"bootstrap.servers": servers}) as admin:
            yield Broker(servers, True, admin, metrics)
        gc.collect()  # clients in cycles: they would outlive the broker, and say so on stderr


@contextmanager
def mock() -> Iterator[Broker]:
    """The mock broker inside confluent-kafka: it lives as long as the client that has it."""
    owner = Producer({"bootstrap.servers": "mock", "test.mock.num.brokers": 1})
    [one] = owner.list_topics(timeout=10).brokers.values()
    servers = f"{one.host}:{one.port}"
    with AdminClient({"bootstrap.servers": servers}) as admin:
        yield Broker(servers, False, admin)
    gc.collect()
    owner.close()


def _address(directory: Path, found: Path) -> str:
    """The address of the broker and the port of its metrics; it is started unless that was done."""
    address = directory / "address"
    with (directory / "starting").open("w") as starting:
        fcntl.flock(starting, fcntl.LOCK_EX)
        if not address.exists():
            address.write_text(_start(directory, found))
        return address.read_text()


def _start(directory: Path, found: Path) -> str:
    place = directory / f"broker-{secrets.token_hex(4)}"
    place.mkdir()
    port, controller, metrics = free_port(), free_port(), free_port()
    properties = place / "server.properties"
    properties.write_text(_PROPERTIES.format(port=port, controller=controller, logs=place / "logs"))
    java = [str(ensure_java().home / "bin" / "java"), "-Xmx512m", "-cp", f"{found}/*"]
    log = place / "broker.log"
    name = base64.urlsafe_b64encode(secrets.token_bytes(16)).decode().rstrip("=").replace("-", "A")
    subprocess.run(
        [*java, "kafka.tools.StorageTool", "format", "--standalone", "-t", name, "-c", str(properties)],
        check=True,
        capture_output=True,
        timeout=120,
    )
    open_to = {"port": metrics, "authenticate": "false", "ssl": "false", "host": "127.0.0.1"}
    jmx = [f"-Dcom.sun.management.jmxremote.{name}={value}" for name, value in open_to.items()]
    jmx.append("-Djava.rmi.server.hostname=127.0.0.1")
    shared = [str(directory / "users"), str(directory / "address"), str(log)]
    # Not a Popen: the guard outlives this process where another one still uses the broker.
    guard = os.posix_spawn(
        sys.executable,
        [sys.executable, "-ISc", _GUARD, *shared, java[0], *jmx, *java[1:], "kafka.Kafka", str(properties)],
        os.environ,
        setsid=True,
    )
    servers = f"127.0.0.1:{port}"
    _await(servers, guard, log)
    return f"{servers} {metrics}"


def _await(servers: str, guard: int, log: Path) -> None:
    admin = AdminClient({"bootstrap.servers": servers, "reconnect.backoff.max.ms": 200}, logger=_quiet())
    deadline = time.monotonic() + 120
    while True:
        try:
            if admin.list_topics(timeout=1).brokers:
                return
        except KafkaException:
            assert os.waitpid(guard, os.WNOHANG) == (0, 0), log.read_text()
        assert time.monotonic() < deadline, log.read_text()


def _quiet() -> Any:
    logger = logging.getLogger("tests.kafka.starting")
    logger.propagate = False
    logger.addHandler(logging.NullHandler())
    return logger
