"""Kafka: stamps go among the headers of rows, and records are read again by their offsets.

An external stream's stamp comes back with the headers of its row. A spout that keeps ids reads a record again
by its topic, partition and offset.
"""

import json
from collections.abc import Callable, Iterable, Sequence
from functools import reduce
from typing import TypeAlias

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everyone imports it
from pyspark.sql.types import ArrayType, BinaryType, StringType, StructField, StructType

from acker.errors import ValidationError, shown
from acker.spark.external.sinks import Sink
from acker.spark.source.rereading import Reread, check_names, check_rows
from acker.streams.staging.external.rows.carriers import COLUMN, HEADER

HEADERS = "headers"
"""The column of headers that Spark's source, with the option includeHeaders, and its sink have."""
GAP = 1_000
"""Offsets between two ids from which on two reads are better than a read of all between."""
MOST_READS = 32
"""Most reads of one job of Spark: more of them are jobs one after another."""
FETCH = 256 << 10
"""Most bytes that a read of several offsets fetches at a time of a partition, by default."""
SINGLE = {"kafka.max.partition.fetch.bytes": "1", "kafka.max.poll.records": "1"}
"""Options of a read of single offsets: a broker sends one batch of a producer, whatever its size, and the
consumer fetches no other while it has records of that."""
POLL_TIMEOUT = "10000"
"""Milliseconds for which a read waits for a record. Spark's 120 s would pass for each offset behind the end
of a topic that was made anew. A broker that takes longer is an error, and the rows wait."""
_Range: TypeAlias = dict[tuple[str, int], tuple[int, int]]
_PLACE = "topic string, partition int, offset long"
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


def reread(
    servers: str,
    topic: str | None = None,
    *,
    rows: Callable[[DataFrame], DataFrame] | None = None,
    **options: object,
) -> Reread:
    """Reads records of Kafka again by their offsets, for `track(..., keep="ids", reread=...)`.

        records = spark.readStream.format("kafka").options(...).load()
        orders = acker.track(
            records.selectExpr("string(key) id", "value", "topic", "partition", "offset"), "orders",
            message_id="id", keep="ids", place=["topic", "partition", "offset"],
            reread=kafka.reread(SERVERS, rows=lambda records: records.selectExpr("string(key) id", "value",
                                "topic", "partition", "offset")),
        )

    The offsets of a call are sorted, and divided where more than `GAP` lie between two of them: so one old
    failure and one new one are not the whole topic between them. Of an id that lies alone, one batch of the
    topic's producer is fetched, or two: a broker sends no less. Where ids lie near each other, at most `GAP`
    records are read for each, and up to twice `FETCH` bytes fetched ahead for all. Where there are more than
    `MOST_READS` such ranges, so many are read by a job of Spark, one job after another. A
    record that the topic has no longer, by retention or compaction, is gone from its source. Brokers that are
    away, or a topic that is, raise, and the rows wait.

    Args:
        servers: The addresses of brokers, `host:port,...`.
        topic: The topic; None for ids with the column `topic`.
        rows: Makes the tracked rows of records, as the program has made them before `track`. It must keep the
            columns `partition` and `offset`, and `topic` if it is kept. None keeps the columns of Spark's
            source.
        **options: Further options of Spark's source, as `includeHeaders`.

    Returns:
        The function for `reread`.

    Raises:
        ValidationError: An argument is invalid.
    """
    check_names("kafka.reread", servers=servers, topic="of each row" if topic is None else topic)
    check_rows("kafka.reread", rows)
    settings = {"failOnDataLoss": "false", "kafkaConsumer.pollTimeoutMs": POLL_TIMEOUT}
    given = {name: str(value) for name, value in options.items()} | {"kafka.bootstrap.servers": servers}

    def read(ids: DataFrame) -> DataFrame:
        named = F.lit(topic) if topic is not None else F.col("topic").cast("string")
        places = ids.select(named, F.col("partition").cast("int"), F.col("offset").cast("long")).collect()
        if any(None in place for place in places):
            raise ValidationError(
                "kafka.reread: expected a topic, partition and offset of each id, got a null"
            )
        ranges = cut((place[0], place[1], place[2]) for place in places)
        spark = ids.sparkSession
        jobs = [
            _load(spark, settings, given, ranges[first : first + MOST_READS])
            for first in range(0, len(ranges), MOST_READS)
        ]
        records = jobs[0] if len(jobs) == 1 else _in_turn(jobs, spark.createDataFrame(places, _PLACE))
        return records if rows is None else rows(records)

    return read


