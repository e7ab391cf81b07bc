"""Spark jobs that observe: acker records their trees, and they neither wait for it nor fail by it."""

import logging
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everyone imports it

from acker import FailedException, Topology, ValidationError
from acker.embedded import EmbeddedServer
from acker.inspect.topology.totals import totals
from acker.inspect.trees import failures
from acker.spark import Acker, Collector, track
from acker.store.operation import command
from tests.helpers.builders.pipeline import Pipeline
from tests.helpers.servers.servers import wait_until as until

pytestmark = pytest.mark.slow


def _price(row: dict[str, Any]) -> tuple[Any, ...]:
    return row["id"], float(row["price"])


def _second_time(number: int) -> int:
    """Fails the first attempt of each task, at its last row."""
    context = TaskContext.get()
    if number == 5 and context is not None and context.attemptNumber() == 0:
        raise RuntimeError("the first attempt fails")
    return number


def _orders(spark: SparkSession, folder: Path) -> DataFrame:
    folder.mkdir(exist_ok=True)
    source = spark.readStream.schema("id long, name string, price string").option("maxFilesPerTrigger", 1)
    return source.json(str(folder))


def _write(folder: Path, number: int, *lines: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / f".{number}").write_text("\n".join(lines) + "\n")
    os.utime(folder / f".{number}", (number, number))  # Spark reads files in the order of their times
    (folder / f".{number}").rename(folder / f"{number:03}.json")


def _line(number: int, price: str = "1") -> str:
    return f'{{"id": {number}, "name": "order-{number}", "price": "{price}"}}'


def test_a_query_records_its_trees_and_no_row_is_kept(
    spark: SparkSession, valkey_url: str, tmp_path: Path
) -> None:
    shop = Acker(valkey_url, "shop", ackers=3, message_timeout=60.0, observe=True)
    nameless = '{"id": 7, "price": "1"}'
    _write(tmp_path / "in", 1, *map(_line, range(4)), _line(4, "free"), _line(5, "?"), nameless)
    _write(tmp_path / "in", 2, _line(8), _line(9))
    out, calls = str(tmp_path / "out"), []

    @shop.bolt("parse")
    def parse(batch: DataFrame, collector: Collector) -> None:
        calls.append(collector.batch_id)
        if collector.batch_id == 1:
            raise FailedException("no such shop")
        twice = batch.withColumn("id", F.udf(_second_time, "long", useArrow=False)("id"))
        collector.fail(twice.filter("price = 'free'"), "no price")
        rows = collector.map(batch, _price, "id long, price double")
        rows.drop("_acker").write.mode("append").json(f"{out}/{collector.batch_id}")

    orders = shop.track(_orders(spark, tmp_path / "in"), "orders", message_id="name", attempt="attempt")
    assert orders.columns == ["id", "name", "price", "attempt", "_acker"]
    query = orders.writeStream.foreachBatch(parse).option("checkpointLocation", str(tmp_path / "c"))
    Pipeline.finish(query.trigger(availableNow=True))
    assert calls == [0, 1], "nothing is replayed"
    assert sorted(row["id"] for row in spark.read.json(f"{out}/*").collect()) == [0, 1, 2, 3, 7]
    with Topology(valkey_url, "shop") as topology:
        counted = topology.counters()
        assert {name: counted[name] for name in ("tracked", "acked", "failed", "late", "orphaned")} == {
            "tracked": 8, "acked": 4, "failed": 4, "late": 0, "orphaned": 0,
        }  # fmt: skip
        page = topology.ledger.run(failures.page(topology.ledger.core))
        assert {failed.message_id: (failed.cause.reason, failed.spout) for failed in page.trees} == {
            b"order-4": ("no price", "orders.observed"),
            b"order-5": ("ValueError: could not convert string to float: '?'", "orders.observed"),
            b"order-8": ("no such shop", "orders.observed"),
            b"order-9": ("no such shop", "orders.observed"),
        }
        assert {(step.name, step.kind) for step in topology.steps()} == {
            ("parse", "bolt"), ("orders.observed", "spout"),
        }  # fmt: skip
        topology.tick(force=True)
        assert topology.ledger.run(totals(topology.ledger.core)).outstanding == 0
        [names] = topology.ledger.store.send([command("KEYS", b"*")])
        assert not [name for name in names if b"rows:" in name or b"tracked:" in name]


