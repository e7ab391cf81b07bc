"""What tests share with tests/spark/test_spouts.py."""

from typing import Any

from pyspark.sql import DataFrame

from acker.spark import (
    track,
)
from acker.streams import StreamReader
from acker.streams.sources import kept_rows
from tests.helpers.builders.pipeline import Pipeline


def files(pipeline: Pipeline, lines: list[str], parts: int = 2, name: str = "in") -> DataFrame:
    """A streaming DataFrame of text files: one column, `value`."""
    directory = pipeline.directory / name
    directory.mkdir(exist_ok=True)
    for part in range(parts):
        (directory / f"{len(list(directory.iterdir()))}.txt").write_text(
            "".join(f"{line}\n" for line in lines[part::parts])
        )
    return pipeline.spark.readStream.text(str(directory))


def tracked(pipeline: Pipeline, rows: DataFrame, **settings: Any) -> DataFrame:
    given: dict[str, Any] = {"spout": "s", "message_id": "value", "partitions": 2, **settings}
    return track(rows, url=pipeline.url, topology="t", **given)


def run(pipeline: Pipeline, rows: DataFrame, name: str, function: Any) -> None:
    pipeline.finish(
        rows.writeStream.foreachBatch(function)
        .option("checkpointLocation", str(pipeline.directory / name))
        .trigger(availableNow=True)
    )


def consume(pipeline: Pipeline, stream: str) -> None:
    StreamReader(pipeline.ledger, stream).ack_all()


def pending(pipeline: Pipeline) -> dict[str, int]:
    return pipeline.ledger.run(kept_rows.pending(pipeline.ledger.core, "s"))
