"""Sources that notice others: shared subscriptions, renamed bolts, and the listener of queries."""

import threading
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame

from acker.ledger.client import Ledger, open_ledger
from acker.ledger.steps import step_registry
from acker.ledger.steps.step_registry import Step
from acker.spark import Collector, bolt, track
from acker.spark.options.options import Options
from acker.spark.queries import batch_roots, conflicts, query_listener
from acker.spark.queries.conflicts import warn_of_tracking_queries
from acker.spark.queries.microbatches import MicroBatch
from acker.spark.runtime.versions import spark_schema
from acker.spark.source.reading import Offset, StreamingReader
from acker.store import keys
from acker.store.client import Store
from acker.store.operation import command
from acker.streams import StreamWriter
from acker.streams.commits import commit
from acker.streams.commits.contents import Commit
from acker.streams.log import schemas
from acker.streams.log.subscriptions import Range
from acker.streams.sources import scripts as spouts_lua
from acker.streams.staging import acks as staging_acks
from tests.helpers.builders.pipeline import Pipeline
from tests.helpers.builders.streaming import delivered, emit, stage
from tests.helpers.servers.new_server import NewServer
from tests.helpers.servers.sparks import shared_subscriptions


def source(ledger: Ledger, url: str, **options: str) -> StreamingReader:
    """A source, made as Spark makes it for a query."""
    schema = spark_schema(ledger.run(schemas.read(ledger.core, "lines")))
    return StreamingReader(Options.parse({"url": url, "topology": "t", "stream": "lines", **options}), schema)


def write(ledger: Ledger, line: str) -> None:
    StreamWriter(ledger, "lines").write(pa.table({"line": [line]}))


def plan(reader: StreamingReader, start: Offset) -> Offset:
    """Plans a batch as Spark does."""
    end = reader.latestOffset(start)
    reader.partitions(start, end)
    return end


