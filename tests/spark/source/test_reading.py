"""Streaming reads: subscriptions, rate, progress, and batches that Spark runs again."""

import json
from collections import Counter
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everyone imports it
from pyspark.sql.streaming.query import StreamingQuery

from acker.spark import Collector, bolt
from acker.streams import Stream, StreamWriter
from tests.helpers.builders.pipeline import Pipeline
from tests.helpers.servers.servers import wait_until
from tests.helpers.servers.sparks import several_batches, shared_subscriptions

pytestmark = pytest.mark.slow


def copy(pipeline: Pipeline, name: str, stream: str, **options: object) -> Any:
    """A query that copies the stream `lines`, not started yet."""
    return (
        pipeline.read_stream("lines", **options)
        .writeStream.format("acker")
        .options(**pipeline.options(stream))
        .option("checkpointLocation", str(pipeline.directory / name))
    )


def lines(pipeline: Pipeline, stream: str) -> Counter[str]:
    return Counter(str(row["line"]) for row in pipeline.rows(stream))


@shared_subscriptions
def test_queries_have_a_subscription_each_or_share_one(pipeline: Pipeline) -> None:
    source = Stream(pipeline.ledger, "lines")
    source.subscribe("alone")
    source.subscribe("shared")
    first = [f"line {n}" for n in range(60)]
    pipeline.spout(first, segments=12)
    pipeline.finish(copy(pipeline, "alone", "one", subscription="alone").trigger(availableNow=True))
    assert lines(pipeline, "one") == Counter(first)
    assert pipeline.counters() == {"tracked": 60}
    shared: list[StreamingQuery] = []
    try:
        for name in ("left", "right"):
            query = copy(pipeline, name, "two", subscription="shared", max_segments=1)
            shared.append(query.trigger(processingTime="0 seconds").start())
            # Spark fails now and then to start two queries over one Python source at the same moment.
            wait_until(lambda: shared[-1].recentProgress or shared[-1].exception(), 120)
        wait_until(lambda: pipeline.rows("lines") == [], 120)
        more = [f"line {n}" for n in range(60, 100)]
        pipeline.spout(more, segments=20)
        wait_until(lambda: source.totals().subscriptions[1].rows_behind == 0, 120)
    finally:
        for query in shared:
            query.stop()
    assert lines(pipeline, "two") == Counter(first + more)
    for stream in ("one", "two"):
        pipeline.consume(stream)
    assert pipeline.counters() == {"tracked": 100, "acked": 60}
    pipeline.finish(copy(pipeline, "alone", "one", subscription="alone").trigger(availableNow=True))
    pipeline.consume("one")
    assert pipeline.counters() == {"tracked": 100, "acked": 100}
    assert not pipeline.without_time_to_live("staged", "payload", "unacked", "delivered", "notes")


@several_batches
def test_a_query_takes_as_much_as_it_may_and_tells_how_far_behind_it_is(pipeline: Pipeline) -> None:
    sizes: list[int] = []
    progress: list[dict[str, Any]] = []

    @bolt(url=pipeline.url, topology="t", name="count")
    def count(batch: DataFrame, collector: Collector) -> None:
        sizes.append(batch.count())

    def run(once: bool = False, **options: object) -> None:
        query = (
            pipeline.read_stream("lines", **options)
            .writeStream.foreachBatch(count)
            .option("checkpointLocation", str(pipeline.directory / "count"))
            .trigger(**{"once" if once else "availableNow": True})
            .start()
        )
        assert query.awaitTermination(240)
        progress.extend(json.loads(one.json) for one in query.recentProgress)

    pipeline.spout(["x"] * 100, segments=10)
    run(max_rows=30)
    assert sizes == [30, 30, 30, 10]
    pipeline.spout(["x"] * 50, segments=5)
    run(max_segments=2, max_bytes=10**6)
    assert sizes[4:] == [20, 20, 10]
    pipeline.spout(["x"] * 50, segments=5)
    run(once=True, max_rows=10, max_segments=1)
    assert sizes[7:] == [50]
    pipeline.spout(["x" * 1000] * 50, segments=5)
    run(max_bytes=25_000)
    assert sizes[8:] == [20, 20, 10]
    behind = [one["sources"][0]["latestOffset"] for one in progress if one["numInputRows"]]
    assert [one["rows_behind"] for one in behind] == [100, 70, 40, 10, 50, 30, 10, 50, 50, 30, 10]
    assert [one["unread_ms"] >= 0 for one in behind] == [
        *(True, True, True, False), *(True, True, False), False, *(True, True, False),
    ]  # fmt: skip
    assert pipeline.counters() == {"tracked": 250, "acked": 250}
    [default] = Stream(pipeline.ledger, "lines").totals().subscriptions
    assert (default.name, default.rows_acked, default.rows_behind) == ("default", 250, 0)


