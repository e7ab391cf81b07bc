"""Delta: writes of bolts take effect once, also where their batch runs again; spouts read rows by key."""

from collections.abc import Callable, Sequence

from pyspark.sql import DataFrame, SparkSession

from acker.errors import ValidationError, shown
from acker.spark.external.tables.transactions import HasTransactions, transactions_of
from acker.spark.source.rereading import Reread, by_key, check_names, check_rows, is_number


def txn(collector: HasTransactions, name: str) -> dict[str, str]:
    """Makes a write of a batch to a table of Delta take effect once.

        @acker.bolt("price", receives="items")
        def price(batch, collector):
            good = collector.map(batch, ask, "id string, price double").drop("_acker", "_acker_stamp")
            once = delta.txn(collector, "prices")
            good.write.format("delta").mode("append").options(**once).save("/lake/prices")

    A batch runs again where its driver dies between the write and the commit. Delta then leaves out the
    write, because it has the same or a later `txnVersion` of its `txnAppId`: Delta's *idempotent writes*. The
    id is of the query, so another checkpoint writes anew, and so does a query whose notes the store has lost.

    Each run of the batch must write the same rows, but for records that fail: call `txn` behind `map` and
    `fail`. If the batch runs again and other records fail than in the run before, its records are replayed.

    Args:
        collector: The collector of a bolt.
        name: A name for the write: 1 to 64 of `A-Z a-z 0-9 . _ -`, once in a batch, and the same in each
            batch.

    Returns:
        The options `txnAppId` and `txnVersion`, for a DataFrameWriter.

    Raises:
        ValidationError: The name is no name, or the collector is a job's: a job has no number of a batch.
        AckerError: The batch has used the name before: Delta would leave out the second write.
    """
    write = transactions_of(collector).begin(name)
    return {"txnAppId": write.application, "txnVersion": str(write.version)}


def reread(
    table: str,
    key: str | Sequence[str],
    *,
    version: int | None = None,
    rows: Callable[[DataFrame], DataFrame] | None = None,
) -> Reread:
    """Reads rows of a table of Delta again by their key, for `track(..., keep="ids", reread=...)`.

        orders = acker.track(
            spark.readStream.table("lake.orders"), "orders", message_id="order_id", keep="ids",
            reread=delta.reread("lake.orders", "order_id"),
        )

    A row comes back as the table has it now: updated since it was tracked, or gone from its source, if it was
    deleted. With `version` it comes back as that version had it, until VACUUM removes the version's files.

    Args:
        table: The name of the table, or the path of its directory (with a "/").
        key: The columns that name a row. They must be among the kept ones: `message_id`, or of `place`.
        version: The version of the table to read; None reads its latest. Rows that came later than the
            version count as gone from their source.
        rows: Makes the tracked rows of the rows of the table; None keeps all columns.

    Returns:
        The function for `reread`.

    Raises:
        ValidationError: An argument is invalid.
    """
    check_names("delta.reread", table=table)
    check_rows("delta.reread", rows)
    if version is not None and (not is_number(version) or version < 0):
        raise ValidationError(f"delta.reread: version: expected 0 or more, got {shown(version)}")

    def read(spark: SparkSession) -> DataFrame:
        reader = spark.read.format("delta")
        if version is not None:
            reader = reader.option("versionAsOf", version)
        there = reader.load(table) if "/" in table else reader.table(table)
        return there if rows is None else rows(there)

    return by_key("delta.reread", read, key)
