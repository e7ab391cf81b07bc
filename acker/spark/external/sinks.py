"""Sinks of external streams: what `emit(to=...)` takes, and the writer that the user's function gets."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self, TypeAlias

from pyspark.sql import DataFrame, DataFrameWriter

from acker.errors import AckerError, ValidationError, shown

WHOLE = frozenset({"parquet", "orc", "csv", "json", "kafka", "delta"})
"""Formats that evaluate all rows in one job, once: each is tested so. Rows for others are persisted."""
NEVER_SKIP = WHOLE - {"delta"}
"""Formats that write again where they have written the same before."""
OF_TABLES = ("delta", "iceberg")
"""Formats that write each time, too, also by the name of a table, unless Delta's options name the write."""
Write: TypeAlias = Callable[[Any], object]
"""A function of a DataFrameWriter, or of `writeTo` (`sink(..., v2=True)`)."""


@dataclass(frozen=True)
class Sink:
    """A sink: a function that writes, and what is known of it.

    Attributes:
        function: Gets a DataFrameWriter, once, and writes with it.
        skips: False if it writes each time that it is called; True if it may leave out what it has written
            before; None if its format says that.
        prepare: Makes the rows to be written of the rows with the column `_acker_stamp`: their number and
            order stay.
        v2: True if the function gets `writeTo` in place of a DataFrameWriter.
    """

    function: Write
    skips: bool | None = None
    prepare: Callable[[DataFrame], DataFrame] | None = None
    v2: bool = False


def sink(function: Write, *, skips: bool = True, v2: bool = False) -> Sink:
    """Makes a function a sink for `collector.emit(rows, stream, to=...)`.

        to = sink(lambda write_to: write_to("lake.shop.items").append(), v2=True)

    Args:
        function: Gets a DataFrameWriter, and writes with it, once.
        skips: False says that it writes each time that it is called, also where it has written the same
            before.
        v2: True for a DataFrameWriterV2. That writer begins with its table, so the function gets `writeTo`
            of the rows: a function of the table's name that makes the writer.

    Returns:
        The sink.

    Raises:
        ValidationError: `function` cannot be called.
    """
    if not callable(function):
        raise ValidationError(f"sink: expected a function of a DataFrameWriter, got {shown(function)}")
    return Sink(function, skips, v2=v2)


def sink_of(to: "Sink | Write", name: str = "to") -> Sink:
    """A sink, from what `emit(to=...)` was given, or an argument of another name. Raises ValidationError."""
    if isinstance(to, Sink):
        return to
    if not callable(to):
        raise ValidationError(
            f"{name}: expected a function of a DataFrameWriter, or one of acker.spark, got {shown(to)}"
        )
    return Sink(to)


