"""Differences between the versions of Spark, from 4.0 on."""

import inspect
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

try:
    from pyspark.sql.datasource import DataSourceStreamArrowWriter
except ImportError:  # 4.0 hands Arrow to any writer that is a DataSourceArrowWriter
    DataSourceStreamArrowWriter = DataSourceArrowWriter  # type: ignore[assignment, misc]

try:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxRows,
        SupportsTriggerAvailableNow,
    )

    LEARNS_OFFSETS = True
except ImportError:  # before 4.2, a Python source does not learn where it was, and not limited

    class SupportsTriggerAvailableNow:  # type: ignore[no-redef]
        """A stand-in for a class that this Spark does not have."""

    ReadAllAvailable = ReadLimit = ReadMaxRows = None  # type: ignore[assignment, misc]
    LEARNS_OFFSETS = False

__all__ = [
    "LEARNS_OFFSETS",
    "DataSourceStreamArrowWriter",
    "ReadAllAvailable",
    "ReadLimit",
    "ReadMaxRows",
    "SupportsTriggerAvailableNow",
    "arrow_schema",
    "spark_schema",
]

# Before 4.1 there is no choice of a time zone: it is UTC.
_ZONE: dict[str, Any] = (
    {"timezone": "UTC"} if "timezone" in inspect.signature(to_arrow_schema).parameters else {}
)


def arrow_schema(schema: StructType) -> pa.Schema:
    """Returns the schema in which Spark passes and takes rows."""
    return to_arrow_schema(schema, **_ZONE)


def spark_schema(schema: pa.Schema) -> StructType:
    """Returns Spark's schema for an Arrow schema. Timestamps without a zone stay so, also before 4.1."""
    return from_arrow_schema(schema, prefer_timestamp_ntz=True)
