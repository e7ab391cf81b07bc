"""Segments whose rows cannot be read: a query goes on without them, and their trees expire."""

import pytest
import redis
from pyspark.sql import DataFrame

from acker.errors import UnreadableRecord
from acker.inspect.topology.totals import unreadable
from acker.ledger.client import Ledger
from acker.spark import Collector, bolt, job
from acker.spark.queries import batch_inputs, batch_roots
from acker.spark.queries.microbatches import MicroBatch
from acker.store import keys
from acker.streams import StreamReader
from acker.streams.log.subscriptions import Range
from acker.streams.reader import entries
from tests.helpers.builders.pipeline import Pipeline
from tests.helpers.models.exactness import words

pytestmark = pytest.mark.slow


def spoil(pipeline: Pipeline, stream: str, place: int) -> None:
    """Breaks the rows of a segment."""
    _, segment = pipeline.ledger.run(entries(pipeline.ledger, stream))[place]
    with redis.Redis.from_url(pipeline.url) as client:
        client.setrange(keys.Stream("t", stream).payload(segment.id), 100, b"\xff" * 100)


def test_a_query_and_a_job_go_on_past_rows_that_cannot_be_read(pipeline: Pipeline) -> None:
    @bolt(url=pipeline.url, topology="t", name="split")
    def split(batch: DataFrame, collector: Collector) -> None:
        assert collector.emit(words(batch), stream="words") == 80
        collector.fail(batch.filter("line = 'c 3'"), "three")  # evaluates the batch again

    lines = [f"{name} {n}" for name in "abc" for n in range(20)]
    pipeline.spout(lines, segments=3)
    spoil(pipeline, "lines", 1)
    looked = pipeline.load("lines")
    with pytest.raises(Exception, match="UnreadableRecord: not the rows of a segment"):
        looked.count()
    assert pipeline.ledger.run(unreadable(pipeline.ledger.core)) == 0
    pipeline.run("split", "lines", split)
    found = {str(row["word"]) for row in pipeline.rows("words")}
    assert found == {"a", "c", *map(str, range(20))}
    assert pipeline.rows("lines") == []
    StreamReader(pipeline.ledger, "words").ack_all()
    assert pipeline.counters() == {"tracked": 60, "acked": 39, "failed": 1, "late": 1}

    pipeline.spout(["d"] * 20, stream="more", segments=2)
    spoil(pipeline, "more", 0)
    with job(pipeline.spark, url=pipeline.url, topology="t", name="nightly") as collector:
        assert collector.emit(collector.take("more"), stream="copies") == 10
    StreamReader(pipeline.ledger, "copies").ack_all()
    for _ in range(3):
        pipeline.ledger.tick(force=True)
    counted = pipeline.counters()
    assert counted.pop("rotations") == 9
    assert counted == {"tracked": 80, "acked": 49, "failed": 1, "late": 1, "expired": 30}
    assert pipeline.ledger.run(unreadable(pipeline.ledger.core)) == 2
    assert not pipeline.without_time_to_live("staged", "payload", "unacked")


@pytest.mark.parametrize(
    "broken",
    [
        {"1|stages": "5 "},
        {"1|stages": "5 ", "1|of:5": "one"},
        {"1|roots:1.2.3#1": "[]"},
        {"1|stages": "5 ", "1|of:5": "1", "1|roots:1.2.3#1": "[7]"},
        {"1|stages": "5 ", "1|of:5": "1", "1|roots:1.2.3#1": "7"},
        {b"\xff": "1"},
    ],
)
def test_what_tasks_noted_and_cannot_be_read_is_a_typed_error(
    ledger: Ledger, valkey_raw: "redis.Redis", broken: dict[str, str]
) -> None:
    batch, read = MicroBatch("q", 3, "run"), Range("lines", 0, "only", 0, 7)
    batch_inputs.note(ledger, batch, read)
    ledger.run(batch_roots.ending(ledger.core, batch))
    assert batch_inputs.noted(ledger, batch) == (read,)
    tracked = keys.tracked("t", batch.query, batch.run, batch.number)
    valkey_raw.hset(tracked, mapping=broken)  # type: ignore[arg-type]
    with pytest.raises(UnreadableRecord, match="the tracked rows of batch 3 cannot be read"):
        batch_inputs.noted(ledger, batch)
    valkey_raw.delete(tracked)
    valkey_raw.sadd(keys.notes("t", batch.query, batch.run, batch.number), "[7]")
    with pytest.raises(UnreadableRecord, match="not a range of a stream: b'\\[7]'"):
        batch_inputs.noted(ledger, batch)
    batch_inputs.forget(ledger, batch)
    assert batch_inputs.noted(ledger, batch) == ()
