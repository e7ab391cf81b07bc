"""DataFrames that are written as a spout, under a name: whatever happens around the commit, they are once."""

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException

from acker.ledger.client import open_ledger
from acker.spark.options.options import Options
from acker.spark.source.writing import BatchWriter
from acker.store.client import Store
from acker.streams.spouts import settler
from acker.streams.spouts.replays import Stepped
from tests.helpers.builders.pipeline import Pipeline
from tests.helpers.faults.moments import (
    LONG,
    Meeting,
    keys_of,
    refused_from,
    stores,
    threads,
)
from tests.helpers.faults.proxy import proxied


def write(pipeline: Pipeline, **options: object) -> None:
    """Writes the run of Monday, 50 rows of two tasks; options: of the data source."""
    rows = pipeline.spark.range(0, 50, 1, 2)
    given = {"message_id": "id", "spout": "s", "run": "monday", "segment_rows": 10, **options}
    pipeline.append(rows, "numbers", **given)


def assert_written_once(pipeline: Pipeline) -> None:
    """All rows are there, each with its tree, and nothing else is left when they are acked."""
    assert sorted(int(str(row["id"])) for row in pipeline.rows("numbers")) == list(range(50))
    assert pipeline.counters() == {"tracked": 50}
    pipeline.consume("numbers")
    assert settler.settle(pipeline.ledger) == Stepped(acked=50)
    assert pipeline.counters() == {"tracked": 50, "acked": 50}
    assert pipeline.pending() == {"pending": 0, "acked": 50, "replayed": 0, "dead": 0}
    assert not keys_of(pipeline.url, "*:staged:*")
    assert not keys_of(pipeline.url, "*:rows:*")
    assert not pipeline.without_time_to_live("payload", "ack:")


def test_a_second_producer_of_a_run_hears_that_its_rows_are_in_no_stream(pipeline: Pipeline) -> None:
    write(pipeline)
    write(pipeline)  # the same driver again: the same rows
    other = pipeline.spark.range(50, 57)
    given = pipeline.options("numbers", message_id="id", spout="s", run="monday")
    with pytest.raises(PySparkException, match=r"RunCommitted: run 'monday' .* with 50 rows emitted.*7 rows"):
        other.write.format("acker").mode("append").options(**given).save()
    assert_written_once(pipeline)


def test_a_write_without_a_name_leaves_no_commit_and_is_not_aborted(pipeline: Pipeline) -> None:
    given = pipeline.options("numbers", message_id="id", spout="s")
    writer = BatchWriter(Options.parse(given), pipeline.spark.range(1).schema)
    messages = [writer.write(iter([pa.record_batch({"id": range(25 * n, 25 * n + 25)})])) for n in range(2)]
    writer.commit(messages)
    assert not keys_of(pipeline.url, "*:commits:*")
    writer.abort(messages)  # Spark does so where commit() raises, even after its end
    assert_written_once(pipeline)
    lost = [writer.write(iter([pa.record_batch({"id": range(9)})]))]
    writer.abort(lost)
    assert not keys_of(pipeline.url, "*:staged:*")
    assert not keys_of(pipeline.url, "*:rows:*")


def test_two_drivers_that_write_the_same_run_at_once(pipeline: Pipeline) -> None:
    """Each has staged its own when they come to store the commit."""
    with proxied(pipeline.url) as proxy, threads(pipeline.spark, 2) as drivers:
        proxy.passed = meeting = Meeting(stores)
        for done in [drivers.submit(write, pipeline, url=proxy.url, timeout=LONG) for _ in range(2)]:
            done.result()
    assert meeting.met.is_set()
    assert_written_once(pipeline)


def test_a_write_finished_long_after_the_timeout(pipeline: Pipeline) -> None:
    """It was cut before its commit, which is one exchange with the store: nothing is tracked until then."""
    ledger = open_ledger(Store(pipeline.url), "late", ackers=2, message_timeout=1.0)
    late = Pipeline(pipeline.spark, ledger, pipeline.url, pipeline.directory)
    with refused_from(pipeline.url, stores) as url, pytest.raises(Exception, match="on purpose"):
        write(late, url=url)
    assert late.counters() == {}
    assert late.rows("numbers") == []
    for _ in range(3):
        ledger.tick(force=True)
    assert settler.settle(ledger) == Stepped()
    for _ in range(2):
        write(late)
    found = late.rows("numbers")
    assert sorted(int(str(row["id"])) for row in found) == list(range(50))
    assert len({row["_acker"] for row in found}) == 50
    late.consume("numbers")
    assert settler.settle(ledger) == Stepped(acked=50)
    assert {name: n for name, n in late.counters().items() if name != "rotations"} == {
        "tracked": 50,
        "acked": 50,
    }
    assert not late.without_time_to_live("staged", "payload", ":rows:", "ack:")
