"""Batches that are interrupted between staging and commit, or in the commit, and go on much later.

Of a bolt, and of a query that writes by itself.
"""

from collections.abc import Callable
from pathlib import Path
from threading import Event, Thread

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from acker.inspect.topology.totals import totals
from acker.ledger.client import open_ledger
from acker.spark import Collector, bolt
from acker.store.client import Store
from acker.streams import Stream
from acker.streams.commits import chunks
from tests.helpers.builders.pipeline import Pipeline
from tests.helpers.faults.moments import (
    LONG,
    Asked,
    keys_of,
    publishes,
    refused_from,
    run_with_pauses,
    stores,
)
from tests.helpers.faults.proxy import proxied
from tests.helpers.models.exactness import words
from tests.helpers.servers.new_server import NewServer
from tests.helpers.servers.servers import wait_until
from tests.helpers.servers.sparks import several_batches

pytestmark = pytest.mark.slow

both_sinks = pytest.mark.parametrize("sink", ["bolt", "writer"])


def splitting(
    pipeline: Pipeline,
    sink: str,
    url: str,
    also: Callable[[DataFrame, Collector], object] = lambda *_: None,
    **options: object,
) -> DataStreamWriter:
    """A query that splits lines into words, of a sink that has its store at a URL.

    also: what a bolt does after it has emitted them. options: of the data source.
    """
    if sink == "writer":
        return pipeline.writing("split", words(pipeline.read_stream("lines")), "words", url=url, **options)

    @bolt(url=url, topology=pipeline.ledger.config.name, name="split", **options)
    def split_lines(batch: DataFrame, collector: Collector) -> None:
        collector.emit(words(batch), stream="words")
        also(batch, collector)

    return pipeline.query("split", "lines", split_lines)


def fail_three(batch: DataFrame, collector: Collector) -> None:
    collector.fail(batch.limit(3), "three")


def assert_done(pipeline: Pipeline, sink: str) -> None:
    """Of 40 lines all words are there, and all trees are done when these are: a bolt has failed three."""
    assert len(pipeline.rows("words")) == 80
    assert pipeline.rows("lines") == []
    failed = 3 if sink == "bolt" else 0
    assert pipeline.outcomes() == ({"three": 3} if failed else {})
    pipeline.consume("words")
    counted = pipeline.counters()
    assert (counted.pop("late", 0) > 0) is (failed > 0)
    assert counted == {"tracked": 40, "acked": 40 - failed, **({"failed": 3} if failed else {})}
    assert not keys_of(pipeline.url, "*staged*")
    assert not pipeline.without_time_to_live("payload", "failing", "notes")


@both_sinks
def test_a_query_stopped_while_it_commits(pipeline: Pipeline, sink: str) -> None:
    """A writer's commit runs in a process of Spark's own, which may not live to its end."""
    calls: list[int] = []
    reached, stopped = Event(), Event()

    def hold_up(request: bytes) -> bool:
        if publishes(request) and not reached.is_set():
            reached.set()
            assert stopped.wait(60)
        return False

    with proxied(pipeline.url) as proxy:

        def query() -> DataStreamWriter:
            return splitting(pipeline, sink, proxy.url, lambda *_: calls.append(1))

        pipeline.spout(["a b"] * 40, segments=2)
        proxy.swallow = hold_up
        running = query().start()
        assert reached.wait(200)
        stopping = Thread(target=running.stop)
        stopping.start()
        wait_until(lambda: not running.isActive, timeout=60)
        stopped.set()
        stopping.join(60)
        assert not stopping.is_alive()
        pipeline.finish(query())
    assert calls == [1] * (sink == "bolt")
    assert len(pipeline.rows("words")) == 80
    assert pipeline.rows("lines") == []
    pipeline.consume("words")
    assert pipeline.counters() == {"tracked": 40, "acked": 40}
    assert not pipeline.without_time_to_live("staged", "payload", "notes")


@both_sinks
def test_a_store_restarted_between_staging_and_commit_and_in_the_commit(
    spark: SparkSession, new_server: NewServer, tmp_path: Path, sink: str
) -> None:
    server = new_server()
    ledger = open_ledger(Store(server.url), "t", ackers=2)
    pipeline = Pipeline(spark, ledger, server.url, tmp_path)
    pipeline.spout(["a b"] * 40, segments=2)
    with proxied(server.url) as proxy:
        query = splitting(pipeline, sink, proxy.url, fail_three, timeout=LONG)
        run_with_pauses(
            spark,
            lambda: pipeline.finish(query),
            proxy,
            (stores, server.restart),
            (publishes, server.restart),
        )
    assert_done(pipeline, sink)


