"""A batch that takes longer than the message timeout works in vain: that is said wherever one looks."""

import json

import pytest
from pyspark.sql import DataFrame

from acker.ledger.client import open_ledger
from acker.ledger.steps.step_registry import steps
from acker.spark import bolt
from acker.spark.bolts.collector import Collector
from acker.spark.runtime.versions import LEARNS_OFFSETS
from acker.store.client import Store
from acker.streams import Stream
from tests.helpers.builders.pipeline import Pipeline
from tests.helpers.servers.servers import wait_until


def test_a_batch_that_is_slower_than_the_message_timeout_says_so(
    pipeline: Pipeline, valkey_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    ledger = open_ledger(Store(valkey_url), "slow", ackers=2, message_timeout=1.0)
    pipeline.ledger = ledger

    @bolt(url=valkey_url, topology="slow", name="split")
    def split(batch: DataFrame, collector: Collector) -> None:
        def expired() -> bool:
            ledger.tick()
            return ledger.counters()["expired"] == 12

        wait_until(expired)
        collector.emit(batch.select("line", "_acker"), stream="words")

    pipeline.spout([f"line {n}" for n in range(12)])
    query = pipeline.query("split", "lines", split).start()
    try:
        assert query.awaitTermination(240)
    finally:
        query.stop()
    [said] = [one for one in caplog.records if one.name == "acker.spark.queries.lateness"]
    assert said.levelname == "WARNING"
    assert "bolt 'split', batch 0: 12 acks of its 12 rows came too late; the batch took " in said.getMessage()
    assert "the message timeout is 1 s: their trees expired meanwhile" in said.getMessage()
    [step] = ledger.run(steps(ledger.core))
    assert step.late == 12
    assert step.seconds > 1.0
    if LEARNS_OFFSETS:
        [source] = query.recentProgress[-1]["sources"]
        assert json.loads(source["latestOffset"])["acks_late"] == 0  # it was asked before the commit
    [one] = Stream(ledger, "lines").totals().subscriptions
    assert one.acks_late == 12


def test_rows_that_a_bolt_fails_itself_are_not_late(pipeline: Pipeline, valkey_url: str) -> None:
    """63 of 630, whose words are emitted by then."""

    @bolt(url=valkey_url, topology=pipeline.ledger.config.name, name="split")
    def split(batch: DataFrame, collector: Collector) -> None:
        collector.emit(batch.select("line", "_acker"), stream="words")
        collector.fail(batch.where("line like '%7'"), "seven")

    pipeline.spout([f"line {n}" for n in range(630)])
    query = pipeline.query("split", "lines", split).start()
    try:
        assert query.awaitTermination(240)
    finally:
        query.stop()
    counts = pipeline.ledger.counters()
    assert (counts["failed"], counts["late"], counts["orphaned"]) == (63, 0, 0)
    [one] = Stream(pipeline.ledger, "lines").totals().subscriptions
    assert one.acks_late == 0
