"""Reading the dead letters of a spout, with the columns of their rows: as a stream, or the present ones.

Their numbers ascend, so an offset is the number of the last read letter. Reading changes nothing: a dead
letter stays until it is replayed or discarded. Letters that are gone before a query reads them are passed
over.
"""

from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from acker.errors import SchemaMismatch
from acker.ledger.settings.config import DEAD_LETTERS
from acker.spark.options.options import Options
from acker.spark.runtime.pickling import Shipped
from acker.spark.runtime.versions import (
    LEARNS_OFFSETS,
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
    arrow_schema,
)
from acker.streams.dead_letters import tables as letters
from acker.streams.log import schemas, segments
from acker.streams.log.segments import ANCHORS
from acker.streams.sources.dead_letter_store import FIRST

Offset: TypeAlias = dict[str, Any]


class LettersPartition(InputPartition):
    """The dead letters after number `start`, up to and including `end`."""

    def __init__(self, start: str, end: str) -> None:
        self.start = start
        self.end = end


def schema(rows: pa.Schema) -> pa.Schema:
    """Returns the schema of dead letters of a stream with this schema."""
    place = rows.get_field_index(ANCHORS)
    return letters.table_schema(rows.remove(place) if place >= 0 else rows)


class _Letters:
    """Reads dead letters, on executors; pickled there, so it holds no connection."""

    def __init__(self, options: Options, wanted: StructType) -> None:
        self.ledger = options.ledger()
        self.spout = options.spout or options.stream
        self.stream = options.stream
        self.wanted = arrow_schema(wanted)
        self.row = pa.schema([])
        """The columns of `row`; none if it is not wanted."""
        for field in self.wanted:
            if field.name == "row" and pa.types.is_struct(field.type):
                self.row = pa.schema(list(field.type))
            elif field.with_nullable(True) not in letters.FIELDS:
                known = ", ".join(f"{one.name} {one.type}" for one in letters.FIELDS)
                raise SchemaMismatch(
                    f"dead letters have the columns {known} and the struct row, not {field.name} {field.type}"
                )
        self.ledger.run(schemas.check_reader(self.ledger.core, self.stream, self.row))

    def last(self, after: str, end: str, most: int) -> str:
        return self.ledger.run(letters.last(self.ledger.core, self.spout, after, end, most))

    def read(self, part: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(part, LettersPartition):
            return
        core, after = self.ledger.core, part.start
        while page := self.ledger.run(
            letters.table(core, self.spout, self.stream, after, part.end, self.row)
        ):
            batch, after = page
            if batch.num_rows:
                yield segments.conform(batch, self.wanted)


class DeadLetterReader(Shipped, DataSourceReader):
    """Reads the present dead letters."""

    def __init__(self, options: Options, wanted: StructType) -> None:
        self._letters = _Letters(options, wanted)

    def partitions(self) -> Sequence[InputPartition]:
        """Returns one partition, of all letters."""
        return [LettersPartition(FIRST, "+")]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yields the rows of a partition."""
        return self._letters.read(partition)


class DeadLetterStreamingReader(Shipped, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads dead letters as they arrive, each once, micro-batch by micro-batch."""

    def __init__(self, options: Options, wanted: StructType) -> None:
        self._letters = _Letters(options, wanted)
        self._most = options.max_rows
        self._end = "+"

    def initialOffset(self) -> Offset:  # noqa: N802 - Spark's name
        """Returns the offset before the first dead letter."""
        return {"at": FIRST}

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Makes the present end the end of this run."""
        self._end = self._letters.last(FIRST, "+", DEAD_LETTERS)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Returns the option `max_rows`."""
        return ReadMaxRows(self._most)

    def latestOffset(self, start: Offset | None = None, limit: Any = None) -> Offset:  # noqa: N802
        """Returns the end of the next batch: at most `max_rows` further on, unless Spark wants all.

        A Spark before 4.2 does not tell its position, and gets all.
        """
        everything = start is None or (LEARNS_OFFSETS and isinstance(limit, ReadAllAvailable))
        after = start["at"] if start else FIRST
        return {"at": self._letters.last(after, self._end, DEAD_LETTERS if everything else self._most)}

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """Returns one partition, of a range."""
        return [LettersPartition(start["at"], end["at"])] if start["at"] != end["at"] else []

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yields the rows of a partition."""
        return self._letters.read(partition)

    def commit(self, end: Offset) -> None:
        """Does nothing: dead letters stay until they are replayed or discarded."""
