"""Jobs on a Redis Cluster: what holds on one server holds where the shards lie on several."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everyone imports it

from acker.ledger.client import open_ledger
from acker.spark import Collector, bolt
from acker.store.client import Store
from acker.streams import Stream
from acker.streams.sources import kept_rows
from acker.streams.spouts import settler
from acker.streams.spouts.replays import Stepped
from examples.reach import direct
from tests.helpers.builders.pipeline import Diary, Pipeline
from tests.helpers.builders.reach import FOLLOWERS, SHARED, answers_of, bolts, reach, steps_of
from tests.helpers.servers.servers import Servers, clean_database

pytestmark = pytest.mark.slow


@pytest.fixture
def pipeline(spark: SparkSession, servers: Servers, tmp_path: Path) -> Iterator[Pipeline]:
    """A topology of more shards than there are masters, so that each has some."""
    with clean_database(servers.url("valkey-cluster")) as url:
        ledger = open_ledger(Store(url), "t", ackers=8, message_timeout=600.0)
        yield Pipeline(spark, ledger, url, tmp_path)


def test_a_chain_that_fails_holds_and_has_effects_is_exact(pipeline: Pipeline, servers: Servers) -> None:
    effects, last = Diary(pipeline.directory / "effects"), pipeline.directory / "last"

    @bolt(url=pipeline.url, topology="t", name="split")
    def split(batch: DataFrame, collector: Collector) -> None:
        collector.fail(batch.filter("value = 'c 3' and attempt = 1"), "three")
        words = batch.select(F.explode(F.split("value", " ")).alias("word"), "_acker")
        collector.emit(words, stream="words")

    @bolt(url=pipeline.url, topology="t", name="post")
    def post(batch: DataFrame, collector: Collector) -> None:
        rows = collector.held("word string").unionByName(batch.select("word", "_acker"))
        if not last.exists():
            collector.hold(batch)
        for row in collector.once(rows, "word", horizon=3600).collect():
            effects.note(row.word)

    def work(*lines: str) -> list[str]:
        """Runs both queries over new lines, and what is to be replayed; the words that are posted then."""
        effects.clear()
        rows = pipeline.files(list(lines), parts=1)
        pipeline.run_on(pipeline.tracked(rows, attempts=2, attempt="attempt"), "split", split)
        pipeline.run("post", "words", post)
        return sorted(effects.read())

    cluster = servers.cluster("valkey-cluster")
    shards = pipeline.ledger.core.shards
    assert {cluster.owner(shard.clock) for shard in shards} == {0, 1, 2}
    lines = [f"{name} {n}" for name in "abc" for n in range(20)]
    assert work(*lines) == sorted({word for line in lines for word in line.split()})
    assert (pipeline.counters()["tracked"], pipeline.counters()["failed"]) == (60, 1)
    assert settler.settle(pipeline.ledger) == Stepped(replayed=1)
    last.touch()
    assert work("d 5") == ["d"]
    assert settler.settle(pipeline.ledger) == Stepped(acked=61)
    counted = pipeline.counters()
    # The words of the line that had failed were left out: nothing was done for it, and nothing is late.
    assert counted == {"tracked": 62, "acked": 61, "failed": 1}
    assert pipeline.ledger.run(kept_rows.pending(pipeline.ledger.core, "s"))["pending"] == 0
    for stream in ("words", "post.held", "s.replays"):
        assert Stream(pipeline.ledger, stream).totals().segments == 0


def test_a_function_of_steps_in_python_and_in_spark_answers_each_request_once(pipeline: Pipeline) -> None:
    function = reach()
    found = answers_of(pipeline, function, list(SHARED), *bolts(steps_of(pipeline, function)))
    assert found == [direct(url, SHARED, FOLLOWERS) for url in SHARED]
    assert set(pipeline.counters()) == {"tracked", "acked"}
    assert pipeline.counters()["acked"] == 3 * len(SHARED)
