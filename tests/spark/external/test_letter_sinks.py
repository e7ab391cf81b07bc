"""Dead letters of a spout go to a sink of the user's as well: to a topic, or to a table."""

import json
import time
from dataclasses import replace
from typing import Any

import pytest
from pyspark.sql import DataFrame

from acker.errors import AckerError, ValidationError
from acker.spark import Collector, bolt, kafka, sink
from acker.spark.letter_sink import COLUMNS, SparkSend
from acker.streams.dead_letters.sending import SentLetter
from acker.streams.spouts import settler
from tests.helpers.builders.kept_rows import letters
from tests.helpers.builders.pipeline import Pipeline
from tests.helpers.servers.kafka import Broker

pytestmark = pytest.mark.slow

REASON = "no such word: naïve"


def test_a_buried_row_comes_to_a_topic_with_its_reason_and_to_a_table(
    pipeline: Pipeline, topics: Broker
) -> None:
    spark, topic, table = pipeline.spark, topics.topic(), str(pipeline.directory / "letters")

    @bolt(url=pipeline.url, topology="t", name="split")
    def split(batch: DataFrame, collector: Collector) -> None:
        collector.fail(batch.filter("value = 'line 2'"), REASON, retry=False)

    rows = pipeline.files(["line 1", "line 2"]).selectExpr("value", "length(value) size")
    to = kafka.to(topics.servers, topic)
    pipeline.run_on(pipeline.tracked(rows, dead_letters_to=to), "split", split)
    settler.settle(pipeline.ledger)
    deadline = time.monotonic() + 120
    while not topics.end(topic):
        assert time.monotonic() < deadline, "no letter came"
    options = {"kafka.bootstrap.servers": topics.servers, "subscribe": topic, "includeHeaders": "true"}
    [record, *_] = spark.read.format("kafka").options(**options).load().collect()
    [letter] = letters(pipeline.ledger)
    headers = {header.key: bytes(header.value).decode() for header in record.headers}
    assert bytes(record.key) == b"line 2"
    assert json.loads(record.value) == {"value": "line 2", "size": 6} == letter.row
    assert headers.pop("acker-at").endswith("+00:00")
    assert headers == {
        "acker-id": letter.id, "acker-topology": "t", "acker-spout": "s", "acker-status": "failed",
        "acker-reason": REASON, "acker-step": "split", "acker-batch": "0", "acker-attempts": "1",
    }  # fmt: skip

    SparkSend(spark, "t", sink(lambda writer: writer.parquet(table)))([SentLetter.of(letter)])
    [row] = spark.read.parquet(table).collect()
    assert row.asDict().keys() == {name.split()[0] for name in COLUMNS.split(", ")}
    assert (row.reason, row.attempts, bytes(row.message_id)) == (REASON, 1, b"line 2")
    assert (row.row, json.loads(row.history)[0]["reason"]) == (json.dumps(letter.row), REASON)
    # Databases and CSV take no arrays; PostgreSQL no NUL in a text; no batch is null.
    place, odd = str(pipeline.directory / "csv"), replace(letter, reason="a\0b", batch=-1)
    SparkSend(spark, "t", sink(lambda writer: writer.csv(place, header=True)))([SentLetter.of(odd)])
    [row] = spark.read.csv(place, header=True).collect()
    assert (row.reason, row.batch) == ("a\N{REPLACEMENT CHARACTER}b", None)
    with pytest.raises(AckerError, match="dead_letters_to: expected one write of its writer, got none"):
        SparkSend(spark, "t", sink(lambda writer: None))([SentLetter.of(letter)])


@pytest.mark.parametrize("to", ["letters", 3])
def test_a_sink_is_checked_at_the_start(pipeline: Pipeline, to: Any) -> None:
    with pytest.raises(ValidationError, match=f"dead_letters_to: expected a function .* got {to!r}"):
        pipeline.tracked(pipeline.files(["a"]), dead_letters_to=to)
