"""Columns as keys: values that Spark calls equal have one text, as JSON, which no other value has."""

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - as everyone imports it
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    MapType,
    StringType,
    StructField,
    StructType,
    VariantType,
)

_BYTES = "\0bytes "
"""The prefix of text that is written as the hexadecimal digits of its bytes."""


def canonical(column: Column, kind: DataType) -> Column:
    """Returns a column whose values, as JSON, are equal if Spark calls them equal.

    Zero loses its sign, decimals the zeros at their end, and maps their order. JSON has only UTF-8: other
    text is written as its bytes, because two texts could otherwise be one key.
    """
    if isinstance(kind, FloatType | DoubleType):
        return F.when(column == 0, F.lit(0.0).cast(kind)).otherwise(column)
    if isinstance(kind, DecimalType):
        shorter = F.regexp_replace(column.cast("string"), r"(\.\d*?)0+(E|$)", "$1$2")
        return F.when(column == 0, "0").otherwise(F.regexp_replace(shorter, r"\.(E|$)", "$1"))
    if isinstance(kind, StringType):
        plain = F.is_valid_utf8(column) & ~column.startswith(_BYTES)
        return F.when(plain, column).otherwise(F.concat(F.lit(_BYTES), F.hex(column.cast("binary"))))
    if isinstance(kind, ArrayType):
        return F.transform(column, lambda one: canonical(one, kind.elementType))
    if isinstance(kind, StructType):
        fields = [canonical(column.getField(one.name), one.dataType).alias(one.name) for one in kind.fields]
        return F.when(column.isNotNull(), F.struct(*fields)) if fields else column
    if isinstance(kind, MapType):
        entry = StructType([StructField("key", kind.keyType), StructField("value", kind.valueType)])
        return F.array_sort(canonical(F.map_entries(column), ArrayType(entry)))
    if isinstance(kind, VariantType):
        return F.to_json(column)
    return column
