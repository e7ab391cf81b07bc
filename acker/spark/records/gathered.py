"""Batches of streams that gather: each request comes with all rows that it will ever have."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as Spark's own examples have it

from acker.errors import ValidationError
from acker.streams.log.gathers import FINISHED
from acker.streams.log.segments import ANCHORS


def gathered(batch: DataFrame) -> tuple[DataFrame, DataFrame]:
    """Separates a batch into its rows and its requests.

    Every row of each request is in the batch. If the stream has several tasks, the batch has every row of its
    tasks, and each task is in one batch. So this count is exact:

        rows, requests = gathered(batch)
        counts = rows.groupBy("_acker").agg(F.count("*").alias("n"))
        collector.emit(requests.join(counts, "_acker", "left").fillna(0, ["n"]), "counts")

    Args:
        batch: A batch of a stream that gathers (`acker.lines`), read with `.option("requests", "true")`.

    Returns:
        The rows; and the requests, with the column `_acker`, also requests without rows.

    Raises:
        ValidationError: The batch was read without requests.
    """
    missing = {FINISHED, ANCHORS} - set(batch.columns)
    if missing:
        raise ValidationError(
            f"gathered: expected a batch with the columns {ANCHORS} and {FINISHED}, got "
            f"{', '.join(batch.columns)}: read the stream with .option('requests', 'true')"
        )
    rows = batch.where(F.col(FINISHED).isNull()).drop(FINISHED)
    return rows, batch.where(F.col(FINISHED)).select(ANCHORS).distinct()