def test_a_job_observes_the_rows_that_it_tracks(spark: SparkSession, valkey_url: str) -> None:
    shop = Acker(valkey_url, "shop", ackers=2, message_timeout=60.0)
    rows = spark.createDataFrame([(n, str(n)) for n in range(10)], "id long, name string")
    with shop.job(spark, "nightly", observe=True) as collector:
        orders = shop.track(rows, "orders", message_id="name", observe=True)
        collector.fail(orders.filter("id < 3"), "too small")
        assert orders.count() == 10
    with Topology(valkey_url, "shop") as topology:
        counted = topology.counters()
        assert (counted["tracked"], counted["acked"], counted["failed"]) == (10, 7, 3)

    def emit() -> None:
        with shop.job(spark, "nightly", observe=True) as collector:
            collector.emit(rows, "totals")

    with pytest.raises(ValidationError, match=r"emit, stream 'totals': step 'nightly' has observe=True"):
        emit()


def test_a_query_goes_on_while_the_store_is_away_and_is_recorded_again_when_it_is_back(
    spark: SparkSession,
    new_server: Callable[..., EmbeddedServer],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    server = new_server(append_only=True)
    server.stop()
    seconds = dict[int, float]()
    shop = Acker(server.url, "shop", ackers=2, message_timeout=60.0, observe=True)
    stops_at = -1

    @shop.bolt("parse")
    def parse(batch: DataFrame, collector: Collector) -> None:
        begun = time.monotonic()
        collector.map(batch, _price, "id long, price double").count()
        if collector.batch_id == stops_at:
            server.stop()
        seconds[collector.batch_id] = time.monotonic() - begun

    orders = shop.track(_orders(spark, tmp_path / "in"), "orders", message_id="name")
    sink = orders.writeStream.foreachBatch(parse).option("checkpointLocation", str(tmp_path / "c"))
    with caplog.at_level(logging.WARNING, "acker"):
        query = sink.start()
        try:

            def feed(number: int) -> None:
                _write(tmp_path / "in", number, _line(number))
                until(lambda: number in seconds or not query.isActive, 120.0)
                assert query.isActive, query.exception()

            feed(0)
            server.start()
            fed = 1

            def acked() -> bool:
                nonlocal fed
                feed(fed)
                fed += 1
                with Topology(server.url, "shop") as topology:
                    return topology.counters()["acked"] >= 1

            until(acked, 120.0)
            stops_at = fed
            feed(fed)
            feed(fed + 1)
            server.start()
            fed, before = fed + 2, fed
            with Topology(server.url, "shop") as topology:
                earlier = topology.counters()["acked"]
                until(lambda: acked() and topology.counters()["acked"] > earlier, 120.0)
            assert before < fed
        finally:
            query.stop()
    assert "acker observes topology 'shop': the end of batch" in caplog.text


def test_rows_that_are_observed_need_a_step_that_observes(
    spark: SparkSession, valkey_url: str, tmp_path: Path
) -> None:
    shop = Acker(valkey_url, "shop", ackers=2, message_timeout=60.0)
    _write(tmp_path / "in", 1, _line(1))

    @shop.bolt("parse")
    def parse(batch: DataFrame, collector: Collector) -> None:
        batch.count()

    orders = shop.track(_orders(spark, tmp_path / "in"), "orders", message_id="name", observe=True)
    query = orders.writeStream.foreachBatch(parse).option("checkpointLocation", str(tmp_path / "c"))
    with pytest.raises(Exception, match="give the bolt observe=True, too"):
        Pipeline.finish(query.trigger(availableNow=True))
    rows = spark.createDataFrame([("a",)], "name string")
    with shop.job(spark, "nightly"), pytest.raises(ValidationError, match="observe=True"):
        track(rows, url=valkey_url, topology="shop", spout="orders", message_id="name", observe=True)
