"""Kafka for external streams: a stamp goes among the headers of its row, and comes back with them."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everyone imports it
from pyspark.sql.types import ArrayType, BinaryType, StringType, StructField, StructType

from acker.errors import ValidationError, shown
from acker.spark.external.sinks import Sink
from acker.streams.staging.external.rows.carriers import COLUMN, HEADER

HEADERS = "headers"
"""The column of headers that Spark's source, with the option includeHeaders, and its sink have."""
_KIND = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))


def to(servers: str, topic: str | None = None, **options: object) -> Sink:
    """Makes a topic of Kafka a sink, for `collector.emit(rows, stream, to=...)`.

    The rows have the columns of Spark's Kafka sink: `value`, and `key`, `headers`, `partition` and `topic` if
    they are wanted. The stamp goes into the header `acker-stamp`, beside the row's own headers, in place of
    an earlier stamp; all else stays. The session needs Spark's connector, spark-sql-kafka-0-10.

    Args:
        servers: The addresses of brokers, `host:port,...`.
        topic: The topic; None for rows with the column `topic`.
        **options: Further options of Spark's sink, as `**{"kafka.acks": "all"}`.

    Returns:
        The sink.

    Raises:
        ValidationError: An argument is no text.
    """
    given: dict[str, object] = {"servers": servers, "topic": "of each row" if topic is None else topic}
    for name, text in given.items():
        if not isinstance(text, str) or not text:
            raise ValidationError(f"kafka.to: {name}: expected a text, got {shown(text)}")
    settings = {"kafka.bootstrap.servers": servers, **{name: str(value) for name, value in options.items()}}
    if topic is not None:
        settings["topic"] = topic
    return Sink(lambda w: w.format("kafka").options(**settings).mode("append").save(), prepare=_with_headers)


def _with_headers(rows: DataFrame) -> DataFrame:
    """Rows with their stamps among their headers."""
    own = F.col(HEADERS) if HEADERS in rows.columns else F.lit(None)
    kept = F.filter(F.coalesce(own.cast(_KIND), F.array().cast(_KIND)), lambda one: one["key"] != HEADER)
    stamp = F.struct(F.lit(HEADER).alias("key"), F.col(COLUMN).cast("binary").alias("value"))
    added = F.when(F.col(COLUMN).isNotNull(), F.array(stamp)).otherwise(F.array().cast(_KIND))
    return rows.withColumn(HEADERS, F.concat(kept, added)).drop(COLUMN)


def with_stamps(rows: DataFrame) -> DataFrame:
    """Rows as they were read, with the column `_acker_stamp` if they have headers of Kafka instead.

    The last stamp counts, as in `carriers.find`. Bytes that are no text are a damaged stamp.
    """
    if COLUMN in rows.columns or HEADERS not in rows.columns or rows.schema[HEADERS].dataType != _KIND:
        return rows
    found: Column = F.filter(F.col(HEADERS), lambda one: one["key"] == HEADER)
    text = F.get(found, F.size(found) - 1)["value"].cast("string")
    return rows.withColumn(COLUMN, F.make_valid_utf8(text))
