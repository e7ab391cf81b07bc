"""Sessions: the events of a user belong together until nothing came for half an hour.

    python -m examples.sessions [--url redis://127.0.0.1:6379/0]

Events of sessions that may go on are held, over batches and restarts. A session that is over is emitted, and
anchored to all its events: they are acked when the session is.
"""

from pathlib import Path

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812 - as everyone imports it

from acker.spark import Collector, bolt, track
from examples.common import finish, start, write_json

GAP = 30 * 60
EVENTS = "id string, user string, at long, _acker bigint"

MORNING = [("ann", 0), ("ann", 600), ("bob", 900), ("ann", 5_000), ("bob", 5_100)]
NOON = [("ann", 6_000), ("bob", 9_000), ("cat", 9_100)]


def run(spark: SparkSession, url: str, directory: Path) -> list[tuple[str, int, int, int]]:
    """Finds sessions; returns user, start, end (seconds) and number of events of each that is over."""
    _write(directory, "morning", MORNING)
    events = track(
        spark.readStream.schema("id string, user string, at long").json(str(directory / "in")),
        url=url, topology="sessions", spout="events", message_id="id", ackers=2, message_timeout=7200.0,
    )  # fmt: skip

    @bolt(url=url, topology="sessions", name="sessions")
    def sessions(batch: DataFrame, collector: Collector) -> None:
        rows = batch.unionByName(collector.held(EVENTS)).persist()
        latest = F.lit(rows.agg(F.max("at")).collect()[0][0])
        in_order = Window.partitionBy("user").orderBy("at")
        begins = F.coalesce(F.col("at") - F.lag("at").over(in_order) > GAP, F.lit(True)).cast("int")
        numbered = rows.withColumn("begins", begins).withColumn("number", F.sum("begins").over(in_order))
        found = numbered.groupBy("user", "number").agg(
            F.min("at").alias("start"),
            F.max("at").alias("end"),
            F.count("*").alias("events"),
            F.collect_list("_acker").alias("_acker"),
        )
        over = found.filter(F.col("end") < latest - GAP)
        collector.emit(over.drop("number"), stream="sessions")
        collector.hold(
            numbered.join(over, ["user", "number"], "left_anti").select("id", "user", "at", "_acker")
        )
        rows.unpersist()

    finish(events.writeStream.foreachBatch(sessions), directory / "sessions")
    _write(directory, "noon", NOON)
    finish(events.writeStream.foreachBatch(sessions), directory / "sessions")
    done = spark.read.format("acker").options(url=url, topology="sessions", stream="sessions").load()
    return sorted((row.user, row.start, row.end, row.events) for row in done.collect())


def _write(directory: Path, name: str, events: list[tuple[str, int]]) -> None:
    rows = ({"id": f"{name}:{n}", "user": user, "at": at} for n, (user, at) in enumerate(events))
    write_json(directory / "in", f"{name}.json", rows)


if __name__ == "__main__":
    start(run, __doc__ or "")