def _load(
    spark: SparkSession, settings: dict[str, str], given: dict[str, str], ranges: Sequence[_Range]
) -> DataFrame:
    """The records of ranges, for one job. given: options of the caller."""
    reads = [
        spark.read.format("kafka").options(**(settings | _fetching(part) | given | _bounds(part))).load()
        for part in ranges
    ]
    return reduce(DataFrame.unionAll, reads)


def _fetching(part: _Range) -> dict[str, str]:
    """The options of a bounded read for the bytes that it fetches at a time."""
    several = any(low < high for low, high in part.values())
    return {"kafka.max.partition.fetch.bytes": str(FETCH)} if several else SINGLE


def _in_turn(jobs: Sequence[DataFrame], places: DataFrame) -> DataFrame:
    """The records of some places, by one job after another; other records stay in the executors."""
    names, wanted = jobs[0].columns, F.broadcast(places)
    tables = [job.join(wanted, places.columns, "left_semi").select(*names).toArrow() for job in jobs]
    return places.sparkSession.createDataFrame(pa.concat_tables(tables), jobs[0].schema)


def cut(places: Iterable[tuple[str, int, int]]) -> list[_Range]:
    """Divides places (topic, partition, offset) into reads: partition of a topic -> first and last offset.

    Each read has one range of a partition. No more than `GAP` offsets lie between two places of a range.
    Reads of single offsets come first.
    """
    by_partition: dict[tuple[str, int], list[int]] = {}
    for topic, partition, offset in sorted(set(places)):
        by_partition.setdefault((topic, partition), []).append(offset)
    single, several = list[_Range](), list[_Range]()
    for partition_of, offsets in by_partition.items():
        gaps = [place for place in range(1, len(offsets)) if offsets[place] - offsets[place - 1] > GAP]
        bounds = [
            (offsets[first], offsets[after - 1])
            for first, after in zip([0, *gaps], [*gaps, len(offsets)], strict=True)
        ]
        for reads, kind in (single, True), (several, False):
            own = [bound for bound in bounds if (bound[0] == bound[1]) is kind]
            reads += [{} for _ in range(len(own) - len(reads))]
            for part, bound in zip(reads, own, strict=False):
                part[partition_of] = bound
    return single + several


def _bounds(part: _Range) -> dict[str, str]:
    """The options of a bounded read."""
    assigned: dict[str, list[int]] = {}
    first: dict[str, dict[str, int]] = {}
    after: dict[str, dict[str, int]] = {}
    for (topic, partition), (low, high) in part.items():
        assigned.setdefault(topic, []).append(partition)
        first.setdefault(topic, {})[str(partition)] = low
        after.setdefault(topic, {})[str(partition)] = high + 1
    return {
        "assign": json.dumps(assigned),
        "startingOffsets": json.dumps(first),
        "endingOffsets": json.dumps(after),
    }


def _with_headers(rows: DataFrame) -> DataFrame:
    """Rows with their stamps among their headers."""
    none = F.array().cast(_KIND)
    stamp = F.struct(F.lit(HEADER).alias("key"), F.col(COLUMN).cast("binary").alias("value"))
    headers = F.when(F.col(COLUMN).isNotNull(), F.array(stamp)).otherwise(none)
    if HEADERS in rows.columns:
        own = F.coalesce(F.col(HEADERS).cast(_KIND), none)
        headers = F.concat(F.filter(own, lambda header: header["key"] != HEADER), headers)
    return rows.withColumn(HEADERS, headers).drop(COLUMN)


def with_stamps(rows: DataFrame) -> DataFrame:
    """Rows as they were read, with the column `_acker_stamp` if they have headers of Kafka instead.

    The last stamp counts, as in `carriers.find`. Bytes that are no text are a damaged stamp.
    """
    if COLUMN in rows.columns or HEADERS not in rows.columns or rows.schema[HEADERS].dataType != _KIND:
        return rows
    found: Column = F.filter(F.col(HEADERS), lambda header: header["key"] == HEADER)
    text = F.try_element_at(found, F.lit(-1))["value"].cast("string")
    return rows.withColumn(COLUMN, F.make_valid_utf8(text))
