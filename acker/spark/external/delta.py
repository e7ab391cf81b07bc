"""Delta for bolts: writes that take effect once, also where their batch runs again."""

from acker.spark.external.transactions import HasTransactions, transactions_of


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
