"""A Python function per record, in Spark tasks: its exception fails that record alone.

The function may be anything but pure: it may fail today and work tomorrow. Spark may run a task again, so an
exception must not have effects of its own. It becomes a row, marked by the column `_acker_failed`, and one
run decides if that row is emitted or failed: see `acker.spark.bolts.collector.Collector.map`.
"""

import secrets
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql.types import LongType, StringType, StructField, StructType

from acker.errors import PermanentFailure, ValidationError, class_name, is_interrupt, text_of
from acker.ledger.ids import Ids
from acker.ledger.slabs.causes import Cause, said_by
from acker.ledger.user_functions.async_calls import Outcome
from acker.ledger.user_functions.undone import undone
from acker.spark.records.calls import Calls, Record
from acker.spark.records.poison import Suspects, halved
from acker.spark.records.values import Columns, Convert, to_python
from acker.spark.runtime.pickling import Shipped
from acker.spark.runtime.versions import arrow_schema
from acker.streams.log.segments import ANCHORS
from acker.streams.staging.effects import EFFECT
from acker.streams.staging.external.rows.carriers import COLUMN
from acker.streams.staging.staging import FAILED

RUN = "_acker_run"
"""Column: the run of a task that a mapped row is from."""
CARRIED = (ANCHORS, EFFECT, COLUMN)
"""The columns that a result has from its record."""
_ROWS = 2_000
"""Records that are worked on together: with more, Python's garbage collector doubles the time."""
_TUPLE = {tuple}


def cause_of(error: BaseException) -> str:
    """Returns the cause, as text, of an exception: its type and text; for acker's own, its text."""
    return Cause(said_by(error), retry=not issubclass(type(error), PermanentFailure)).text()


def _records_of(
    rows: pa.RecordBatch, makes: list[tuple[str, Convert]]
) -> tuple[list[Record], dict[int, str]]:
    """Returns rows as records, and the reasons of records without Python values, by position.

    makes: conversions of columns whose values are not Arrow's own (`acker.spark.records.values.to_python`).
    """
    try:
        values: list[Record] = rows.to_pylist()
        for name, make in makes:
            for record in values:
                record[name] = make(record[name])
    except Exception as error:  # noqa: BLE001 - a type of the user's own may raise anything
        if rows.num_rows == 1:
            return [], {0: cause_of(error)}
    else:
        return values, {}
    records: list[Record] = []
    failed: dict[int, str] = {}
    for place in range(rows.num_rows):
        single, unread = _records_of(rows.slice(place, 1), makes)
        records += single
        for reason in unread.values():
            failed[place] = reason
    return records, failed


def mapped_schema(schema: StructType, rows: StructType) -> StructType:
    """Returns the columns of mapped rows: the result's, the record's, and acker's own."""
    if ANCHORS not in rows.fieldNames():
        names = ", ".join(rows.fieldNames())
        raise ValidationError(f"map: expected rows with the column {ANCHORS}, got {names}")
    reserved = {*CARRIED, FAILED, RUN}.intersection(schema.fieldNames())
    if reserved:
        raise ValidationError(f"map: the schema must not have {', '.join(sorted(reserved))}: they are added")
    nullable = [StructField(field.name, field.dataType, True) for field in schema.fields]
    carried = [StructField(name, rows[name].dataType, True) for name in CARRIED if name in rows.fieldNames()]
    return StructType([*nullable, *carried, StructField(FAILED, StringType()), StructField(RUN, LongType())])


