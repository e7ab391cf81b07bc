"""What a job fails for good is a dead letter at once; what it fails otherwise is tried again."""

from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everyone imports it

from acker.spark import Collector, FailedException, PermanentFailure, bolt, dead_letters
from acker.streams.sources.spout_options import SpoutOptions
from acker.streams.spout import StreamSpout
from acker.streams.spouts import settler
from acker.streams.spouts.replays import Stepped
from tests.helpers.builders.pipeline import Pipeline

HOW = SpoutOptions("shop", "orders", "name", attempts=2)


def orders(pipeline: Pipeline, *names: str) -> None:
    StreamSpout(pipeline.ledger, HOW).write(pa.table({"name": list(names)}))


def judge(row: dict[str, Any]) -> tuple[str]:
    if row["name"].startswith("never"):
        raise PermanentFailure(f"no such shop: {row['name']}")
    if row["name"].startswith("later"):
        raise FailedException("busy")
    return (row["name"],)


def run(pipeline: Pipeline, function: Any, name: str = "check") -> Stepped:
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

    assert run(pipeline, check) == Stepped(acked=0, replayed=1, dead=2)
    one, two = (
        ("never 1", "no such shop: never 1", "check", 1, ["1 no such shop: never 1 check"]),
        ("worse 1", "worse 1", "check", 1, ["1 worse 1 check"]),
    )
    assert found(pipeline) == [one, two]
    assert run(pipeline, check) == Stepped(dead=1)
    assert found(pipeline) == [("later 1", "busy", "check", 2, ["1 busy check", "2 busy check"]), one, two]


def test_a_batch_may_fail_as_a_whole_for_good(pipeline: Pipeline) -> None:
    orders(pipeline, "a", "b")

    def refuse(batch: DataFrame, collector: Collector) -> None:
        raise PermanentFailure("closed")

    assert run(pipeline, refuse) == Stepped(dead=2)
    assert {row[1:4] for row in found(pipeline)} == {("closed", "check", 1)}
