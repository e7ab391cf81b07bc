"""A bolt's ways with a batch: many inputs and outputs, rows held; and batch jobs."""

import secrets
from typing import Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everyone imports it
from pyspark.sql.functions import col, split

from acker.inspect.trees import pages, traces
from acker.ledger.client import open_ledger
from acker.ledger.steps import step_registry
from acker.spark import Collector, FailedException, bolt, job
from acker.store.client import Store
from tests.helpers.builders.pipeline import Diary, Pipeline
from tests.helpers.servers.servers import wait_until


@pytest.mark.connect(only=False)
@pytest.mark.oldest
def test_two_streams_are_joined_and_go_to_several(pipeline: Pipeline) -> None:
    """A join is anchored to both sides, an aggregate to all its rows; what is left over is acked."""

    @bolt(url=pipeline.url, topology="t", name="match", segment_rows=20)
    def match(batch: DataFrame, collector: Collector) -> None:
        rows = batch.select(split("line", ":").alias("p"), "_acker").select(
            col("p")[0].alias("kind"), col("p")[1].alias("id"), "_acker"
        )
        orders, payments = rows.filter("kind = 'order'"), rows.filter("kind = 'paid'")
        joined = orders.alias("o").join(payments.alias("p"), "id")
        both = F.concat(F.array("o._acker"), F.array("p._acker")).alias("_acker")
        assert collector.emit(joined.select("id", both), stream="matched") == 50
        totals = rows.groupBy("kind").agg(F.count("*").alias("n"), F.collect_list("_acker").alias("_acker"))
        assert collector.emit(totals, stream="totals") == 3
        counts = rows.groupBy("kind").count()
        assert collector.emit(counts, stream="metrics", anchored=False) == 3
        bad = rows.filter("kind = 'bad'")
        collector.fail(bad, F.concat(F.lit("bad "), "id"))

    pipeline.spout([f"order:{n}" for n in range(100)], "orders", segments=2)
    pipeline.spout([f"paid:{n}" for n in range(50)] + ["bad:1", "bad:2"], "payments", segments=3)
    union = pipeline.read_stream("orders").union(pipeline.read_stream("payments"))
    pipeline.finish(
        pipeline.checkpointed("match", union.writeStream.queryName("matching").foreachBatch(match))
    )
    assert pipeline.rows("orders") == pipeline.rows("payments") == []
    assert pipeline.outcomes() == {"bad 1": 1, "bad 2": 1}
    assert pipeline.counters() == {"tracked": 152, "failed": 2}
    pipeline.consume("totals")
    assert pipeline.counters()["acked"] == 50  # orders that nobody paid for
    pipeline.consume("matched")
    assert pipeline.counters()["acked"] == 150
    assert not pipeline.without_time_to_live("staged", "failing", "notes")
    [step] = pipeline.ledger.run(step_registry.steps(pipeline.ledger.core))
    assert (step.name, step.kind, step.query, step.batch) == ("match", "bolt", "matching", 0)
    assert step.reads == ("orders", "payments")
    assert step.emits == ("matched", "metrics", "totals")
    assert step.application == pipeline.spark.conf.get("spark.app.name")
    assert step.application_id == pipeline.spark.conf.get("spark.app.id")


def test_a_bolt_that_derives_nothing_needs_no_anchors_to_ack(pipeline: Pipeline) -> None:
    seen = Diary(pipeline.directory / "seen")

    @bolt(url=pipeline.url, topology="t", name="store")
    def store(batch: DataFrame, collector: Collector) -> None:
        seen.note([batch.columns, sorted(row["line"] for row in batch.collect())])

    pipeline.spout([f"n{n}" for n in range(40)], segments=3)
    frame = pipeline.spark.readStream.format("acker").schema("line string")
    pipeline.finish(
        pipeline.checkpointed(
            "store", frame.options(**pipeline.options("lines")).load().writeStream.foreachBatch(store)
        )
    )
    assert seen.read() == [[["line"], sorted(f"n{n}" for n in range(40))]]
    assert pipeline.counters() == {"tracked": 40, "acked": 40}
    assert pipeline.rows("lines") == []


