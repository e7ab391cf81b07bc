"""Records that cannot be processed: tried again, then dead letters, and driven again when the bug is mended.

It shows why each was given up, and where one is that waits.

python -m examples.poison_records [--url redis://127.0.0.1:6379/0]
"""

from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from acker.spark import Acker, Collector
from examples.common import finish, start, write_json

PRICES = ["1.50", "2", "free", "0.25", "n/a"]


def run(spark: SparkSession, url: str, directory: Path) -> list[float]:
    """Parses prices; returns the ones that came out in the end."""
    acker = Acker(url, "prices", ackers=4)  # with a setting, the topology is made
    write_json(directory / "in", "prices.json", ({"id": n, "price": price} for n, price in enumerate(PRICES)))
    files = spark.readStream.schema("id long, price string").json(str(directory / "in"))
    prices = acker.track(files, "prices", message_id="id", attempts=2)

    def parse(record: dict[str, Any]) -> float:
        return float(record["price"])  # raises for "free": that record fails, the others go on

    def parse_better(record: dict[str, Any]) -> float:
        return 0.0 if record["price"] in ("free", "n/a") else float(record["price"])

    def parsing(function: Any) -> Any:
        @acker.bolt("parse")
        def parse_prices(batch: DataFrame, collector: Collector) -> None:
            collector.emit_map(batch, function, "amount double", stream="amounts")

        return prices.writeStream.foreachBatch(parse_prices)

    for _ in range(2):  # the records, then the replays of failed ones
        finish(parsing(parse), directory / "parse")
        acker.settle()
    for letter in acker.dead_letters(spark).collect():
        print(f"{letter.row} failed {letter.attempts} times: {letter.reason}")
        acker.replay(letter.id)  # also: POST .../dead-letters/{id}/replay
    with acker.open() as topology:  # where is a record that is not done? Also: acker find, acker why
        [record] = topology.find("0").records
        why = topology.why(record.attempts[-1].anchor or 0)
        print(f"record 0 is {', and '.join(place.text() for place in why.places)}; all of it: {why.complete}")
    finish(parsing(parse_better), directory / "parse")
    return sorted(row.amount for row in acker.read(spark, "amounts").collect())


if __name__ == "__main__":
    start(run, __doc__ or "")
