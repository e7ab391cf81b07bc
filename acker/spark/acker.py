"""One topology as a Spark job uses it: the store and the topology are named once."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Unpack, cast

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter
from pyspark.sql.types import StructType

from acker.collectors.buffer import LINGER
from acker.collectors.topology import Topology
from acker.drpc.linear_drpc import LinearDRPC
from acker.ledger.client import Ledger
from acker.ledger.settings.config import SETTINGS, Settings
from acker.spark import spouts
from acker.spark.bolts import bolt, job
from acker.spark.bolts.bolt import Bolt
from acker.spark.bolts.collector import Collector
from acker.spark.functions.spark_steps import SparkSteps
from acker.spark.options import options
from acker.spark.options.keywords import (
    BoltOptions,
    JobOptions,
    LetterOptions,
    ReadOptions,
    StoreOptions,
    TrackOptions,
    WriteOptions,
)
from acker.spark.queries import rewind_checkpoint
from acker.spark.source import acker_source
from acker.store.address import shown
from acker.store.client import Store
from acker.streams.dead_letters.filters import Filter
from acker.streams.spouts import settler
from acker.streams.spouts.replays import Stepped
from acker.streams.spouts.settler import Settler


class Acker:
    """A topology at the store behind `url`, for Spark jobs: calls as of `acker.spark`, without these two.

        acker = Acker(URL, "shop", message_timeout=600)
        orders = acker.track(files, "orders", message_id="id")

        @acker.bolt("price")
        def price(batch, collector):
            collector.emit_map(batch, look_up, "id string, price double", stream="priced")

        orders.writeStream.foreachBatch(price).option("checkpointLocation", ...).start()

    given: the settings of the topology (`acker.ledger.settings.config.TopologyConfig`), `cluster` and
    `timeout`. With a setting, the topology is made at the first use where there is none, and compared where
    there is one (TopologyConfigError); without, it must be there by then (UnknownTopology), or is made by
    `open`. Nothing is sent before the first use. No session needs `register`. Raises ValidationError.
    """

    def __init__(self, url: str, topology: str, **given: Unpack[StoreOptions]) -> None:
        self.url = url
        self.topology = topology
        self._given = given
        parsed = options.of_step("any", {"url": url, "topology": topology, **given})
        Store(url, timeout=parsed.timeout, cluster=parsed.cluster)  # the URL is checked, nothing is sent

    def __repr__(self) -> str:
        return f"Acker({shown(self.url)!r}, {self.topology!r})"

    def open(self, *, linger: float | None = LINGER) -> Topology:
        """The topology for collectors (`acker.Topology`), which is made where there is none; to be closed.

        linger: as of `acker.Topology`.
        """
        settings = cast(Settings, {name: value for name, value in self._given.items() if name in SETTINGS})
        cluster, timeout = self._given.get("cluster", False), self._given.get("timeout", 10.0)
        return Topology(self.url, self.topology, cluster=cluster, timeout=timeout, linger=linger, **settings)

    def track(
        self, rows: DataFrame, spout: str, *, message_id: str, **given: Unpack[TrackOptions]
    ) -> DataFrame:
        """Makes a DataFrame a spout: its rows get trees, and the column `_acker`. See `acker.spark.track`."""
        return spouts.track(
            rows, url=self.url, topology=self.topology, spout=spout, message_id=message_id,
            **self._given, **given,
        )  # fmt: skip

    def bolt(
        self, name: str, **given: Unpack[BoltOptions]
    ) -> Callable[[Callable[[DataFrame, Collector], object]], Bolt]:
        """Makes a function of a batch and a collector one for foreachBatch. See `acker.spark.bolt`."""
        return bolt.bolt(url=self.url, topology=self.topology, name=name, **self._given, **given)

    def job(
        self, spark: SparkSession, name: str, *, run: str | None = None, **given: Unpack[JobOptions]
    ) -> AbstractContextManager[Collector]:
        """A batch job as one step: its end commits all that it did, once. See `acker.spark.job`."""
        return job.job(
            spark, url=self.url, topology=self.topology, name=name, run=run, **self._given, **given
        )

    def steps(self, function: LinearDRPC) -> SparkSteps:
        """The steps of a function that Spark jobs work on. See `acker.spark.SparkSteps`."""
        return SparkSteps(function, url=self.url, topology=self.topology, **self._given)

    def read_stream(
        self,
        spark: SparkSession,
        stream: str,
        *,
        schema: StructType | str | None = None,
        **given: Unpack[ReadOptions],
    ) -> DataFrame:
        """A stream as a streaming DataFrame, `spark.readStream.format("acker")`.

        schema: of the rows; without, it is that which the stream's first writer has recorded, for which this
        waits `schema_timeout` seconds (default 0). Raises UnknownTopology, UnknownStream, ValidationError.
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
        """What a stream holds now, which acks nothing: `spark.read.format("acker")`. As `read_stream`."""
        reader = spark.read.format("acker").options(**self._texts(stream, given))
        return reader.schema(self._schema(spark, stream, schema, given)).load()

    def write_stream(self, rows: DataFrame, stream: str, **given: Unpack[WriteOptions]) -> DataStreamWriter:
        """The writer of a streaming DataFrame to a stream, to be started: it acks what the query has read."""
        acker_source.register(rows.sparkSession)
        return rows.writeStream.format("acker").options(**self._texts(stream, given))

    def write(
        self, rows: DataFrame, stream: str, *, run: str | None = None, **given: Unpack[WriteOptions]
    ) -> None:
        """Writes a DataFrame that is not streaming to a stream: all of it or nothing.

        run: names the write: under the same name nothing is written to that stream again (known for 29 days).
        """
        acker_source.register(rows.sparkSession)
        texts = self._texts(stream, {**given, "run": run})
        rows.write.format("acker").options(**texts).mode("append").save()

    def outcomes(
        self, spark: SparkSession, spout: str, *, streaming: bool = True, **given: Unpack[ReadOptions]
    ) -> DataFrame:
        """The outcomes of a spout that is tracked with `outcomes=True`. See `acker.spark.outcomes`."""
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
        """The dead letters of a spout, or of all. See `acker.spark.dead_letters`."""
        return spouts.dead_letters(
            spark, url=self.url, topology=self.topology, spout=spout, stream=stream, streaming=streaming,
            **self._given, **given,
        )  # fmt: skip

    def replay(self, letter: str | None = None, *, matching: Filter | None = None) -> int:
        """Replays a dead letter, by its id, or all letters that a filter takes. See `acker.spark.replay`."""
        return spouts.replay(
            url=self.url, topology=self.topology, letter=letter, matching=matching, **self._given
        )

    def discard(self, matching: Filter) -> int:
        """Drops the dead letters that a filter takes for good. See `acker.spark.discard`."""
        return spouts.discard(url=self.url, topology=self.topology, matching=matching, **self._given)

    def watermark(self, spout: str) -> dict[str, int]:
        """Partition -> the first offset that is not known to be done. See `acker.spark.watermark`."""
        return spouts.watermark(url=self.url, topology=self.topology, spout=spout, **self._given)

    def settle(self, spout: str | None = None) -> Stepped:
        """Settles what outcomes there are now. See `acker.streams.spouts.settler.settle`."""
        return settler.settle(self._ledger(), spout)

    def settling(
        self, spout: str | None = None, *, on_outcomes: Callable[[pa.Table], object] | None = None
    ) -> AbstractContextManager[Settler]:
        """Settles outcomes in a thread while the block lasts. See `acker.spark.settling`."""
        return spouts.settling(
            url=self.url, topology=self.topology, spout=spout, on_outcomes=on_outcomes, **self._given
        )

    def read_again(self, checkpoint: str, *, batch: int | None = None) -> int:
        """Sets the checkpoint of a query that has ended with StoreLost back. See `acker.spark.read_again`."""
        return rewind_checkpoint.read_again(
            checkpoint, url=self.url, topology=self.topology, batch=batch, **self._given
        )

    def _ledger(self) -> Ledger:
        return options.of_step("any", {"url": self.url, "topology": self.topology, **self._given}).ledger()

    def _texts(self, stream: str, given: Mapping[str, object]) -> dict[str, str]:
        """Options for Spark, which takes text."""
        return options.texts(
            {"url": self.url, "topology": self.topology, **self._given, **given, "stream": stream}
        )

    def _schema(
        self, spark: SparkSession, stream: str, schema: StructType | str | None, given: ReadOptions
    ) -> StructType | str:
        """Looked up here, where an error comes without Spark's traceback around it."""
        acker_source.register(spark)
        parsed = options.Options.parse(self._texts(stream, given))
        if schema is None:
            return acker_source.schema_of(parsed)
        acker_source.topology_of(parsed)
        return schema
