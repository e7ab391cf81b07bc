"""A batch has few exchanges with the store, whatever it sends and receives."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from acker import Topology
from acker.spark import Acker, Collector
from acker.store.client import Store
from acker.store.operation import Reply, Request

pytestmark = pytest.mark.slow

MOST = 8


class Counted:
    """The exchanges of the driver with the store, counted anew at each `end`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.batches, send_all = [0], Store.send

        def counted(store: Store, requests: Sequence[Request]) -> list[Reply]:
            self.batches[-1] += 1
            return send_all(store, requests)

        monkeypatch.setattr(Store, "send", counted)

    def end(self) -> None:
        self.batches.append(0)


@pytest.fixture
def acker(valkey_url: str) -> Acker:
    with Topology(valkey_url, "t", ackers=2) as topology:
        for stream in ("items", "words"):
            topology.incoming(stream, subscription="split")
    return Acker(valkey_url, "t")


def send(acker: Acker, spark: SparkSession, where: str) -> None:
    """Sends 40 rows in 8 segments."""
    with acker.job(spark, "send") as collector:
        numbers = spark.range(0, 40, 1, 2).selectExpr("string(id) value")
        rows = acker.track(numbers, "src", message_id="value").select("value", "_acker")
        collector.emit(rows, "items", to=lambda w: w.mode("append").parquet(where), segment_rows=5)


def test_a_batch_that_receives_and_sends_has_eight_exchanges_at_most(
    acker: Acker, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    items, words = str(tmp_path / "items"), str(tmp_path / "words")

    @acker.bolt("split", receives="items")
    def split(batch: DataFrame, collector: Collector) -> None:
        collector.emit(batch.repartition(3), "words", to=lambda w: w.mode("append").parquet(words))

    for _ in range(2):
        send(acker, spark, items)
    counted = Counted(monkeypatch)

    def batch(rows: DataFrame, number: int) -> None:
        counted.end()
        split(rows, number)
        counted.end()

    files = spark.readStream.schema("value string, _acker_stamp string").option("maxFilesPerTrigger", 2)
    writer = files.parquet(items).writeStream.foreachBatch(batch).trigger(availableNow=True)
    writer.option("checkpointLocation", str(tmp_path / "state")).start().awaitTermination()
    [_, _, _, second, _] = counted.batches
    assert second <= MOST  # by then the process knows the stream, and the server the scripts
    with acker.job(spark, "split") as collector:
        rows = collector.receive(spark.read.parquet(words), "words")
        rows.write.format("noop").mode("overwrite").save()
    assert counted.batches[-1] <= MOST
    with Topology(acker.url, "t") as topology:
        assert topology.counters()["acked"] == 80
