"""Lines with Spark in the middle, and functions that were registered anew."""

import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from acker.drpc import LinearDRPC
from acker.drpc.removal import retire
from acker.errors import DRPCFailed, ValidationError
from acker.ledger.client import open_ledger
from acker.ledger.slabs import sections
from acker.lines import Gather, Line, Out, Request
from acker.spark import Bolt, StepCollector, bolt, gathered
from acker.spark.bolts.collector import Collector
from acker.store.client import Store
from acker.streams.log.gathers import Gathering, tasks_of
from acker.streams.sources.spout_options import SpoutOptions
from acker.streams.spout import StreamSpout
from acker.streams.spouts import settler
from tests.helpers.builders.pipeline import Diary, Pipeline
from tests.helpers.builders.reach import TEXT, answers, ask, echo, steps_of
from tests.helpers.faults.attempts import wait_for
from tests.helpers.servers.sparks import shared_subscriptions

pytestmark = pytest.mark.slow

NUMBERS = [0, 1, 2, 10, 100, 0, 7]


def test_bolts_count_the_rows_of_each_request(spark: SparkSession, valkey_url: str, tmp_path: Path) -> None:
    """A bolt makes rows of requests, shuffled; one counts them when they are all there; a step adds up."""
    ledger = open_ledger(Store(valkey_url), "t", ackers=2)
    line = Line(ledger, "line", [Gather("rows", tasks=3, by=("i",)), Gather("counts")])
    sums: dict[int, int] = {}

    @line.gather("add", reads="counts")
    class Add:
        def __init__(self, request: Request) -> None:
            self.id, self.n = request.id, 0

        def execute(self, row: dict[str, Any]) -> None:
            self.n += row["n"]

        def finished(self, _: Out) -> None:
            assert self.id not in sums
            sums[self.id] = self.n

    spout = StreamSpout(ledger, SpoutOptions("asks", "asks", "id", line="line", group=3))
    [roots] = spout.write(pa.table({"id": [f"r{n}" for n in range(len(NUMBERS))], "n": NUMBERS}))

    def fan(batch: DataFrame, collector: Collector) -> None:
        rows = batch.select(F.explode(F.sequence(F.lit(0), F.col("n"))).alias("i"), "n", "_acker")
        collector.emit(rows.where("i < n").select("i", "_acker").repartition(3), "rows")

    def count(batch: DataFrame, collector: Collector) -> None:
        rows, requests = gathered(batch)
        counts = rows.groupBy("_acker").agg(F.countDistinct("i").alias("n"))
        collector.emit(requests.join(counts, "_acker", "left").fillna(0, ["n"]), "counts")

    def source(stream: str, schema: str, **options: Any) -> DataFrame:
        reader = spark.readStream.format("acker").schema(schema)
        return reader.options(url=valkey_url, topology="t", stream=stream, **options).load()

    frames = [
        (source("asks", "n bigint, _acker bigint"), fan),
        (source("rows", "i bigint, _acker bigint, _acker_finished boolean", requests="true"), count),
    ]
    queries = [
        frame.writeStream.foreachBatch(bolt(url=valkey_url, topology="t", name=run.__name__)(run))
        .option("checkpointLocation", str(tmp_path / run.__name__))
        .start()
        for frame, run in frames
    ]
    try:
        with line.work():
            done, deadline = 0, time.monotonic() + 120
            while done < len(NUMBERS) and time.monotonic() < deadline:
                for query in queries:
                    assert query.isActive, query.exception()
                done += settler.settle(ledger).all
    finally:
        for query in queries:
            query.stop()
    assert [sums[int(anchor)] for anchor in roots.anchors()] == NUMBERS
    assert ledger.counters()["acked"] == 3 * len(NUMBERS)


