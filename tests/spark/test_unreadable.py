"""Segments whose rows can not be read: a query goes on without them, and their trees are told as expired."""

import pytest
import redis
from pyspark.sql import DataFrame

from acker import keys
from acker.spark import Collector, bolt, job
from acker.streams.reader import entries
from tests.spark.pipeline import Pipeline
from tests.spark.test_exactness import consume, words


def spoil(pipeline: Pipeline, stream: str, place: int) -> str:
    """Breaks the rows of a segment; returns what it is called in quarantine."""
    _, segment = pipeline.ledger.run(entries(pipeline.ledger, stream))[place]
    with redis.Redis.from_url(pipeline.url) as client:
        client.setrange(keys.Stream("t", stream).payload(segment.token), 100, b"\xff" * 100)
    return f"segment:{stream}:{segment.token}"


def test_a_query_and_a_job_go_on_past_rows_that_can_not_be_read(pipeline: Pipeline) -> None:
    @bolt(url=pipeline.url, topology="t", name="split")
    def split(batch: DataFrame, collector: Collector) -> None:
        assert collector.emit(words(batch), stream="words") == 80
        collector.fail(batch.filter("line = 'c 3'"), "three")  # evaluates the batch again

    lines = [f"{name} {n}" for name in "abc" for n in range(20)]
    pipeline.spout(lines, segments=3)
    spoiled = [spoil(pipeline, "lines", 1)]
    looked = pipeline.spark.read.format("acker").options(**pipeline.options("lines")).load()
    with pytest.raises(Exception, match="UnreadableRecord: not the rows of a segment"):
        looked.count()
    assert pipeline.ledger.run(pipeline.ledger.core.quarantined()) == {}
    pipeline.run("split", "lines", split)
    found = {str(row["word"]) for row in pipeline.rows("words")}
    assert found == {"a", "c", *map(str, range(20))}
    assert pipeline.rows("lines") == []
    consume(pipeline, "words")
    assert pipeline.counters() == {"tracked": 60, "acked": 39, "failed": 1, "late": 2}

    pipeline.spout(["d"] * 20, stream="more", segments=2)
    spoiled.append(spoil(pipeline, "more", 0))
    with job(pipeline.spark, url=pipeline.url, topology="t", name="nightly") as collector:
        assert collector.emit(collector.take("more"), stream="copies") == 10
    consume(pipeline, "copies")
    for _ in range(3):
        pipeline.ledger.tick(force=True)
    counted = pipeline.counters()
    assert counted.pop("rotations") == 9
    assert counted == {"tracked": 80, "acked": 49, "failed": 1, "late": 2, "expired": 30}
    quarantined = pipeline.ledger.run(pipeline.ledger.core.quarantined())
    assert sorted(name.decode() for name in quarantined) == sorted(spoiled)
    assert not pipeline.without_time_to_live("staged", "payload", "owed")
