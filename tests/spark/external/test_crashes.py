"""A driver that dies at any step of a batch, sends and receives: its records are acked by rows that count."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from acker import Topology
from acker.errors import StoreUnavailable
from acker.spark import Acker
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


def test_a_driver_that_dies_before_any_exchange_acks_what_the_next_run_sends_and_receives_once(
    spark: SparkSession, pipeline: Pipeline, topology: Topology, tmp_path: Path
) -> None:
    items, words, sink = (str(tmp_path / name) for name in ("items", "words", "sink"))
    with Acker(pipeline.url, "t").job(spark, "parse") as collector:
        numbers = spark.range(0, MOST * ROWS, 1, MOST).selectExpr("id value")
        rows = Acker(pipeline.url, "t").track(numbers, "src", message_id="value").select("value", "_acker")
        collector.emit(rows, "items", to=lambda w: w.parquet(items))  # a segment for each task
    received = spark.read.schema(SCHEMA).parquet(items)

    def split(number: int) -> None:
        """The job of a day: its first row fails, one has no word, six have one."""
        with Acker(pipeline.url, "t").job(spark, "split", run=f"day-{number}") as collector:
            day = received.filter(f"value div {ROWS} = {number}")
            rows = collector.receive(day, "items")
            collector.fail(rows.filter(f"value % {ROWS} = 0"), "odd")
            rows.select("value").coalesce(1).write.mode("append").parquet(sink)
            some = rows.filter(f"value % {ROWS} > 1").coalesce(1)
            collector.emit(some, "words", to=lambda w: w.mode("append").parquet(words))

    done, left = 0, -1
    while left < 0:
        with pytest.MonkeyPatch.context() as patch:
            death = Death(patch, done)
            with suppress(StoreUnavailable):
                split(done)
        left = death.left
        split(done)
        counters, done = topology.counters(), done + 1
        assert (counters["failed"], counters["acked"]) == (done, done)
    assert 5 < done <= MOST
    table = spark.read.parquet(sink)
    assert table.distinct().count() == done * ROWS < table.count()
    for _ in range(2):
        with Acker(pipeline.url, "t").job(spark, "count") as collector:
            collector.receive(spark.read.schema(SCHEMA).parquet(words), "words")
        counters = topology.counters()
        assert (counters["failed"], counters["acked"]) == (done, done * (ROWS - 1))
        assert (counters["late"], counters["orphaned"]) == (done, 0)  # acks of rows that have failed
