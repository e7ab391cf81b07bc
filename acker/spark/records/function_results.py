"""Results of functions from a Spark job: a column of any type of JSON, as JSON, row by row.

A value that JSON lacks, like NaN, fails its request alone. A column of a type that JSON lacks is refused
before any task runs.
"""

import json
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegralType,
    LongType,
    MapType,
    NullType,
    StringType,
    StructType,
    VariantType,
    VariantVal,
)

from acker.drpc.out import as_json
from acker.errors import ValidationError
from acker.spark.records.mapping import cause_of
from acker.spark.runtime.pickling import Shipped
from acker.streams.log.segments import ANCHORS
from acker.streams.staging.effects import EFFECT
from acker.streams.staging.results import RESULT
from acker.streams.staging.staging import FAILED

Write: TypeAlias = Callable[[Any], str]
_ROWS = 1_000
"""Rows whose results are made together, because a column of Arrow's has 2 GiB at most."""


class AsJson(Shipped):
    """Makes JSON of the column `result` in tasks; rows whose value JSON lacks fail."""

    def __init__(self, kind: DataType) -> None:
        self.kind = kind

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yields the rows of a task."""
        write = encoder(self.kind, RESULT)
        for batch in batches:
            for first in range(0, batch.num_rows, _ROWS):
                yield self._written(batch.slice(first, _ROWS), write)

    @staticmethod
    def _written(rows: pa.RecordBatch, write: Write) -> pa.RecordBatch:
        texts: list[str | None] = []
        failed: list[str | None] = []
        for value in rows.column(RESULT):
            try:
                texts.append(as_json(value.as_py(), RESULT, write))
                failed.append(None)
            except Exception as error:  # noqa: BLE001 - whatever it is, it is the fail of that request
                texts.append(None)
                failed.append(cause_of(error))
        own = {RESULT: texts, FAILED: failed}
        columns = {name: rows.column(name) for name in rows.schema.names if name != RESULT}
        columns |= {name: pa.array(found, pa.string()) for name, found in own.items()}
        return pa.RecordBatch.from_arrays(list(columns.values()), list(columns))


def checked(rows: DataFrame) -> DataFrame:
    """Returns the columns of rows that give results. Raises ValidationError for others."""
    carried = [name for name in (ANCHORS, RESULT, EFFECT) if name in rows.columns]
    kinds = dict(zip(rows.columns, rows.schema.fields, strict=True))
    for name in (ANCHORS, RESULT):
        if rows.columns.count(name) != 1:
            raise ValidationError(
                f"results: expected the columns {ANCHORS} and {RESULT}, got {', '.join(rows.columns)}"
            )
    if not isinstance(kinds[ANCHORS].dataType, LongType):
        raise ValidationError(
            f"results: expected one anchor in each row, a bigint in {ANCHORS}, got "
            f"{kinds[ANCHORS].dataType.simpleString()}: a result is of one request"
        )
    encoder(kinds[RESULT].dataType, RESULT)
    return rows.select(*carried)


def encoder(kind: DataType, name: str) -> Write:
    """Returns an encoder of a column's values as JSON. Raises ValidationError for a type that JSON lacks.

    The encoder raises ValueError for a value that JSON lacks.
    """
    make = _encoder(kind, name)
    return lambda value: "null" if value is None else make(value)


def _encoder(kind: DataType, name: str) -> Write:
    if isinstance(kind, StringType):
        return lambda value: json.dumps(value, ensure_ascii=False)
    if isinstance(kind, NullType | BooleanType | IntegralType | FloatType | DoubleType):
        return lambda value: json.dumps(value, allow_nan=False)
    if isinstance(kind, DecimalType):
        return lambda value: f"{value:f}"
    if isinstance(kind, VariantType):
        return _variant
    if isinstance(kind, ArrayType):
        each = encoder(kind.elementType, f"{name}.element")
        return lambda value: f"[{','.join(map(each, value))}]"
    if isinstance(kind, StructType) and len(set(kind.names)) == len(kind.names):
        fields = [
            (
                member.name,
                json.dumps(member.name, ensure_ascii=False),
                encoder(member.dataType, f"{name}.{member.name}"),
            )
            for member in kind.fields
        ]
        return lambda value: f"{{{','.join(f'{text}:{make(value[own])}' for own, text, make in fields)}}}"
    if isinstance(kind, MapType) and isinstance(kind.keyType, StringType):
        item = encoder(kind.valueType, f"{name}.value")
        return lambda value: (
            f"{{{','.join(f'{json.dumps(key, ensure_ascii=False)}:{item(held)}' for key, held in value)}}}"
        )
    raise ValidationError(
        f"results: JSON has no {kind.simpleString()}, the type of {name}: make another of it, as by a "
        "cast to string"
    )


def _variant(value: dict[str, bytes]) -> str:
    text = VariantVal(value["value"], value["metadata"]).toJson()
    as_json(json.loads(text, parse_constant=_refuse), RESULT)  # it may have any number of levels
    return text


def _refuse(constant: str) -> None:
    raise ValueError(f"Out of range float values are not JSON compliant: {constant}")
