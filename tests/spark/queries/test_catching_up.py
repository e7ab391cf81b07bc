"""A job on a schedule works until nothing is behind, also where a run of a query is one batch."""

import pytest
from pyspark.sql import DataFrame
from pyspark.sql.streaming.readwriter import DataStreamWriter

from acker.errors import AckerError, ValidationError
from acker.spark import Collector, bolt, run_until_caught_up
from acker.spark.runtime.versions import LEARNS_OFFSETS
from acker.streams import Stream
from tests.helpers.builders.pipeline import Pipeline

pytestmark = pytest.mark.older

BROKEN = "broken"
LINES = [f"line {n}" for n in range(30)]


def copying(pipeline: Pipeline, **options: object) -> DataStreamWriter:
    """A query that copies the stream `lines`, ten rows in a batch; it ends in one while a file is there."""
    broken = pipeline.directory / BROKEN

    @bolt(url=pipeline.url, topology="t", name="copy")
    def copy(batch: DataFrame, collector: Collector) -> None:
        if broken.exists():
            raise RuntimeError("on purpose")
        collector.emit(batch, stream="copies")

    return pipeline.query("copy", "lines", copy, max_rows=10, **options)


def behind(pipeline: Pipeline) -> int:
    [one] = Stream(pipeline.ledger, "lines").totals().subscriptions
    return one.rows_behind


def test_a_query_runs_until_nothing_is_behind_and_what_ends_a_run_passes_through(
    pipeline: Pipeline, caplog: pytest.LogCaptureFixture
) -> None:
    pipeline.spout(LINES, segments=3)
    query, broken = copying(pipeline), pipeline.directory / BROKEN
    with pytest.raises(ValidationError, match="most_runs: expected int from 1"):
        run_until_caught_up(query, most_runs=0)
    with pytest.raises(ValidationError, match="expected a query that is not started"):
        run_until_caught_up(pipeline.read_stream("lines"))  # type: ignore[arg-type]
    with pytest.raises(AckerError, match="still found something in run 1, the last of most_runs"):
        run_until_caught_up(query, most_runs=1)
    broken.touch()
    pipeline.spout(LINES, segments=3)
    with pytest.raises(Exception, match="on purpose"):
        run_until_caught_up(query)
    broken.unlink()
    assert run_until_caught_up(query) == (1 if LEARNS_OFFSETS else 5)
    assert run_until_caught_up(query) == 0
    assert sorted(str(row["line"]) for row in pipeline.rows("copies")) == sorted(LINES * 2)
    assert behind(pipeline) == 0
    assert not [one for one in caplog.records if one.name.startswith("acker")]


def test_a_run_that_is_one_batch_is_reported_in_the_log(
    pipeline: Pipeline, caplog: pytest.LogCaptureFixture
) -> None:
    pipeline.spout(LINES, segments=3)
    pipeline.finish(copying(pipeline))
    assert behind(pipeline) == (0 if LEARNS_OFFSETS else 20)
    told = [one.getMessage() for one in caplog.records if "run_until_caught_up" in one.getMessage()]
    assert len(told) == (not LEARNS_OFFSETS)
    assert all("reads lines with Trigger.AvailableNow" in text for text in told)


def test_runs_that_begin_anew_each_time_are_an_error(pipeline: Pipeline) -> None:
    (pipeline.directory / "in").mkdir()
    (pipeline.directory / "in" / "1.txt").write_text("a\n")
    rows = pipeline.spark.readStream.text(str(pipeline.directory / "in"))
    with pytest.raises(
        AckerError, match=r"run 2 began anew with batch 0.*give the query a checkpointLocation"
    ):
        run_until_caught_up(rows.writeStream.format("noop"))
