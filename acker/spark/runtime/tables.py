"""Tables that a command reads by Spark, in a session of its own."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from acker.embedded import ensure_java
from acker.errors import ValidationError
from acker.spark.runtime.tuning import tuned


@contextmanager
def opened(kind: str, place: str, settings: Sequence[tuple[str, str]]) -> Iterator[DataFrame]:
    """Reads a table while the block lasts, in a session that ends with it.

    Args:
        kind: parquet or delta, by a path; iceberg, by a name; or sql, a query.
        place: The path, the name or the query.
        settings: Settings of Spark, as `spark.jars.packages` for Delta and Iceberg, and a master; by default
            all cores of this machine.

    Raises:
        ValidationError: Spark cannot read the table.
        AckerError: There is no Java.
    """
    ensure_java()
    builder = tuned(SparkSession.builder).appName("acker reconcile").config("spark.ui.enabled", False)
    builder = builder.config("spark.ui.showConsoleProgress", False).config("spark.log.level", "ERROR")
    for key, value in settings:
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    try:
        yield _read(spark, kind, place)
    finally:
        spark.stop()


def _read(spark: SparkSession, kind: str, place: str) -> DataFrame:
    try:
        if kind == "sql":
            return spark.sql(place)
        return spark.read.table(place) if kind == "iceberg" else spark.read.format(kind).load(place)
    except PySparkException as error:
        reason = str(error).strip().split("\n")[0]
        raise ValidationError(
            f"--{kind}: expected a table that Spark can read, got {place!r}: {reason}"
        ) from None