@shared_subscriptions
def test_queries_that_share_a_subscription_which_nobody_has_named_are_reported(
    ledger: Ledger, valkey_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    write(ledger, "a")
    first, second = (source(ledger, valkey_url) for _ in range(2))
    start = first.initialOffset()
    plan(first, start)
    assert not caplog.records
    plan(second, second.initialOffset())
    [reported] = [record.getMessage() for record in caplog.records]
    assert reported.startswith(
        f"another query (reader {start['reader']}) took from stream 'lines' of topology 't'"
    )
    caplog.clear()
    for name in ("default", "audit"):  # a name was given on purpose
        sharing = source(ledger, valkey_url, subscription=name)
        plan(sharing, sharing.initialOffset())
    assert not caplog.records


@shared_subscriptions
@pytest.mark.parametrize("acks", [True, False], ids=["acks", "does not"])
def test_a_query_that_acks_nothing_of_what_it_takes_is_reported(
    ledger: Ledger, valkey_url: str, caplog: pytest.LogCaptureFixture, acks: bool
) -> None:
    """Such a query has a console sink, or a function that is no bolt."""
    write(ledger, "a")
    reader = source(ledger, valkey_url)
    at = reader.initialOffset()
    for line in "bcd":
        end = plan(reader, at)
        if acks:
            batch = Range("lines", end["slot"], end["reader"], at["at"], end["at"])
            ledger.run(staging_acks.consume(ledger.core, batch))
        at = end
        write(ledger, line)
    reported = [record.getMessage() for record in caplog.records]
    assert ["has acked nothing of its last batch" in text for text in reported] == ([] if acks else [True])


def commit_tracked(ledger: Ledger, query: str, source: str, number: int) -> None:
    """A query's batch of rows of a call of `track`, when it is committed."""
    at = MicroBatch(query, number, "run", f"{query}'s name")
    key = keys.tracked("t", query, "run", number)
    ledger.store.send([spouts_lua.register_roots(key, 600, source, (1, 0, 10), "x", "[]", 0)])
    warn_of_tracking_queries(ledger, at, ["lines"])
    ledger.store.send([batch_roots.forget_request(ledger.core, at)])


@shared_subscriptions
def test_queries_that_track_the_rows_of_one_dataframe_are_reported_once_and_others_are_not(
    ledger: Ledger, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(3):  # one that starts again is the same
        commit_tracked(ledger, "first", "a", number)
        commit_tracked(ledger, "other", "b", number)
    assert not caplog.records
    for number in range(2):
        commit_tracked(ledger, "second", "a", number)
        commit_tracked(ledger, "first", "a", 3 + number)
    [reported] = [record.getMessage() for record in caplog.records]
    assert reported.startswith(
        """queries "second's name" (second) and "first's name" (first) track the rows of one DataFrame for """
        "spout lines of topology 't'"
    )
    assert "with a spout name of its own" in reported


@shared_subscriptions
def test_two_queries_of_one_track_are_reported(pipeline: Pipeline, caplog: pytest.LogCaptureFixture) -> None:
    """Each has all of the rows, so a message id has an outcome for each."""
    given: dict[str, Any] = {"url": pipeline.url, "topology": "t"}
    directory = pipeline.directory / "source"
    directory.mkdir()
    (directory / "lines.txt").write_text("a")
    lines = pipeline.spark.readStream.text(str(directory))
    rows = track(lines, **given, spout="lines", message_id="value")

    @bolt(**given, name="split")
    def split(batch: DataFrame, collector: Collector) -> None:
        collector.emit(batch, stream="words")

    for name in ("first", "second"):
        writer = rows.writeStream.foreachBatch(split).queryName(name)
        pipeline.finish(pipeline.checkpointed(name, writer))
    assert [record.getMessage()[:18] for record in caplog.records if "track the" in record.getMessage()] == [
        "queries 'second' ("
    ]


@shared_subscriptions
def test_a_batch_does_not_ack_segments_that_are_gone_when_planned(ledger: Ledger, valkey_url: str) -> None:
    emit(ledger, 10)
    emit(ledger, 10)
    reader = source(ledger, valkey_url)
    start = reader.initialOffset()
    end = reader.latestOffset(start)
    batch = Range("lines", reader.slot, end["reader"], 0, end["at"])
    gone = delivered(ledger, batch)[0].segment
    ledger.store.send([command("UNLINK", keys.Stream("t", "lines").payload(gone.id))])
    [part] = reader.partitions(start, end)
    assert len(part.members) == 1  # type: ignore[attr-defined]
    ledger.run(staging_acks.consume(ledger.core, part.batch))  # type: ignore[attr-defined]
    assert ledger.counters()["acked"] == 10


def test_rows_held_under_an_old_name_are_named(ledger: Ledger, caplog: pytest.LogCaptureFixture) -> None:
    for name, query in (("pair", "q"), ("shared", "q"), ("shared", "other")):
        ledger.run(step_registry.register(ledger.core, Step(name, "bolt", query_id=query)))
    for stream in ("pair.held", "shared.held"):
        what = Commit((stage(ledger, emit(ledger, 3), stream),))
        ledger.run(commit.commit(ledger.core, stream, 0, what))
    at = MicroBatch("q", 7, "r")
    conflicts.warn_of_renamed_bolt(ledger, at, "pair")
    conflicts.warn_of_renamed_bolt(ledger, MicroBatch("new", 7, "r"), "match")
    assert caplog.records == []
    conflicts.warn_of_renamed_bolt(ledger, at, "match")
    [said] = [one.getMessage() for one in caplog.records]
    assert "query q has run bolt 'pair' before, which holds 3 rows as 'held' in stream 'pair.held'" in said


def test_a_querys_end_waits_for_no_store(new_server: NewServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark's listeners would wait with it, one query after the other, and `SparkSession.stop` for them."""
    monkeypatch.setattr(query_listener, "_PATIENCE", 0.5)
    server = new_server()
    ledger = open_ledger(Store(server.url, timeout=300.0), "t")
    listener = query_listener._Listener(None)  # type: ignore[arg-type]
    execution = SimpleNamespace(resolvedCheckpointRoot=lambda: "/checkpoint")
    listener._started["run"] = execution, [], [ledger]
    named: Any = lambda name: lambda: SimpleNamespace(toString=lambda: name)  # noqa: E731
    server.stop()
    ending = threading.Thread(
        target=listener.onQueryTerminated, args=[SimpleNamespace(id=named("query"), runId=named("run"))]
    )
    ending.start()
    ending.join(60.0)
    assert not ending.is_alive()
    assert not listener._started
