"""Tests for Spark Connect: where it differs, and a table of a database as a spout."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame

from acker import AckerError, Topology
from acker.ledger.steps import step_registry
from acker.spark import Collector, bolt, job, outcomes, settling, track, watermark
from acker.streams import Stream
from acker.streams.sources import kept_rows
from acker.streams.spouts import settler
from acker.streams.spouts.replays import Stepped
from tests.helpers.builders.pipeline import Diary, Pipeline
from tests.helpers.models.exactness import words

pytestmark = pytest.mark.connect


def test_a_bolt_in_a_session_of_several_queries_goes_by_the_name_of_its_own(pipeline: Pipeline) -> None:
    @bolt(url=pipeline.url, topology="t", name="split")
    def split(batch: DataFrame, collector: Collector) -> None:
        collector.emit(words(batch), stream="words")

    pipeline.spout(["a b"] * 30, segments=2)
    rate = pipeline.spark.readStream.format("rate").load().writeStream.format("noop").queryName("another")
    another = rate.option("checkpointLocation", str(pipeline.directory / "another")).start()
    try:
        with pytest.raises(Exception, match=r"UnknownQuery: .* start that query with \.queryName\('split'\)"):
            pipeline.run("split", "lines", split)
        assert pipeline.rows("words") == []
        assert len(pipeline.rows("lines")) == 30
        pipeline.finish(pipeline.query("split", "lines", split).queryName("split"))
    finally:
        another.stop()
    assert len(pipeline.rows("words")) == 60
    assert pipeline.rows("lines") == []
    [step] = pipeline.ledger.run(step_registry.steps(pipeline.ledger.core))
    assert (step.name, step.query) == ("split", "split")


def test_outcomes_are_reported_to_a_callback_here_and_to_a_query_there(pipeline: Pipeline) -> None:
    numbers = pipeline.options("numbers", message_id="id", attempts=1, outcomes=True)
    pipeline.spark.range(50).write.format("acker").mode("append").options(**numbers).save()
    bad = [row["_acker"] for row in pipeline.rows("numbers") if row["id"] == 7]
    pipeline.ledger.fail(bad, "seven")  # type: ignore[arg-type]
    pipeline.consume("numbers")
    tables: list[pa.Table] = []
    with settling(url=pipeline.url, topology="t", spout="numbers", on_outcomes=tables.append) as settler:
        settler.step()
    assert pipeline.ledger.run(kept_rows.pending(pipeline.ledger.core, "numbers"))["pending"] == 0
    assert sum(table.num_rows for table in tables) == 50

    diary = Diary(pipeline.directory / "reported")

    @bolt(url=pipeline.url, topology="t", name="late")
    def late(batch: DataFrame, collector: Collector) -> None:
        for row in batch.filter("status != 'acked'").collect():
            diary.note([bytes(row.message_id).decode(), row.status, row.reason, row.final])

    found = outcomes(pipeline.spark, url=pipeline.url, topology="t", spout="numbers")
    for _ in range(2):
        pipeline.finish(pipeline.checkpointed("late", found.writeStream.foreachBatch(late)))
    assert diary.read() == [["7", "failed", "seven", True]]
    assert pipeline.rows("numbers.outcomes") == []


def test_state_over_trees_is_seen_in_the_plan_that_is_printed(pipeline: Pipeline) -> None:
    """A bolt has that; a query that writes by itself has none, and says that it keeps no state."""
    calls = Diary(pipeline.directory / "calls")

    @bolt(url=pipeline.url, topology="t", name="copy")
    def copy(batch: DataFrame, collector: Collector) -> None:
        calls.note(collector.emit(batch, stream="copies"))

    def run(rows: DataFrame, name: str) -> None:
        checkpoint = str(pipeline.directory / name)
        query = rows.writeStream.foreachBatch(copy).option("checkpointLocation", checkpoint)
        pipeline.finish(query.trigger(availableNow=True))

    for name in ("limit", "plain"):
        Stream(pipeline.ledger, "lines").subscribe(name)
    pipeline.spout(["a", "b", "b"])
    limited = pipeline.read_stream("lines", subscription="limit").limit(2)
    with pytest.raises(Exception, match="UnsafePlan: the query has limit over rows of stream 'lines'"):
        run(limited, "limit")
    plain = pipeline.read_stream("lines", subscription="plain")
    with pytest.raises(Exception, match=r"UnsafePlan: .* set the option stateless=true"):
        pipeline.finish(pipeline.writing("direct", plain, "copies"))
    assert pipeline.rows("copies") == []
    pipeline.finish(pipeline.writing("direct", plain, "copies", stateless=True))
    assert len(pipeline.rows("copies")) == 3


def test_rows_of_files_are_received_and_none_go_to_a_sink(pipeline: Pipeline) -> None:
    where, seen = pipeline.directory / "items", Diary(pipeline.directory / "seen")
    schema = "value string, _acker_stamp string"
    where.mkdir()

    @bolt(url=pipeline.url, topology="t", name="count", receives="items")
    def count(batch: DataFrame, collector: Collector) -> None:
        seen.note(sorted(row.value for row in batch.filter("_acker != 0").collect()))
        collector.fail(batch.filter("value = '3'"), "three", retry=False)

    with Topology(pipeline.url, "t", linger=None) as topology:
        topology.incoming("items", subscription="count")
        spout, items = topology.spout("src"), topology.outgoing("items", segment_rows=4)
        values = [str(number) for number in range(10)]
        stamps = items.stamps([spout.emit(value)[0] for value in values])
        topology.flush()
        pq.write_table(pa.table({"value": values, "_acker_stamp": stamps}), where / "0.parquet")
        rows = pipeline.spark.readStream.schema(schema).parquet(str(where))
        pipeline.run_on(rows, "count", count)
        assert seen.read() == [values]
        assert (topology.counters()["acked"], topology.counters()["failed"]) == (9, 1)
        again = pipeline.spark.read.schema(schema).parquet(str(where))
        with job(pipeline.spark, url=pipeline.url, topology="t", name="count") as collector:
            assert collector.receive(again, "items").filter("_acker != 0").count() == 0
        assert topology.counters()["acked"] == 9
    numbers = pipeline.spark.range(3).selectExpr("id", "0L _acker")
    refused = pytest.raises(AckerError, match="expected classic Spark for emit")
    with refused, job(pipeline.spark, url=pipeline.url, topology="t", name="send") as collector:
        collector.emit(numbers, "others", to=lambda w: w.parquet(str(pipeline.directory / "others")))


def test_rows_of_a_table_are_tracked_and_come_again_where_they_fail(pipeline: Pipeline) -> None:
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
