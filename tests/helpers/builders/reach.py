"""The reach of URLs as a function whose every second step is a Spark job.

See tests/spark/functions/test_functions.py.
"""

import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as Spark's own examples have it

from acker.drpc import LinearDRPC, Out
from acker.drpc.calling.answer_listener import Call
from acker.drpc.calling.client import Client
from acker.spark import Acker, SparkSteps, StepCollector, gathered
from acker.spark.functions.spark_steps import StepBolt
from examples.reach import generated
from tests.helpers.builders.pipeline import Pipeline
from tests.helpers.faults.attempts import wait_for

SHARED, FOLLOWERS = generated(urls=8, people=30)
TEXT = pa.string()


def sharers(row: dict[str, Any], out: Out) -> None:
    for person in SHARED.get(row["args"], ()):
        out.emit({"person": person})


def reach(idempotent: bool = True) -> LinearDRPC:
    """Every second step is worked on by a Spark job, the last one, too."""
    return (
        LinearDRPC("reach", idempotent=idempotent, timeout=500.0)
        .step("sharers", sharers, columns={"person": TEXT})
        .step("following", spark=True, columns={"follower": TEXT})
        .gather("distinct", spark=True, tasks=3, by=["follower"], columns={"n": pa.int64()})
        .gather("sum", spark=True)
    )


def steps_of(pipeline: Pipeline, function: LinearDRPC) -> SparkSteps:
    return Acker(pipeline.url, "t").steps(function)


def topology_of(pipeline: Pipeline) -> Any:
    class Of:
        ledger = pipeline.ledger

    return Of()


def run(pipeline: Pipeline, steps: SparkSteps, bolt: StepBolt, checkpoint: str = "") -> None:
    """Has the bolt of a step work on what there is."""
    writer = steps.read(pipeline.spark, bolt.name).writeStream.foreachBatch(bolt)
    writer = writer.option("checkpointLocation", str(pipeline.directory / (checkpoint or bolt.name)))
    pipeline.finish(writer.trigger(availableNow=True))


def answers_of(
    pipeline: Pipeline, function: LinearDRPC, asked: Sequence[object], *given: StepBolt
) -> list[Any]:
    """The answers to requests that are asked at once, errors among them; queries work on them in turn."""
    with function.work(topology_of(pipeline)), ThreadPoolExecutor() as pool:
        client = Client(pipeline.ledger, function.name)
        pending = pool.submit(client.execute_many, asked, return_exceptions=True)
        while not pending.done():
            for one in given:
                run(pipeline, steps_of(pipeline, function), one)
        return pending.result()


def bolts(steps: SparkSteps) -> list[StepBolt]:
    edges = json.dumps([[person, name] for person, names in FOLLOWERS.items() for name in names])

    @steps.bolt("following")
    def following(batch: DataFrame, collector: StepCollector) -> None:
        known = batch.sparkSession.createDataFrame(json.loads(edges), "person string, follower string")
        collector.emit(batch.join(known, "person").select("follower", "_acker"))

    @steps.bolt("distinct")
    def distinct(batch: DataFrame, collector: StepCollector) -> None:
        rows, requests = gathered(batch)
        counts = rows.groupBy("_acker").agg(F.countDistinct("follower").alias("n"))
        collector.reset_timeout(requests)
        collector.emit(requests.join(counts, "_acker", "left").fillna(0, ["n"]))

    @steps.bolt("sum")
    def add(batch: DataFrame, collector: StepCollector) -> None:
        rows, _ = gathered(batch)
        collector.results(rows.groupBy("_acker").agg(F.sum("n").alias("result")))

    return [following, distinct, add]


def echo(row: dict[str, Any], out: Out) -> None:
    out.emit({"what": row["args"]})


def answers() -> LinearDRPC:
    """A Python step, and a Spark job that answers."""
    function = LinearDRPC("answers", timeout=500.0).step("echo", echo, columns={"what": TEXT})
    return function.gather("answer", spark=True)


def ask(pipeline: Pipeline, function: LinearDRPC, args: object) -> Call:
    """Begins a call, and returns when its rows have gathered for the last step."""
    function.register(topology_of(pipeline))
    call = Client(pipeline.ledger, function.name).begin(args)
    call.begun.result()
    last = function.description("t").stream(1)
    with function.work(topology_of(pipeline)):
        wait_for(lambda: pipeline.rows(last))
    return call
