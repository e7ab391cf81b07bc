"""Queries that work on a function which was registered anew."""

import pytest
from pyspark.sql import DataFrame

from acker.drpc import LinearDRPC
from acker.drpc.removal import retire
from acker.errors import DRPCFailed
from acker.spark import StepCollector
from tests.helpers.builders.pipeline import Pipeline
from tests.helpers.builders.reach import (
    TEXT,
    answers,
    ask,
    echo,
    steps_of,
)


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
