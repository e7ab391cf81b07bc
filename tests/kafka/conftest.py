"""The broker, a topology, and the group of a test."""

from collections.abc import Iterator

import pytest

from acker import Topology
from tests.helpers.builders.kafka_spouts import new_group
from tests.helpers.servers import kafka
from tests.helpers.servers.kafka import Broker


@pytest.fixture(scope="session")
def shared_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """The broker that all workers of this run share."""
    root = tmp_path_factory.getbasetemp()
    with kafka.broker((root.parent if root.name.startswith("popen-") else root) / "kafka") as broker:
        yield broker


@pytest.fixture
def broker(shared_broker: Broker, monkeypatch: pytest.MonkeyPatch) -> Broker:
    """A broker: the real one, or the mock one where there is no Maven."""
    if not shared_broker.real:  # it does not answer
        monkeypatch.setattr("acker.kafka.topic_ids.IDS", 0.1)
    return shared_broker


@pytest.fixture
def real_broker(shared_broker: Broker) -> Broker:
    """The real broker, for tests of what the mock one lacks: they are skipped without it."""
    if not shared_broker.real:
        pytest.skip("no Maven to fetch Kafka with (apt-get install maven)")
    return shared_broker


@pytest.fixture
def topology(valkey_url: str) -> Iterator[Topology]:
    """A topology in an empty store."""
    with Topology(valkey_url, "t", message_timeout=30.0) as made:
        yield made


@pytest.fixture
def group() -> str:
    """A group of a name of its own."""
    return new_group()
