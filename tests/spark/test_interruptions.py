"""Batches that are interrupted between staging and commit, or in the commit, and go on much later."""

from collections.abc import Callable
from itertools import count
from threading import Event, Thread
from typing import Any

import pytest
import redis
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from acker import scripts
from acker.ledger import open_ledger
from acker.requests import Operation
from acker.spark import Collector, bolt
from acker.store import Store
from acker.streams import commits
from acker.totals import totals
from tests.conftest import NewServer
from tests.proxy import proxied
from tests.servers import wait_until
from tests.spark.pipeline import Pipeline
from tests.spark.test_exactness import consume, words

whole_commit = commits.commit


def interrupted(after: int, what: Callable[[], object]) -> Callable[..., Operation[bool]]:
    """A commit that does something after so many exchanges with the store, and then goes on."""

    def commit(*arguments: Any) -> Operation[bool]:
        operation, replies = whole_commit(*arguments), None
        try:
            for number in count():
                if number == after:
                    what()
                replies = yield operation.send(replies)  # type: ignore[arg-type]
        except StopIteration as end:
            return bool(end.value)
        raise AssertionError

    return commit


def raising(text: str) -> Callable[[], object]:
    def what() -> object:
        raise RuntimeError(text)

    return what


def keys_of(url: str, pattern: str) -> int:
    with redis.Redis.from_url(url) as client:
        return sum(1 for _ in client.scan_iter(pattern, count=1000))


@pytest.mark.parametrize("sink", ["bolt", "writer"])
def test_a_query_stopped_while_it_commits(pipeline: Pipeline, sink: str) -> None:
    """A writer's commit runs in a process of Spark's own, which may not live to its end."""
    calls: list[int] = []
    reached, stopped = Event(), Event()
    publish = scripts.get("publish").sha

    def hold_up(request: bytes) -> bool:
        if publish in request and not reached.is_set():
            reached.set()
            assert stopped.wait(60)
        return False

    with proxied(pipeline.url) as proxy:

        def query() -> DataStreamWriter:
            if sink == "bolt":
                return pipeline.query("split", "lines", split_lines)
            rows = words(pipeline.read_stream("lines"))
            return (
                rows.writeStream.format("acker")
                .options(**{**pipeline.options("words"), "url": proxy.url})
                .option("checkpointLocation", str(pipeline.directory / "split"))
                .trigger(availableNow=True)
            )

        @bolt(url=proxy.url, topology="t", name="split")
        def split_lines(batch: DataFrame, collector: Collector) -> None:
            calls.append(1)
            collector.emit(words(batch), stream="words")

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
    consume(pipeline, "words")
    assert pipeline.counters() == {"tracked": 40, "acked": 40}
    assert not pipeline.without_time_to_live("staged", "payload", "notes")


def test_a_store_restarted_between_staging_and_commit_and_in_the_commit(
    spark: SparkSession, new_server: NewServer, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = new_server()
    ledger = open_ledger(Store(server.url), "t", ackers=2)
    pipeline = Pipeline(spark, ledger, server.url, tmp_path)
    restarts: list[int] = []

    def restart() -> None:
        restarts.append(server.pid)
        server.restart()

    @bolt(url=server.url, topology="t", name="split")
    def split_lines(batch: DataFrame, collector: Collector) -> None:
        collector.emit(words(batch), stream="words")
        collector.fail(batch.limit(3), "three")
        restart()

    pipeline.spout(["a b"] * 40, segments=2)
    with monkeypatch.context() as patched:
        patched.setattr(commits, "commit", interrupted(4, restart))
        pipeline.run("split", "lines", split_lines)
    assert len(set(restarts)) == 2
    assert len(pipeline.rows("words")) == 80
    assert pipeline.outcomes() == {"three": 3}
    consume(pipeline, "words")
    counted = pipeline.counters()
    assert counted.pop("late") > 0
    assert counted == {"tracked": 40, "acked": 37, "failed": 3}
    assert not pipeline.without_time_to_live("staged", "payload", "failing", "notes")


def test_staged_data_that_ran_out_of_time_is_staged_again(pipeline: Pipeline) -> None:
    def gone() -> bool:
        return not keys_of(pipeline.url, "*failing*") and not keys_of(pipeline.url, "*words}:payload*")

    def split_lines(batch: DataFrame, collector: Collector) -> None:
        collector.emit(words(batch), stream="words")
        collector.fail(batch.limit(3), "three")

    @bolt(url=pipeline.url, topology="t", name="split", staging_ttl=1)
    def slow(batch: DataFrame, collector: Collector) -> None:
        split_lines(batch, collector)
        wait_until(gone)

    pipeline.spout(["a b"] * 40)
    with pytest.raises(Exception, match="ran out of time before its commit"):
        pipeline.run("split", "lines", slow)
    assert pipeline.counters() == {"tracked": 40}
    assert pipeline.rows("words") == []
    # The vectors of the lines wait for their ack, those of the words are gone.
    assert keys_of(pipeline.url, "*staged*") <= 3
    pipeline.run("split", "lines", bolt(url=pipeline.url, topology="t", name="split")(split_lines))
    assert len(pipeline.rows("words")) == 80
    consume(pipeline, "words")
    counted = pipeline.counters()
    assert counted.pop("late") > 0
    assert counted == {"tracked": 40, "acked": 37, "failed": 3}
    assert not keys_of(pipeline.url, "*staged*")


@pytest.mark.parametrize("after", [0, 5])
def test_a_query_that_is_restarted_long_after_the_message_timeout(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    """Its trees have expired and were replayed: what it does for them is late, and changes nothing."""
    ledger = open_ledger(Store(pipeline.url), "late", ackers=2, message_timeout=1.0)
    late = Pipeline(pipeline.spark, ledger, pipeline.url, pipeline.directory)

    @bolt(url=pipeline.url, topology="late", name="split")
    def split_lines(batch: DataFrame, collector: Collector) -> None:
        collector.emit(words(batch), stream="words")

    late.spout([f"a{n} b{n}" for n in range(40)])
    with monkeypatch.context() as patched:
        patched.setattr(commits, "commit", interrupted(after, raising("killed")))
        with pytest.raises(Exception, match="killed"):
            late.run("split", "lines", split_lines)

    def expired() -> int:
        ledger.tick()
        return ledger.counters()["expired"]

    wait_until(lambda: expired() == 40)
    late.spout([f"a{n} b{n}" for n in range(40)])  # a replay: other trees
    late.run("split", "lines", split_lines)
    found = [row["_acker"] for row in late.rows("words")]
    assert len(found) == 160
    assert len(set(found)) == 80
    consume(late, "words")
    counted = late.counters()
    counted.pop("rotations")
    assert counted.pop("late") > 0
    assert counted == {"tracked": 80, "expired": 40, "acked": 40}
    assert ledger.run(totals(ledger.core)).pending == 0
    assert not late.without_time_to_live("staged", "payload", "notes", "ack:")
