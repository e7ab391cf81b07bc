"""What is different on Spark Connect."""

import pytest
from pyspark.sql import DataFrame

from acker import steps
from acker.spark import Collector, bolt
from tests.spark.pipeline import Pipeline
from tests.spark.test_exactness import words

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
    [step] = pipeline.ledger.run(steps.steps(pipeline.ledger.core))
    assert (step.name, step.query) == ("split", "split")
