"""Rows of an external stream go by a topic of Kafka: the stamp is one more header."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from acker import Topology
from acker.spark import Acker, Sink, kafka
from acker.spark.bolts.collector import Collector
from tests.helpers.builders.pipeline import Pipeline
from tests.helpers.servers.kafka import Broker
from tests.helpers.servers.servers import wait_until
from tests.helpers.worlds.commits import pass_time

pytestmark = pytest.mark.slow

ROWS = 40
OWN = "array(named_struct('key', 'n', 'value', binary(string(id)))) headers"


def read_options(topics: Broker, topic: str, **more: str) -> dict[str, str]:
    names = {"kafka.bootstrap.servers": topics.servers, "subscribe": topic, "includeHeaders": "true"}
    return {**names, "startingOffsets": "earliest", **more}


def send(pipeline: Pipeline, first: int, to: Sink) -> None:
    """A job that tracks numbers, and sends them in segments of five, in their order."""
    with Acker(pipeline.url, "t").job(pipeline.spark, "parse") as collector:
        numbers = pipeline.spark.range(first, first + ROWS, 1, 1).selectExpr("string(id) value")
        rows = Acker(pipeline.url, "t").track(numbers, "src", message_id="value", attempts=1)
        collector.emit(rows.select("value", "_acker"), "items", to=to, segment_rows=5)


def test_rows_go_by_a_topic_and_keep_their_key_partition_and_headers(
    pipeline: Pipeline, topics: Broker, tmp_path: Path
) -> None:
    spark, acker, seen = pipeline.spark, Acker(pipeline.url, "t"), str(tmp_path / "seen")
    first, second = topics.topic(2), topics.topic()

    @acker.bolt("count", receives="items")
    def count(batch: DataFrame, collector: Collector) -> None:
        rows = batch.selectExpr("string(value) value", "string(key) key", "partition", "headers.key names")
        rows.write.mode("append").json(seen)
        collector.fail(batch.filter("string(value) = '7'"), "odd")
        again = batch.select("value", "headers", "_acker")
        collector.emit(again, "others", to=kafka.to(topics.servers, second))

    with Topology(pipeline.url, "t", linger=None) as topology:
        topology.incoming("items", subscription="count")
        others = topology.incoming("others", subscription="end")
        with acker.job(spark, "parse") as collector:
            numbers = spark.range(0, ROWS, 1, 3).selectExpr("string(id) value", "'k' || id key", "id", OWN)
            tracked = acker.track(numbers, "src", message_id="value")
            rows = tracked.selectExpr("value", "key", "headers", "int(id % 2) partition", "_acker")
            to = kafka.to(topics.servers, first)
            assert collector.emit(rows, "items", to=to, segment_rows=10) == ROWS
        pipeline.run_on(
            spark.readStream.format("kafka").options(**read_options(topics, first)).load(), "count", count
        )
        found = {(row.value, row.key, row.partition, *row.names) for row in spark.read.json(seen).collect()}
        assert found == {(f"{n}", f"k{n}", n % 2, "n", "acker-stamp") for n in range(ROWS)}
        assert (topology.counters()["acked"], topology.counters()["failed"]) == (0, 1)
        sent = (
            spark.read.format("kafka")
            .options(**read_options(topics, second))
            .load()
            .select("headers")
            .collect()
        )
        assert all([one.key for one in row.headers] == ["n", "acker-stamp"] for row in sent)
        others.ack(others.extract_many([[(one.key, one.value) for one in row.headers] for row in sent]))
        topology.flush()
        assert (topology.counters()["acked"], topology.counters()["failed"]) == (ROWS - 1, 1)
    pipeline.spout(["a"])
    to_kafka = pipeline.read_stream("lines").selectExpr("line value").writeStream.format("kafka")
    to_kafka = to_kafka.options(**{"kafka.bootstrap.servers": topics.servers, "topic": second})
    with pytest.raises(PySparkException, match="to Kafka by itself"):
        pipeline.finish(pipeline.checkpointed("by itself", to_kafka))


def test_of_a_topic_that_is_cut_or_made_anew_no_row_is_acked_that_was_not_given(
    pipeline: Pipeline, topics: Broker
) -> None:
    topic, seen = topics.topic(), list[list[int]]()

    @Acker(pipeline.url, "t").bolt("count", receives="items")
    def count(batch: DataFrame, collector: Collector) -> None:
        seen.append(sorted(int(row.value) for row in batch.select("value").collect()))
        if seen[-1][-1] in (100 + ROWS - 1, 150 + ROWS - 1):
            topics.delete_before(topic, topics.end(topic) - ROWS + 7)  # they cannot be fetched once more
        if 150 in seen[-1]:
            collector._cached[0].unpersist(blocking=True)  # as where executors were lost

    def run(name: str, **more: str) -> None:
        rows = pipeline.spark.readStream.format("kafka").options(**read_options(topics, topic, **more)).load()
        pipeline.run_on(rows, name, count)

    with Topology(pipeline.url, "t", linger=None) as topology:
        topology.incoming("items", subscription="count")
        send(pipeline, 0, kafka.to(topics.servers, topic))
        topics.delete_before(topic, 7)
        run("count", failOnDataLoss="false")
        assert seen == [list(range(7, ROWS))]
        acked = ROWS - 10  # segments of the seven rows wait
        assert topology.counters()["acked"] == acked
        send(pipeline, 100, kafka.to(topics.servers, topic))
        run("count", failOnDataLoss="false")
        assert seen[1:] == [list(range(100, 100 + ROWS))]
        acked += ROWS
        assert topology.counters()["acked"] == acked
        send(pipeline, 150, kafka.to(topics.servers, topic))
        run("count", failOnDataLoss="false")
        assert seen[2:] == [list(range(150, 150 + ROWS))]
        acked += ROWS - 10
        assert topology.counters()["acked"] == acked
        topics.delete(topic)
        topics.create(topic)
        send(pipeline, 200, kafka.to(topics.servers, topic))
        with pytest.raises(PySparkException, match="failOnDataLoss"):
            run("count")
        assert topology.counters()["acked"] == acked
        run("count anew")
        assert seen[3:] == [list(range(200, 200 + ROWS))]
        assert topology.counters()["acked"] == acked + ROWS
        assert topology.counters()["failed"] == topology.counters()["expired"] == 0


def test_a_row_that_compaction_takes_before_it_is_read_costs_its_segment_alone(
    pipeline: Pipeline, topics: Broker
) -> None:
    topic = topics.topic(cleanup_policy="compact", segment_ms="50", min_cleanable_dirty_ratio="0.01")
    lost, seen = {7, 8}, list[list[str]]()

    def send_keyed(first: int, key: str) -> None:
        to = kafka.to(topics.servers, topic)
        prepare = to.prepare
        assert prepare is not None
        send(pipeline, first, replace(to, prepare=lambda rows: prepare(rows.selectExpr("*", f"{key} key"))))

    @Acker(pipeline.url, "t").bolt("count", receives="items")
    def count(batch: DataFrame, _: Collector) -> None:
        tracked = batch.filter("_acker != 0").selectExpr("string(value) value")
        seen.append(sorted(row.value for row in tracked.collect()))

    def run() -> None:
        rows = pipeline.spark.readStream.format("kafka").options(**read_options(topics, topic)).load()
        pipeline.run_on(rows, "count", count)

    def is_compacted() -> bool:
        topics.produce(topic, [b"last"], key=b"other")  # ends a segment of the log
        return lost.isdisjoint(topics.offsets(topic))

    with Topology(pipeline.url, "t", linger=None) as topology:
        topology.incoming("items", subscription="count", lost_after=1.0)
        send_keyed(0, f"if(value in ('7', '8'), '{ROWS - 1}', value)")
        exchange: Any = topology._exchange
        sent = exchange.now()
        wait_until(is_compacted, interval=0.1)
        run()
        assert seen == [sorted(str(value) for value in range(ROWS) if value not in lost)]
        for _ in range(6):
            pass_time(pipeline.ledger)
        assert (topology.counters()["acked"], topology.counters()["expired"]) == (ROWS - 5, 0)
        wait_until(lambda: exchange.now() > sent + 1)
        send_keyed(100, "value")
        run()
        for _ in range(6):
            pass_time(pipeline.ledger)
        counters = topology.counters()
        assert (counters["acked"], counters["expired"]) == (2 * ROWS - 5, 5)
        assert (counters["failed"], counters["late"], counters["orphaned"]) == (0, 0, 0)


def test_the_stamp_may_lie_in_the_value(pipeline: Pipeline, topics: Broker) -> None:
    """For transports that keep no headers, as a log of JSON."""
    topic, seen = topics.topic(), list[list[str]]()
    names = {"kafka.bootstrap.servers": topics.servers, "topic": topic}

    def packed(rows: DataFrame) -> DataFrame:
        return rows.selectExpr("to_json(struct(value, _acker_stamp)) value")

    @Acker(pipeline.url, "t").bolt("count", receives="items")
    def count(batch: DataFrame, collector: Collector) -> None:
        seen.append(sorted(row.value for row in batch.filter("_acker != 0").collect()))
        collector.fail(batch.filter("value = '7'"), "odd", retry=False)

    with Topology(pipeline.url, "t", linger=None) as topology:
        topology.incoming("items", subscription="count")
        to = Sink(lambda w: w.format("kafka").options(**names).mode("append").save(), prepare=packed)
        send(pipeline, 0, to)
        rows = pipeline.spark.readStream.format("kafka").options(**read_options(topics, topic)).load()
        read = rows.selectExpr("from_json(string(value), 'value string, _acker_stamp string') row")
        pipeline.run_on(read.select("row.*"), "count", count)
        assert seen == [sorted(map(str, range(ROWS)))]
        assert (topology.counters()["acked"], topology.counters()["failed"]) == (ROWS - 1, 1)
