"""Rows whose effect is to happen once: their key is not recorded yet (acker/streams/staging/effects.py)."""

import secrets
from collections.abc import Iterator, Sequence
from typing import TypeAlias

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everyone imports it
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from acker.errors import EffectsFull, ValidationError, shown
from acker.ledger.client import Ledger
from acker.spark.records.key_columns import canonical
from acker.spark.records.mapping import RUN
from acker.spark.runtime.arrow import map_in_arrow
from acker.spark.runtime.pickling import Shipped
from acker.spark.runtime.versions import arrow_schema
from acker.streams.log.segments import ANCHORS
from acker.streams.staging import effects
from acker.streams.staging.effects import EFFECT
from acker.streams.staging.staging import FAILED

Key: TypeAlias = str | Column | Sequence[str | Column]
NO_KEY = "once: the key is null"
DIGEST = "digest"
KEPT = StructType([StructField(DIGEST, BinaryType())])
"""The type of `_acker_once` in rows that are there in each attempt; null within where a key was recorded."""
KEPT_ARROW = pa.struct([pa.field(DIGEST, pa.binary())])
_MICROS = "yyyy-MM-dd'T'HH:mm:ss.SSSSSS"
_AS_JSON = {"timeZone": "UTC", "timestampFormat": f"{_MICROS}XXX", "timestampNTZFormat": _MICROS}
"""How keys are distinguished: Spark's own format leaves out what is below a millisecond."""


class _LookUp(Shipped):
    """Lets rows through whose digest is not recorded, or tells which they are; for `DataFrame.mapInArrow`."""

    def __init__(self, ledger: Ledger, horizon: int, schema: pa.Schema, keep: bool) -> None:
        self.ledger = ledger
        self.horizon = horizon
        self.schema = schema
        self.keep = keep

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows, and those without a key, which come with the reason to fail them with."""
        run = secrets.randbits(63)
        for batch in batches:
            digests = batch.column(batch.schema.get_field_index(EFFECT)).to_pylist()
            asked = [digest for digest in digests if digest is not None]
            known, _ = self.ledger.run(effects.known(self.ledger.core, self.horizon, asked))
            new = [digest not in known for digest in digests]
            if self.keep:
                digests = [one if is_new else b"" for one, is_new in zip(digests, new, strict=True)]
                made = [{DIGEST: one or None} for one in digests]
                columns = [*batch.columns[:-1], pa.array(new), pa.array(made, KEPT_ARROW)]
            else:
                kept = batch.filter(pa.array(new, pa.bool_()))
                digests, columns = kept.column(EFFECT).to_pylist(), kept.columns
            reasons = [NO_KEY if one is None else None for one in digests]
            columns += [
                pa.array(reasons, pa.string()),
                pa.array([run] * len(reasons), pa.int64()),
            ]
            yield pa.RecordBatch.from_arrays(
                [array.cast(field.type) for array, field in zip(columns, self.schema, strict=True)],
                schema=self.schema,
            )


def digest(rows: DataFrame, step: str, key: Key) -> Column:
    """The digest of a key of rows, 16 bytes: MD5 of the step and the key as JSON; null where a part is null.

    Keys that are equal by Spark's rules have one digest (`acker.spark.records.key_columns`).
    """
    parts = [key] if isinstance(key, (str, Column)) else list(key)
    if not parts:
        raise ValidationError("once: expected a key, got none")
    columns = [F.col(part) if isinstance(part, str) else part for part in parts]
    named = [column.alias(f"k{place}") for place, column in enumerate(columns)]
    kinds = [field.dataType for field in rows.select(*named).schema]
    named = [
        canonical(column, kind).alias(f"k{place}")
        for place, (column, kind) in enumerate(zip(columns, kinds, strict=True))
    ]
    text = F.to_json(F.struct(F.lit(step).alias("step"), *named), _AS_JSON)
    whole = F.lit(True)
    for column in columns:
        whole = whole & column.isNotNull()
    return F.when(whole, F.unhex(F.md5(text)))


def check_new(rows: DataFrame) -> None:
    """Raises ValidationError for rows that have been through `once`: they have room for one digest."""
    if EFFECT in rows.columns:
        raise ValidationError(
            f"once: expected rows without the column {EFFECT}, got those of an earlier once(): one that "
            "fails would have the effect of that call counted as had. Call each with rows as they came, or "
            "once with both keys together"
        )


def check_keep(rows: DataFrame, keep: object) -> None:
    """Raises ValidationError where a column of that name cannot be added."""
    if not isinstance(keep, str) or not keep:
        raise ValidationError(f"keep: expected the name of the column that is added, got {shown(keep)}")
    if keep.lower() in {name.lower() for name in (*rows.columns, ANCHORS, EFFECT, FAILED, RUN)}:
        raise ValidationError(f"keep: expected a name that no column of the rows has, got {shown(keep)}")


def check_effects(rows: DataFrame, what: str, used: bool, emits: bool) -> None:
    """Raises ValidationError for rows with which a replay, or a record that fails, would lose something.

    used: `once` was called in this batch before. emits: the rows go on to another step.
    """
    if EFFECT not in rows.columns:
        if used:
            raise ValidationError(
                f"{what}: expected rows with the column {EFFECT}, as once() gave them: without it what a row "
                "has as its effect is counted as had, also where the row fails. Keep the column; rows that "
                "have nothing to do with once() come before it is called"
            )
    elif emits and not isinstance(rows.schema[EFFECT].dataType, StructType):
        raise ValidationError(
            f"{what}: rows that once() has let through are not there when their record is replayed, so what "
            "follows from them would be lost: once(..., keep='fresh') gives all rows, and the column 'fresh' "
            "tells which are to have their effect"
        )


def looked_up(
    ledger: Ledger,
    rows: DataFrame,
    key: Key,
    *,
    step: str,
    horizon: int,
    limit: int,
    keep: str | None = None,
) -> DataFrame:
    """One row for each new key, anchored to the trees of all its rows; rows to be failed have a reason.

    keep: one for each key, new or not; the column of that name tells which are new. horizon in ms; limit: of
    effects that the topology remembers. Raises EffectsFull.
    """
    share = max(1, limit // max(1, ledger.config.ackers))
    _, fullest = ledger.run(effects.known(ledger.core, horizon, []))
    if fullest >= share:
        raise EffectsFull(
            f"a shard remembers {fullest:,} effects, its limit is {share:,}: "
            "raise the limit of once(), or shorten its horizon"
        )
    own = [name for name in rows.columns if name not in (ANCHORS, EFFECT)]
    anchors = F.collect_list(ANCHORS)
    if isinstance(rows.schema[ANCHORS].dataType, ArrayType):
        anchors = F.flatten(anchors)
    grouped = (
        rows.select(digest(rows, step, key).alias(EFFECT), F.struct(*map(quoted, own)).alias("row"), ANCHORS)
        .groupBy(EFFECT)
        .agg(F.first("row").alias("row"), anchors.alias(ANCHORS))
        .select("row.*", ANCHORS, EFFECT)
    )
    fields = grouped.schema.fields
    if keep is not None:
        fields = [*fields[:-1], StructField(keep, BooleanType()), StructField(EFFECT, KEPT)]
    schema = StructType([*fields, StructField(FAILED, StringType()), StructField(RUN, LongType())])
    look_up = _LookUp(ledger, horizon, arrow_schema(schema), keep is not None)
    return map_in_arrow(grouped, look_up, schema)


def quoted(name: str) -> Column:
    """A column by its name, whatever that is."""
    return F.col(f"`{name.replace('`', '``')}`")
