"""A request of very many rows keeps no small ones waiting, in a bolt."""

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from acker.errors import ValidationError
from acker.ledger.client import open_ledger
from acker.spark import bolt
from acker.spark.bolts.collector import Collector
from acker.spark.options.options import Options
from acker.store.client import Store
from acker.streams.log import fairness, schemas
from acker.streams.sources.spout_options import SpoutOptions
from acker.streams.spout import StreamSpout
from acker.streams.spouts import settler
from acker.workers.out import Out
from acker.workers.steps import FunctionStep
from acker.workers.worker import Worker
from tests.helpers.servers.sparks import several_batches

BIG, SMALL, SMALL_ONES = 20_000, 5, 100


def fan(row: dict[str, Any], out: Out) -> None:
    for i in range(row["n"]):
        out.emit("rows", {"i": i})


@several_batches
@pytest.mark.parametrize("fair", [True, False])
def test_small_requests_do_not_wait_for_a_large_one_that_was_written_first(
    spark: SparkSession, valkey_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fair: bool
) -> None:
    monkeypatch.setattr(fairness, "LIGHT", 1_024)
    monkeypatch.setattr(fairness, "SEGMENT_ROWS", 1_024)
    ledger = open_ledger(Store(valkey_url), "t", ackers=2)
    ledger.run(schemas.record(ledger.core, "rows", pa.schema([("i", pa.int64()), ("_acker", pa.int64())])))
    batches: list[Counter[int]] = []

    @bolt(url=valkey_url, topology="t", name="work")
    def work(batch: DataFrame, _: Collector) -> None:
        batches.append(
            Counter({row["_acker"]: row["count"] for row in batch.groupBy("_acker").count().collect()})
        )

    def run() -> None:
        reader = spark.readStream.format("acker").options(url=valkey_url, topology="t", stream="rows")
        reader = reader.options(max_rows=2_000, **({"fair_by": "_acker"} if fair else {}))
        query = (
            reader.schema("i bigint, _acker bigint").load().writeStream.foreachBatch(work)
            .option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
        )  # fmt: skip
        query.awaitTermination()

    run()  # the stream is read fairly from now on
    spout = StreamSpout(ledger, SpoutOptions("asks", "asks", "id"))
    worker = Worker(ledger, FunctionStep("fan", "asks", fan))
    [big] = spout.write(pa.table({"id": ["big"], "n": [BIG]}))
    while worker.work():
        pass
    names = [f"small{n}" for n in range(SMALL_ONES)]
    [small] = spout.write(pa.table({"id": names, "n": [SMALL] * SMALL_ONES}))
    while worker.work():
        pass
    run()
    total, done = sum(batches, Counter()), Counter[int]()
    assert total == {int(big.anchors()[0]): BIG} | {int(one): SMALL for one in small.anchors()}
    for one in batches:
        done += one
        if all(done[int(anchor)] == SMALL for anchor in small.anchors()):
            break
    assert (done[int(big.anchors()[0])] < BIG / 2) == fair
    assert settler.settle(ledger).acked == SMALL_ONES + 1


def test_the_column_of_the_key_is_one_of_those_that_are_read(spark: SparkSession, valkey_url: str) -> None:
    open_ledger(Store(valkey_url), "t", ackers=1)
    options = {"url": valkey_url, "topology": "t", "stream": "rows", "fair_by": "customer"}
    with pytest.raises(ValidationError, match="option fair_by: only for reading"):
        Options.parse(options).check_use("writing with format('acker')")
    frame = spark.readStream.format("acker").options(**options).schema("i bigint, _acker bigint").load()
    query = frame.writeStream.foreachBatch(lambda *_: None).start()
    with pytest.raises(
        Exception, match="option fair_by: expected one of the columns i, _acker, got 'customer'"
    ):
        query.awaitTermination()
