"""Jobs that hand records to each other, for tests."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import redis
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from acker.ledger import ids
from acker.ledger.client import Ledger
from acker.ledger.ids import Ids
from acker.ledger.slabs.slabs import NewSlab
from acker.spark import track
from acker.streams import StreamReader, StreamWriter
from acker.streams.sources import kept_rows
from tests.helpers.faults.attempts import BY
from tests.helpers.models.places import unexplained


@dataclass(frozen=True)
class Diary:
    """Notes of functions for a test, from any process: on Spark Connect they run in another one."""

    path: Path

    def note(self, what: object) -> int:
        """Adds an entry, anything that JSON knows; returns how many there are now."""
        with self.path.open("a") as file:
            file.write(json.dumps(what) + "\n")
        return len(self.read())

    def read(self) -> list[Any]:
        """All entries."""
        return [json.loads(line) for line in self.path.read_text().splitlines()] if self.path.exists() else []

    def clear(self) -> None:
        """Forgets all."""
        self.path.unlink(missing_ok=True)


@dataclass
class Pipeline:
    """A topology and the queries on it, which run with Trigger.AvailableNow: all there is, then they end."""

    spark: SparkSession
    ledger: Ledger
    url: str
    directory: Path

    def spout(self, lines: list[str], stream: str = "lines", segments: int = 1) -> Ids:
        """Tracks a tree for each line and emits it; returns the anchors."""
        writer = StreamWriter(self.ledger, stream)
        tracked = []
        for part in np.array_split(np.array(lines, dtype=object), segments):
            batch = writer.batch(pa.table({"line": pa.array(part.tolist(), pa.string())}))
            values = batch.ids()
            anchors, slabs = [], []
            for at in range(0, len(values), 1000):
                own = values[at : at + 1000]
                anchors.append(ids.new_anchors(len(own)))
                slabs.append(NewSlab(anchors[-1], own, [b"m"] * len(own)))
            assert set(self.ledger.track_slabs(slabs, spout="s")) == {"A"}
            writer.publish(batch, np.concatenate(anchors))
            tracked += anchors
        return np.concatenate(tracked)

    def options(self, stream: str, **more: object) -> dict[str, str]:
        """Options of the data source."""
        options = {"url": self.url, "topology": self.ledger.config.name, "stream": stream, **more}
        return {name: str(value) for name, value in options.items()}

    def read_stream(self, stream: str, **options: object) -> DataFrame:
        """A streaming DataFrame of a stream."""
        return self.spark.readStream.format("acker").options(**self.options(stream, **options)).load()

    def load(self, stream: str, **options: object) -> DataFrame:
        """A DataFrame of what a stream holds."""
        return self.spark.read.format("acker").options(**self.options(stream, **options)).load()

    def append(self, rows: DataFrame, stream: str, **options: object) -> None:
        """Writes rows to a stream."""
        rows.write.format("acker").options(**self.options(stream, **options)).mode("append").save()

    def files(self, lines: list[str], parts: int = 2, name: str = "in") -> DataFrame:
        """A streaming DataFrame of text files: one column, `value`."""
        directory = self.directory / name
        directory.mkdir(exist_ok=True)
        for part in range(parts):
            (directory / f"{len(list(directory.iterdir()))}.txt").write_text(
                "".join(f"{line}\n" for line in lines[part::parts])
            )
        return self.spark.readStream.text(str(directory))

    def tracked(self, rows: DataFrame, **settings: Any) -> DataFrame:
        """Rows, tracked by a spout."""
        given: dict[str, Any] = {"spout": "s", "message_id": "value", "partitions": 2, **settings}
        return track(rows, url=self.url, topology="t", **given)

    def run_on(self, rows: DataFrame, name: str, function: Callable[[DataFrame, int], None]) -> None:
        """Runs a query on these rows until it has worked on all there is."""
        self.finish(self.checkpointed(name, rows.writeStream.foreachBatch(function)))

    def run(
        self, name: str, stream: str, function: Callable[[DataFrame, int], None], **options: object
    ) -> None:
        """Runs a query until it has worked on all there is; raises what ended it."""
        self.finish(self.query(name, stream, function, **options))

    def query(
        self, name: str, stream: str, function: Callable[[DataFrame, int], None], **options: object
    ) -> DataStreamWriter:
        """The query itself, to be started."""
        return self.checkpointed(name, self.read_stream(stream, **options).writeStream.foreachBatch(function))

    def writing(self, name: str, rows: DataFrame, stream: str, **options: object) -> DataStreamWriter:
        """A query that writes rows to a stream by itself, to be started. options: of the data source."""
        writer = rows.writeStream.format("acker").options(**self.options(stream, **options))
        return self.checkpointed(name, writer)

    def checkpointed(self, name: str, writer: DataStreamWriter) -> DataStreamWriter:
        """A query with a checkpoint of its own, to be started."""
        return writer.option("checkpointLocation", str(self.directory / name)).trigger(availableNow=True)

    @staticmethod
    def finish(writer: DataStreamWriter) -> None:
        """Starts a query and waits for its end; raises what ended it.

        Spark gives a Python worker that plans or commits 10 seconds to start (PythonWorkerFactory), which a
        busy machine may not keep: then the query starts again, from its checkpoint.
        """
        for _ in range(4):
            try:
                query = writer.start()
                try:
                    assert query.awaitTermination(240), "the query did not end"
                finally:
                    query.stop()
                return
            except PySparkException as error:
                if "worker failed to connect back" not in str(error):
                    raise
        pytest.fail("the query did not start")

    def rows(self, stream: str) -> list[dict[str, object]]:
        """The rows of a stream."""
        return list(StreamReader(self.ledger, stream).rows())

    def consume(self, stream: str) -> None:
        """Acks what a stream holds; before and after it, all that pending trees wait for is in streams."""
        assert unexplained(self.ledger) == []
        StreamReader(self.ledger, stream).ack_all()
        assert unexplained(self.ledger) == []

    def pending(self) -> dict[str, int]:
        """The counts of what became of the rows of the spout `s`."""
        return self.ledger.run(kept_rows.pending(self.ledger.core, "s"))

    def attempts(self, stream: str) -> set[str]:
        """The attempts of tasks that emitted the rows of a stream (tests/helpers/faults/attempts.py)."""
        return {str(row[BY]) for row in self.rows(stream)}

    def counters(self) -> dict[str, int]:
        """The counters that are not zero, without the one of repeated calls."""
        return {name: n for name, n in self.ledger.counters().items() if n and name != "duplicates"}

    def outcomes(self) -> dict[str, int]:
        """Reasons of failed trees -> how many."""
        from acker.ledger.outcomes.outcomes import OutcomeReader

        reasons: dict[str, int] = {}
        reader = OutcomeReader(self.ledger.core, "s")
        while found := self.ledger.outcomes(reader):
            for entry in found:
                for slab in entry.slabs:
                    if entry.status == "failed":
                        [trees] = self.ledger.message_ids([slab.slab]).values()
                        count = len(trees if slab.indexes is None else slab.indexes)
                        reasons[slab.cause.reason] = reasons.get(slab.cause.reason, 0) + count
        return reasons

    def without_time_to_live(self, *words: str) -> list[bytes]:
        """Keys with one of the words in them that would stay for ever."""
        with redis.Redis.from_url(self.url) as client:
            return [
                key
                for key in client.scan_iter()
                if any(word.encode() in key for word in words) and client.ttl(key) == -1
            ]