class RecordMapper(Shipped):
    """Runs the function on each row of a task, for `DataFrame.mapInArrow`.

    result: the columns of the function's results. rows: the columns of its records. whole: the columns of the
    mapped rows.
    """

    def __init__(
        self, calls: Calls, result: StructType, rows: StructType, suspects: Suspects | None = None
    ) -> None:
        self.calls = calls
        self.result = result
        self.rows = rows
        self.suspects = suspects
        self.whole = mapped_schema(result, rows)
        self.schema = arrow_schema(self.whole)
        self.columns = [field for field in self.schema if field.name not in (*CARRIED, FAILED, RUN)]
        self.carried = [field.name for field in self.schema if field.name in CARRIED]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yields the mapped rows of a task; rows of failed records carry their reason."""
        run = secrets.randbits(63)
        parts = (batch.slice(at, _ROWS) for batch in batches for at in range(0, batch.num_rows, _ROWS))
        if self.suspects is None:
            yield from self._mapped(parts, run)
            return
        careful = self.suspects.begin()
        try:
            yield from self._carefully(parts, run, self.suspects) if careful else self._mapped(parts, run)
        except (Exception, GeneratorExit):
            self.suspects.end()
            raise
        self.suspects.end()

    def _carefully(
        self, parts: Iterator[pa.RecordBatch], run: int, suspects: Suspects
    ) -> Iterator[pa.RecordBatch]:
        """Maps rows in separate processes: see `acker.spark.records.poison`."""

        def work(part: pa.RecordBatch) -> pa.RecordBatch:
            [made] = self._mapped(iter([part]), run)
            return made

        def fail(part: pa.RecordBatch, reason: str) -> pa.RecordBatch:
            return self._map(part, {0: reason}, (), run, Columns(self.result, self.columns))

        for part in parts:
            yield from halved(part, work, fail, suspects.found)

    def _mapped(self, parts: Iterator[pa.RecordBatch], run: int) -> Iterator[pa.RecordBatch]:
        result_columns = Columns(self.result, self.columns)
        taken: deque[tuple[pa.RecordBatch, dict[int, str]]] = deque()
        for outcomes in self.calls.outcomes(self._records(parts, taken)):
            yield self._map(*taken.popleft(), outcomes, run, result_columns)

    def _records(
        self, parts: Iterator[pa.RecordBatch], taken: deque[tuple[pa.RecordBatch, dict[int, str]]]
    ) -> Iterator[list[Record]]:
        """Yields the records of parts of batches. Records without Python values are left out, and failed."""
        makes = [
            (field.name, make)
            for field in self.rows.fields
            if field.name not in self.carried and (make := to_python(field.dataType)) is not None
        ]
        for part in parts:
            records, failed = _records_of(part.drop_columns(self.carried), makes)
            taken.append((part, failed))
            yield records

    def _map(
        self,
        batch: pa.RecordBatch,
        failed: dict[int, str],
        outcomes: Iterable[Outcome],
        run: int,
        columns: Columns,
    ) -> pa.RecordBatch:
        rows: list[tuple[Any, ...]] = []
        places: list[int] = []
        counts: list[int] = []
        width = len(self.columns)
        every = range(batch.num_rows)
        read = [place for place in every if place not in failed] if failed else every
        for place, (result, error) in zip(read, outcomes, strict=True):
            if error is not None:
                failed[place] = cause_of(error)
                continue
            # The common cases, first and cheap: one tuple, or a list of them.
            if type(result) is tuple and len(result) == width:
                results = [result]
            elif (
                type(result) is list and set(map(type, result)) <= _TUPLE and set(map(len, result)) <= {width}
            ):
                results = result
            else:
                try:
                    results = self._rows(result)
                except BaseException as other:  # the result is the user's: to look at it may raise anything
                    if is_interrupt(other):
                        raise
                    failed[place] = cause_of(other)
                    continue
            rows += results
            places.append(place)
            counts.append(len(results))
        sources = np.repeat(np.array(places, dtype=np.int64), np.array(counts, dtype=np.int64))
        made_of, unfit = columns.of(rows)
        if unfit:
            for row, why in unfit.items():
                failed.setdefault(int(sources[row]), cause_of(why))
            fit = ~np.isin(sources, sources[list(unfit)])
            made_of, sources = [column.filter(pa.array(fit)) for column in made_of], sources[fit]
        return self._batch(batch, made_of, sources, failed, run)

    def _rows(self, result: Any) -> list[tuple[Any, ...]]:
        """Returns the rows that a function's result stands for."""
        if result is None:
            return []
        if isinstance(result, list):
            return [row for part in result for row in self._rows(part)]
        if isinstance(result, dict):
            known = {column.name for column in self.columns}
            unknown = [name for name in result if name not in known]
            if unknown:
                named = ", ".join(text_of(name) or class_name(name) for name in unknown[:100])
                raise ValidationError(f"result has columns that the schema has not: {named}")
            return [tuple(result.get(column.name) for column in self.columns)]
        if not isinstance(result, tuple) and (kind := undone(result)):
            said = f"expected a value, got a {kind}: its work is not done. Await it, or make a list"
            raise ValidationError(said)
        row = tuple(result) if isinstance(result, tuple) else (result,)
        if len(row) != len(self.columns):
            raise ValidationError(f"result has {len(row)} columns, the schema {len(self.columns)}")
        return [row]

    def _batch(
        self,
        batch: pa.RecordBatch,
        columns: list[pa.Array],
        sources: Ids,
        failed: dict[int, str],
        run: int,
    ) -> pa.RecordBatch:
        """Returns the rows of all results, then one row for each failed record."""
        size, bad = len(sources), sorted(failed)
        arrays = [pa.concat_arrays([column, pa.nulls(len(bad), column.type)]) for column in columns]
        carried = [batch.column(name) for name in self.carried]
        if bad or not np.array_equal(sources, np.arange(batch.num_rows)):
            origins = pa.array(np.concatenate((sources, np.array(bad, dtype=np.int64))))
            carried = [column.take(origins) for column in carried]
        reasons = pa.concat_arrays(
            [pa.nulls(size, pa.string()), pa.array([failed[place] for place in bad], pa.string())]
        )
        runs = pa.array(np.full(size + len(bad), run, dtype=np.int64))
        return pa.RecordBatch.from_arrays(
            [
                array.cast(field.type)
                for array, field in zip([*arrays, *carried, reasons, runs], self.schema, strict=True)
            ],
            schema=self.schema,
        )
