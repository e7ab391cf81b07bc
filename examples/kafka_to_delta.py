r"""Kafka to Delta: an order is acked when its row is in the table, and each order is there once.

    python -m examples.kafka_to_delta --servers localhost:9092 --directory /lake \
        [--url redis://127.0.0.1:6379/0] [--check] [--conf NAME=VALUE ...]

    topic "orders" -> job "parse" -> topic "items" -> job "price" -> Delta table "prices"
                      spout          stream "items"

The rows lie in Kafka and in Delta, and the store holds ids. A message that is no order fails alone. The
driver of "price" dies once between its write and its commit: its batch runs again, and `delta.txn` makes the
write take effect once. Both topics must exist, or the broker must create them.

Spark needs packages of its own version, here of 4.1, and Delta's settings:

    --conf spark.jars.packages=io.delta:delta-spark_4.1_2.13:4.1.0,\
        org.apache.spark:spark-sql-kafka-0-10_2.13:4.1.1
    --conf spark.sql.extensions=io.delta.sql.DeltaSparkSessionExtension
    --conf spark.sql.catalog.spark_catalog=org.apache.spark.sql.delta.catalog.DeltaCatalog

With --check the program writes the orders itself, runs both jobs over all that there is, and ends with 1 if a
figure is not as it should be.
"""

import argparse
import os
import shlex
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everyone imports it

from acker.embedded import EmbeddedServer
from acker.spark import Acker, Collector, delta, kafka
from examples.common import finish, session

ORDERS = 60
BAD = ORDERS // 20
"""Messages that are no order."""
ORDER = "id string, amount double"
STARTS = 3
"""Starts of the second job: a query over Kafka that has run a batch again may end in SPARK-55271, once."""


@dataclass(frozen=True)
class Places:
    """The places of the rows: brokers, two topics, and a directory for the table and checkpoints."""

    servers: str
    orders: str
    items: str
    directory: Path

    @property
    def table(self) -> str:
        """The path of the table."""
        return str(self.directory / "prices")

    def messages(self, spark: SparkSession, topic: str) -> DataFrame:
        """A topic as a stream, with the headers of its messages."""
        options = {"kafka.bootstrap.servers": self.servers, "subscribe": topic, "includeHeaders": "true"}
        return spark.readStream.format("kafka").options(startingOffsets="earliest", **options).load()


def parse(spark: SparkSession, acker: Acker, places: Places) -> None:
    """Job 1: each message gets a tree, and each order goes to the other topic with a stamp in its headers."""
    messages = places.messages(spark, places.orders).select(
        F.concat_ws(":", "topic", "partition", "offset").alias("message"), "value"
    )
    tracked = acker.track(messages, "orders", message_id="message", attempts=1)

    @acker.bolt("parse")
    def read(batch: DataFrame, collector: Collector) -> None:
        orders = batch.withColumn("order", F.from_json(F.col("value").cast("string"), ORDER))
        bad = F.expr("order.id is null or order.amount is null")
        collector.fail(orders.filter(bad), "no order", retry=False)
        items = orders.filter(~bad).select("order.id", "value", "_acker").withColumnRenamed("id", "key")
        collector.emit(items, "items", to=kafka.to(places.servers, places.items))

    finish(tracked.writeStream.foreachBatch(read), places.directory / "checkpoints" / "parse")


def price(
    spark: SparkSession, acker: Acker, places: Places, written: Callable[[], None] = lambda: None
) -> None:
    """Job 2: orders become rows of the table. `written` is called between the write and the commit."""

    @acker.bolt("price", receives="items")
    def add(batch: DataFrame, collector: Collector) -> None:
        orders = batch.select(F.from_json(F.col("value").cast("string"), ORDER).alias("order"))
        prices = orders.selectExpr("order.id", "order.amount * 1.19 price")
        once = delta.txn(collector, "prices")
        prices.write.format("delta").mode("append").options(**once).save(places.table)
        written()

    items = places.messages(spark, places.items)
    finish(items.writeStream.foreachBatch(add), places.directory / "checkpoints" / "price")


def produce(spark: SparkSession, places: Places) -> None:
    """Writes messages to the first topic, some of which are no orders."""
    good = F.to_json(F.struct(F.col("id").cast("string").alias("id"), F.expr("id * 10.0").alias("amount")))
    numbers = spark.range(ORDERS)
    values = numbers.select(F.when(F.col("id") % 20 == 7, "?").otherwise(good).alias("value"))
    options = {"kafka.bootstrap.servers": places.servers, "topic": places.orders}
    values.write.format("kafka").options(**options).save()


def declare(acker: Acker) -> None:
    """The reader exists before the first row is written: rows are owed to readers that exist."""
    with acker.open() as topology:
        topology.incoming("items", subscription="price")


def check(spark: SparkSession, url: str, places: Places) -> bool:
    """Runs both jobs over messages of its own; True if each figure is as it should be."""
    acker = Acker(url, "kafka-to-delta", ackers=2, message_timeout=600)
    declare(acker)
    produce(spark, places)
    parse(spark, acker, places)

    def die() -> None:
        if not deaths:
            raise RuntimeError("the driver dies between the write and the commit")

    deaths = list[str]()
    while len(deaths) < STARTS:
        try:
            price(spark, acker, places, die)
            break
        except PySparkException as error:
            deaths.append(str(error))
    died = any("between the write and the commit" in death for death in deaths)
    acker.settle("orders")
    rows = [row.id for row in spark.read.format("delta").load(places.table).collect()]
    letters = acker.dead_letters(spark, "orders").count()
    with acker.open() as topology:
        counters = topology.counters()
    print(f"acked: {counters['acked']}, dead letters: {letters}, rows: {len(rows)}")
    wanted = sorted(str(number) for number in range(ORDERS) if number % 20 != 7)
    return died and sorted(rows) == wanted and (counters["acked"], letters) == (ORDERS - BAD, BAD)


def main() -> None:
    """Runs both jobs once."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--url", help="default: a server of its own")
    parser.add_argument("--servers", default="localhost:9092")
    parser.add_argument("--orders", default="orders", help="the topic of orders")
    parser.add_argument("--items", default="items", help="the topic between the two jobs")
    parser.add_argument(
        "--directory", type=Path, help="of the table; default: one that is deleted at the end"
    )
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--conf", action="append", default=[], help="a setting of Spark, as NAME=VALUE")
    parser.add_argument("--check", action="store_true", help="end with 1 if a figure is wrong")
    options = parser.parse_args()
    settings = " ".join(f"--conf {shlex.quote(one)}" for one in options.conf)
    os.environ["PYSPARK_SUBMIT_ARGS"] = f"{settings} {os.environ.get('PYSPARK_SUBMIT_ARGS', 'pyspark-shell')}"
    spark = session(options.master)
    with tempfile.TemporaryDirectory() as directory, EmbeddedServer(Path(directory) / "server") as server:
        where = options.directory or Path(directory)
        places = Places(options.servers, options.orders, options.items, where)
        good = True
        if options.check:
            good = check(spark, options.url or server.url, places)
        else:
            acker = Acker(options.url or server.url, "kafka-to-delta", ackers=2, message_timeout=600)
            declare(acker)
            parse(spark, acker, places)
            price(spark, acker, places)
    spark.stop()
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
