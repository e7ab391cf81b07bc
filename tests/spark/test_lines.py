"""Lines with Spark in the middle: rows that gather, and a row for each request."""

import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as Spark's own examples have it

from acker.errors import ValidationError
from acker.ledger.client import open_ledger
from acker.lines import Gather, Line, Out, Request
from acker.spark import bolt, gathered
from acker.spark.collector import Collector
from acker.store.client import Store
from acker.streams.commits.roots import Tracking
from acker.streams.spouts import settler
from acker.streams.spouts.spout import StreamSpout

NUMBERS = [0, 1, 2, 10, 100, 0, 7]


def test_bolts_count_the_rows_of_each_request_also_of_those_that_have_none(
    spark: SparkSession, valkey_url: str, tmp_path: Path
) -> None:
    """A bolt makes rows of requests, shuffled; one counts them when they are all there; a step adds up."""
    ledger = open_ledger(Store(valkey_url), "t", ackers=2)
    line = Line(ledger, "line", [Gather("rows", tasks=3, by=("i",)), Gather("counts")])
    sums: dict[int, int] = {}

    @line.gather("add", reads="counts")
    class Add:
        def __init__(self, request: Request) -> None:
            self.id, self.n = request.id, 0

        def execute(self, row: dict[str, Any]) -> None:
            self.n += row["n"]

        def finished(self, _: Out) -> None:
            assert self.id not in sums
            sums[self.id] = self.n

    spout = StreamSpout(ledger, Tracking("asks", "asks", "id", line="line", group=3))
    [roots] = spout.write(pa.table({"id": [f"r{n}" for n in range(len(NUMBERS))], "n": NUMBERS}))

    def fan(batch: DataFrame, collector: Collector) -> None:
        rows = batch.select(F.explode(F.sequence(F.lit(0), F.col("n"))).alias("i"), "n", "_acker")
        collector.emit(rows.where("i < n").select("i", "_acker").repartition(3), "rows")

    def count(batch: DataFrame, collector: Collector) -> None:
        rows, requests = gathered(batch)
        counts = rows.groupBy("_acker").agg(F.countDistinct("i").alias("n"))
        collector.emit(requests.join(counts, "_acker", "left").fillna(0, ["n"]), "counts")

    def source(stream: str, schema: str, **options: Any) -> DataFrame:
        reader = spark.readStream.format("acker").schema(schema)
        return reader.options(url=valkey_url, topology="t", stream=stream, **options).load()

    frames = [
        (source("asks", "n bigint, _acker bigint"), fan),
        (source("rows", "i bigint, _acker bigint, _acker_finished boolean", requests="true"), count),
    ]
    queries = [
        frame.writeStream.foreachBatch(bolt(url=valkey_url, topology="t", name=run.__name__)(run))
        .option("checkpointLocation", str(tmp_path / run.__name__))
        .start()
        for frame, run in frames
    ]
    try:
        with line.work():
            done, deadline = 0, time.monotonic() + 120
            while done < len(NUMBERS) and time.monotonic() < deadline:
                for query in queries:
                    assert query.isActive, query.exception()
                done += settler.settle(ledger).all
    finally:
        for query in queries:
            query.stop()
    assert [sums[int(anchor)] for anchor in roots.anchors()] == NUMBERS
    assert ledger.counters()["acked"] == 3 * len(NUMBERS)


def test_requests_are_only_there_where_they_were_asked_for(spark: SparkSession, valkey_url: str) -> None:
    ledger = open_ledger(Store(valkey_url), "t", ackers=1)
    Line(ledger, "line", [Gather("rows")])
    with pytest.raises(ValidationError, match=r"got id: read the stream with .option\('requests', 'true'\)"):
        gathered(spark.range(1))