@pytest.mark.connect(only=False)
@pytest.mark.oldest
def test_held_rows_wait_for_a_later_batch_also_over_restarts_and_reruns(pipeline: Pipeline) -> None:
    """Pairs: a row is held until its partner comes, in one of the next batches."""
    calls = Diary(pipeline.directory / "calls")

    @bolt(url=pipeline.url, topology="t", name="pair", segment_rows=10)
    def pair(batch: DataFrame, collector: Collector) -> None:
        times = calls.note(collector.batch_id)
        rows = batch.union(collector.held("line string"))
        groups = rows.groupBy("line").agg(F.count("*").alias("n"), F.collect_list("_acker").alias("_acker"))
        collector.emit(groups.filter("n = 2"), stream="pairs")
        alone = groups.filter("n = 1 and line != 'never'")
        collector.hold(alone.select("line", col("_acker")[0].alias("_acker")))
        if times == 2:
            raise RuntimeError("on purpose")

    pipeline.spout([f"n{n}" for n in range(40)])
    pipeline.run("pair", "lines", pair)
    assert len(pipeline.rows("pair.held")) == 40
    assert pipeline.counters() == {"tracked": 40}
    pipeline.spout([f"n{n}" for n in range(30)] + ["never"])
    with pytest.raises(Exception, match="on purpose"):
        pipeline.run("pair", "lines", pair)
    assert len(pipeline.rows("pair.held")) == 40
    assert pipeline.rows("pairs") == []
    pipeline.run("pair", "lines", pair)
    assert calls.read() == [0, 1, 1]
    assert sorted(str(row["line"]) for row in pipeline.rows("pair.held")) == [f"n{n}" for n in range(30, 40)]
    assert len(pipeline.rows("pairs")) == 30
    assert pipeline.counters() == {"tracked": 71, "acked": 1}  # what is neither emitted nor held any more
    pipeline.consume("pairs")
    assert pipeline.counters() == {"tracked": 71, "acked": 61}
    assert not pipeline.without_time_to_live("staged", "notes")


def test_held_rows_go_to_another_query_and_stay_where_a_batch_fails(pipeline: Pipeline) -> None:
    @bolt(url=pipeline.url, topology="t", name="pair")
    def hold(batch: DataFrame, collector: Collector) -> None:
        collector.hold(batch)

    @bolt(url=pipeline.url, topology="t", name="pair")
    def picky(batch: DataFrame, collector: Collector) -> None:
        held = collector.held(batch.schema)
        if not batch.filter("line = 'stop'").isEmpty():
            raise FailedException("stop")
        collector.fail(held.filter("line = 'n3'"), "too late")

    pipeline.spout([f"n{n}" for n in range(10)])
    pipeline.run("pair", "lines", hold)
    pipeline.spout(["stop"])
    pipeline.run("other", "lines", picky)  # a checkpoint of its own
    assert len(pipeline.rows("pair.held")) == 10
    pipeline.spout(["go"])
    pipeline.run("other", "lines", picky)
    assert pipeline.rows("pair.held") == []
    assert pipeline.outcomes() == {"stop": 1, "too late": 1}
    assert pipeline.counters() == {"tracked": 12, "acked": 10, "failed": 2}
    assert not pipeline.without_time_to_live("staged", "payload", "failing", "notes")


@pytest.mark.oldest
def test_a_job_takes_streams_and_commits_once(pipeline: Pipeline, caplog: pytest.LogCaptureFixture) -> None:
    def run(name: str | None = None, then: Exception | None = None) -> bool:
        with job(pipeline.spark, url=pipeline.url, topology="t", name="nightly", run=name) as collector:
            lines = collector.take("lines")
            collector.emit(lines.withColumn("n", F.lit(1)), stream="copies")
            if then is not None:
                raise then
        return collector.committed

    pipeline.spout(["a"] * 20, segments=2)
    with pytest.raises(ValueError, match="on purpose"):
        run(then=ValueError("on purpose"))
    assert pipeline.rows("copies") == []
    assert len(pipeline.rows("lines")) == 20
    assert not run("monday")
    assert len(pipeline.rows("copies")) == 20
    assert pipeline.rows("lines") == []
    pipeline.spout(["b"] * 5)
    assert run("monday")
    assert len(pipeline.rows("copies")) == 20
    assert len(pipeline.rows("lines")) == 5
    [said] = [one.getMessage() for one in caplog.records if one.name == "acker.streams.commits.record"]
    assert "run 'monday' of job 'nightly' was committed at 20" in said
    assert "with 20 rows emitted: nothing of this run is written" in said
    run(then=FailedException("not these"))
    assert len(pipeline.rows("copies")) == 20
    assert pipeline.outcomes() == {"not these": 5}
    pipeline.consume("copies")
    assert pipeline.counters() == {"tracked": 25, "acked": 20, "failed": 5}
    assert not pipeline.without_time_to_live("staged", "payload", "commits")
    assert {step.kind for step in pipeline.ledger.run(step_registry.steps(pipeline.ledger.core))} == {"job"}


