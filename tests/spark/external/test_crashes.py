"""A driver that dies at any step of a batch, sends and receives: its records are acked by rows that count."""

import shutil
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everyone imports it

from acker import Topology
from acker.errors import StoreUnavailable
from acker.spark import Acker, Collector
from acker.store.client import Store
from acker.store.operation import Reply, Request
from tests.helpers.builders.pipeline import Pipeline

pytestmark = pytest.mark.slow

MOST, ROWS = 16, 8
SCHEMA = "value long, _acker_stamp string"


class Death:
    """Ends the driver before an exchange with the store, counted from 0: nothing is sent from then on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
        self.left, send = number, Store.send

        def dying(store: Store, requests: Sequence[Request]) -> list[Reply]:
            self.left -= 1
            if self.left < 0:
                raise StoreUnavailable("dead")
            return send(store, requests)

        monkeypatch.setattr(Store, "send", dying)


@pytest.fixture
def topology(pipeline: Pipeline) -> Iterator[Topology]:
    with Topology(pipeline.url, "t", linger=None) as made:
        for stream, subscription in (("items", "split"), ("words", "count")):
            made.incoming(stream, subscription=subscription)
        yield made


@pytest.mark.parametrize("by", ["job", "query"])
def test_a_driver_that_dies_before_any_exchange_acks_what_the_next_run_sends_and_receives_once(
    spark: SparkSession, pipeline: Pipeline, topology: Topology, tmp_path: Path, by: str
) -> None:
    """A job dies before each even exchange, a query before each odd one; the next run writes otherwise."""
    items, words, sink, days = (str(tmp_path / name) for name in ("items", "words", "sink", "days"))
    acker = Acker(pipeline.url, "t")
    with acker.job(spark, "parse") as collector:
        numbers = spark.range(0, MOST * ROWS, 1, MOST).selectExpr("id value")
        rows = acker.track(numbers, "src", message_id="value").select("value", "_acker")
        collector.emit(rows, "items", to=lambda w: w.parquet(items))  # a segment for each task
    received, files = spark.read.schema(SCHEMA).parquet(items), sorted(Path(items).glob("part-*.parquet"))

    def work(rows: DataFrame, collector: Collector, again: bool) -> None:
        """The work of a day: its first row fails, one has no word, six have one."""
        collector.fail(rows.filter(f"value % {ROWS} = 0"), "odd")
        rows.select("value").coalesce(1).write.mode("append").parquet(sink)
        some = rows.filter(f"value % {ROWS} > 1").coalesce(1)
        if again:
            some = some.withColumn("more", F.lit(1)).repartition(2)
        collector.emit(
            some, "words", to=lambda w: w.mode("append").parquet(words), segment_rows=2 if again else 4
        )

    def split_job(number: int, again: bool) -> None:
        with acker.job(spark, "split", run=f"day-{number}") as collector:
            day = received.filter(f"value div {ROWS} = {number}")
            work(collector.receive(day, "items"), collector, again)

    def split_query(number: int, again: bool) -> None:
        Path(days).mkdir(exist_ok=True)
        shutil.copy(files[number], days)

        @acker.bolt("split", receives="items")
        def split(batch: DataFrame, collector: Collector) -> None:
            work(batch, collector, again)

        pipeline.run_on(spark.readStream.schema(SCHEMA).parquet(days), "split", split)

    run = split_job if by == "job" else split_query
    exchange, done, left = 0 if by == "job" else 1, 0, -1
    while left < 0:
        with pytest.MonkeyPatch.context() as patch:
            death = Death(patch, exchange)
            with suppress(StoreUnavailable, PySparkException):
                run(done, False)
        left = death.left
        run(done, True)
        counters, done, exchange = topology.counters(), done + 1, exchange + 2
        assert (counters["failed"], counters["acked"]) == (done, done)
    assert 3 < done <= MOST
    table = spark.read.parquet(sink)
    assert table.distinct().count() == done * ROWS < table.count()
    for _ in range(2):
        with acker.job(spark, "count") as collector:
            collector.receive(spark.read.schema(SCHEMA).parquet(words), "words")
        counters = topology.counters()
        assert (counters["failed"], counters["acked"]) == (done, done * (ROWS - 1))
        assert (counters["late"], counters["orphaned"]) == (done, 0)  # acks of rows that have failed
