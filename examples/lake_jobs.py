"""Jobs over parquet tables, one of them in SQL alone: each order is proved to be in the last table.

    python -m examples.lake_jobs [--url redis://127.0.0.1:6379/0] [--check]

    orders/*.json -> job "ingest" -> bronze -> job "price" -> silver -> SQL -> gold -> job "prove"
                     spout           stream "bronze"          stream "silver"         reconciles "silver"

The rows lie in the lake, and the store holds ids. An order that "price" cannot read fails alone. The SQL
knows nothing of acker: it carries the column `_acker_stamp`, as a list where it sums up. In the first night
it leaves out a currency by mistake: "prove" says how many rows are missing, and their orders stay pending. In
the second night the statement is mended, the jobs run again, and all is proved.
With --check the program ends with 1 if a figure is not as it should be.
"""

import argparse
import sys
import tempfile
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from acker.embedded import EmbeddedServer
from acker.spark import Acker, Collector, Reconciliation
from examples.common import finish, session, write_json

ORDERS = 60
BAD = ORDERS // 20
"""Orders whose quantity is no number."""
ORDER = "id string, currency string, quantity string"
STAMPED = "id string, currency string, quantity string, _acker_stamp string"
GOLD = """
    select currency, sum(quantity) as quantity, collect_list(_acker_stamp) as _acker_stamp
    from parquet.`{silver}` {where} group by currency
"""


def declare(acker: Acker) -> None:
    """Readers of the tables exist before the first row is written: rows are owed to readers that exist."""
    with acker.open() as topology:
        topology.incoming("bronze", subscription="price")
        topology.incoming("silver", subscription="gold")


def ingest(spark: SparkSession, acker: Acker, lake: Path) -> None:
    """Job 1: each new order gets a tree, and goes to the table bronze with its stamp."""
    files = spark.readStream.schema(ORDER).json(str(lake / "orders"))
    orders = acker.track(files, "orders", message_id="id", attempts=1)

    @acker.bolt("ingest")
    def write(batch: DataFrame, collector: Collector) -> None:
        collector.emit(batch, "bronze", to=lambda w: w.mode("append").parquet(str(lake / "bronze")))

    finish(orders.writeStream.foreachBatch(write), lake / "checkpoints" / "ingest")


def price(spark: SparkSession, acker: Acker, lake: Path) -> None:
    """Job 2: bronze becomes silver; an order that cannot be read fails alone, with its reason."""

    @acker.bolt("price", receives="bronze")
    def clean(batch: DataFrame, collector: Collector) -> None:
        bad = "try_cast(quantity as int) is null"
        collector.fail(batch.filter(bad), "the quantity is no number", retry=False)
        good = batch.filter(f"not {bad}").selectExpr("id", "currency", "int(quantity) quantity", "_acker")
        collector.emit(good, "silver", to=lambda w: w.mode("append").parquet(str(lake / "silver")))

    bronze = spark.readStream.schema(STAMPED).parquet(str(lake / "bronze"))
    finish(bronze.writeStream.foreachBatch(clean), lake / "checkpoints" / "price")


def gold(spark: SparkSession, lake: Path, where: str = "") -> None:
    """Job 3, without acker: a statement that makes the table gold anew from silver."""
    rows = spark.sql(GOLD.format(silver=lake / "silver", where=where))
    rows.write.mode("overwrite").parquet(str(lake / "gold"))


def prove(spark: SparkSession, acker: Acker, lake: Path) -> Reconciliation:
    """Job 4: receives the stamps that gold has. What it lacks stays pending, and is named."""
    return acker.reconcile(spark.read.parquet(str(lake / "gold")), "silver", "gold")


def nights(spark: SparkSession, url: str, lake: Path) -> bool:
    """Two nights of the jobs; True if each figure is as it should be."""
    acker = Acker(url, "lake", ackers=2, message_timeout=600)
    declare(acker)
    first = night(spark, acker, lake, 1, where="where currency != 'CHF'")
    second = night(spark, acker, lake, 2)
    acker.settle("orders")
    with acker.open() as topology:
        counters = topology.counters()
    pending = counters["tracked"] - counters["acked"] - counters["failed"] - counters["expired"]
    letters = acker.dead_letters(spark, "orders").collect()
    print(f"acked: {counters['acked']}, dead letters: {len(letters)}, pending: {pending}")
    lacking = sum(is_swiss(number) and not is_bad(number) for number in range(ORDERS))
    return (
        (first.complete, second.complete) == (False, True)
        and counters["acked"] == 2 * (ORDERS - BAD)
        and (len(letters), pending, first.missing) == (2 * BAD, 0, lacking)
    )


def night(spark: SparkSession, acker: Acker, lake: Path, number: int, where: str = "") -> Reconciliation:
    """New orders come in, and each job runs once; returns the proof of the last one."""
    write_json(lake / "orders", f"{number}.json", (order(number, of) for of in range(ORDERS)))
    ingest(spark, acker, lake)
    price(spark, acker, lake)
    gold(spark, lake, where)
    proof = prove(spark, acker, lake)
    print(f"night {number}: {proof.text}")
    return proof


def order(night: int, number: int) -> dict[str, object]:
    """An order of a night."""
    currency = "CHF" if is_swiss(number) else "EUR"
    return {
        "id": f"{night}-{number}",
        "currency": currency,
        "quantity": "?" if is_bad(number) else str(number),
    }


def is_bad(number: int) -> bool:
    """True for an order that "price" cannot read."""
    return number % 20 == 7


def is_swiss(number: int) -> bool:
    """True for an order in a currency that the first statement leaves out."""
    return number % 6 == 0


def main() -> None:
    """Runs two nights."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--url", help="default: a server of its own")
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--check", action="store_true", help="end with 1 if a figure is wrong")
    options = parser.parse_args()
    spark = session(options.master)
    with tempfile.TemporaryDirectory() as directory:
        lake = Path(directory)
        if options.url:
            good = nights(spark, options.url, lake)
        else:
            with EmbeddedServer(lake / "server") as server:
                good = nights(spark, server.url, lake)
    spark.stop()
    sys.exit(1 if options.check and not good else 0)


if __name__ == "__main__":
    main()
