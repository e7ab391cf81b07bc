"""Jobs of Spark where acker is turned off: plain reads and writes, and no connection."""

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from acker import AckerError, FailedException
from acker.errors import TurnedOff
from acker.spark import Acker, Collector
from acker.streams.spouts.replays import Stepped
from tests.helpers.builders.pipeline import Pipeline


@pytest.fixture
def off() -> Iterator[Acker]:
    """A topology that is off, at a port where no connection arrives while the test runs."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield Acker(f"redis://127.0.0.1:{listening.getsockname()[1]}/0", "shop", ackers=2, enabled=False)
        listening.setblocking(False)
        with pytest.raises(BlockingIOError):
            listening.accept()


def test_a_query_tracks_nothing_and_its_bolt_writes_to_its_own_sink(
    spark: SparkSession, off: Acker, tmp_path: Path
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "orders.json").write_text('{"id": 1, "price": "2"}\n{"id": 2, "price": "free"}\n')
    files = spark.readStream.schema("id long, price string").json(str(tmp_path / "in"))
    out = str(tmp_path / "out")

    @off.bolt("parse")
    def parse(batch: DataFrame, collector: Collector) -> None:
        collector.fail(batch.filter("price = 'free'"), "no price")
        rows = collector.map(batch, _price, "id long, price double")
        assert collector.reset_timeout(batch) == 0
        rows.drop("_acker").write.mode("append").json(f"{out}/{collector.key}")

    orders = off.track(files, "orders", message_id="id", attempt="attempt")
    assert orders.columns == ["id", "price", "attempt", "_acker"]
    query = orders.writeStream.foreachBatch(parse).option("checkpointLocation", str(tmp_path / "c"))
    with off.settling():
        Pipeline.finish(query.trigger(availableNow=True))
    assert [tuple(row) for row in spark.read.json(f"{out}/*").select("id", "price").collect()] == [(1, 2.0)]
    assert off.settle() == Stepped()


def test_a_failed_batch_and_a_failed_job_go_by(spark: SparkSession, off: Acker) -> None:
    def run(error: Exception) -> None:
        with off.job(spark, "nightly", run="monday") as collector:
            assert not collector.committed
            raise error

    run(FailedException("not today"))
    with pytest.raises(ValueError, match="a fault"):
        run(ValueError("a fault"))


def test_what_needs_rows_in_the_store_is_refused_at_once(spark: SparkSession, off: Acker) -> None:
    rows = spark.createDataFrame([(1, None)], "id int, _acker bigint")

    def go_on_after_errors() -> None:
        with off.job(spark, "nightly") as collector:
            for call in (
                lambda: collector.emit(rows, "totals"),
                lambda: collector.emit_map(rows, _price, "price double", "totals"),
                lambda: collector.hold(rows),
                lambda: collector.held("id int"),
                lambda: collector.take("totals"),
                lambda: collector.once(rows, "id"),
                lambda: off.write(rows, "totals"),
                lambda: off.read(spark, "totals"),
                lambda: off.read_stream(spark, "totals", schema="id int"),
                lambda: off.outcomes(spark, "orders"),
                lambda: off.dead_letters(spark),
                lambda: off.watermark("orders"),
            ):
                with pytest.raises(TurnedOff, match="turned off"):
                    call()

    with pytest.raises(AckerError, match=r"collector\.emit has failed in it and the function went on"):
        go_on_after_errors()
    with off.open() as topology:
        assert topology.off


def _price(row: dict[str, Any]) -> tuple[Any, ...]:
    return row["id"], float(row["price"])
