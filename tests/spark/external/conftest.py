"""A topology of external streams; Spark's connector of Kafka, and a broker."""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from acker import Topology
from acker.spark import Acker
from tests.helpers.builders.pipeline import Pipeline
from tests.helpers.servers import kafka
from tests.helpers.servers.kafka import Broker


@pytest.fixture(scope="session")
def topics(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """The real broker that all workers of this run share; the session has the connector."""
    root = tmp_path_factory.getbasetemp()
    with kafka.broker((root.parent if root.name.startswith("popen-") else root) / "kafka") as broker:
        jars = kafka.connector()
        if jars is None or not broker.real:
            pytest.skip("no Maven to fetch Kafka with (apt-get install maven)")
        for jar in jars:
            spark.sql(f"ADD JAR '{jar}'")
        yield broker


@pytest.fixture
def acker(pipeline: Pipeline) -> Acker:
    return Acker(pipeline.url, "t")


@pytest.fixture
def topology(acker: Acker) -> Iterator[Topology]:
    """A topology whose external stream `items` has the subscription `count`."""
    with Topology(acker.url, "t", linger=None) as made:
        made.incoming("items", subscription="count")
        yield made
