"""The class `Acker`: one topology for a Spark job, which names store and topology once.

Terms: a tree is all that comes of one record.
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any, Unpack, cast

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter
from pyspark.sql.types import StructType

from acker.collectors.buffer import LINGER
from acker.collectors.modes.off import is_off
from acker.collectors.topology import Topology
from acker.drpc.linear_drpc import LinearDRPC
from acker.errors import ValidationError
from acker.ledger.client import Ledger
from acker.ledger.settings.config import SETTINGS, Settings
from acker.spark import letters, reconciliation, spouts
from acker.spark.bolts import bolt, job, off
from acker.spark.bolts.bolt import Bolt
from acker.spark.bolts.collector import Collector
from acker.spark.external.sinks import Sink, Write, sink_of
from acker.spark.functions.spark_steps import SparkSteps
from acker.spark.options import options
from acker.spark.options.keywords import (
    AckerOptions,
    BoltOptions,
    JobOptions,
    LetterOptions,
    ReadOptions,
    ReconcileOptions,
    StoreOptions,
    TrackArguments,
    WriteOptions,
)
from acker.spark.queries import rewind_checkpoint
from acker.spark.reconciliation import Reconciliation
from acker.spark.source import acker_source
from acker.store.address import shown
from acker.store.client import Store
from acker.streams.dead_letters.filters import Filter
from acker.streams.spouts import settler
from acker.streams.spouts.replays import Stepped
from acker.streams.spouts.settler import Settler


class _Emit:
    """The function of a bolt that only emits."""

    def __init__(self, stream: str, to: Sink) -> None:
        self.stream, self.to = stream, to

    def __call__(self, batch: DataFrame, collector: Collector) -> None:
        collector.emit(batch, self.stream, to=self.to)


class Acker:
    """A topology in the store at `url`: the calls of `acker.spark` without these two arguments.

    The first use connects. If a setting is given, it creates the topology, or compares the settings of an
    existing one. Without a setting, the topology must exist, or `open` creates it. No session needs
    `register`.

    Args:
        url: The store: `redis://`, `rediss://` or `unix://`.
        topology: The name of the topology.
        **given: `cluster`, `timeout` (seconds), `enabled` (False turns acker off: docs/spark/bolts.md),
            `observe` (True: `track`, bolts and jobs only record: docs/spark/bolts.md) and settings
            (`acker.ledger.settings.config.TopologyConfig`).

    Raises:
        ValidationError: An argument is invalid. Later, at the first use:
        UnknownTopology: The topology does not exist, and no setting is given.
        TopologyConfigError: The topology exists with other settings.

    Examples:
        >>> acker = Acker(URL, "shop", message_timeout=600)
        >>> orders = acker.track(files, "orders", message_id="id")
        >>> @acker.bolt("price")
        ... def price(batch, collector):
        ...     collector.emit_map(batch, look_up, "id string, price double", stream="priced")
        >>> query = orders.writeStream.foreachBatch(price).trigger(availableNow=True).start()
        >>> query.awaitTermination()
        >>> acker.read(spark, "priced").count()
        2
    """

    def __init__(self, url: str, topology: str, **given: Unpack[AckerOptions]) -> None:
        self.url = url
        self.topology = topology
        parsed = options.of_step("any", {"url": url, "topology": topology, **given}, options.STEP)
        self._observe = parsed.observe
        self._given = cast(StoreOptions, {name: one for name, one in given.items() if name != "observe"})
        Store(url, timeout=parsed.timeout, cluster=parsed.cluster)  # the URL is checked, nothing is sent

    def __repr__(self) -> str:
        return f"Acker({shown(self.url)!r}, {self.topology!r})"

    def open(self, *, linger: float | None = LINGER) -> Topology:
        """Returns the topology for collectors (`acker.Topology`), and creates it if it does not exist.

        Args:
            linger: Seconds for which calls are gathered before they are sent; see `acker.Topology`.

        Returns:
            The topology, to be closed by the caller.
        """
        settings = cast(Settings, {name: value for name, value in self._given.items() if name in SETTINGS})
        return Topology(
            self.url, self.topology, cluster=self._given.get("cluster", False),
            timeout=self._given.get("timeout", 10.0), enabled=self._given.get("enabled", True),
            observe=self._observe, linger=linger, **settings,
        )  # fmt: skip

    def track(
        self, rows: DataFrame, spout: str, *, message_id: str, **given: Unpack[TrackArguments]
    ) -> DataFrame:
        """Makes a DataFrame a spout: its rows get trees, and the column `_acker`.

        Arguments and errors: see `acker.spark.track`.

        Examples:
            >>> orders = acker.track(files, "orders", message_id="id")
            >>> query = orders.writeStream.foreachBatch(price).trigger(availableNow=True).start()
            >>> query.awaitTermination()
            >>> acker.settle("orders").acked
            2
        """
        return spouts.track(
            rows, url=self.url, topology=self.topology, spout=spout, message_id=message_id,
            **self._of_step(given),
        )  # fmt: skip

    def bolt(
        self, name: str, **given: Unpack[BoltOptions]
    ) -> Callable[[Callable[[DataFrame, Collector], object]], Bolt]:
        """Makes a function of a batch and a collector a bolt for foreachBatch.

        Arguments and errors: see `acker.spark.bolt`.

        Examples:
            >>> @acker.bolt("price")
            ... def price(batch, collector):
            ...     collector.fail(batch.filter("sku = '?'"), "no such sku")
            >>> result = run_bolt(price, spark.createDataFrame([("a",), ("?",)], "sku string"))
            >>> [row.sku for row in result.acked]
            ['a']
        """
        return bolt.bolt(url=self.url, topology=self.topology, name=name, **self._of_step(given))

    def job(
        self, spark: SparkSession, name: str, *, run: str | None = None, **given: Unpack[JobOptions]
    ) -> AbstractContextManager[Collector]:
        """Runs a batch job as one step: the end of the block commits all its work, once.

        Arguments and errors: see `acker.spark.job`.
        """
        return job.job(
            spark, url=self.url, topology=self.topology, name=name, run=run, **self._of_step(given)
        )

    def reconcile(
        self, rows: DataFrame, stream: str, subscription: str, **given: Unpack[ReconcileOptions]
    ) -> Reconciliation:
        """Receives the stamps in a table for a subscription, and says which rows the table lacks.

        Arguments and errors: see `acker.spark.reconcile`.
        """
        return reconciliation.reconcile(
            rows, stream, subscription, url=self.url, topology=self.topology, **self._of_step(given)
        )

    def steps(self, function: LinearDRPC) -> SparkSteps:
        """Returns the steps of a function that Spark jobs carry out. See `acker.spark.SparkSteps`.

        Args:
            function: The function.
        """
        return SparkSteps(function, url=self.url, topology=self.topology, **self._given)

    def read_stream(
        self,
        spark: SparkSession,
        stream: str,
        *,
        schema: StructType | str | None = None,
        **given: Unpack[ReadOptions],
    ) -> DataFrame:
        """Reads a stream as a streaming DataFrame: `spark.readStream.format("acker")`.

        Args:
            spark: The session of the query.
            stream: The name of the stream.
            schema: The columns of the rows. By default the recorded schema of the stream; if there is none
                yet, the call waits `schema_timeout` seconds (default 0).
            **given: Options of the data source for reading.

        Returns:
            A streaming DataFrame with the column `_acker`.

        Raises:
            UnknownTopology: The topology does not exist.
            UnknownStream: The stream has no schema, and none is given.
            ValidationError: An argument or an option is invalid.
        """
        reader = spark.readStream.format("acker").options(**self._texts(stream, given))
        return reader.schema(self._schema(spark, stream, schema, given)).load()

    def read(
        self,
        spark: SparkSession,
        stream: str,
        *,
        schema: StructType | str | None = None,
        **given: Unpack[ReadOptions],
    ) -> DataFrame:
        """Reads the present rows of a stream, and acks nothing: `spark.read.format("acker")`.

        Arguments and errors: see `read_stream`.
        """
        reader = spark.read.format("acker").options(**self._texts(stream, given))
        return reader.schema(self._schema(spark, stream, schema, given)).load()

    def write_stream(
        self,
        rows: DataFrame,
        stream: str,
        to: Sink | Write | None = None,
        *,
        name: str = "",
        receives: str = "",
        **given: Unpack[WriteOptions],
    ) -> DataStreamWriter:
        """Writes a streaming DataFrame to a stream; each micro-batch acks the rows that the query has read.

        Args:
            rows: The rows, with the column `_acker` if they have trees.
            stream: The name of the stream.
            to: A sink, as of `collector.emit(..., to=...)`: the stream is external then, and its rows are
                not in the store. A bolt without a function of the user's writes them.
            name: With `to`: the name of that bolt; by default `write-` and the name of the stream.
            receives: With `to`: the external stream that the rows were read from, with `_acker_stamp`.
            **given: Options of the data source for writing; with `to`, of a bolt.

        Returns:
            The writer of the query, to be started by the caller.

        Raises:
            ValidationError: An argument is invalid, or only goes with `to`.
        """
        if to is not None:
            bolt_options = cast(BoltOptions, {**given, **({"receives": receives} if receives else {})})
            write = self.bolt(name or f"write-{stream}", **bolt_options)
            return rows.writeStream.foreachBatch(write(_Emit(stream, sink_of(to))))
        if name or receives:
            raise ValidationError("name, receives: they only go with to=, a sink of an external stream")
        acker_source.register(rows.sparkSession)
        return rows.writeStream.format("acker").options(**self._texts(stream, given))

    def write(
        self, rows: DataFrame, stream: str, *, run: str | None = None, **given: Unpack[WriteOptions]
    ) -> None:
        """Writes a DataFrame that is not streaming to a stream: all rows or none.

        Args:
            rows: The rows.
            stream: The name of the stream.
            run: The name of this write. A second write of that name to the stream writes nothing, for 29
                days.
            **given: Options of the data source for writing.
        """
        acker_source.register(rows.sparkSession)
        texts = self._texts(stream, {**given, "run": run})
        rows.write.format("acker").options(**texts).mode("append").save()

    def outcomes(
        self, spark: SparkSession, spout: str, *, streaming: bool = True, **given: Unpack[ReadOptions]
    ) -> DataFrame:
        """Returns the outcomes of a spout that is tracked with `outcomes=True`.

        Arguments and errors: see `acker.spark.outcomes`.
        """
        return spouts.outcomes(
            spark, url=self.url, topology=self.topology, spout=spout, streaming=streaming,
            **self._given, **given,
        )  # fmt: skip

    def dead_letters(
        self,
        spark: SparkSession,
        spout: str | None = None,
        *,
        stream: str | None = None,
        streaming: bool = False,
        **given: Unpack[LetterOptions],
    ) -> DataFrame:
        """Returns the dead letters of one spout, or of all.

        Arguments and errors: see `acker.spark.dead_letters`.
        """
        return letters.dead_letters(
            spark, url=self.url, topology=self.topology, spout=spout, stream=stream, streaming=streaming,
            **self._given, **given,
        )  # fmt: skip

    def replay(self, letter: str | None = None, *, matching: Filter | None = None) -> int:
        """Replays a dead letter by its id, or all letters that match a filter.

        Arguments and errors: see `acker.spark.replay`.
        """
        return letters.replay(
            url=self.url, topology=self.topology, letter=letter, matching=matching, **self._given
        )

    def discard(self, matching: Filter) -> int:
        """Deletes the dead letters that match a filter.

        Arguments and errors: see `acker.spark.discard`.
        """
        return letters.discard(url=self.url, topology=self.topology, matching=matching, **self._given)

    def watermark(self, spout: str) -> dict[str, int]:
        """Returns for each partition the first offset that is not yet done.

        Arguments: see `acker.spark.watermark`.
        """
        return spouts.watermark(url=self.url, topology=self.topology, spout=spout, **self._given)

    def settle(self, spout: str | None = None) -> Stepped:
        """Settles the present outcomes. See `acker.streams.spouts.settler.settle`.

        Args:
            spout: The name of the spout; by default all spouts without a taker of outcomes.

        Returns:
            The numbers of settled trees.
        """
        ledger = self._ledger()
        return Stepped() if ledger.off else settler.settle(ledger, spout)

    def settling(
        self, spout: str | None = None, *, on_outcomes: Callable[[pa.Table], object] | None = None
    ) -> AbstractContextManager[Settler]:
        """Settles outcomes in a thread while the block lasts.

        Arguments and errors: see `acker.spark.settling`.
        """
        return spouts.settling(
            url=self.url, topology=self.topology, spout=spout, on_outcomes=on_outcomes, **self._given
        )

    def read_again(self, checkpoint: str, *, batch: int | None = None) -> int:
        """Rewinds the checkpoint of a query that ended with StoreLost.

        Arguments and errors: see `acker.spark.read_again`.
        """
        return rewind_checkpoint.read_again(
            checkpoint, url=self.url, topology=self.topology, batch=batch, **self._given
        )

    def _of_step(self, given: Mapping[str, object]) -> dict[str, Any]:
        """Returns the options of a step, with the options that `Acker` gives to all steps."""
        return {**self._given, **({"observe": True} if self._observe else {}), **given}

    def _ledger(self) -> Ledger:
        return options.of_step("any", {"url": self.url, "topology": self.topology, **self._given}).ledger()

    def _texts(self, stream: str, given: Mapping[str, object]) -> dict[str, str]:
        """Returns options as Spark takes them: as text. Raises TurnedOff: streams lie in the store."""
        if is_off(self._given.get("enabled", True)):
            raise off.refusal("read or write", stream)
        return options.texts(
            {"url": self.url, "topology": self.topology, **self._given, **given, "stream": stream}
        )

    def _schema(
        self, spark: SparkSession, stream: str, schema: StructType | str | None, given: ReadOptions
    ) -> StructType | str:
        """Returns the schema to read with; its errors come here without Spark's traceback around them."""
        acker_source.register(spark)
        parsed = options.Options.parse(self._texts(stream, given))
        if schema is None:
            return acker_source.schema_of(parsed)
        acker_source.topology_of(parsed)
        return schema
