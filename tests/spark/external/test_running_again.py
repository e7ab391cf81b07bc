"""Rows that are read again on purpose reach the function, whenever that is, and change no record."""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import redis
from pyspark.sql import DataFrame, SparkSession

from acker import Topology
from acker.embedded import EmbeddedServer
from acker.spark import Acker
from acker.spark.bolts.collector import Collector
from tests.helpers.servers.clocks import NoLibrary, ShiftedClock

pytestmark = pytest.mark.slow

ROWS = 40
SCHEMA = "value string, _acker_stamp string"
TWO_HOURS, TWO_MONTHS = 2 * 3600.0, 61 * 86400.0


@dataclass
class Store:
    """A server, its clock, and a topology whose streams have a consumer each."""

    server: EmbeddedServer
    clock: ShiftedClock
    topology: Topology

    def counters(self) -> dict[str, int]:
        """The counters that are not zero."""
        return {name: count for name, count in self.topology.counters().items() if count}

    def keys(self) -> dict[bytes, int]:
        """All keys, with their time to live."""
        with redis.Redis.from_url(self.server.url) as client:
            raw: Any = client
            return {key: raw.ttl(key) for key in raw.scan_iter(count=1000)}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    try:
        clock = ShiftedClock(tmp_path / "clock")
    except NoLibrary as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(error))
    with (
        EmbeddedServer(tmp_path / "store", binary=clock.binary, append_only=False) as server,
        Topology(server.url, "t", ackers=3, message_timeout=600.0, linger=None) as topology,
    ):
        for stream, subscription in (("items", "count"), ("words", "last")):
            topology.incoming(stream, subscription=subscription)
        yield Store(server, clock, topology)


@pytest.mark.oldest  # where a batch without a stamp comes as a column of no type
def test_a_day_that_is_cleared_a_full_refresh_and_a_backfill_process_all_rows_and_change_no_record(
    spark: SparkSession, store: Store, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    acker, items, words = Acker(store.server.url, "t"), str(tmp_path / "items"), str(tmp_path / "words")
    numbers = spark.range(0, ROWS, 1, 2).selectExpr("string(id) value")
    with acker.job(spark, "parse") as collector:
        rows = acker.track(numbers, "src", message_id="value").select("value", "_acker")
        collector.emit(rows, "items", to=lambda w: w.parquet(items), segment_rows=7)

    def count(rows: DataFrame, collector: Collector) -> None:
        collector.emit(rows, "words", to=lambda w: w.mode("overwrite").parquet(words), segment_rows=7)

    def day(run: str) -> None:
        """Runs a named job, whose rows replace the rows of its earlier runs."""
        with acker.job(spark, "count", run=run) as collector:
            count(collector.receive(spark.read.schema(SCHEMA).parquet(items), "items"), collector)

    def refresh() -> None:
        """Runs a query with a new checkpoint."""
        bolt = acker.bolt("count", receives="items")(count)
        files = spark.readStream.schema(SCHEMA).parquet(items)
        writer = files.writeStream.foreachBatch(bolt).trigger(availableNow=True)
        query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
        assert query.awaitTermination(240)

    def last() -> set[str]:
        """Runs the consumer of the present rows; returns their values."""
        with acker.job(spark, "last") as collector:
            found = collector.receive(spark.read.schema(SCHEMA).parquet(words), "words").collect()
        return {row.value for row in found}

    everything = {str(number) for number in range(ROWS)}
    day("monday")
    assert last() == everything
    done, before = store.counters(), store.keys()
    assert done == {"tracked": ROWS, "acked": ROWS}
    ways: list[tuple[float, Callable[[], None]]] = [
        (0.0, lambda: day("monday")),
        (TWO_HOURS, refresh),
        (TWO_MONTHS, lambda: day("late")),
    ]
    for later, again in ways:
        store.clock.step(store.server, later)
        again()
        assert last() == everything
        new = {key: left for key, left in store.keys().items() if key not in before}
        assert all(left > 0 for left in new.values()), new
        assert not [key for key in new if b"staged:" in key]
        assert store.counters() == done
    [warning] = [text for text in caplog.messages if "belong to no record" in text]
    assert "run 'monday' of job 'count' was committed at 20" in warning
    assert "for words" in warning
