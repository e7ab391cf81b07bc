"""Staging the rows of a DataFrame: its tasks stage, the driver learns what the winning attempts did."""

import json
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame

from acker.ledger.client import Ledger
from acker.spark.records.mapping import RUN
from acker.spark.runtime.arrow import Function, map_in_arrow
from acker.spark.runtime.pickling import Shipped
from acker.streams.staging import staging
from acker.streams.staging.staging import Staged, Staging


@dataclass(frozen=True, slots=True)
class StagedRows:
    """What the tasks of a DataFrame staged, and which runs its mapped rows were from."""

    pieces: list[Staged]
    runs: frozenset[int]

    @property
    def rows(self) -> int:
        """How many rows are to be emitted."""
        return sum(segment.rows for piece in self.pieces for segment in piece.segments)


class StageTask(Shipped):
    """Stages the rows of a task and yields what was staged: what `DataFrame.mapInArrow` is given.

    Spark hands the driver the results of the winning attempt of each task, and only these are committed.
    mapper: what rows are mapped with before, in the same task: they do not go through the JVM in between.
    """

    def __init__(self, ledger: Ledger, how: Staging, mapper: Function | None = None) -> None:
        self.ledger = ledger
        self.how = how
        self.mapper = mapper
        self.runs: set[int] = set()

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """One row: what was staged, and which runs the rows were from."""
        self.runs = set()
        if self.mapper is not None:
            batches = self.mapper(batches)
        staged = self.ledger.run(staging.stage(self.ledger.core, self.how, self._noting(batches)))
        yield pa.RecordBatch.from_pydict(
            {"staged": [staged.dump().encode()], "runs": [json.dumps(sorted(self.runs))]},
            schema=pa.schema([("staged", pa.binary()), ("runs", pa.string())]),
        )

    def _noting(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows without the column of runs, which are noted."""
        for batch in batches:
            place = batch.schema.get_field_index(RUN)
            if place >= 0:
                self.runs.update(batch.column(place).unique().to_pylist())
                batch = batch.remove_column(place)
            yield batch


def stage(ledger: Ledger, how: Staging, rows: DataFrame, mapper: Function | None = None) -> StagedRows:
    """Stages the rows of a DataFrame, or what a mapper makes of them, now."""
    found = map_in_arrow(rows, StageTask(ledger, how, mapper), "staged binary, runs string").collect()
    return StagedRows(
        [Staged.load(bytes(row["staged"])) for row in found],
        frozenset(run for row in found for run in json.loads(row["runs"])),
    )
