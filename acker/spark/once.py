"""Rows whose effect is to happen once: their key is not recorded yet (acker/streams/effects.py)."""

import secrets
from collections.abc import Iterator, Sequence
from typing import TypeAlias

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everyone imports it
from pyspark.sql.types import ArrayType, LongType, StringType, StructField, StructType

from acker.errors import EffectsFull, ValidationError
from acker.ledger import Ledger
from acker.spark.arrow import map_in_arrow
from acker.spark.mapping import RUN
from acker.spark.shipping import Shipped
from acker.spark.versions import arrow_schema
from acker.streams import effects
from acker.streams.effects import EFFECT
from acker.streams.segments import ANCHORS
from acker.streams.staging import FAILED

Key: TypeAlias = str | Column | Sequence[str | Column]
NO_KEY = "once: the key is null"
_MICROS = "yyyy-MM-dd'T'HH:mm:ss.SSSSSS"
_AS_JSON = {"timeZone": "UTC", "timestampFormat": f"{_MICROS}XXX", "timestampNTZFormat": _MICROS}
"""How keys are told apart: Spark's own format leaves out what is below a millisecond."""


class _LookUp(Shipped):
    """Lets rows through whose digest is not recorded; what `DataFrame.mapInArrow` is given."""

    def __init__(self, ledger: Ledger, horizon: int, schema: pa.Schema) -> None:
        self.ledger = ledger
        self.horizon = horizon
        self.schema = schema

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """New rows, and those without a key, which come with the reason to fail them with."""
        run = secrets.randbits(63)
        for batch in batches:
            digests = batch.column(batch.schema.get_field_index(EFFECT)).to_pylist()
            asked = [digest for digest in digests if digest is not None]
            known, _ = self.ledger.run(effects.known(self.ledger.core, self.horizon, asked))
            kept = batch.filter(pa.array([digest not in known for digest in digests], pa.bool_()))
            reasons = [NO_KEY if one is None else None for one in kept.column(EFFECT).to_pylist()]
            columns = [
                *kept.columns,
                pa.array(reasons, pa.string()),
                pa.array([run] * len(reasons), pa.int64()),
            ]
            yield pa.RecordBatch.from_arrays(
                [array.cast(field.type) for array, field in zip(columns, self.schema, strict=True)],
                schema=self.schema,
            )


def digest(step: str, key: Key) -> Column:
    """The digest of a key, 16 bytes: MD5 of the step and the key as JSON; null where a part is null."""
    parts = [key] if isinstance(key, (str, Column)) else list(key)
    if not parts:
        raise ValidationError("once: expected a key, got none")
    columns = [F.col(part) if isinstance(part, str) else part for part in parts]
    named = [column.alias(f"k{place}") for place, column in enumerate(columns)]
    text = F.to_json(F.struct(F.lit(step).alias("step"), *named), _AS_JSON)
    whole = F.lit(True)
    for column in columns:
        whole = whole & column.isNotNull()
    return F.when(whole, F.unhex(F.md5(text)))


def looked_up(ledger: Ledger, rows: DataFrame, key: Key, *, step: str, horizon: int, limit: int) -> DataFrame:
    """One row for each new key, anchored to the trees of all its rows; rows to be failed have a reason.

    horizon in ms; limit: of effects that the topology remembers. Raises EffectsFull.
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
        rows.select(digest(step, key).alias(EFFECT), F.struct(*map(quoted, own)).alias("row"), ANCHORS)
        .groupBy(EFFECT)
        .agg(F.first("row").alias("row"), anchors.alias(ANCHORS))
        .select("row.*", ANCHORS, EFFECT)
    )
    schema = StructType(
        [*grouped.schema.fields, StructField(FAILED, StringType()), StructField(RUN, LongType())]
    )
    return map_in_arrow(grouped, _LookUp(ledger, horizon, arrow_schema(schema)), schema)


def quoted(name: str) -> Column:
    """A column by its name, whatever that is."""
    return F.col(f"`{name.replace('`', '``')}`")