def test_a_job_joins_holds_maps_and_fails_as_a_bolt_does(pipeline: Pipeline) -> None:
    def number(record: dict[str, Any]) -> tuple[str, int]:
        return record["line"], int(record["line"])

    def run() -> None:
        with job(pipeline.spark, url=pipeline.url, topology="t", name="nightly") as collector:
            orders, payments = collector.take("orders"), collector.take("payments")
            rows = orders.unionByName(collector.held(orders.schema)).alias("o")
            both = F.array("o._acker", "p._acker").alias("_acker")
            collector.emit(rows.join(payments.alias("p"), "line").select("line", both), stream="paid")
            collector.hold(rows.join(payments, "line", "left_anti"))
            collector.emit_map(payments, number, "line string, n int", "numbers")
            collector.fail(payments.filter("line = '1'"), F.concat(F.lit("refused "), "line"))

    pipeline.spout(["1", "2", "3"], "orders")
    pipeline.spout(["1", "x"], "payments")
    run()
    assert [row["line"] for row in pipeline.rows("paid")] == ["1"]
    assert sorted(str(row["line"]) for row in pipeline.rows("nightly.held")) == ["2", "3"]
    assert [row["n"] for row in pipeline.rows("numbers")] == [1]
    pipeline.spout(["4"], "orders")
    pipeline.spout(["2", "4"], "payments")
    run()
    assert sorted(str(row["line"]) for row in pipeline.rows("paid")) == ["1", "2", "4"]
    assert [row["line"] for row in pipeline.rows("nightly.held")] == ["3"]
    reasons = pipeline.outcomes()
    assert reasons.pop("refused 1") == 1
    [failed] = reasons
    assert failed.startswith("ValueError: ")
    pipeline.consume("paid")
    pipeline.consume("numbers")
    counted = pipeline.counters()
    assert counted.pop("late") > 0
    assert counted == {"tracked": 8, "acked": 5, "failed": 2}  # the order 3 is held
    assert not pipeline.without_time_to_live("staged", "failing", "notes")


def test_rows_of_a_query_that_is_not_deterministic_are_the_same_in_each_call(pipeline: Pipeline) -> None:
    """A row that another evaluation puts on the other side of a filter would be in neither stream."""
    side = F.udf(lambda: secrets.randbelow(2), "int").asNondeterministic()

    @bolt(url=pipeline.url, topology="t", name="divide")
    def divide(batch: DataFrame, collector: Collector) -> None:
        collector.emit(batch.filter("side = 0"), stream="left")
        collector.emit(batch.filter("side = 1"), stream="right")

    pipeline.spout([str(n) for n in range(100)], segments=2)
    sided = pipeline.read_stream("lines").withColumn("side", side())
    pipeline.run_on(sided, "divide", divide)
    lines = [int(str(row["line"])) for stream in ("left", "right") for row in pipeline.rows(stream)]
    assert sorted(lines) == list(range(100))


@pytest.mark.connect(only=False)
def test_a_slow_step_keeps_its_trees_alive(pipeline: Pipeline) -> None:
    ledger = open_ledger(Store(pipeline.url), "slow", ackers=2, message_timeout=1.0, traces=1)
    slow = Pipeline(pipeline.spark, ledger, pipeline.url, pipeline.directory)

    def in_nursery() -> int:
        found = ledger.run(pages.trees(ledger.core, bucket="nursery", limit=1000))
        return len(found.trees)

    @bolt(url=pipeline.url, topology="slow", name="slow")
    def sleepy(batch: DataFrame, collector: Collector) -> None:
        assert collector.reset_timeout(batch) == 1
        with collector.keep_alive(batch.filter("line like 'a%'")):
            for _ in range(4):  # without resets, the third expires them
                wait_until(lambda: in_nursery() == 10)
                ledger.tick(force=True)
        ledger.tick(force=True)  # the thread may have reset them once more before it ended
        assert in_nursery() == 0
        collector.emit(batch, stream="copies")

    anchors = slow.spout([f"a{n}" for n in range(10)])
    slow.run("slow", "lines", sleepy)
    for anchor in anchors.tolist():
        told = [one.text() for one in ledger.run(traces.trace(ledger.core, anchor))]
        assert [one for one in told if "reset" in one] == ["timeout reset by slow, batch 0"]
    slow.consume("copies")
    counted = slow.counters()
    assert counted.pop("rotations") >= 10
    assert counted == {"tracked": 10, "acked": 10}
