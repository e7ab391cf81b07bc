"""The examples do what they say."""

import json
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from acker.ledger.client import open_ledger
from acker.spark import dead_letters, watermark
from acker.store.client import Store
from acker.streams.spouts.settler import settle
from examples import files_to_files, join, kafka_to_kafka, poison_records, sessions, word_count
from examples.common import finish, write_json

pytestmark = pytest.mark.slow


def test_word_count(spark: SparkSession, valkey_url: str, tmp_path: Path) -> None:
    counted = word_count.run(spark, valkey_url, tmp_path)
    assert counted == {
        "the": 3, "quick": 1, "brown": 1, "fox": 1, "jumps": 1, "over": 1, "lazy": 1, "dog": 1, "end": 1,
    }  # fmt: skip
    assert open_ledger(Store(valkey_url), "wordcount").counters()["acked"] == len(word_count.POEM)


@pytest.mark.slow
def test_poison_records(
    spark: SparkSession, valkey_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert poison_records.run(spark, valkey_url, tmp_path) == [0.0, 0.0, 0.25, 1.5, 2.0]
    counters = open_ledger(Store(valkey_url), "prices").counters()
    assert (counters["tracked"], counters["failed"]) == (9, 4)
    shown = capsys.readouterr().out
    assert "failed 2 times: ValueError" in shown
    assert "record 0 is in stream amounts for its first subscription, published " in shown
    assert " s ago, taken by nobody; all of it: True" in shown


def test_files_to_files(spark: SparkSession, valkey_url: str, tmp_path: Path) -> None:
    assert files_to_files.run(spark, valkey_url, tmp_path) == (270, {"acked": 270, "failed": 30})


@pytest.mark.slow
def test_kafka_to_kafka_with_files_for_topics(spark: SparkSession, valkey_url: str, tmp_path: Path) -> None:
    orders = [{"order": f"o{n}", "customer": "c", "amount": n * 1.5} for n in range(20)]
    bodies = [json.dumps(order) for order in orders]
    bodies[7] = "{broken"
    rows = [
        {"message_id": f"orders:{n % 2}:{n // 2}", "part": f"orders:{n % 2}", "offset": n // 2, "body": body}
        for n, body in enumerate(bodies)
    ]
    write_json(tmp_path / "in", "orders.json", rows)
    schema = "message_id string, part string, offset long, body string"
    source = spark.readStream.schema(schema).json(str(tmp_path / "in"))

    def write(results: DataFrame) -> None:
        results.write.mode("overwrite").parquet(str(tmp_path / "out"))

    finish(kafka_to_kafka.invoices(source, valkey_url, write), tmp_path / "invoice")
    out = {row.key: row.value for row in spark.read.parquet(str(tmp_path / "out")).collect()}
    assert len(out) == 19
    assert out["o4"] == '{"customer":"c","amount":6.0}'
    ledger = open_ledger(Store(valkey_url), "orders")
    settle(ledger)
    # The broken one is the fourth of partition 1; it is tried three times.
    for _ in range(2):
        assert watermark(url=valkey_url, topology="orders", spout="orders") == {"orders:0": 10, "orders:1": 3}
        finish(kafka_to_kafka.invoices(source, valkey_url, lambda results: None), tmp_path / "invoice")
        settle(ledger)
    assert watermark(url=valkey_url, topology="orders", spout="orders") == {"orders:0": 10, "orders:1": 10}
    [letter] = dead_letters(spark, url=valkey_url, topology="orders").collect()
    assert letter.reason == "not an order: {broken"


@pytest.mark.slow
def test_a_join_of_two_streams(spark: SparkSession, valkey_url: str, tmp_path: Path) -> None:
    # An order and its payment each; the order c and the payment d wait for each other's like.
    assert join.run(spark, valkey_url, tmp_path) == (["a", "b"], 4, 2)


@pytest.mark.slow
def test_sessions(spark: SparkSession, valkey_url: str, tmp_path: Path) -> None:
    assert sessions.run(spark, valkey_url, tmp_path) == [
        ("ann", 0, 600, 2),
        ("ann", 5000, 6000, 2),
        ("bob", 900, 900, 1),
        ("bob", 5100, 5100, 1),
    ]
