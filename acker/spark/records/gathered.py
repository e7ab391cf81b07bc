"""Batches of streams that gather: the rows of requests, each with all that it will ever have there."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as Spark's own examples have it

from acker.errors import ValidationError
from acker.streams.log.gathers import FINISHED
from acker.streams.log.segments import ANCHORS


def gathered(batch: DataFrame) -> tuple[DataFrame, DataFrame]:
    """The rows of a batch, and its requests: a row each, with the column `_acker`, also without other rows.

    batch: of a stream that gathers (`acker.lines`), read with `.option("requests", "true")`. Every row of
    each request is in it; where the stream has several tasks, every row of the tasks that the batch has, and
    each task is in one batch. So this is exact:

        rows, requests = gathered(batch)
        counts = rows.groupBy("_acker").agg(F.count("*").alias("n"))
        collector.emit(requests.join(counts, "_acker", "left").fillna(0, ["n"]), "counts")

    Raises ValidationError where the batch was read without requests.
    """
    missing = {FINISHED, ANCHORS} - set(batch.columns)
    if missing:
        raise ValidationError(
            f"gathered: expected a batch with the columns {ANCHORS} and {FINISHED}, got "
            f"{', '.join(batch.columns)}: read the stream with .option('requests', 'true')"
        )
    rows = batch.where(F.col(FINISHED).isNull()).drop(FINISHED)
    return rows, batch.where(F.col(FINISHED)).select(ANCHORS).distinct()