def test_a_batch_is_read_by_as_many_tasks_as_asked_for(pipeline: Pipeline) -> None:
    tasks: list[int] = []

    @bolt(url=pipeline.url, topology="t", name="count")
    def count(batch: DataFrame, collector: Collector) -> None:
        rows = batch.groupBy(F.spark_partition_id()).count().collect()
        assert sum(row["count"] for row in rows) == 60
        tasks.append(len(rows))

    for partitions in (4, 100, None):
        pipeline.spout(["x"] * 60, segments=6)
        pipeline.run("count", "lines", count, **({"partitions": partitions} if partitions else {}))
    assert tasks == [4, 6, 1]  # a segment is not cut, and so few rows are not worth a second task


@several_batches
def test_a_batch_whose_segments_were_dropped_fails_and_goes_on_without_them(pipeline: Pipeline) -> None:
    seen: list[int] = []

    @bolt(url=pipeline.url, topology="t", name="late")
    def late(batch: DataFrame, collector: Collector) -> None:
        if not seen:
            seen.append(-1)
            Stream(pipeline.ledger, "lines").limit(max_bytes=1)
            pipeline.spout(["new"] * 5)  # the writer applies the limits
        seen.append(batch.count())

    pipeline.spout(["old"] * 20, segments=2)
    with pytest.raises(Exception, match=r"SegmentGone.* was acked or dropped after this batch was planned"):
        pipeline.run("late", "lines", late)
    pipeline.run("late", "lines", late)
    assert seen == [-1, 0, 5]
    assert pipeline.counters() == {"tracked": 25, "acked": 5}  # the others expire, and are replayed


def test_a_batch_run_again_after_its_ack_reads_the_same_rows(pipeline: Pipeline) -> None:
    """A stateful operator needs them: its state is made again from what the batch reads.

    The rows have no trees, since over those it is refused.
    """
    writer = StreamWriter(pipeline.ledger, "lines")
    directory = pipeline.directory / "distinct"

    def run() -> None:
        rows = pipeline.read_stream("lines", partitions=1).dropDuplicates(["line"])
        pipeline.finish(
            rows.writeStream.format("acker")
            .options(**pipeline.options("distinct"))
            .option("checkpointLocation", str(directory))
            .trigger(availableNow=True)
        )

    writer.write(pa.table({"line": ["a", "b"]}))
    run()
    writer.write(pa.table({"line": ["b", "c"]}))
    run()
    assert pipeline.rows("lines") == []
    # As after a driver that died when the batch was acked, and not yet in Spark's log of commits.
    last = max(int(path.name) for path in (directory / "commits").glob("[0-9]*"))
    for path in (directory / "commits" / str(last), directory / "commits" / f".{last}.crc"):
        path.unlink()
    for path in (directory / "state").rglob(f"*{last + 1}.delta"):
        path.unlink()
    run()
    writer.write(pa.table({"line": ["a", "b", "c", "d"]}))
    run()
    assert lines(pipeline, "distinct") == Counter("abcd")
    assert pipeline.rows("lines") == []
