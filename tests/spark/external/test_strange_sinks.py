"""A sink of any kind either has exactly what is acked, or its batch is refused and nothing is acked."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, DataFrameWriter, Row, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from acker import AckerError, Topology
from acker.spark import Acker, Sink

pytestmark = pytest.mark.slow

ROWS, PARTS = 80, 4


@dataclass
class Kept:
    """The stamped rows of a write, which a sink evaluates as it likes."""

    where: str
    rows: list[DataFrame] = field(default_factory=list)

    def keep(self, rows: DataFrame) -> DataFrame:
        self.rows.append(rows)
        return rows

    def evaluate(self, *partitions: int) -> None:
        """Evaluates the kept rows, of some partitions or of all."""
        last = self.rows[-1]
        if partitions:
            last.sparkSession.sparkContext.runJob(last.rdd, list, partitions)
        else:
            last.collect()


def plain(w: DataFrameWriter, kept: Kept) -> None:
    w.mode("append").parquet(kept.where)


def counts_after_it_writes(w: DataFrameWriter, kept: Kept) -> None:
    plain(w, kept)
    kept.evaluate()


def counts_and_skips(w: DataFrameWriter, kept: Kept) -> None:
    w.mode("ignore").parquet(kept.where)
    kept.evaluate()


def shows(w: DataFrameWriter, kept: Kept) -> None:
    plain(w, kept)
    kept.rows[-1].show(1)


def writes_in_two_jobs(w: DataFrameWriter, kept: Kept) -> None:
    plain(w, kept)
    kept.evaluate(0, 1)
    kept.evaluate(2, 3)


def is_of_two_jobs(w: DataFrameWriter, kept: Kept) -> None:
    w.format("strange").option("path", kept.where).mode("append").save()
    kept.evaluate(0, 1)
    kept.evaluate(2, 3)


def writes_nothing(w: DataFrameWriter, kept: Kept) -> None:
    """Calls no method of the writer that writes."""


def fails_behind_its_write(w: DataFrameWriter, kept: Kept) -> None:
    plain(w, kept)
    raise OSError("disk full")


def reads_half(w: DataFrameWriter, kept: Kept) -> None:
    w.format("strange").option("path", kept.where).option("most", 10).mode("append").save()


class Strange(DataSource):
    """Writes rows to a file for each task: as many as its option `most` says, then it returns."""

    @classmethod
    def name(cls) -> str:
        return "strange"

    def schema(self) -> str:
        return "value string, _acker_stamp string"

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        return StrangeWriter(self.options["path"], int(self.options.get("most", 1_000)))


class StrangeWriter(DataSourceWriter):
    def __init__(self, path: str, most: int) -> None:
        self.path, self.most = path, most

    def write(self, iterator: Iterator[Row]) -> WriterCommitMessage:
        import json
        import uuid

        where = Path(self.path)
        where.mkdir(parents=True, exist_ok=True)
        lines = [json.dumps(row.asDict()) for row in islice(iterator, self.most)]
        (where / f"{uuid.uuid4()}.json").write_text("\n".join(lines))
        return WriterCommitMessage()


def run(acker: Acker, topology: Topology, spark: SparkSession, to: Sink, where: str) -> str:
    """Runs the job that tracks rows and sends them, a segment each, and then a consumer of all that is there.

    Returns:
        `sent`: exactly the records are acked whose rows the sink has. `failed`: all fail, none is acked.
        `refused`: the job has raised, and nothing has changed.
    """
    before, raised = topology.counters(), False
    try:
        with acker.job(spark, "parse", run="monday") as collector:
            numbers = spark.range(0, ROWS, 1, PARTS).selectExpr("string(id) value")
            rows = acker.track(numbers, "src", message_id="value").select("value", "_acker")
            collector.emit(rows, "items", to=to, segment_rows=1)
    except (AckerError, OSError):
        raised = True
    there = work(topology, spark, where)
    after = topology.counters()
    acked, failed = (after[name] - before[name] for name in ("acked", "failed"))
    if raised:
        assert (acked, failed) == (0, 0)
        return "refused"
    if failed:
        assert (acked, failed) == (0, ROWS)
        return "failed"
    assert acked == len(there)
    return "sent"


def work(topology: Topology, spark: SparkSession, where: str) -> set[str]:
    """Acks all rows that a sink has; returns their records."""
    if not Path(where).exists():
        return set()
    read = spark.read.schema("value string, _acker_stamp string")
    rows = (read.json if list(Path(where).glob("*.json")) else read.parquet)(where).collect()
    items = topology.incoming("items", subscription="count")
    items.ack(items.read([row["_acker_stamp"] for row in rows]))
    topology.flush()
    return {row["value"] for row in rows}


@pytest.mark.parametrize(
    ("function", "outcomes"),
    [
        (shows, ["sent"]),
        (counts_after_it_writes, ["refused", "sent"]),
        (counts_and_skips, ["refused", "failed"]),
        (writes_in_two_jobs, ["refused", "sent"]),
        (is_of_two_jobs, ["sent"]),
        (reads_half, ["sent or failed"]),  # as many rows as Spark has handed it by then
        (writes_nothing, ["failed"]),
        (fails_behind_its_write, ["refused", "refused"]),
    ],
)
def test_what_a_sink_has_is_acked_or_nothing_is(
    spark: SparkSession,
    acker: Acker,
    topology: Topology,
    tmp_path: Path,
    function: Callable[[DataFrameWriter, Kept], None],
    outcomes: list[str],
) -> None:
    spark.dataSource.register(Strange)
    kept = Kept(str(tmp_path / "items"))
    to = Sink(lambda w: function(w, kept), prepare=kept.keep)
    for expected in outcomes:
        assert run(acker, topology, spark, to, kept.where) in expected.split(" or ")
