"""A streaming window over received rows is refused, because nobody can tell which rows its state has."""

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everyone imports it

from acker.spark import Acker
from acker.spark.bolts.collector import Collector
from tests.helpers.builders.pipeline import Pipeline

Shape = Callable[[DataFrame], DataFrame]


def windows(rows: DataFrame) -> DataFrame:
    """The stamps of the rows of each minute, when it is over."""
    of_time = rows.withWatermark("at", "1 minute").groupBy(F.window("at", "1 minute"))
    return of_time.agg(F.collect_list("_acker_stamp").alias("_acker_stamp"))


def joined(rows: DataFrame) -> DataFrame:
    """The rows that a table has, too."""
    return rows.join(rows.sparkSession.range(3).withColumnRenamed("id", "value"), "value")


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        (windows, "an aggregate .* stamps in that state, .* which rows leave it, .* late: .* collector.hold"),
        (joined, "a join .* never acked, .* move it into the function"),
    ],
)
def test_a_query_that_keeps_rows_in_a_state_or_leaves_some_out_is_refused_with_what_it_needs(
    pipeline: Pipeline, acker: Acker, tmp_path: Path, shape: Shape, message: str
) -> None:
    calls = list[int]()

    @acker.bolt("count", receives="items")
    def count(batch: DataFrame, collector: Collector) -> None:
        calls.append(1)

    where = str(tmp_path / "items")
    pipeline.spark.range(1).selectExpr("id value", "now() at", "'a1-' _acker_stamp").write.parquet(where)
    rows = pipeline.spark.readStream.schema("value long, at timestamp, _acker_stamp string").parquet(where)
    with pytest.raises(PySparkException, match=f"UnsafePlan: .*{message}"):
        pipeline.run_on(shape(rows), "count", count)
    assert not calls
