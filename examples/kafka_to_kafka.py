r"""Kafka to Kafka: every message is tracked until its result is in the other topic.

    python -m examples.kafka_to_kafka --url redis://127.0.0.1:6379/0 \
        --servers localhost:9092 --source orders --sink invoices

Needs Spark's package org.apache.spark:spark-sql-kafka-0-10 of Spark's version (`spark-submit --packages`).
Spark keeps its own offsets in the checkpoint. What may be said to others, who watch a consumer group or
clean up, is the watermark: all messages below it are acked or dead letters.
"""

import argparse
import threading
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everyone imports it
from pyspark.sql.streaming.readwriter import DataStreamWriter

from acker.embedded.java import ensure_java
from acker.inspect.operate.ticker_hooks import HOOKS
from acker.ledger.tick.ticker import Ticker
from acker.spark import Collector, bolt, register, settling, track, watermark

ORDER = "order string, customer string, amount double"


def messages(spark: SparkSession, servers: str, topic: str) -> DataFrame:
    """A topic as rows: message_id, part, offset, body."""
    return (
        spark.readStream.format("kafka")
        .options(**{"kafka.bootstrap.servers": servers, "subscribe": topic, "startingOffsets": "earliest"})
        .option("maxOffsetsPerTrigger", 100_000)
        .load()
        .select(
            F.concat_ws(":", "topic", "partition", "offset").alias("message_id"),
            F.concat_ws(":", "topic", "partition").alias("part"),
            "offset",
            F.col("value").cast("string").alias("body"),
        )
    )


def invoices(rows: DataFrame, url: str, write: Callable[[DataFrame], None]) -> DataStreamWriter:
    """The work on the messages, wherever they come from and go to: one invoice for each good order."""
    tracked = track(
        rows, url=url, topology="orders", spout="orders", message_id="message_id", ackers=4,
        offset="offset", partition="part", max_spout_pending=1_000_000,
    )  # fmt: skip

    @bolt(url=url, topology="orders", name="invoice")
    def invoice(batch: DataFrame, collector: Collector) -> None:
        orders = batch.withColumn("parsed", F.from_json("body", ORDER))
        bad = F.expr("parsed.order is null or parsed.amount is null")
        collector.fail(orders.filter(bad), F.concat(F.lit("not an order: "), "body"))
        good = orders.filter(~bad)
        write(
            good.select(
                F.col("parsed.order").alias("key"),
                F.to_json(F.struct("parsed.customer", "parsed.amount")).alias("value"),
            )
        )

    return tracked.writeStream.foreachBatch(invoice)


def topic_writer(servers: str, topic: str) -> Callable[[DataFrame], None]:
    """Writes rows of key and value to a topic; a batch that runs again writes its rows again."""

    def write(rows: DataFrame) -> None:
        options = {"kafka.bootstrap.servers": servers, "topic": topic}
        rows.write.format("kafka").options(**options).save()

    return write


def main() -> None:
    """Runs until it is interrupted."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--url", required=True, help="the store, as redis://HOST:PORT/0")
    parser.add_argument("--servers", default="localhost:9092")
    parser.add_argument("--source", default="orders")
    parser.add_argument("--sink", default="invoices")
    parser.add_argument("--checkpoint", type=Path, default=Path("checkpoint"))
    options = parser.parse_args()
    ensure_java()
    spark = SparkSession.builder.getOrCreate()
    register(spark)
    orders = messages(spark, options.servers, options.source)
    writer = invoices(orders, options.url, topic_writer(options.servers, options.sink))
    query = writer.option("checkpointLocation", str(options.checkpoint)).start()
    stop = threading.Event()
    with settling(url=options.url, topology="orders") as settler:
        ticker = threading.Thread(
            target=Ticker(settler.store, ["orders"], hooks=HOOKS).run, args=(stop,), daemon=True
        )
        ticker.start()
        while not query.awaitTermination(10):
            print(watermark(url=options.url, topology="orders", spout="orders"))
    stop.set()


if __name__ == "__main__":
    main()
