"""The step of `examples.reach` that a Spark job works on: a join of people with their followers."""

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from pyspark.sql import DataFrame

from acker.drpc import LinearDRPC
from acker.spark import Acker, StepCollector
from examples.common import session


@contextmanager
def working(
    url: str, topology: str, reach: LinearDRPC, followers: Mapping[str, Sequence[str]]
) -> Iterator[None]:
    """Runs the job until the context is left."""
    spark = session("local[2]")
    edges = [(person, name) for person, names in followers.items() for name in names]
    known = spark.createDataFrame(edges, "person string, follower string").cache()
    steps = Acker(url, topology).steps(reach)

    @steps.bolt("following")
    def following(batch: DataFrame, collector: StepCollector) -> None:
        collector.emit(batch.join(known, "person").select("follower", "_acker"))

    people = steps.read(spark, "following")
    with tempfile.TemporaryDirectory() as directory:
        query = people.writeStream.foreachBatch(following).option("checkpointLocation", directory).start()
        try:
            yield
        finally:
            query.stop()
            spark.stop()
