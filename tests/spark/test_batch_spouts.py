"""DataFrames that are not streaming as spouts: in the block of a job, and by a named write."""

from typing import Any

import pytest
from pyspark.sql import DataFrame

from acker.errors import ValidationError
from acker.spark import FailedException, job, outcomes, track, watermark
from acker.streams.commits import publishing
from acker.streams.spouts import settler
from acker.streams.spouts.replays import Stepped
from tests.helpers.builders.pipeline import Pipeline
from tests.helpers.faults.attempts import Attempts, at_once, numbers, staged_by
from tests.helpers.faults.cuts import as_in_a_cluster

pytestmark = pytest.mark.slow


def tracked(pipeline: Pipeline, rows: DataFrame, **settings: Any) -> DataFrame:
    given: dict[str, Any] = {"spout": "s", "message_id": "id", "topology": "t", **settings}
    return track(rows, url=pipeline.url, **given)


def load(pipeline: Pipeline, count: int, run: str, **settings: Any) -> bool:
    """A job that tracks rows and emits them; returns whether it was done before.

    Each task fails once, when it has staged some of its rows.
    """
    where = {"url": pipeline.url, "topology": "t"}
    with (
        at_once(pipeline.spark),
        job(pipeline.spark, **where, name="load", run=run, segment_rows=4) as collector,
    ):
        rows = tracked(pipeline, pipeline.spark.range(0, count, 1, 3), **settings)
        collector.emit(Attempts(pipeline.url).of(rows.repartition(2)), stream="numbers")
        collector.fail(rows.filter("id % 10 = 7"), "seven")  # another evaluation: the same trees
    return collector.committed


def assert_what_was_lost_is_not_used(pipeline: Pipeline, tasks: int) -> None:
    """So many tasks have staged rows that are not in the stream."""
    assert numbers(pipeline.attempts("numbers")) == {1}
    lost = staged_by(pipeline.url)
    assert len(lost) == tasks
    assert numbers(lost) == {0}


@pytest.mark.connect(only=False)
def test_a_job_tracks_what_it_reads_and_its_next_run_has_the_replays(pipeline: Pipeline) -> None:
    settings = {"attempts": 2, "attempt": "attempt", "outcomes": True, "offset": "id"}
    assert not load(pipeline, 60, "monday", **settings)
    assert_what_was_lost_is_not_used(pipeline, tasks=2)
    assert pipeline.counters() == {"tracked": 60, "failed": 6}
    assert sorted(row["id"] for row in pipeline.rows("numbers")) == list(range(60))  # type: ignore[type-var]
    assert watermark(url=pipeline.url, topology="t", spout="s") == {"": 0}
    pipeline.consume("numbers")
    assert settler.settle(pipeline.ledger) == Stepped(acked=54, replayed=6)
    assert not load(pipeline, 0, "tuesday", **settings)
    again = sorted((row["id"], row["attempt"]) for row in pipeline.rows("numbers"))
    assert again == [(n, 2) for n in range(7, 60, 10)]
    assert settler.settle(pipeline.ledger) == Stepped(dead=6)
    assert pipeline.pending() == {"pending": 0, "acked": 54, "replayed": 6, "dead": 6}
    assert watermark(url=pipeline.url, topology="t", spout="s") == {"": 60}
    reported = outcomes(pipeline.spark, url=pipeline.url, topology="t", spout="s", streaming=False).collect()
    assert (
        sorted((row.status, row.attempt, row.final) for row in reported if not row.final)
        == [("failed", 1, False)] * 6
    )
    assert sum(row.final for row in reported) == 60
    assert pipeline.rows("s.replays") == []
    assert not pipeline.without_time_to_live("staged:", "tracked:", "failing")


def test_a_run_that_is_cut_in_its_commit_is_finished_by_the_next_one_of_its_name(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cut(*arguments: Any) -> Any:
        raise RuntimeError("cut")

    with monkeypatch.context() as patched:
        as_in_a_cluster(patched)
        patched.setattr(publishing, "divide", cut)
        with pytest.raises(RuntimeError, match="cut"):
            load(pipeline, 60, "monday")
    assert pipeline.counters()["tracked"] == 60
    assert pipeline.rows("numbers") == []
    for _ in range(2):
        assert load(pipeline, 70, "monday")  # its own rows are nobody's
    assert len(pipeline.rows("numbers")) == 60
    assert numbers(pipeline.attempts("numbers")) == {1}
    pipeline.consume("numbers")
    assert settler.settle(pipeline.ledger) == Stepped(acked=54, replayed=6)


def test_a_job_that_raises_tracks_nothing_and_one_that_fails_has_its_trees_failed(pipeline: Pipeline) -> None:
    rows: list[DataFrame] = []

    def run(error: Exception) -> None:
        with job(pipeline.spark, url=pipeline.url, topology="t", name="load") as collector:
            rows.append(tracked(pipeline, pipeline.spark.range(10)))
            collector.emit(rows[-1], stream="numbers")
            raise error

    with pytest.raises(RuntimeError, match="on purpose"):
        run(RuntimeError("on purpose"))
    assert pipeline.counters() == {}
    run(FailedException("not these"))
    assert pipeline.rows("numbers") == []
    assert pipeline.counters() == {"tracked": 10, "failed": 10}
    with pytest.raises(Exception, match="they were tracked by a job that has ended"):
        rows[-1].count()
    assert settler.settle(pipeline.ledger) == Stepped(replayed=10)


def test_a_job_waits_for_room(pipeline: Pipeline) -> None:
    for run in ("monday", "tuesday"):  # the second has room when the first is settled: its commit does that
        with job(pipeline.spark, url=pipeline.url, topology="t", name="load", run=run):
            tracked(pipeline, pipeline.spark.range(10), max_spout_pending=10).count()
    assert pipeline.counters() == {"tracked": 20, "acked": 20}


def test_a_batch_is_tracked_in_a_job_of_its_topology_only(pipeline: Pipeline) -> None:
    rows = pipeline.spark.range(3)
    with pytest.raises(ValidationError, match=r"expected .* one of a batch in the block of `with job"):
        tracked(pipeline, rows)
    with (
        pytest.raises(ValidationError, match="expected the topology of the job, 't' in"),
        job(pipeline.spark, url=pipeline.url, topology="t", name="load"),
    ):
        tracked(pipeline, rows, topology="another", ackers=2)
    with pytest.raises(
        ValidationError, match="option run: only for writing a DataFrame that is not streaming"
    ):
        tracked(pipeline, pipeline.spark.readStream.format("rate").load(), message_id="value", run="monday")


@pytest.mark.connect(only=False)
def test_a_named_write_tracks_and_emits_once(pipeline: Pipeline) -> None:
    flaky = Attempts(pipeline.url).of(pipeline.spark.range(0, 50, 1, 2))
    where = pipeline.options("numbers", message_id="id", spout="s", segment_rows=4)
    for run in ("monday", "monday", "tuesday"):
        with at_once(pipeline.spark):
            flaky.write.format("acker").mode("append").options(**where, run=run).save()
    assert_what_was_lost_is_not_used(pipeline, tasks=6)
    assert sorted(int(str(row["id"])) for row in pipeline.rows("numbers")) == sorted([*range(50)] * 2)
    assert pipeline.counters() == {"tracked": 100}
    pipeline.consume("numbers")
    assert settler.settle(pipeline.ledger) == Stepped(acked=100)
    with pytest.raises(Exception, match="option run: only for writing a DataFrame that is not streaming"):
        pipeline.load("numbers", run="x").count()
    assert not pipeline.without_time_to_live("staged:", "tracked:", ":rows:")
