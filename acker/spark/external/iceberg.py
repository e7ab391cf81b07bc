"""Iceberg for bolts: writes that take effect once, also where their batch runs again."""

from acker.errors import ValidationError, shown
from acker.spark.external.transactions import HasTransactions, transactions_of

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
