"""The call of a collector that leaves out old rows (`acker.spark.records.newest`)."""

from pyspark.sql import Column, DataFrame

from acker.spark.bolts.batch_work import with_anchors
from acker.spark.bolts.external_work import ExternalWork
from acker.spark.records import newest, once
from acker.spark.runtime.scope import in_life


class NewestRows(ExternalWork):
    """A batch that can be asked for its newest rows; `Collector` has the other public calls."""

    @in_life
    def newest(self, rows: DataFrame, key: once.Key, version: str | Column | None = None) -> DataFrame:
        """Leaves out all rows of a key but the newest: replays come later than newer rows of their key.

        A row that is left out is done: the batch's commit acks it, like any other. If the row that stays then
        fails, the batch has no other of its key. So call this behind `map` and `fail`. Of rows with equal
        versions one stays, the same in each run of the batch.

        It compares rows of this batch only. So the sink compares its own version, too, as in
        `when matched and latest.version > kept.version` (docs/transports.md).

        Rows whose key has a null, or whose version is null or NaN, fail for good: no sink can compare them.
        The rows are evaluated here, and the result is kept in the executors until the end of the batch.

        Args:
            rows: The rows, with the column `_acker`.
            key: The columns that name what a row is about.
            version: The column that grows with each change of it: numbers, text, bytes, dates or times. None
                takes the column that `track(..., version=...)` names, in rows of that query.

        Returns:
            The rows, all columns as they were, in any order.

        Raises:
            ValidationError: The rows lack a column, one cannot be compared, or no version is known.

        Examples:
            >>> @acker.bolt("latest")
            ... def latest(batch, collector):
            ...     collector.emit(collector.newest(batch, "id", "version"), "latest")
            >>> rows = spark.createDataFrame([("a", 2), ("a", 1), ("b", 1)], "id string, version int")
            >>> result = run_bolt(latest, rows)
            >>> sorted((row.id, row.version) for row in result.emitted("latest")), len(result.acked)
            ([('a', 2), ('b', 1)], 3)
        """
        rows = with_anchors(rows, "newest")
        once.check_effects(rows, "newest", self._used_once, emits=False)
        return self._kept(newest.newest_rows(rows, key, version))
