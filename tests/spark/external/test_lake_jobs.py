"""The jobs of examples/lake_jobs.py and examples/kafka_to_delta.py, with the session of the tests."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from examples import kafka_to_delta, lake_jobs
from examples.kafka_to_delta import Places
from tests.helpers.servers.kafka import Broker

pytestmark = pytest.mark.slow


def test_each_order_is_proved_to_be_in_the_last_table_or_is_missing_by_name(
    spark: SparkSession, valkey_url: str, tmp_path: Path
) -> None:
    assert lake_jobs.nights(spark, valkey_url, tmp_path)


@pytest.mark.lake
def test_each_order_of_a_topic_is_in_the_table_once_and_acked(
    spark: SparkSession, topics: Broker, valkey_url: str, tmp_path: Path
) -> None:
    places = Places(topics.servers, topics.topic(2), topics.topic(2), tmp_path)
    assert kafka_to_delta.check(spark, valkey_url, places)
