"""`DataFrame.mapInArrow` for columns of any name and type, and columns that functions make of Arrow arrays.

Spark's own takes no name with a dot, or a backtick. Before Spark 4.2, empty arrays come without offsets,
which pyarrow reads all the same: asking for the size of a map among them ends the process.
"""

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everyone imports it
from pyspark.sql.types import DataType, StructField, StructType

from acker.spark.runtime.pickling import Shipped
from acker.spark.runtime.versions import arrow_schema

Function = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


class _Taking(Shipped):
    """Restores the names of columns of batches, and the offsets of their empty arrays."""

    def __init__(self, function: Function, names: list[str] | None) -> None:
        self.function = function
        self.names = names
        self.__name__ = getattr(function, "__name__", type(function).__name__)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return self.function(map(self._taken, batches))

    def _taken(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return sound(batch if self.names is None else batch.rename_columns(self.names))


def map_in_arrow(rows: DataFrame, function: Function, schema: StructType | str) -> DataFrame:
    """Returns the results of a function for the Arrow batches of each partition."""
    names = rows.columns
    if not any(mark in name for name in names for mark in ".`"):
        return rows.mapInArrow(_Taking(function, None), schema)
    plain = rows.toDF(*(f"c{place}" for place in range(len(names))))
    return plain.mapInArrow(_Taking(function, names), schema)


def arrow_column(
    function: Callable[[Iterator[pa.Array]], Iterator[pa.Array]], kind: DataType, of: Column, given: DataType
) -> Column:
    """A column that a function makes of another one, in one pass over the rows of a task.

    kind: the type of the column. given: the type of the other one.
    """
    functions: Any = F
    if hasattr(F, "arrow_udf"):

        def call(columns: Iterator[pa.Array]) -> Iterator[pa.Array]:
            yield from function(columns)

        return functions.arrow_udf(call, kind)(of)  # type: ignore[no-any-return]
    import pandas as pd

    [type_given] = arrow_schema(StructType([StructField("given", given)])).types

    def call_pandas(columns: Iterator[pd.Series]) -> Iterator[pd.Series]:
        for made in function(pa.array(column, type_given) for column in columns):
            yield made.to_pandas()

    return functions.pandas_udf(call_pandas, kind)(of)  # type: ignore[no-any-return]


def sound(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Returns a batch of Spark's whose empty arrays have offsets, as pyarrow expects."""
    columns = [_sound(column) for column in batch.columns]
    if all(new is old for new, old in zip(columns, batch.columns, strict=True)):
        return batch
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


def _sound(array: pa.Array) -> pa.Array:
    """Returns an array with offsets. Only empty arrays lack them: without rows, or in empty lists."""
    kind = array.type
    if not len(array):
        return pa.nulls(0, kind)
    if not pa.types.is_nested(kind):
        return array
    lists = pa.types.is_list(kind) or pa.types.is_map(kind)
    below = [array.values] if lists else [array.field(place) for place in range(kind.num_fields)]
    mended = [_sound(one) for one in below]
    if all(new is old for new, old in zip(mended, below, strict=True)):
        return array
    own = array.buffers()[: 2 if lists else 1]
    return pa.Array.from_buffers(kind, len(array), own, children=mended)
