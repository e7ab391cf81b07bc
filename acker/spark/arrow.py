"""`DataFrame.mapInArrow` for columns of any name: Spark's own takes none with a dot, or a backtick, in it."""

from collections.abc import Callable, Iterator

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from acker.spark.shipping import Shipped

Function = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


class _Named(Shipped):
    """Gives the columns of batches their names back."""

    def __init__(self, function: Function, names: list[str]) -> None:
        self.function = function
        self.names = names
        self.__name__ = getattr(function, "__name__", type(function).__name__)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return self.function(batch.rename_columns(self.names) for batch in batches)


def map_in_arrow(rows: DataFrame, function: Function, schema: StructType | str) -> DataFrame:
    """What a function makes of the Arrow batches of each partition."""
    names = rows.columns
    if not any(mark in name for name in names for mark in ".`"):
        return rows.mapInArrow(function, schema)
    plain = rows.toDF(*(f"c{place}" for place in range(len(names))))
    return plain.mapInArrow(_Named(function, names), schema)
