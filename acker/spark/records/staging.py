"""Staging of a DataFrame's rows: its tasks stage, and the driver learns the work of winning attempts.

Terms: staged rows are stored, but nobody sees them before a commit.
"""

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
    """The staged rows of a DataFrame's tasks, and the runs that its mapped rows were from."""

    pieces: list[Staged]
    runs: frozenset[int]

    @property
    def rows(self) -> int:
        """Returns the number of rows to emit."""
        return sum(segment.rows for piece in self.pieces for segment in piece.segments)


class StageTask(Shipped):
    """Stages the rows of a task and yields the staged pieces, for `DataFrame.mapInArrow`.

    Spark passes the results of each task's winning attempt to the driver, and only these are committed.
    mapper: maps rows first in the same task, so that they do not pass through the JVM.
    """

    def __init__(self, ledger: Ledger, how: Staging, mapper: Function | None = None) -> None:
        self.ledger = ledger
        self.how = how
        self.mapper = mapper
        self.runs: set[int] = set()

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yields one row: the staged pieces, and the runs that the rows were from."""
        self.runs = set()
        if self.mapper is not None:
            batches = self.mapper(batches)
        staged = self.ledger.run(staging.stage(self.ledger.core, self.how, self._noting(batches)))
        yield pa.RecordBatch.from_pydict(
            {"staged": [staged.dump().encode()], "runs": [json.dumps(sorted(self.runs))]},
            schema=pa.schema([("staged", pa.binary()), ("runs", pa.string())]),
        )

    def _noting(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yields the rows without the column of runs, which it records."""
        for batch in batches:
            place = batch.schema.get_field_index(RUN)
            if place >= 0:
                self.runs.update(batch.column(place).unique().to_pylist())
                batch = batch.remove_column(place)
            yield batch


def stage(ledger: Ledger, how: Staging, rows: DataFrame, mapper: Function | None = None) -> StagedRows:
    """Stages the rows of a DataFrame, or a mapper's results for them, now."""
    task_rows = map_in_arrow(rows, StageTask(ledger, how, mapper), "staged binary, runs string").collect()
    return StagedRows(
        [Staged.load(bytes(row["staged"])) for row in task_rows],
        frozenset(run for row in task_rows for run in json.loads(row["runs"])),
    )