@shared_subscriptions
def test_two_queries_get_large_bundles_whole_each_request_ended_once(pipeline: Pipeline) -> None:
    """Each waits in its first batch until the other one has one, too."""
    ledger, tasks, diary = pipeline.ledger, 2, Diary(pipeline.directory / "batches")
    line = Line(ledger, "line", [Gather("rows", tasks=tasks, by=("i",))])

    @line.step("fan", reads="asks")
    def fan(row: dict[str, Any], out: Out) -> None:
        for i in range(row["n"]):
            out.emit("rows", {"i": i})

    wanted = [50, 0, 60, 1, 50, 0]
    table = pa.table({"id": [f"r{place}" for place in range(len(wanted))], "n": wanted})
    [roots] = StreamSpout(ledger, SpoutOptions("asks", "asks", "id", line="line", group=1)).write(table)

    def noting(name: str) -> Bolt:
        @bolt(url=pipeline.url, topology="t", name=name)
        def note(batch: DataFrame, _: Collector) -> None:
            rows = [(row["_acker"], row["i"], bool(row["_acker_finished"])) for row in batch.collect()]
            diary.note([name, rows])
            wait_for(lambda: {who for who, _ in diary.read()} == {"one", "two"}, 100)

        return note

    reader = pipeline.spark.readStream.format("acker").schema(
        "i bigint, _acker bigint, _acker_finished boolean"
    )
    rows = reader.options(**pipeline.options("rows", requests=True, max_rows=20)).load()
    queries = [
        rows.writeStream.foreachBatch(noting(name)).queryName(name)
        .option("checkpointLocation", str(pipeline.directory / name)).start()
        for name in ("one", "two")
    ]  # fmt: skip
    try:
        with line.work():
            done, deadline = 0, time.monotonic() + 200
            while done < len(wanted) and time.monotonic() < deadline:
                for query in queries:
                    assert query.isActive, query.exception()
                done += settler.settle(ledger).all
    finally:
        for query in queries:
            query.stop()
    found = diary.read()
    assert {name for name, _ in found} == {"one", "two"}
    how = Gathering(1, 1, tasks, ("i",))
    seen: dict[int, list[tuple[int, int]]] = {}  # request -> task and rows of each bundle
    for _, batch in found:
        for anchor in {anchor for anchor, _, _ in batch}:
            own = [i for one, i, last in batch if one == anchor and not last]
            ends = [last for one, _, last in batch if one == anchor and last]
            of = tasks_of(how, "rows", pa.table({"i": pa.array(own, pa.int64())})).tolist()
            assert len(ends) >= len(set(of))
            empty = [-1] * (len(ends) - len(set(of)))  # a task without rows: which one, its row does not say
            seen.setdefault(anchor, []).extend((task, of.count(task)) for task in [*sorted(set(of)), *empty])
    for anchor, n in zip(sections.within(roots.anchors(), 2).tolist(), wanted, strict=True):
        whole = tasks_of(how, "rows", pa.table({"i": pa.array(range(n), pa.int64())})).tolist()
        expected = sorted((task, whole.count(task)) for task in set(whole))
        assert sorted(one for one in seen[anchor] if one[0] >= 0) == expected
        assert len(seen[anchor]) == tasks


def test_requests_are_only_there_where_they_were_asked_for(spark: SparkSession, valkey_url: str) -> None:
    ledger = open_ledger(Store(valkey_url), "t", ackers=1)
    Line(ledger, "line", [Gather("rows")])
    with pytest.raises(ValidationError, match=r"got id: read the stream with .option\('requests', 'true'\)"):
        gathered(spark.range(1))


def test_a_query_of_another_version_of_a_function_ends(pipeline: Pipeline) -> None:
    """Its plan was made before the function was removed, and registered otherwise."""
    before, after = answers(), LinearDRPC("answers", timeout=400.0).step("echo", echo, columns={"what": TEXT})
    after.gather("answer", spark=True)
    steps = steps_of(pipeline, before)
    rows = steps.read(pipeline.spark, "answer")
    retire(pipeline.ledger, before.description("t"))
    call = ask(pipeline, after, "a")

    @steps.bolt("answer")
    def answer(_batch: DataFrame, _collector: StepCollector) -> None:
        raise AssertionError("it was called")

    query = rows.writeStream.foreachBatch(answer).trigger(availableNow=True)
    query = query.option("checkpointLocation", str(pipeline.directory / "old"))
    with pytest.raises(Exception, match="is registered otherwise"):
        pipeline.finish(query)
    retire(pipeline.ledger, after.description("t"), force=True)
    with pytest.raises(DRPCFailed):
        call.future.result(60)
