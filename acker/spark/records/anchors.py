"""The column `_acker` of DataFrames: its name, and columns that put the anchors of several rows together."""

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everyone imports it
from pyspark.sql.types import StructField, StructType

from acker.errors import ValidationError
from acker.streams.log.segments import ANCHORS
from acker.streams.staging.effects import EFFECT

_OWN = (ANCHORS, EFFECT)


def anchors(*columns: str | Column) -> Column:
    """The anchors of several columns as one array, for `.alias("_acker")`: each once, without nulls.

        both = orders.alias("o").join(payments.alias("p"), "id", "left")
        both.select("id", anchors("o._acker", "p._acker").alias("_acker"))
        batch.groupBy("day").agg(F.sum("amount"), anchors(F.collect_list("_acker")).alias("_acker"))

    columns: bigints, arrays of them, and arrays of such arrays, each of them null where it likes; by name, or
    an expression. The array is empty where there is no anchor, and holds a 0 alone where rows without a tree
    are all there is. Raises ValidationError for no column.
    """
    if not columns:
        raise ValidationError("anchors: expected a column or more, got none")
    given = [F.col(column) if isinstance(column, str) else column for column in columns]
    # A Column does not tell its type before it is resolved, and no function of Spark's takes a bigint as well
    # as an array. As JSON all of them are whole numbers, between marks that no number has.
    named = F.struct(*(column.alias("a" * place) for place, column in enumerate(given, 1)))
    found = F.regexp_extract_all(F.to_json(named), F.lit(r"(-?\d+)"), 1).cast("array<bigint>")
    distinct = F.array_distinct(found)
    return F.when(F.size(distinct) > 1, F.array_remove(distinct, 0)).otherwise(distinct)


def check_names(names: list[str], what: str) -> list[str]:
    """The names of columns, acker's own without regard to case, as Spark takes them.

    Raises ValidationError where rows have several columns of anchors, as after a join.
    """
    places = [place for place, name in enumerate(names) if name.lower() == ANCHORS]
    if len(places) > 1:
        raise ValidationError(
            f"{what}: expected one column {ANCHORS}, got {len(places)} among {', '.join(names)}: make one of "
            'them, as anchors(a._acker, b._acker).alias("_acker") does (from acker.spark import anchors), '
            "and leave out the others"
        )
    return [name.lower() if name.lower() in _OWN else name for name in names]


def named(rows: DataFrame, what: str) -> DataFrame:
    """Rows whose column of anchors has its name; see `check_names`."""
    before = rows.columns
    names = check_names(before, what)
    return rows if names == before else rows.toDF(*names)


def named_type(schema: StructType, what: str) -> StructType:
    """A schema that the user gives, with the column of anchors by its name; see `check_names`."""
    names = check_names(schema.names, what)
    return StructType([StructField(name, one.dataType) for name, one in zip(names, schema, strict=True)])


def named_schema(schema: pa.Schema, what: str) -> pa.Schema:
    """An Arrow schema of Spark's, with the column of anchors by its name; see `check_names`."""
    names = check_names(schema.names, what)
    return pa.schema([field.with_name(name) for field, name in zip(schema, names, strict=True)])
