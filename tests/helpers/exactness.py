"""What tests share with tests/spark/test_exactness.py."""

from pyspark.sql import DataFrame
from pyspark.sql.functions import explode, split

from acker.streams import StreamReader
from tests.helpers.pipeline import Pipeline
from tests.helpers.places import unexplained


def words(batch: DataFrame, *more: str) -> DataFrame:
    return batch.select(explode(split("line", " ")).alias("word"), "_acker", *more)


def consume(pipeline: Pipeline, stream: str) -> None:
    assert unexplained(pipeline.ledger) == []
    StreamReader(pipeline.ledger, stream).ack_all()
    assert unexplained(pipeline.ledger) == []
