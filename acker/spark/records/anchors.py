"""The column `_acker` of DataFrames: its name, and columns that join the anchors of several rows.

Terms: a tree is all that comes of one record; an anchor is the number of a tree.
"""

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everyone imports it
from pyspark.sql.types import StructField, StructType

from acker.errors import ValidationError
from acker.streams.log.segments import ANCHORS
from acker.streams.staging.effects import EFFECT

_OWN = (ANCHORS, EFFECT)


def anchors(*columns: str | Column) -> Column:
    """Joins the anchors of several columns into one array, for `.alias("_acker")`: each once, without nulls.

        both = orders.alias("o").join(payments.alias("p"), "id", "left")
        both.select("id", anchors("o._acker", "p._acker").alias("_acker"))
        batch.groupBy("day").agg(F.sum("amount"), anchors(F.collect_list("_acker")).alias("_acker"))

    Args:
        *columns: Bigints, arrays of bigints, or arrays of such arrays, any of them null; names or
            expressions.

    Returns:
        An array, empty if there is no anchor. It holds only a 0 if no row has a tree.

    Raises:
        ValidationError: No column is given.
    """
    if not columns:
        raise ValidationError("anchors: expected one or more columns, got none")
    given = [F.col(column) if isinstance(column, str) else column for column in columns]
    # A Column does not tell its type before it is resolved, and no function of Spark's takes a bigint as well
    # as an array. As JSON all of them are whole numbers, between marks that no number has.
    named = F.struct(*(column.alias("a" * place) for place, column in enumerate(given, 1)))
    found = F.regexp_extract_all(F.to_json(named), F.lit(r"(-?\d+)"), 1).cast("array<bigint>")
    distinct = F.array_distinct(found)
    return F.when(F.size(distinct) > 1, F.array_remove(distinct, 0)).otherwise(distinct)


def check_names(names: list[str], call: str) -> list[str]:
    """Returns the names of columns, acker's own columns in lower case whatever case Spark has.

    Args:
        names: The names of the columns.
        call: The name of the call, for the error.

    Raises:
        ValidationError: Rows have several columns of anchors, as after a join.
    """
    places = [place for place, name in enumerate(names) if name.lower() == ANCHORS]
    if len(places) > 1:
        raise ValidationError(
            f"{call}: expected one column {ANCHORS}, got {len(places)} among {', '.join(names)}: join them "
            'by anchors(a._acker, b._acker).alias("_acker") (from acker.spark import anchors), '
            "and leave out the others"
        )
    return [name.lower() if name.lower() in _OWN else name for name in names]


def named(rows: DataFrame, call: str) -> DataFrame:
    """Returns rows whose column of anchors has its name; see `check_names`."""
    before = rows.columns
    names = check_names(before, call)
    return rows if names == before else rows.toDF(*names)


def named_type(schema: StructType, call: str) -> StructType:
    """Returns a user's schema with the column of anchors by its name; see `check_names`."""
    names = check_names(schema.names, call)
    return StructType([StructField(name, one.dataType) for name, one in zip(names, schema, strict=True)])


def named_schema(schema: pa.Schema, call: str) -> pa.Schema:
    """Returns Spark's Arrow schema with the column of anchors by its name; see `check_names`."""
    names = check_names(schema.names, call)
    return pa.schema([field.with_name(name) for field, name in zip(schema, names, strict=True)])
