"""The data source "acker"."""

import time
from collections.abc import Callable
from functools import cached_property
from typing import TypeVar
from weakref import WeakSet

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import StructType

from acker.errors import UnknownStream, UnknownTopology, ValidationError
from acker.ledger.client import Ledger
from acker.spark.options.options import BATCH_WRITE, READ, WRITE, Options
from acker.spark.runtime.versions import spark_schema
from acker.spark.source import dead_letters
from acker.spark.source.dead_letters import DeadLetterReader, DeadLetterStreamingReader
from acker.spark.source.reading import Reader, StreamingReader
from acker.spark.source.unmade import UnmadeReader
from acker.spark.source.writing import BatchWriter, StreamingWriter
from acker.streams.log import schemas
from acker.streams.log.gathers import FINISHED

T = TypeVar("T")
_WAIT = 0.1
_registered = WeakSet[SparkSession]()
"""Spark Connect's sessions that have registered the source."""


class AckerSource(DataSource):
    """Streams of a topology as a data source: `acker.spark.options.options.Options` lists its options."""

    @classmethod
    def name(cls) -> str:
        """Returns the name of the format."""
        return "acker"

    @cached_property
    def _checked(self) -> Options:
        return Options.parse(self.options)

    def schema(self) -> StructType:
        """Returns the schema that the first writer recorded, with the column `_acker` if it has one."""
        return schema_of(self._checked)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Returns the reader for `spark.read`.

        Args:
            schema: The columns to read.
        """
        kind = DeadLetterReader if self._checked.dead_letters else Reader
        return kind(self._used(READ), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """Returns the reader for `spark.readStream`.

        Args:
            schema: The columns to read.
        """
        try:
            kind = DeadLetterStreamingReader if self._checked.dead_letters else StreamingReader
            return kind(self._used(READ), schema)
        except Exception as error:  # noqa: BLE001 - whatever it is, Spark would hide it behind one of its own
            return UnmadeReader(error)

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        """Returns the writer for `DataFrame.write`.

        Args:
            schema: The columns of the rows.
            overwrite: True is refused: a stream can only be appended to.
        """
        return BatchWriter(self._appending(overwrite, WRITE, BATCH_WRITE), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamingWriter:  # noqa: N802 - Spark's name
        """Returns the writer for `DataFrame.writeStream`.

        Args:
            schema: The columns of the rows.
            overwrite: True is refused: a stream can only be appended to.
        """
        return StreamingWriter(self._appending(overwrite, WRITE), schema)

    def _appending(self, overwrite: bool, *uses: str) -> Options:
        if overwrite:
            raise ValidationError("a stream cannot be overwritten, only appended to: use mode('append')")
        return self._used(*uses)

    def _used(self, *uses: str) -> Options:
        self._checked.check_use(*uses)
        return self._checked


def schema_of(options: Options) -> StructType:
    """Returns a stream's schema. Raises UnknownTopology or UnknownStream after `schema_timeout`."""
    ledger = topology_of(options)
    schema = _awaited(options, lambda: ledger.run(schemas.read(ledger.core, options.stream)))
    if options.requests:
        schema = schema.append(pa.field(FINISHED, pa.bool_()))
    return spark_schema(dead_letters.schema(schema) if options.dead_letters else schema)


def topology_of(options: Options) -> Ledger:
    """Returns the ledger of a topology to read. Raises UnknownTopology after `schema_timeout`."""
    return _awaited(options, options.ledger)


def _awaited(options: Options, look: Callable[[], T]) -> T:
    """Returns a stream or topology that exists, or is created within `schema_timeout` seconds."""
    deadline = time.monotonic() + options.schema_timeout
    while True:
        try:
            return look()
        except (UnknownStream, UnknownTopology):
            if time.monotonic() > deadline:
                raise
            time.sleep(_WAIT)


def register(spark: SparkSession) -> None:
    """Registers `format("acker")` in a session, and a listener for its queries; once for each session.

    Args:
        spark: The session.
    """
    classic = hasattr(spark, "sparkContext")  # there is no JVM beside a client of Spark Connect
    if classic:
        from acker.spark.queries.query_listener import listen

        listen(spark)
        registered = (
            spark._jsparkSession.sessionState().dataSourceManager().dataSourceExists(AckerSource.name())
        )
    else:
        registered = spark in _registered
        _registered.add(spark)
    if not registered:  # Spark warns where a source replaces another
        spark.dataSource.register(AckerSource)
