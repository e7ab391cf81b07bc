"""One Spark application for all tests: driver here, executors in two JVMs of their own."""

import logging
import os
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest
from pyspark.sql import SparkSession

from acker.ledger.client import Ledger, open_ledger
from acker.spark import register
from acker.spark.runtime import tuning
from acker.store.client import Store
from tests.helpers.builders.pipeline import Pipeline

WHERE = os.environ.get("ACKER_TEST_SPARK", "local-cluster[2,1,1024]")
"""Spark's master, or the URL of a Spark Connect server, for tests that are marked "connect"."""


CONNECT = WHERE.startswith("sc://")
LAKE = os.environ.get("ACKER_TEST_LAKE", "")
"""The jars of Delta and Iceberg, with commas between, for tests that are marked "lake"."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """All tests here start or use Spark; some run with Connect or Delta only, or from a version on."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.spark)
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(600))  # a query takes its time where much else runs
    elsewhere = [
        item
        for item in items
        if (_connect_only(item) and not CONNECT)
        or (item.get_closest_marker("lake") and not LAKE)
        or _later(item)
    ]
    if elsewhere:
        config.hook.pytest_deselected(items=elsewhere)
        items[:] = [item for item in items if item not in elsewhere]


def _connect_only(item: pytest.Item) -> bool:
    mark = item.get_closest_marker("connect")
    return mark is not None and bool(mark.kwargs.get("only", True))


def _later(item: pytest.Item) -> bool:
    """True if a test needs a later Spark than there is."""
    return any(_version(mark.args[0]) > SPARK for mark in item.iter_markers("since"))


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".")[:2])


SPARK = _version(pyspark.__version__)


@pytest.fixture(scope="session")
def spark(java_home: Path) -> Iterator[SparkSession]:
    """The shared session; "acker" is registered in it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        session = client() if CONNECT else driver()
        register(session)
    yield session
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        session.stop()


def driver() -> SparkSession:
    """A session whose driver is beside this process."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    logging.getLogger("py4j").setLevel(logging.ERROR)
    session = (
        SparkSession.builder.master(WHERE)
        .appName("acker tests")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.default.parallelism", "2")
        .config("spark.executor.memory", "512m")
        .config("spark.sql.streaming.metricsEnabled", "false")
        .config("spark.task.maxFailures", "4")
        .config("spark.excludeOnFailure.enabled", "false")
        .config(map={**tuning.settings(local_checkpoints=True, pip_workers=True), **_lake()})
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    return session


def _lake() -> dict[str, str]:
    """The settings of Delta and Iceberg; "lake" is a catalog of Iceberg."""
    if not LAKE:
        return {}
    iceberg, delta = "org.apache.iceberg.spark", "io.delta.sql.DeltaSparkSessionExtension"
    return {
        "spark.jars": LAKE,
        "spark.sql.extensions": f"{delta},{iceberg}.extensions.IcebergSparkSessionExtensions",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.catalog.lake": f"{iceberg}.SparkCatalog",
        "spark.sql.catalog.lake.type": "hadoop",
        "spark.sql.catalog.lake.cache-enabled": "false",  # by each session of a query
        "spark.databricks.delta.retentionDurationCheck.enabled": "false",  # VACUUM, at once
        "spark.databricks.delta.snapshotPartitions": "2",
        "spark.sql.sources.parallelPartitionDiscovery.parallelism": "2",  # of VACUUM
    }


def client() -> SparkSession:
    """A session on a Spark Connect server."""
    return SparkSession.builder.remote(WHERE).getOrCreate()


@pytest.fixture
def ledger(valkey_url: str) -> Ledger:
    """An empty topology of three shards."""
    return open_ledger(Store(valkey_url), "t", ackers=3, message_timeout=600.0)


@pytest.fixture
def pipeline(spark: SparkSession, ledger: Ledger, valkey_url: str, tmp_path: Path) -> Pipeline:
    """Spouts, queries and their checkpoints, for one test."""
    return Pipeline(spark, ledger, valkey_url, tmp_path)
