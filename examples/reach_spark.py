"""The step of `examples.reach` that a Spark job works on: a join of people with their followers."""

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from pyspark.sql import DataFrame

from acker.spark import Collector, bolt, register
from examples.common import session


@contextmanager
def working(url: str, topology: str, followers: Mapping[str, Sequence[str]]) -> Iterator[None]:
    """Runs the job until the context is left."""
    spark = session("local[2]")
    register(spark)
    edges = [(person, name) for person, names in followers.items() for name in names]
    known = spark.createDataFrame(edges, "person string, follower string").cache()

    @bolt(url=url, topology=topology, name="following")
    def following(batch: DataFrame, collector: Collector) -> None:
        collector.emit(batch.join(known, "person").select("follower", "_acker"), stream="reach.distinct")

    people = (
        spark.readStream.format("acker")
        .options(url=url, topology=topology, stream="reach.following", subscription="following")
        .schema("person string, _acker bigint")
        .load()
    )
    with tempfile.TemporaryDirectory() as directory:
        query = people.writeStream.foreachBatch(following).option("checkpointLocation", directory).start()
        try:
            yield
        finally:
            query.stop()
            spark.stop()