@both_sinks
def test_staged_data_that_ran_out_of_time_is_staged_again(pipeline: Pipeline, sink: str) -> None:
    def gone() -> bool:
        return not keys_of(pipeline.url, "*failing*") and not keys_of(pipeline.url, "*words}:payload*")

    def run_late() -> None:
        pipeline.finish(splitting(pipeline, sink, proxy.url, fail_three, staging_ttl=1, timeout=LONG))

    pipeline.spout(["a b"] * 40)
    with (
        proxied(pipeline.url) as proxy,
        pytest.raises(Exception, match="ran out of time before its commit"),
    ):
        run_with_pauses(pipeline.spark, run_late, proxy, (stores, lambda: wait_until(gone)))
    assert pipeline.counters() == {"tracked": 40}
    assert pipeline.rows("words") == []
    assert len(pipeline.rows("lines")) == 40
    # The vectors of the lines wait for their ack, the vectors of the words are gone.
    assert keys_of(pipeline.url, "*staged*") <= 3
    pipeline.finish(splitting(pipeline, sink, pipeline.url, fail_three))
    assert_done(pipeline, sink)


@both_sinks
def test_a_query_whose_rows_are_given_back_writes_nothing(pipeline: Pipeline, sink: str) -> None:
    def give_back() -> None:
        stream = Stream(pipeline.ledger, "lines")
        [reader] = stream.readers()
        assert stream.give_back(reader) == 1

    def run() -> None:
        pipeline.finish(splitting(pipeline, sink, proxy.url, fail_three, timeout=LONG))

    pipeline.spout(["a b"] * 40)
    with (
        proxied(pipeline.url) as proxy,
        pytest.raises(Exception, match=r"ReaderFenced|given back to the other"),
    ):
        run_with_pauses(pipeline.spark, run, proxy, (stores, give_back))
    assert pipeline.rows("words") == []
    assert pipeline.counters() == {"tracked": 40}
    again = Pipeline(pipeline.spark, pipeline.ledger, pipeline.url, pipeline.directory / "new")
    again.finish(splitting(again, sink, pipeline.url, fail_three))
    assert_done(pipeline, sink)


@several_batches
@pytest.mark.parametrize(
    ("sink", "asked"),
    [("bolt", stores), ("writer", stores), ("bolt", publishes)],
    ids=["before-bolt", "before-writer", "in-bolt"],
)
def test_a_query_restarted_long_after_the_timeout(
    pipeline: Pipeline, asked: Asked, sink: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its trees have expired and were replayed: what it does for them is late, and changes nothing.

    Where it had not committed yet, it does nothing for them: their rows are stale, and left out of its acks.
    """
    monkeypatch.setattr(chunks, "MOST", 4)  # a commit of this size is one exchange otherwise
    monkeypatch.setattr(chunks, "MOST_CHUNKS", 1)
    ledger = open_ledger(Store(pipeline.url), "late", ackers=2, message_timeout=1.0)
    late = Pipeline(pipeline.spark, ledger, pipeline.url, pipeline.directory)
    late.spout([f"a{n} b{n}" for n in range(40)])
    # Where also the abort of a write fails, Spark tells no more than that.
    reported = "on purpose" if sink == "bolt" else "Writing job failed"
    with refused_from(pipeline.url, asked) as url, pytest.raises(Exception, match=reported):
        late.finish(splitting(late, sink, url))
    assert late.rows("words") == []

    def expired() -> int:
        ledger.tick()
        return ledger.counters()["expired"]

    wait_until(lambda: expired() == 40)
    late.spout([f"a{n} b{n}" for n in range(40)])  # a replay: other trees
    late.finish(splitting(late, sink, pipeline.url))
    found = [row["_acker"] for row in late.rows("words")]
    assert len(found) == (80 if asked is stores else 160)
    assert len(set(found)) == len(found) / 2
    late.consume("words")
    counted = late.counters()
    counted.pop("rotations")
    assert (counted.pop("late", 0) > 0) is (asked is publishes)
    assert counted == {"tracked": 80, "expired": 40, "acked": 40}
    assert ledger.run(totals(ledger.core)).pending == 0
    assert not late.without_time_to_live("staged", "payload", "notes", "ack:")
