"""Rows with an effect that must happen once: their keys are recorded (acker/streams/staging/effects.py)."""

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
"""The type of `_acker_once` in rows that every attempt has; null within for a recorded key."""
KEPT_ARROW = pa.struct([pa.field(DIGEST, pa.binary())])
_MICROS = "yyyy-MM-dd'T'HH:mm:ss.SSSSSS"
_AS_JSON = {"timeZone": "UTC", "timestampFormat": f"{_MICROS}XXX", "timestampNTZFormat": _MICROS}
"""The form of keys as JSON: Spark's own format drops parts below a millisecond."""


class _LookUp(Shipped):
    """Passes rows on whose digest is not recorded, or marks them; for `DataFrame.mapInArrow`."""

    def __init__(
        self, ledger: Ledger, horizon: int, schema: pa.Schema, keep: bool, but: effects.By | None
    ) -> None:
        self.ledger = ledger
        self.but = but
        self.horizon = horizon
        self.schema = schema
        self.keep = keep

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yields the rows, and rows without a key with the reason of their failure."""
        run = secrets.randbits(63)
        for batch in batches:
            digests = batch.column(batch.schema.get_field_index(EFFECT)).to_pylist()
            asked = [digest for digest in digests if digest is not None]
            looking = effects.find_recorded(self.ledger.core, self.horizon, asked, self.but)
            known, _ = self.ledger.run(looking)
            new = [digest not in known for digest in digests]
            if self.keep:
                digests = [value if is_new else b"" for value, is_new in zip(digests, new, strict=True)]
                made = [{DIGEST: value or None} for value in digests]
                columns = [*batch.columns[:-1], pa.array(new), pa.array(made, KEPT_ARROW)]
            else:
                kept = batch.filter(pa.array(new, pa.bool_()))
                digests, columns = kept.column(EFFECT).to_pylist(), kept.columns
            reasons = [NO_KEY if value is None else None for value in digests]
            columns += [
                pa.array(reasons, pa.string()),
                pa.array([run] * len(reasons), pa.int64()),
            ]
            yield pa.RecordBatch.from_arrays(
                [array.cast(field.type) for array, field in zip(columns, self.schema, strict=True)],
                schema=self.schema,
            )


def parts_of(key: Key, call: str) -> list[Column]:
    """Returns the columns of a key. Raises ValidationError for none."""
    parts = [key] if isinstance(key, (str, Column)) else list(key)
    if not parts:
        raise ValidationError(f"{call}: expected a key, got none")
    return [F.col(part) if isinstance(part, str) else part for part in parts]


def digest(rows: DataFrame, step: str, key: Key) -> Column:
    """Returns the digest of rows' keys, 16 bytes: MD5 of step and key as JSON; null if a part is null.

    Keys that Spark calls equal have one digest (`acker.spark.records.key_columns`).
    """
    columns = parts_of(key, "once")
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
    """Raises ValidationError for rows that `once` returned: they have room for one digest."""
    if EFFECT in rows.columns:
        raise ValidationError(
            f"once: expected rows without the column {EFFECT}, got rows of an earlier once(): if such a row "
            "failed, its effect of that call would count as done. Pass unchanged rows to each call, or "
            "call once() with both keys together"
        )


def check_keep(rows: DataFrame, keep: object) -> None:
    """Raises ValidationError if a column of that name cannot be added."""
    if not isinstance(keep, str) or not keep:
        raise ValidationError(f"keep: expected the name of the column that is added, got {shown(keep)}")
    if keep.lower() in {name.lower() for name in (*rows.columns, ANCHORS, EFFECT, FAILED, RUN)}:
        raise ValidationError(f"keep: expected a name that no column of the rows has, got {shown(keep)}")


def check_effects(rows: DataFrame, call: str, used: bool, emits: bool) -> None:
    """Raises ValidationError for rows that a replay, or a failing record, would lose.

    used: True if `once` was called in this batch before. emits: True if the rows go on to another step.
    """
    if EFFECT not in rows.columns:
        if used:
            raise ValidationError(
                f"{call}: expected rows with the column {EFFECT}, as once() gave them: without it the effect "
                "of a row counts as done, even if the row fails. Keep the column; work on rows that "
                "have nothing to do with once() before it is called"
            )
    elif emits and not isinstance(rows.schema[EFFECT].dataType, StructType):
        raise ValidationError(
            f"{call}: rows that once() has passed on are missing when their record is replayed, so their "
            "later effects would be lost: once(..., keep='fresh') gives all rows, and the column 'fresh' "
            "marks the rows whose effect must happen"
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
    but: effects.By | None = None,
) -> DataFrame:
    """Returns a row for each new key, anchored to the trees of all its rows; failing rows have a reason.

    keep: a row for each key, new or not; the column of that name marks new ones. horizon: ms. limit: effects
    that the topology remembers. but: the commit of the batch, if it is not stored (`effects.find_recorded`).
    Raises EffectsFull.
    """
    share = max(1, limit // max(1, ledger.config.ackers))
    _, fullest = ledger.run(effects.find_recorded(ledger.core, horizon, []))
    if fullest >= share:
        raise EffectsFull(
            f"a shard remembers {fullest:,} effects, its limit is {share:,}: "
            "raise the limit of once(), or shorten its horizon"
        )
    columns = [name for name in rows.columns if name not in (ANCHORS, EFFECT)]
    anchors = F.collect_list(ANCHORS)
    if isinstance(rows.schema[ANCHORS].dataType, ArrayType):
        anchors = F.flatten(anchors)
    grouped = (
        rows.select(
            digest(rows, step, key).alias(EFFECT), F.struct(*map(quoted, columns)).alias("row"), ANCHORS
        )
        .groupBy(EFFECT)
        .agg(F.first("row").alias("row"), anchors.alias(ANCHORS))
        .select("row.*", ANCHORS, EFFECT)
    )
    fields = grouped.schema.fields
    if keep is not None:
        fields = [*fields[:-1], StructField(keep, BooleanType()), StructField(EFFECT, KEPT)]
    schema = StructType([*fields, StructField(FAILED, StringType()), StructField(RUN, LongType())])
    look_up = _LookUp(ledger, horizon, arrow_schema(schema), keep is not None, but)
    return map_in_arrow(grouped, look_up, schema)


def quoted(name: str) -> Column:
    """Returns a column by its name, whatever characters it has."""
    return F.col(f"`{name.replace('`', '``')}`")
