"""Batches that are read in part, that are slow, or that fail for good; and fairness among requests."""

import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from acker.errors import ValidationError
from acker.ledger.client import open_ledger
from acker.ledger.steps.step_registry import steps
from acker.spark import Collector, FailedException, PermanentFailure, bolt, dead_letters
from acker.spark.options.options import Options
from acker.spark.runtime.versions import LEARNS_OFFSETS
from acker.store.client import Store
from acker.streams import Stream
from acker.streams.log import fairness, schemas
from acker.streams.sources.spout_options import SpoutOptions
from acker.streams.spout import StreamSpout
from acker.streams.spouts import settler
from acker.streams.spouts.replays import Stepped
from acker.workers.out import Out
from acker.workers.steps import FunctionStep
from acker.workers.worker import Worker
from tests.helpers.builders.pipeline import Diary, Pipeline
from tests.helpers.servers.servers import wait_until
from tests.helpers.servers.sparks import several_batches

pytestmark = pytest.mark.slow


def run(
    pipeline: Pipeline,
    function: Callable[[DataFrame, Collector], None],
    through: Callable[[DataFrame], DataFrame] | None = None,
) -> None:
    """Runs a bolt on the union of two streams of several segments."""
    pipeline.spout(["bad"] * 10, "first", segments=2)
    pipeline.spout(["good"] * 10, "second", segments=2)
    rows = pipeline.read_stream("first", partitions=2).union(pipeline.read_stream("second", partitions=2))
    pipeline.finish(
        pipeline.checkpointed(
            "strict",
            (through(rows) if through else rows).writeStream.foreachBatch(
                bolt(url=pipeline.url, topology="t", name="strict")(function)
            ),
        )
    )


@pytest.mark.connect(only=False)
@pytest.mark.oldest
def test_a_batch_of_two_streams_that_is_read_in_part_fails_or_is_acked_as_a_whole(pipeline: Pipeline) -> None:
    def strict(batch: DataFrame, collector: Collector) -> None:
        if not batch.filter("line = 'bad'").isEmpty():
            raise FailedException("bad ones")

    def early(batch: DataFrame, collector: Collector) -> None:
        if batch.first() is not None:
            return
        collector.emit(batch, stream="copies")

    run(pipeline, strict)
    assert pipeline.rows("first") == pipeline.rows("second") == []
    assert pipeline.outcomes() == {"bad ones": 20}
    run(pipeline, early)
    assert pipeline.rows("first") == pipeline.rows("second") == []
    assert pipeline.counters() == {"tracked": 40, "failed": 20, "acked": 20}
    assert not pipeline.without_time_to_live("staged", "notes")


def test_rows_that_are_not_of_the_batch_do_not_hide_that_it_was_read_in_part(pipeline: Pipeline) -> None:
    def summary(batch: DataFrame, collector: Collector) -> None:
        found = [(row.line,) for row in batch.take(1)]
        samples = batch.sparkSession.createDataFrame(found, "line string")
        collector.emit(samples, stream="samples", anchored=False)

    run(pipeline, summary)
    assert len(pipeline.rows("samples")) == 1
    assert pipeline.rows("first") == pipeline.rows("second") == []
    pipeline.consume("samples")
    assert pipeline.counters() == {"tracked": 20, "acked": 20}


