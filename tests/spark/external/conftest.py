"""A topology of external streams; Spark's connector of Kafka, and a broker; tables of a lake."""

import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from acker import Topology
from acker.spark import Acker
from tests.helpers.builders.lake import Table
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


@pytest.fixture(scope="session")
def lake(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The namespace of Iceberg's tables; the catalog of the session lies in a folder of this run."""
    spark.conf.set("spark.sql.catalog.lake.warehouse", str(tmp_path_factory.mktemp("warehouse")))
    spark.sql("create namespace if not exists lake.db")
    return "lake.db"


@pytest.fixture(params=["delta", "iceberg"])
def table(request: pytest.FixtureRequest, spark: SparkSession, lake: str, tmp_path: Path) -> Table:
    """Tables of each kind. The one of Iceberg has a sort order, for which it evaluates its rows twice."""
    if request.param == "delta":
        return Table(spark, "delta", str(tmp_path / "items"), str(tmp_path / "sink"))
    name = f"{lake}.t_{secrets.token_hex(4)}"
    made = Table(spark, "iceberg", f"{name}_items", f"{name}_sink")
    spark.sql(f"create table {made.items} (value string, _acker_stamp string) using iceberg")
    spark.sql(f"create table {made.sink} (value string) using iceberg")
    spark.sql(f"alter table {made.items} write ordered by value")
    return made
