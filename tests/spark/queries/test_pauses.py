"""A commit whose spout is paused waits, says so, and ends when its query is stopped: nothing is lost."""

import pytest
from pyspark.sql import DataFrame

from acker.inspect.operate import pauses
from acker.spark import Collector, bolt
from acker.store import keys
from acker.store.operation import command
from tests.helpers.builders.pipeline import Pipeline
from tests.helpers.servers.servers import wait_until


def test_a_bolt_that_waits_for_a_paused_spout_ends_when_its_query_is_stopped(
    pipeline: Pipeline, caplog: pytest.LogCaptureFixture
) -> None:
    @bolt(url=pipeline.url, topology="t", name="pass")
    def through(batch: DataFrame, collector: Collector) -> None:
        collector.emit(batch, stream="lines")

    ledger = pipeline.ledger
    ledger.register_spout("s")
    ledger.run(pauses.pause(ledger.core, "s", by="ann", reason="a bad file"))
    rows = pipeline.tracked(pipeline.files([f"line {n}" for n in range(10)]))
    writer = pipeline.checkpointed("pass", rows.writeStream.foreachBatch(through))
    query = writer.start()
    wait_until(lambda: "waits until its spout is resumed" in caplog.text, timeout=240)
    query.stop()
    assert query.exception() is None
    [said] = [text for text in caplog.messages if "waits until its spout is resumed" in text]
    assert "spout 's' of topology 't' is paused by ann since 20" in said
    assert said.endswith(": a bad file")
    ledger.run(pauses.resume(ledger.core, "s"))
    pipeline.finish(writer)
    assert len(pipeline.rows("lines")) == 10
    assert pipeline.counters() == {"tracked": 10}


def test_a_query_that_writes_by_itself_ends_when_it_is_stopped_while_its_commit_waits(
    pipeline: Pipeline,
) -> None:
    ledger, looks = pipeline.ledger, 0
    ledger.register_spout("s")
    ledger.run(pauses.pause(ledger.core, "s", by="ann"))
    rows = pipeline.tracked(pipeline.files([f"line {n}" for n in range(10)], parts=1))
    writer = pipeline.writing("write", rows, "lines")
    query = writer.start()
    verdict = keys.verdict("t", query.id, query.runId)

    def waits() -> bool:
        """Each look of a commit for the verdict renews its time to live."""
        nonlocal looks
        [left] = ledger.store.send([command("TTL", verdict)])
        if left > 1_000:
            ledger.store.send([command("EXPIRE", verdict, 1_000)])
            looks += 1
        return looks >= 6

    wait_until(waits, timeout=240)
    query.stop()
    ledger.run(pauses.resume(ledger.core, "s"))
    assert pipeline.counters() == {}
    pipeline.finish(writer)
    assert len(pipeline.rows("lines")) == 10
    assert pipeline.counters() == {"tracked": 10}