def test_a_batch_that_a_sink_has_read_is_not_read_again(pipeline: Pipeline) -> None:
    diary = Diary(pipeline.directory / "read")

    def noting(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            diary.note(batch.num_rows)
            yield batch

    def sink(batch: DataFrame, collector: Collector) -> None:
        batch.write.format("noop").mode("overwrite").save()

    run(pipeline, sink, lambda rows: rows.mapInArrow(noting, rows.schema))
    assert sum(diary.read()) == 20
    assert pipeline.counters() == {"tracked": 20, "acked": 20}


def test_tracked_rows_that_were_not_read_fail_with_their_batch(pipeline: Pipeline) -> None:
    """Otherwise nobody would replay them."""
    batches: list[int] = []

    @bolt(url=pipeline.url, topology="t", name="strict")
    def strict(batch: DataFrame, collector: Collector) -> None:
        batches.append(collector.batch_id)
        assert batch.first() is not None
        raise FailedException("not now")

    rate = pipeline.spark.readStream.format("rate-micro-batch").option("numPartitions", 2)
    pipeline.finish(
        pipeline.checkpointed(
            "strict",
            pipeline.tracked(rate.option("rowsPerBatch", 20).load()).writeStream.foreachBatch(strict),
        )
    )
    assert batches
    assert pipeline.counters() == {"tracked": 20 * len(batches), "failed": 20 * len(batches)}


def test_a_batch_that_is_slower_than_the_message_timeout_says_so(
    pipeline: Pipeline, valkey_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    ledger = open_ledger(Store(valkey_url), "slow", ackers=2, message_timeout=1.0)
    pipeline.ledger = ledger

    @bolt(url=valkey_url, topology="slow", name="split")
    def split(batch: DataFrame, collector: Collector) -> None:
        def expired() -> bool:
            ledger.tick()
            return ledger.counters()["expired"] == 12

        wait_until(expired)
        collector.emit(batch.select("line", "_acker"), stream="words")

    pipeline.spout([f"line {n}" for n in range(12)])
    query = pipeline.query("split", "lines", split).start()
    try:
        assert query.awaitTermination(240)
    finally:
        query.stop()
    [said] = [one for one in caplog.records if one.name == "acker.spark.queries.lateness"]
    assert said.levelname == "WARNING"
    assert "bolt 'split', batch 0: 12 acks of its 12 rows came too late; the batch took " in said.getMessage()
    assert "the message timeout is 1 s: their trees expired meanwhile" in said.getMessage()
    [step] = ledger.run(steps(ledger.core))
    assert step.late == 12
    assert step.seconds > 1.0
    if LEARNS_OFFSETS:
        [source] = query.recentProgress[-1]["sources"]
        assert json.loads(source["latestOffset"])["acks_late"] == 0  # it was asked before the commit
    [one] = Stream(ledger, "lines").totals().subscriptions
    assert one.acks_late == 12


def test_rows_that_a_bolt_fails_itself_are_not_late(pipeline: Pipeline, valkey_url: str) -> None:
    """63 of 630, whose words are emitted by then."""

    @bolt(url=valkey_url, topology=pipeline.ledger.config.name, name="split")
    def split(batch: DataFrame, collector: Collector) -> None:
        collector.emit(batch.select("line", "_acker"), stream="words")
        collector.fail(batch.where("line like '%7'"), "seven")

    pipeline.spout([f"line {n}" for n in range(630)])
    query = pipeline.query("split", "lines", split).start()
    try:
        assert query.awaitTermination(240)
    finally:
        query.stop()
    counts = pipeline.ledger.counters()
    assert (counts["failed"], counts["late"], counts["orphaned"]) == (63, 0, 0)
    [one] = Stream(pipeline.ledger, "lines").totals().subscriptions
    assert one.acks_late == 0


HOW = SpoutOptions("shop", "orders", "name", attempts=2)


def orders(pipeline: Pipeline, *names: str) -> None:
    StreamSpout(pipeline.ledger, HOW).write(pa.table({"name": list(names)}))


def judge(row: dict[str, Any]) -> tuple[str]:
    if row["name"].startswith("never"):
        raise PermanentFailure(f"no such shop: {row['name']}")
    if row["name"].startswith("later"):
        raise FailedException("busy")
    return (row["name"],)


def run_check(pipeline: Pipeline, function: Any, name: str = "check") -> Stepped:
    step = bolt(url=pipeline.url, topology="t", name=name)(function)
    pipeline.run(name, "orders", step)
    return settler.settle(pipeline.ledger)


def found(pipeline: Pipeline) -> list[tuple[Any, ...]]:
    rows = dead_letters(pipeline.spark, url=pipeline.url, topology="t", spout="shop")
    history = F.transform("history", lambda one: F.concat_ws(" ", one["number"], one["reason"], one["step"]))
    reported = rows.select("message_id", "reason", "step", "attempts", history.alias("history")).collect()
    return sorted((bytes(row[0]).decode(), *row[1:]) for row in reported)


@pytest.mark.connect(only=False)
def test_records_of_map_and_of_fail_are_failed_for_good_one_by_one(pipeline: Pipeline) -> None:
    orders(pipeline, "fine", "later 1", "never 1", "worse 1")

    def check(batch: DataFrame, collector: Collector) -> None:
        collector.fail(batch.filter(F.col("name").startswith("worse")), F.col("name"), retry=False)
        rest = batch.filter(~F.col("name").startswith("worse"))
        collector.emit_map(rest, judge, "name string", "checked")

    assert run_check(pipeline, check) == Stepped(acked=0, replayed=1, dead=2)
    one, two = (
        ("never 1", "no such shop: never 1", "check", 1, ["1 no such shop: never 1 check"]),
        ("worse 1", "worse 1", "check", 1, ["1 worse 1 check"]),
    )
    assert found(pipeline) == [one, two]
    assert run_check(pipeline, check) == Stepped(dead=1)
    assert found(pipeline) == [("later 1", "busy", "check", 2, ["1 busy check", "2 busy check"]), one, two]


def test_a_batch_may_fail_as_a_whole_for_good(pipeline: Pipeline) -> None:
    orders(pipeline, "a", "b")

    def refuse(batch: DataFrame, collector: Collector) -> None:
        raise PermanentFailure("closed")

    assert run_check(pipeline, refuse) == Stepped(dead=2)
    assert {row[1:4] for row in found(pipeline)} == {("closed", "check", 1)}


BIG, SMALL, SMALL_ONES = 20_000, 5, 100


def fan(row: dict[str, Any], out: Out) -> None:
    for i in range(row["n"]):
        out.emit("rows", {"i": i})


@several_batches
@pytest.mark.parametrize("fair", [True, False])
def test_small_requests_do_not_wait_for_a_large_one_that_was_written_first(
    spark: SparkSession, valkey_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fair: bool
) -> None:
    monkeypatch.setattr(fairness, "LIGHT", 1_024)
    monkeypatch.setattr(fairness, "SEGMENT_ROWS", 1_024)
    ledger = open_ledger(Store(valkey_url), "t", ackers=2)
    ledger.run(schemas.record(ledger.core, "rows", pa.schema([("i", pa.int64()), ("_acker", pa.int64())])))
    batches: list[Counter[int]] = []

    @bolt(url=valkey_url, topology="t", name="work")
    def work(batch: DataFrame, _: Collector) -> None:
        batches.append(
            Counter({row["_acker"]: row["count"] for row in batch.groupBy("_acker").count().collect()})
        )

    def run() -> None:
        reader = spark.readStream.format("acker").options(url=valkey_url, topology="t", stream="rows")
        reader = reader.options(max_rows=2_000, **({"fair_by": "_acker"} if fair else {}))
        query = (
            reader.schema("i bigint, _acker bigint").load().writeStream.foreachBatch(work)
            .option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
        )  # fmt: skip
        query.awaitTermination()

    run()  # the stream is read fairly from now on
    spout = StreamSpout(ledger, SpoutOptions("asks", "asks", "id"))
    worker = Worker(ledger, FunctionStep("fan", "asks", fan))
    [big] = spout.write(pa.table({"id": ["big"], "n": [BIG]}))
    while worker.work():
        pass
    names = [f"small{n}" for n in range(SMALL_ONES)]
    [small] = spout.write(pa.table({"id": names, "n": [SMALL] * SMALL_ONES}))
    while worker.work():
        pass
    run()
    total, done = sum(batches, Counter()), Counter[int]()
    assert total == {int(big.anchors()[0]): BIG} | {int(one): SMALL for one in small.anchors()}
    for one in batches:
        done += one
        if all(done[int(anchor)] == SMALL for anchor in small.anchors()):
            break
    assert (done[int(big.anchors()[0])] < BIG / 2) == fair
    assert settler.settle(ledger).acked == SMALL_ONES + 1


def test_the_column_of_the_key_is_one_of_those_that_are_read(spark: SparkSession, valkey_url: str) -> None:
    open_ledger(Store(valkey_url), "t", ackers=1)
    options = {"url": valkey_url, "topology": "t", "stream": "rows", "fair_by": "customer"}
    with pytest.raises(ValidationError, match="option fair_by: only for reading"):
        Options.parse(options).check_use("writing with format('acker')")
    frame = spark.readStream.format("acker").options(**options).schema("i bigint, _acker bigint").load()
    query = frame.writeStream.foreachBatch(lambda *_: None).start()
    with pytest.raises(
        Exception, match="option fair_by: expected one of the columns i, _acker, got 'customer'"
    ):
        query.awaitTermination()
