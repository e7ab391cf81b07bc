"""Records that can not be processed: tried again, then dead letters, and driven again when the bug is mended.

python -m examples.poison_records [--url redis://127.0.0.1:6379/0]
"""

from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from acker import Topology
from acker.spark import Collector, bolt, dead_letters, replay, track
from acker.streams.settler import settle
from examples.common import finish, start, write_json

PRICES = ["1.50", "2", "free", "0.25", "n/a"]


def run(spark: SparkSession, url: str, directory: Path) -> list[float]:
    """Parses prices; returns those that came out in the end."""
    topology = Topology(url, "prices")
    write_json(directory / "in", "prices.json", ({"id": n, "price": price} for n, price in enumerate(PRICES)))
    prices = track(
        spark.readStream.schema("id long, price string").json(str(directory / "in")),
        url=url, topology="prices", spout="prices", message_id="id", attempts=2,
    )  # fmt: skip

    def parse(record: dict[str, Any]) -> float:
        return float(record["price"])  # raises for "free": that record fails, the others go on

    def parse_better(record: dict[str, Any]) -> float:
        return 0.0 if record["price"] in ("free", "n/a") else float(record["price"])

    def parsing(function: Any) -> Any:
        @bolt(url=url, topology="prices", name="parse")
        def parse_prices(batch: DataFrame, collector: Collector) -> None:
            collector.emit_map(batch, function, "amount double", stream="amounts")

        return prices.writeStream.foreachBatch(parse_prices)

    for _ in range(2):  # the records, then the replays of those that failed
        finish(parsing(parse), directory / "parse")
        settle(topology.ledger)
    for letter in dead_letters(spark, url=url, topology="prices").collect():
        print(f"{letter.row} failed {letter.attempts} times: {letter.reason}")
        replay(url=url, topology="prices", letter=letter.id)  # also: POST .../dead-letters/{id}/replay
    finish(parsing(parse_better), directory / "parse")
    topology.close()
    amounts = spark.read.format("acker").options(url=url, topology="prices", stream="amounts").load()
    return sorted(row.amount for row in amounts.collect())


if __name__ == "__main__":
    start(run, __doc__ or "")
