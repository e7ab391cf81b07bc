"""The jobs of examples/lake_jobs.py, with the session of the tests."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from examples import lake_jobs

pytestmark = pytest.mark.slow


def test_each_order_is_proved_to_be_in_the_last_table_or_is_missing_by_name(
    spark: SparkSession, valkey_url: str, tmp_path: Path
) -> None:
    assert lake_jobs.nights(spark, valkey_url, tmp_path)
