"""What is different on Spark Connect."""

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame

from acker.ledger.steps import step_registry
from acker.spark import Collector, bolt, outcomes, settling
from acker.streams import Stream
from acker.streams.sources import kept_rows
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
    with pytest.raises(Exception, match=r"UnsafePlan: .* say so by the option stateless=true"):
        pipeline.finish(pipeline.writing("direct", plain, "copies"))
    assert pipeline.rows("copies") == []
    pipeline.finish(pipeline.writing("direct", plain, "copies", stateless=True))
    assert len(pipeline.rows("copies")) == 3