class SinkWriter(DataFrameWriter):
    """A DataFrameWriter that notes its options, and learns of the rows when it writes.

    Args:
        rows_for: Returns the rows for a format, when all options are known.

    Attributes:
        source: The format of the write; "table" for one that goes by the name of its table.
        named: The argument of `format`, also where the write goes by the name of its table.
    """

    def __init__(self, rows_for: Callable[["SinkWriter"], DataFrame]) -> None:
        self._rows_for = rows_for
        self._noted: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []
        self.source, self.how, self.given = "", "", dict[str, Any]()
        self.named = ""
        self.place = ""
        self.done = self.begun = False

    def _note(self, name: str, *args: Any, **given: Any) -> Self:
        self._noted.append((name, args, given))
        return self

    def mode(self, saveMode: str | None) -> Self:  # noqa: N803 - Spark's name
        """See Spark's."""
        self.how = saveMode or ""
        return self._note("mode", saveMode)

    def format(self, source: str) -> Self:
        """See Spark's."""
        self.source = self.named = source.lower()
        return self._note("format", source)

    def option(self, key: str, value: Any) -> Self:
        """See Spark's."""
        self.given[key.lower()] = value
        return self._note("option", key, value)

    def options(self, **options: Any) -> Self:
        """See Spark's."""
        self.given |= {name.lower(): value for name, value in options.items()}
        return self._note("options", **options)

    def partitionBy(self, *cols: Any) -> Self:  # noqa: N802 - Spark's
        """See Spark's."""
        return self._note("partitionBy", *cols)

    def bucketBy(self, numBuckets: int, col: Any, *cols: Any) -> Self:  # noqa: N802, N803
        """See Spark's."""
        return self._note("bucketBy", numBuckets, col, *cols)

    def sortBy(self, col: Any, *cols: Any) -> Self:  # noqa: N802 - Spark's
        """See Spark's."""
        return self._note("sortBy", col, *cols)

    def clusterBy(self, *cols: Any) -> Self:  # noqa: N802 - Spark's
        """See Spark's."""
        return self._note("clusterBy", *cols)

    def begin(self, place: str, source: str) -> None:
        """Notes that a write begins. Raises AckerError for a second one."""
        if self.begun:
            raise AckerError(
                "the writer of `to` has written before: expected one write. One stream is one place: emit to "
                "another stream for another place"
            )
        self.begun, self.place, self.source = True, place, source

    def rows(self) -> DataFrame:
        """The rows for the write that has begun."""
        return self._rows_for(self)

    def _write(self, name: str, source: str, *args: Any, **given: Any) -> None:
        self.begin("", source or self.source)
        if name in ("save", "parquet", "orc", "csv", "json", "text"):
            how = given.get("mode") or (args[2] if name == "save" and len(args) > 2 else None)
            self.how = how or self.how
        where = args[0] if args else given.get("path", given.get("name", given.get("tableName")))
        self.place = f"{self.source} {where or self.given.get('path') or self.given.get('topic') or ''}"
        writer: Any = self.rows().write
        for noted, own, named in self._noted:
            writer = getattr(writer, noted)(*own, **named)
        getattr(writer, name)(*args, **given)
        self.done = True

    def save(
        self,
        path: Any = None,
        format: Any = None,  # noqa: A002 - Spark's name
        mode: Any = None,
        partitionBy: Any = None,  # noqa: N803 - Spark's name
        **options: Any,
    ) -> None:
        """See Spark's."""
        self.given |= {name.lower(): value for name, value in options.items()}
        self._write("save", (format or "").lower(), path, format, mode, partitionBy, **options)

    def saveAsTable(self, name: str, *args: Any, **given: Any) -> None:  # noqa: N802 - Spark's
        """See Spark's."""
        self._write("saveAsTable", "table", name, *args, **given)

    def insertInto(self, tableName: str, overwrite: bool | None = None) -> None:  # noqa: N802, N803 - Spark's
        """See Spark's."""
        self.named = ""  # Spark, too, goes by the table alone
        self._write("insertInto", "table", tableName, overwrite)

    def parquet(self, path: str, *args: Any, **given: Any) -> None:
        """See Spark's."""
        self._file("parquet", path, *args, **given)

    def orc(self, path: str, *args: Any, **given: Any) -> None:
        """See Spark's."""
        self._file("orc", path, *args, **given)

    def json(self, path: str, *args: Any, **given: Any) -> None:
        """See Spark's."""
        self._file("json", path, *args, **given)

    def csv(self, path: str, *args: Any, **given: Any) -> None:
        """See Spark's."""
        self._file("csv", path, *args, **given)

    def text(self, path: str, *args: Any, **given: Any) -> None:
        """See Spark's."""
        self._file("text", path, *args, **given)

    def xml(self, path: str, *args: Any, **given: Any) -> None:
        """See Spark's."""
        self._file("xml", path, *args, **given)

    def jdbc(self, *args: Any, **given: Any) -> None:
        """See Spark's."""
        self._write("jdbc", "jdbc", *args, **given)

    def _file(self, kind: str, path: str, *args: Any, **given: Any) -> None:
        if args and kind != "text":  # the first of their further arguments is the mode
            given["mode"] = args[0]
            args = args[1:]
        self._write(kind, kind, path, *args, **given)


def may_skip(to: Sink, writer: SinkWriter, *, txn: bool) -> bool:
    """True if a sink may leave out rows that it has written before.

    Args:
        to: The sink.
        writer: Its writer, behind the write.
        txn: True if the session names writes to tables of Delta.
    """
    if to.skips is not None:
        return to.skips
    if writer.how.lower() == "ignore" or not writer.begun:
        return True
    if writer.named in OF_TABLES or writer.source in OF_TABLES:
        return txn or "txnappid" in writer.given
    return writer.source not in NEVER_SKIP
