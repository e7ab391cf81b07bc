"""Sinks that write by a DataFrameWriterV2: their function gets `writeTo`, as a DataFrame has it.

A DataFrameWriterV2 begins with the name of its table, so the function gets no writer, but what makes one.
"""

from collections.abc import Callable
from typing import Any, Self

from pyspark.sql import DataFrame, DataFrameWriterV2

from acker.spark.external.sinks import Sink, SinkWriter


class TableWriters(SinkWriter):
    """In place of `DataFrame.writeTo`: makes a writer for a table, and notes what it writes."""

    def __call__(self, table: str) -> "TableWriter":
        """A writer for a table. table: its name."""
        return TableWriter(self, table)

    def write(self, table: str, name: str, noted: "TableWriter", *args: Any) -> None:
        """Writes the rows to a table by a method of its writer. Raises AckerError for a second write."""
        self.begin(f"table {table}", "table")
        writer: Any = self.rows().writeTo(table)
        for method, own, named in noted.calls:
            writer = getattr(writer, method)(*own, **named)
        getattr(writer, name)(*args)
        self.done = True


class TableWriter(DataFrameWriterV2):
    """A DataFrameWriterV2 that learns of its rows when it writes.

    Attributes:
        calls: The calls that set it up: name of the method, and its arguments.
    """

    def __init__(self, writers: TableWriters, table: str) -> None:
        self._writers, self._table = writers, table
        self.calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []

    def _note(self, name: str, *args: Any, **given: Any) -> Self:
        self.calls.append((name, args, given))
        return self

    def using(self, provider: str) -> Self:
        """See Spark's."""
        return self._note("using", provider)

    def option(self, key: str, value: Any) -> Self:
        """See Spark's."""
        self._writers.given[key.lower()] = value
        return self._note("option", key, value)

    def options(self, **options: Any) -> Self:
        """See Spark's."""
        self._writers.given |= {name.lower(): value for name, value in options.items()}
        return self._note("options", **options)

    def tableProperty(self, property: str, value: str) -> Self:  # noqa: A002, N802 - Spark's
        """See Spark's."""
        return self._note("tableProperty", property, value)

    def partitionedBy(self, col: Any, *cols: Any) -> Self:  # noqa: N802 - Spark's
        """See Spark's."""
        return self._note("partitionedBy", col, *cols)

    def clusterBy(self, col: str, *cols: str) -> Self:  # noqa: N802 - Spark's
        """See Spark's."""
        return self._note("clusterBy", col, *cols)

    def create(self) -> None:
        """See Spark's."""
        self._writers.write(self._table, "create", self)

    def replace(self) -> None:
        """See Spark's."""
        self._writers.write(self._table, "replace", self)

    def createOrReplace(self) -> None:  # noqa: N802 - Spark's
        """See Spark's."""
        self._writers.write(self._table, "createOrReplace", self)

    def append(self) -> None:
        """See Spark's."""
        self._writers.write(self._table, "append", self)

    def overwrite(self, condition: Any) -> None:
        """See Spark's."""
        self._writers.write(self._table, "overwrite", self, condition)

    def overwritePartitions(self) -> None:  # noqa: N802 - Spark's
        """See Spark's."""
        self._writers.write(self._table, "overwritePartitions", self)


def writer_of(sink: Sink, rows_for: Callable[[SinkWriter], DataFrame]) -> SinkWriter:
    """The argument for the function of a sink, which notes the write. rows_for: as of `SinkWriter`."""
    return TableWriters(rows_for) if sink.v2 else SinkWriter(rows_for)
