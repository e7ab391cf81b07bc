"""Whatever Spark repeats, a batch takes effect once, and only what winning attempts did."""

from typing import Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql.functions import concat, lit

from acker.spark import Collector, bolt
from acker.spark.records import staging
from acker.streams.commits import commit as commits
from tests.helpers.builders.pipeline import Diary, Pipeline
from tests.helpers.faults.attempts import BY, Attempts, at_once, first_attempt, names_in, numbers, staged_by
from tests.helpers.models.exactness import FailingAfterStaging, cut, words

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("after_staging", [pytest.param(False, marks=pytest.mark.oldest), True])
def test_attempts_that_fail_in_the_middle_of_staging_or_after_it_leave_no_trace(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, after_staging: bool
) -> None:
    attempts = Attempts(pipeline.url, fails=not after_staging)

    def works_the_second_time(record: dict[str, Any]) -> str:
        if first_attempt():
            raise ValueError(record[BY])
        return str(record["line"])

    @bolt(url=pipeline.url, topology="t", name="flaky", segment_rows=4, partitions=2)
    def flaky(batch: DataFrame, collector: Collector) -> None:
        rows = attempts.of(batch)
        assert collector.emit(words(rows, BY), stream="words") == 200
        collector.fail(rows.filter("line like '%7'"), concat(lit("seven "), BY))
        collector.emit_map(rows.select("line", "_acker", BY), works_the_second_time, "line string", "copies")

    if after_staging:
        monkeypatch.setattr(staging, "StageTask", FailingAfterStaging)
    pipeline.spout([f"a b{n}" for n in range(100)], segments=4)
    with at_once(pipeline.spark):
        pipeline.run("flaky", "lines", flaky, partitions=2)
    assert sorted(str(row["word"]) for row in pipeline.rows("words")) == sorted(
        ["a"] * 100 + [f"b{n}" for n in range(100)]
    )
    assert numbers(pipeline.attempts("words")) == {1}
    assert len(pipeline.rows("copies")) == 100
    lost = staged_by(pipeline.url)
    assert len(lost) == 6  # two tasks of each call of the collector
    assert numbers(lost) == {0}
    failed = pipeline.outcomes()
    assert sum(failed.values()) == 10
    assert all(reason.startswith("seven <") for reason in failed)
    assert numbers(names_in([{"reason": reason} for reason in failed])) == {1}
    pipeline.consume("words")
    pipeline.consume("copies")
    # The failed trees' words and copies come late, one delta for each application of a vector.
    total = pipeline.counters()
    assert total.pop("late") > 0
    assert total == {"tracked": 100, "acked": 90, "failed": 10}
    assert not pipeline.without_time_to_live("staged", "payload", "failing")


@pytest.mark.older
def test_a_streaming_write_whose_tasks_fail_in_staging_leaves_no_trace(pipeline: Pipeline) -> None:
    pipeline.spout(["a b"] * 100, segments=4)
    rows = Attempts(pipeline.url).of(pipeline.read_stream("lines", partitions=2))
    with at_once(pipeline.spark):
        pipeline.finish(pipeline.writing("direct", words(rows, BY), "words", segment_rows=4, stateless=True))
    assert len(pipeline.rows("words")) == 200
    assert numbers(pipeline.attempts("words")) == {1}
    lost = staged_by(pipeline.url)
    assert len(lost) == 2
    assert numbers(lost) == {0}
    pipeline.consume("words")
    assert pipeline.counters() == {"tracked": 100, "acked": 100}
    assert not pipeline.without_time_to_live("staged", "payload")


@pytest.mark.oldest
def test_an_exception_of_the_function_commits_nothing_and_the_batch_runs_again(pipeline: Pipeline) -> None:
    calls = Diary(pipeline.directory / "calls")

    @bolt(url=pipeline.url, topology="t", name="moody")
    def moody(batch: DataFrame, collector: Collector) -> None:
        times = calls.note(collector.batch_id)
        collector.emit(words(batch), stream="words")
        collector.fail(batch.limit(5), "first five")
        if times == 1:
            raise RuntimeError("on purpose")

    pipeline.spout(["a b"] * 40)
    with pytest.raises(Exception, match="on purpose"):
        pipeline.run("moody", "lines", moody)
    assert pipeline.counters() == {"tracked": 40}
    assert pipeline.rows("words") == []
    assert len(pipeline.rows("lines")) == 40
    pipeline.run("moody", "lines", moody)
    assert calls.read() == [0, 0]
    assert len(pipeline.rows("words")) == 80
    assert pipeline.counters()["failed"] == 5
    pipeline.consume("words")
    assert pipeline.counters()["acked"] == 35


@pytest.mark.parametrize("after", [1, 4, 6])
def test_a_stored_commit_is_finished_by_the_rerun_without_calling_the_function(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    calls: list[int] = []

    @bolt(url=pipeline.url, topology="t", name="once")
    def once(batch: DataFrame, collector: Collector) -> None:
        calls.append(1)
        collector.emit(words(batch), stream="words")

    pipeline.spout(["a b"] * 40, segments=2)
    with monkeypatch.context() as patched:
        patched.setattr(commits, "commit", cut(after))
        with pytest.raises(Exception, match="cut"):
            pipeline.run("once", "lines", once)
    pipeline.run("once", "lines", once)
    assert calls == [1]
    assert len(pipeline.rows("words")) == 80
    assert pipeline.rows("lines") == []
    pipeline.consume("words")
    assert pipeline.counters() == {"tracked": 40, "acked": 40}


def test_mapped_rows_that_were_lost_and_computed_again_are_not_used(pipeline: Pipeline) -> None:
    seen: list[int] = []

    @bolt(url=pipeline.url, topology="t", name="lost")
    def lost(batch: DataFrame, collector: Collector) -> None:
        good = collector.map(batch, lambda record: record["line"], "line string")
        seen.append(good.count())
        if len(seen) == 1:
            collector._cached[0].unpersist(blocking=True)
            collector.emit(good, stream="copies")

    pipeline.spout(["a"] * 10)
    with pytest.raises(Exception, match="mapped rows were lost and computed again"):
        pipeline.run("lost", "lines", lost)
    assert pipeline.counters() == {"tracked": 10}
    pipeline.run("lost", "lines", lost)
    assert seen == [10, 10]
    assert pipeline.counters() == {"tracked": 10, "acked": 10}
