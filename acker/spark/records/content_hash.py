"""A hash of all columns of rows, whatever types they have."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everyone imports it
from pyspark.sql.types import ArrayType, DataType, MapType, StructType, VariantType

from acker.errors import ValidationError
from acker.spark.records.once import quoted


def content_hash(rows: DataFrame, call: str) -> Column:
    """Returns a hash of all columns of rows. Raises ValidationError for a type that has none."""
    return F.xxhash64(*(_hashable(field.name, field.dataType, call) for field in rows.schema))


def _hashable(name: str, kind: DataType, call: str) -> Column:
    if any(shape in kind.json() for shape in ("geometry(", "geography(")):
        raise ValidationError(
            f"{call}: column {name}: got {kind.simpleString()}, which Spark cannot hash: give it st_asbinary"
        )
    return F.to_json(F.struct(quoted(name))) if _has_no_hash(kind) else quoted(name)


def _has_no_hash(kind: DataType) -> bool:
    if isinstance(kind, StructType):
        return any(_has_no_hash(field.dataType) for field in kind)
    if isinstance(kind, ArrayType):
        return _has_no_hash(kind.elementType)
    return isinstance(kind, (MapType, VariantType))
