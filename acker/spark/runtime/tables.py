"""Tables that a command reads by Spark, in a session of its own."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pyspark
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from acker.embedded import ensure_java
from acker.errors import ValidationError
from acker.spark.runtime.tuning import tuned

_NEEDED = {
    "delta": {
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    },
    "iceberg": {"spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"},
}
"""Settings without which a session cannot read tables of a kind."""
_PACKAGES = {
    ("delta", "4.0"): "io.delta:delta-spark_2.13:4.0.0",
    ("delta", "4.1"): "io.delta:delta-spark_4.1_2.13:4.1.0",
    ("iceberg", "4.0"): "org.apache.iceberg:iceberg-spark-runtime-4.0_2.13:1.10.0",
    ("iceberg", "4.1"): "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.11.0",
}
"""Packages by kind and version of Spark."""


@contextmanager
def opened(kind: str, place: str, settings: Sequence[tuple[str, str]]) -> Iterator[DataFrame]:
    """Reads a table while the block lasts, in a session that ends with it.

    Args:
        kind: parquet or delta, by a path; iceberg, by a name; or sql, a query.
        place: The path, the name or the query.
        settings: Settings of Spark, as `spark.jars.packages` for Delta and Iceberg, and a master; by default
            all cores of this machine. Extensions and the catalog of Delta need none.

    Raises:
        ValidationError: Spark cannot read the table.
        AckerError: There is no Java.
    """
    ensure_java()
    builder = tuned(SparkSession.builder).appName("acker reconcile").config("spark.ui.enabled", False)
    builder = builder.config("spark.ui.showConsoleProgress", False).config("spark.log.level", "ERROR")
    for key, value in (_NEEDED.get(kind, {}) | dict(settings)).items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    try:
        yield _read(spark, kind, place)
    finally:
        spark.stop()


def _read(spark: SparkSession, kind: str, place: str) -> DataFrame:
    try:
        _check_package(spark, kind)
        if kind == "sql":
            return spark.sql(place)
        return spark.read.table(place) if kind == "iceberg" else spark.read.format(kind).load(place)
    except PySparkException as error:
        reason = str(error).strip().split("\n")[0]
        raise ValidationError(
            f"--{kind}: expected a table that Spark can read, got {place!r}: {reason}"
        ) from None


def _check_package(spark: SparkSession, kind: str) -> None:
    """Raises ValidationError if the session lacks the jars of tables of a kind."""
    jvm: Any = spark.sparkContext._jvm
    names = _NEEDED.get(kind, {}).values()
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    if all(loader.getResource(f"{name.replace('.', '/')}.class") for name in names):
        return
    release = ".".join(pyspark.__version__.split(".")[:2])
    package = _PACKAGES.get((kind, release))
    if package is not None:
        way_out = f"add --conf spark.jars.packages={package}"
    else:
        releases = " and ".join(of for name, of in _PACKAGES if name == kind)
        way_out = f"there are packages for Spark {releases}: run the command where pyspark has such a version"
    raise ValidationError(f"--{kind}: expected jars of {kind} in the session of Spark {release}: {way_out}")
