"""Iceberg: writes of bolts take effect once, also where their batch runs again; spouts read rows by key."""

from collections.abc import Callable, Sequence

from pyspark.sql import DataFrame, SparkSession

from acker.errors import ValidationError, shown
from acker.spark.external.tables.transactions import HasTransactions, transactions_of
from acker.spark.source.rereading import Reread, by_key, check_names, check_rows, is_number

PROPERTY = "acker.txn"
"""The property of a snapshot that names the write of a batch."""


def txn(collector: HasTransactions, name: str, table: str) -> dict[str, str] | None:
    """Makes a write of a batch to a table of Iceberg take effect once.

        @acker.bolt("price", receives="items")
        def price(batch, collector):
            rows = batch.drop("_acker", "_acker_stamp")
            once = iceberg.txn(collector, "prices", "lake.shop.prices")
            if once is not None:
                rows.writeTo("lake.shop.prices").options(**once).append()

    The snapshot of the write gets a property. Where an earlier run of the batch has begun the write, the
    snapshots of the table's main branch are searched for it. So a snapshot must not expire before a batch
    that is run again has ended. A driver that sleeps between this call and its write, while another driver
    runs the batch, writes a second time: end a driver before another takes its place, or MERGE by a message
    id. For the rest see `acker.spark.delta.txn`. With `collector.emit(..., to=...)` call it in the function
    that writes.

    Args:
        collector: The collector of a bolt.
        name: A name for the write: 1 to 64 of `A-Z a-z 0-9 . _ -`, once in a batch, and the same in each
            batch.
        table: The name of the table, as in SQL: `catalog.namespace.table`.

    Returns:
        Options for a DataFrameWriter or a DataFrameWriterV2; None if the table has the write already.

    Raises:
        ValidationError: The name is no name, the table no text, or the collector is a job's.
        AckerError: The batch has used the name before.
    """
    if not table:
        raise ValidationError(f"txn: table: expected the name of a table, got {shown(table)}")
    write = transactions_of(collector).begin(name)
    written = f"{write.application}:{write.version}"
    if write.begun and collector.spark.catalog.tableExists(table):
        snapshots = f"{table}.snapshots s join {table}.history h on s.snapshot_id = h.snapshot_id"
        collector.spark.sql(f"refresh table {table}")  # catalogs cache tables
        # Not by `args`: the parsers of Iceberg and of Delta together leave parameters unbound.
        named = f"s.summary['{PROPERTY}'] = '{written}'"
        query = f"select 1 from {snapshots} where h.is_current_ancestor and {named}"
        if collector.spark.sql(query).limit(1).collect():
            return None
    return {f"snapshot-property.{PROPERTY}": written}


def reread(
    table: str,
    key: str | Sequence[str],
    *,
    snapshot: int | None = None,
    rows: Callable[[DataFrame], DataFrame] | None = None,
) -> Reread:
    """Reads rows of a table of Iceberg again by their key, for `track(..., keep="ids", reread=...)`.

    A row comes back as the table has it now: updated since it was tracked, or gone from its source, if it was
    deleted. With `snapshot` it comes back as that snapshot had it, until the snapshot expires.

    Args:
        table: The name of the table, as in SQL: `catalog.namespace.table`.
        key: The columns that name a row. They must be among the kept ones: `message_id`, or of `place`.
        snapshot: The id of the snapshot to read; None reads the latest. Rows that came later than the
            snapshot count as gone from their source.
        rows: Makes the tracked rows of the rows of the table; None keeps all columns.

    Returns:
        The function for `reread`.

    Raises:
        ValidationError: An argument is invalid.
    """
    check_names("iceberg.reread", table=table)
    check_rows("iceberg.reread", rows)
    if snapshot is not None and not is_number(snapshot):
        raise ValidationError(f"iceberg.reread: snapshot: expected an id, got {shown(snapshot)}")

    def read(spark: SparkSession) -> DataFrame:
        spark.sql(f"refresh table {table}")  # catalogs cache tables
        reader = spark.read if snapshot is None else spark.read.option("versionAsOf", snapshot)
        there = reader.table(table)
        return there if rows is None else rows(there)

    return by_key("iceberg.reread", read, key)
