"""Tables of Delta and Iceberg that rows of an external stream go by, for tests."""

from dataclasses import dataclass

from pyspark.sql import DataFrame, DataFrameWriter, SparkSession

from acker.spark import Acker, Sink, delta, iceberg, sink
from acker.spark.bolts.collector import Collector
from acker.spark.external.sinks import Write
from tests.helpers.builders.pipeline import Pipeline

ROWS, SEGMENT = 24, 5
"""Rows of a job, and of a segment at most."""


@dataclass
class Table:
    """Two tables of a kind: rows go by the one, and a bolt writes to the other."""

    spark: SparkSession
    kind: str
    items: str
    sink: str

    def to(self, writer: DataFrameWriter) -> None:
        """Appends the rows of `emit` to the table `items`."""
        how = writer.format(self.kind).mode("append")
        how.save(self.items) if self.kind == "delta" else how.saveAsTable(self.items)

    def to_v2(self) -> Sink:
        """The same, by a DataFrameWriterV2."""
        name = f"delta.`{self.items}`" if self.kind == "delta" else self.items
        return sink(lambda write_to: write_to(name).append(), v2=True)

    def stream(self) -> DataFrame:
        """The rows of the table `items`, as they come."""
        return self.spark.readStream.format(self.kind).load(self.items)

    def write(self, rows: DataFrame, collector: Collector) -> None:
        """Appends rows to the table `sink`, once for a batch."""
        if self.kind == "delta":
            options = delta.txn(collector, "sink")
            rows.write.format("delta").mode("append").options(**options).save(self.sink)
            return
        once = iceberg.txn(collector, "sink", self.sink)
        if once is not None:
            rows.writeTo(self.sink).options(**once).append()

    def values(self) -> list[int]:
        """The values of the table `sink`."""
        read = self.spark.read.format(self.kind).load(self.sink)
        return sorted(int(row.value) for row in read.collect())

    def tidy(self) -> None:
        """Writes the files of the table `items` anew, and deletes the old ones."""
        if self.kind == "delta":
            self.spark.sql(f"optimize delta.`{self.items}`")
            self.spark.sql(f"vacuum delta.`{self.items}` retain 0 hours")
            return
        options = "map('min-input-files', '1', 'rewrite-all', 'true')"
        call = f"call lake.system.rewrite_data_files(table => '{self.items}', options => {options})"
        assert self.spark.sql(call).collect()[0]["rewritten_data_files_count"]


def send(pipeline: Pipeline, to: Sink | Write, first: int) -> int:
    """A job that tracks numbers and sends them; returns how many."""
    acker = Acker(pipeline.url, "t")
    with acker.job(pipeline.spark, "parse") as collector:
        numbers = pipeline.spark.range(first, first + ROWS, 1, 3).selectExpr("string(id) value")
        rows = acker.track(numbers, "src", message_id="value", attempts=1).select("value", "_acker")
        return collector.emit(rows, "items", to=to, segment_rows=SEGMENT)
