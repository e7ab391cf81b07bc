"""A join of two streams: an order is acked together with its payment, whichever comes first.

    python -m examples.join [--url redis://127.0.0.1:6379/0]

What has no partner yet is held: its tree waits for it, also while the query is down. An order that nobody
pays expires after the message timeout, and its spout hears of it.
"""

from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everyone imports it

from acker import Topology
from acker.spark import Collector, anchors, bolt, register
from acker.streams.spouts.settler import settle
from examples.common import finish, start

BOTH = "id string, amount double, paid double, _acker bigint"


def run(spark: SparkSession, url: str, directory: Path) -> tuple[list[str], int, int]:
    """Joins orders and payments; returns the paid orders, how many trees are acked, and how many wait."""
    register(spark)
    topology = Topology(url, "shop", message_timeout=3600.0)

    def write(stream: str, rows: list[tuple[str, float]], column: str) -> None:
        options = {"url": url, "topology": "shop", "stream": stream, "message_id": "id"}
        frame = spark.createDataFrame(rows, f"id string, {column} double")
        frame.write.format("acker").options(**options).mode("append").save()

    def read(stream: str, schema: str) -> DataFrame:
        options = {"url": url, "topology": "shop", "stream": stream}
        return spark.readStream.format("acker").schema(schema).options(**options).load()

    @bolt(url=url, topology="shop", name="match")
    def match(batch: DataFrame, collector: Collector) -> None:
        rows = batch.unionByName(collector.held(BOTH)).persist()
        matched = rows.groupBy("id").agg(
            F.max("amount").alias("amount"),
            F.max("paid").alias("paid"),
            anchors(F.collect_list("_acker")).alias("_acker"),  # anchored to the trees of both
        )
        complete = matched.filter("amount is not null and paid is not null")
        collector.emit(complete, stream="paid_orders")
        collector.hold(rows.join(complete.select("id"), "id", "left_anti"))
        rows.unpersist()

    nothing = F.lit(None).cast("double")
    orders = read("orders", "id string, amount double, _acker bigint").withColumn("paid", nothing)
    payments = read("payments", "id string, paid double, _acker bigint").withColumn("amount", nothing)
    both = orders.unionByName(payments).select("id", "amount", "paid", "_acker")

    write("orders", [("a", 10.0), ("b", 20.0), ("c", 30.0)], "amount")
    write("payments", [("b", 20.0)], "paid")
    finish(both.writeStream.foreachBatch(match), directory / "match")
    write("payments", [("a", 10.0), ("d", 40.0)], "paid")
    finish(both.writeStream.foreachBatch(match), directory / "match")

    with_amounts = {"url": url, "topology": "shop", "stream": "paid_orders"}
    paid = spark.readStream.format("acker").options(**with_amounts).load()

    @bolt(url=url, topology="shop", name="ship")
    def ship(batch: DataFrame, collector: Collector) -> None:
        batch.select("id").write.mode("overwrite").json(str(directory / "shipped" / f"{collector.key}"))

    finish(paid.writeStream.foreachBatch(ship), directory / "ship")
    settle(topology.ledger)
    counters = topology.counters()
    topology.close()
    shipped = spark.read.option("recursiveFileLookup", "true").json(str(directory / "shipped")).collect()
    return sorted(row.id for row in shipped), counters["acked"], counters["tracked"] - counters["acked"]


if __name__ == "__main__":
    start(run, __doc__ or "")
