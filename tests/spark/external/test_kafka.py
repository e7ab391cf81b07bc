"""Rows of an external stream go by a topic of Kafka: the stamp is one more header."""

from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from acker import Topology
from acker.spark import Acker, kafka
from acker.spark.bolts.collector import Collector
from tests.helpers.builders.pipeline import Pipeline
from tests.helpers.servers.kafka import Broker

pytestmark = pytest.mark.slow

ROWS = 40
OWN = "array(named_struct('key', 'n', 'value', binary(string(id)))) headers"


def test_rows_go_by_a_topic_and_keep_their_key_partition_and_headers(
    pipeline: Pipeline, topics: Broker, tmp_path: Path
) -> None:
    spark, acker, seen = pipeline.spark, Acker(pipeline.url, "t"), str(tmp_path / "seen")
    first, second = topics.topic(2), topics.topic()

    def reading(topic: str) -> dict[str, str]:
        names = {"kafka.bootstrap.servers": topics.servers, "subscribe": topic, "includeHeaders": "true"}
        return {**names, "startingOffsets": "earliest"}

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
        pipeline.run_on(spark.readStream.format("kafka").options(**reading(first)).load(), "count", count)
        found = {(row.value, row.key, row.partition, *row.names) for row in spark.read.json(seen).collect()}
        assert found == {(f"{n}", f"k{n}", n % 2, "n", "acker-stamp") for n in range(ROWS)}
        assert (topology.counters()["acked"], topology.counters()["failed"]) == (0, 1)
        sent = spark.read.format("kafka").options(**reading(second)).load().select("headers").collect()
        assert all([one.key for one in row.headers] == ["n", "acker-stamp"] for row in sent)
        others.ack(others.extract_many([[(one.key, one.value) for one in row.headers] for row in sent]))
        topology.flush()
        assert (topology.counters()["acked"], topology.counters()["failed"]) == (ROWS - 1, 1)
    pipeline.spout(["a"])
    to_kafka = pipeline.read_stream("lines").selectExpr("line value").writeStream.format("kafka")
    to_kafka = to_kafka.options(**{"kafka.bootstrap.servers": topics.servers, "topic": second})
    with pytest.raises(PySparkException, match="to Kafka by itself"):
        pipeline.finish(pipeline.checkpointed("by itself", to_kafka))
