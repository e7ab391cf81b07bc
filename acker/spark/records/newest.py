"""The newest row of each key: older ones of a batch are left out.

Replays are records of later batches, so a batch may have a row that is older than another one of its key.

Terms: a tree is all that comes of one record.
"""

import secrets
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - as everyone imports it
from pyspark.sql.types import (
    BinaryType,
    DataType,
    DateType,
    DoubleType,
    FloatType,
    LongType,
    NumericType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from acker.errors import ValidationError, shown
from acker.ledger.slabs.causes import ending
from acker.spark.records.content_hash import content_hash
from acker.spark.records.mapping import CARRIED, RUN
from acker.spark.records.once import Key, parts_of, quoted
from acker.spark.runtime.arrow import map_in_arrow
from acker.spark.runtime.pickling import Shipped
from acker.spark.runtime.versions import arrow_schema
from acker.streams.log.segments import ANCHORS
from acker.streams.staging.staging import FAILED

VERSION = "acker.version"
"""The metadata of a column that orders rows."""
NO_KEY = "newest: the key is null"
NO_VERSION = "newest: the version is null, or no number"
_RANK = "_acker_rank"
_VERSIONS = (NumericType, StringType, BinaryType, DateType, TimestampType, TimestampNTZType)


class _Runs(Shipped):
    """Adds the column of runs to rows; for `DataFrame.mapInArrow`."""

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yields the rows, each with the number of this run of the task."""
        run = secrets.randbits(63)
        for batch in batches:
            columns = [*batch.columns, pa.array(np.full(batch.num_rows, run))]
            yield pa.RecordBatch.from_arrays(
                [array.cast(field.type) for array, field in zip(columns, self.schema, strict=True)],
                schema=self.schema,
            )


def check_version(rows: DataFrame, version: object) -> None:
    """Raises ValidationError unless a version is None, or the name of a column that can be compared."""
    if version is None:
        return
    if not isinstance(version, str) or version not in rows.columns:
        raise ValidationError(
            f"version: expected one of the columns {', '.join(rows.columns)}, got {shown(version)}"
        )
    _check_kind(rows.schema[version].dataType, "version")


def mark_version(rows: DataFrame, version: str | None) -> DataFrame:
    """Notes in the schema of rows which column orders them. It stays with a column that is only selected."""
    if version is None:
        return rows
    return rows.select(
        *(
            quoted(name).alias(name, metadata={VERSION: True}) if name == version else quoted(name)
            for name in rows.columns
        )
    )


def version_of(rows: DataFrame) -> Column:
    """The column that orders rows, as `track` was told. Raises ValidationError if there is none, or two."""
    names = [field.name for field in rows.schema if field.metadata.get(VERSION)]
    if len(names) != 1:
        raise ValidationError(
            "newest: version: expected a column that orders the rows, or rows of `track(..., version=...)` "
            f"that have its column as it was, got {', '.join(names) or 'none'}"
        )
    return quoted(names[0])


def _check_kind(kind: DataType, label: str) -> None:
    if not isinstance(kind, _VERSIONS):
        raise ValidationError(
            f"{label}: expected a column of numbers, text, bytes, dates or times, got one of "
            f"{kind.simpleString()}"
        )


def newest_rows(rows: DataFrame, key: Key, version: str | Column | None) -> DataFrame:
    """Returns the newest row of each key, and rows without a key or a version with the cause of their fail.

    Rows of one version are ordered by a hash of their columns, so it is the same row in each run, wherever
    the rows lie.

    Args:
        rows: The rows, with the column `_acker`.
        key: Columns of the key. Values are equal by Spark's rules for groups: NaN is NaN, -0.0 is 0.0.
        version: The column that orders rows: numbers, text, bytes, dates or timestamps. None: see
            `version_of`.

    Returns:
        The rows, with the columns of failed rows and of runs (`acker.spark.records.mapping`).

    Raises:
        ValidationError: Rows lack a column, a key cannot be grouped, or a version has no order.
    """
    order = version_of(rows) if version is None else version
    try:
        return _ranked(rows, parts_of(key, "newest"), F.col(order) if isinstance(order, str) else order)
    except AnalysisException as error:
        raise ValidationError(
            "newest: expected a key and a version of columns of the rows, which Spark can group by and "
            f"compare: {str(error).splitlines()[0]}"
        ) from error


def _ranked(rows: DataFrame, key: list[Column], version: Column) -> DataFrame:
    kind = rows.select(version.alias("version")).schema["version"].dataType
    _check_kind(kind, "newest: version")
    for_good = ending(retry=False)
    keyless = F.lit(False)
    for part in key:
        keyless = keyless | part.isNull()
    failed = F.when(keyless, NO_KEY + for_good).when(_has_no_order(version, kind), NO_VERSION + for_good)
    contents = content_hash(rows.drop(*CARRIED), "newest")
    # Failed rows are apart, and over all tasks: many may have no key.
    groups = [F.col(FAILED), *key, F.when(F.col(FAILED).isNotNull(), contents)]
    order = Window.partitionBy(*groups).orderBy(version.desc(), contents.desc(), quoted(ANCHORS).desc())
    marked = rows.withColumn(FAILED, failed.cast("string")).withColumn(_RANK, F.row_number().over(order))
    first = marked.filter(F.col(FAILED).isNotNull() | (F.col(_RANK) == 1)).drop(_RANK)
    schema = StructType([*first.schema.fields, StructField(RUN, LongType())])
    return map_in_arrow(first, _Runs(arrow_schema(schema)), schema)


def _has_no_order(version: Column, kind: DataType) -> Column:
    """True for versions that no other one replaces, or that replace all others."""
    return (
        version.isNull() | F.isnan(version) if isinstance(kind, FloatType | DoubleType) else version.isNull()
    )
