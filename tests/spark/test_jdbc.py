"""A table of a database as a spout, read over JDBC.

Derby is what Spark brings along. It opens a database in one process at a time: here that is the server of
Spark Connect, which is driver and executor in one.
"""

import pytest

from acker.spark import job, track, watermark
from acker.streams.spouts import settler
from acker.streams.spouts.replays import Stepped
from tests.helpers.builders.pipeline import Pipeline

pytestmark = pytest.mark.connect


def test_rows_of_a_table_are_tracked_and_those_that_fail_come_again_with_newer_ones(
    pipeline: Pipeline,
) -> None:
    url = f"jdbc:derby:{pipeline.directory}/shop;create=true"
    driver = "org.apache.derby.iapi.jdbc.AutoloadedDriver"
    tables = {"url": url, "driver": driver}

    def insert(first: int, end: int) -> None:
        rows = pipeline.spark.range(first, end).selectExpr(
            "id", "concat('item ', id) as item", "cast(id - 20 as decimal(10, 2)) as amount"
        )
        rows.write.format("jdbc").options(**tables, dbtable="orders").mode("append").save()

    def load(run: str, since: int) -> list[object]:
        fresh = f'(select * from orders where "id" >= {since}) as fresh'
        reader = pipeline.spark.read.format("jdbc").options(**tables, dbtable=fresh)
        parts = reader.options(partitionColumn="id", lowerBound=since, upperBound=since + 40, numPartitions=3)
        with job(pipeline.spark, url=pipeline.url, topology="t", name="load", run=run) as collector:
            orders = track(
                parts.load(), url=pipeline.url, topology="t", spout="orders", message_id="id", attempts=2,
                attempt="attempt", offset="id",
            )  # fmt: skip
            collector.emit(orders.filter("amount > 0"), stream="paid")
            collector.fail(orders.filter("amount < 0"), "negative")  # reads the table once more
        found = pipeline.rows("paid")
        pipeline.consume("paid")
        return sorted(row["id"] for row in found)  # type: ignore[type-var]

    insert(0, 40)
    assert load("monday", 0) == list(range(21, 40))
    assert pipeline.counters() == {"tracked": 40, "acked": 20, "failed": 20}
    assert settler.settle(pipeline.ledger) == Stepped(acked=20, replayed=20)
    assert watermark(url=pipeline.url, topology="t", spout="orders") == {"": 0}
    insert(40, 60)
    assert load("tuesday", 40) == list(range(40, 60))
    assert settler.settle(pipeline.ledger) == Stepped(acked=20, dead=20)
    assert watermark(url=pipeline.url, topology="t", spout="orders") == {"": 60}
    assert pipeline.counters() == {"tracked": 80, "acked": 40, "failed": 40}
    assert not pipeline.without_time_to_live("staged:", "tracked:", "failing")
